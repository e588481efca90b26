//! The search: shortest paths from a subject over edges that are made when a node is first reached.
//!
//! A path without a known obstacle comes before one that a webhook may stop, and a shorter path before a longer one. In the end the search follows the
//! stopped edges, if the subject reaches admission's configuration and can remove the obstacles.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::rc::Rc;

use crate::admission::{Verdict, WriteCheck};
use crate::bindings::CombinedRights;
use crate::cluster::Cluster;
use crate::node::{Identity, Node, Scope};

/// The greatest number of stopped edges in the report.
const MOST_STOPPED: usize = 1000;
/// The greatest number of nodes that a search reaches.
const MOST_NODES: usize = 300_000;

/// An edge to a node, with the right that it needs, the object that gives the right, and admission's decision.
#[derive(Clone, Debug)]
pub(crate) struct Edge {
    pub(crate) name: &'static str,
    /// The right that the edge needs.
    pub(crate) right: String,
    /// The binding or the object that gives the right.
    pub(crate) by: String,
    /// A second node that the edge needs.
    pub(crate) with: Option<Node>,
    pub(crate) verdict: Verdict,
}

impl Edge {
    pub(crate) fn new(name: &'static str, right: impl Into<String>, by: impl Into<String>) -> Self {
        Self {
            name,
            right: right.into(),
            by: by.into(),
            with: None,
            verdict: Verdict::Admitted,
        }
    }

    pub(crate) fn with_node(mut self, node: Node) -> Self {
        self.with = Some(node);
        self
    }

    pub(crate) fn with_verdict(mut self, verdict: Verdict) -> Self {
        self.verdict = verdict;
        self
    }
}

/// The previous node and the edge by which a node was reached at the lowest known cost.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) from: Option<usize>,
    pub(crate) edge: Option<Edge>,
    /// The number of judges with an unknown answer, and of steps, on the way.
    pub(crate) cost: (u32, u32),
}

/// An edge that a policy stops.
#[derive(Clone, Debug)]
pub(crate) struct StoppedEdge {
    pub(crate) from: usize,
    pub(crate) to: Node,
    pub(crate) edge: Edge,
    pub(crate) judge: WriteCheck,
}

/// The state of a search: the reached nodes, the queue of nodes to expand, and the stopped edges.
pub(crate) struct Search<'c> {
    pub(crate) cluster: &'c Cluster,
    /// Groups of the subject, beyond those that the API server adds.
    pub(crate) extra_groups: Vec<String>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) arrivals: Vec<Arrival>,
    index: HashMap<Node, usize>,
    done: Vec<bool>,
    queue: BinaryHeap<Reverse<((u32, u32), usize)>>,
    pub(crate) stopped: Vec<StoppedEdge>,
    stopped_nodes: BTreeSet<Node>,
    /// Whether the search follows edges that configurable policies deny, because the subject can remove these policies.
    pub(crate) ignores_stops: bool,
    /// The roles, with scope, whose edges are expanded and are the same for every holder.
    pub(crate) expanded: BTreeSet<(usize, Scope)>,
    /// Sets of groups whose roles are expanded, with the same edges for every member.
    pub(crate) expanded_groups: BTreeSet<Vec<String>>,
    /// Sets of groups whose rights to roles and bindings are combined.
    pub(crate) combined_groups: BTreeSet<Vec<String>>,
    pub(crate) group_rights: HashMap<Vec<String>, Rc<CombinedRights<'c>>>,
    /// The scopes of the reached nodes that lead further only together with a node of another sort, by sort.
    pub(crate) combined: BTreeMap<&'static str, BTreeSet<Scope>>,
    /// The number of the node that is being expanded.
    pub(crate) expanding: usize,
    /// The number of evaluations of admission that are left.
    pub(crate) evaluations: usize,
    /// The parts of the search that were left out, as texts for the report.
    pub(crate) notes: BTreeSet<String>,
    /// The first two identities that request credentials.
    pub(crate) requesters: Vec<Identity>,
    /// The first two identities that approve requests, for each target.
    pub(crate) approvers: BTreeMap<String, Vec<Identity>>,
}

impl<'c> Search<'c> {
    pub(crate) fn new(cluster: &'c Cluster, extra_groups: Vec<String>, evaluations: usize) -> Self {
        Self {
            cluster,
            extra_groups,
            nodes: Vec::new(),
            arrivals: Vec::new(),
            index: HashMap::new(),
            done: Vec::new(),
            queue: BinaryHeap::new(),
            stopped: Vec::new(),
            stopped_nodes: BTreeSet::new(),
            ignores_stops: false,
            expanded: BTreeSet::new(),
            expanded_groups: BTreeSet::new(),
            combined_groups: BTreeSet::new(),
            group_rights: HashMap::new(),
            combined: BTreeMap::new(),
            expanding: 0,
            evaluations,
            notes: BTreeSet::new(),
            requesters: Vec::new(),
            approvers: BTreeMap::new(),
        }
    }

    /// Searches from the subject's node. If the subject reaches admission's configuration, follows the stopped edges
    /// afterwards.
    pub(crate) fn run(&mut self, start: Node) {
        self.add_start(start.clone());
        self.expand_queue();
        let is_admin = self.find(&Node::Everything(Scope::Cluster)).is_some();
        if !is_admin && self.find(&Node::Admission).is_some() {
            self.ignores_stops = true;
            for stopped in std::mem::take(&mut self.stopped) {
                self.stopped_nodes.remove(&stopped.to);
                self.add_edge_from(stopped.from, stopped.to, stopped.edge.with_node(Node::Admission));
            }
            self.expand_queue();
        }
    }

    fn add_start(&mut self, start: Node) {
        let number = self.add_node(
            start,
            Arrival {
                from: None,
                edge: None,
                cost: (0, 0),
            },
        );
        self.queue.push(Reverse(((0, 0), number)));
    }

    fn expand_queue(&mut self) {
        while let Some(Reverse((cost, number))) = self.queue.pop() {
            let is_stale = self.arrivals.get(number).is_none_or(|arrival| arrival.cost != cost);
            if is_stale || self.done.get(number).copied().unwrap_or(true) {
                continue;
            }
            if let Some(done) = self.done.get_mut(number) {
                *done = true;
            }
            self.expanding = number;
            if let Some(node) = self.nodes.get(number).cloned() {
                self.expand_node(&node);
            }
        }
    }

    fn add_node(&mut self, node: Node, arrival: Arrival) -> usize {
        let number = self.nodes.len();
        self.index.insert(node.clone(), number);
        self.nodes.push(node);
        self.arrivals.push(arrival);
        self.done.push(false);
        number
    }

    /// Checks whether the limit of nodes is reached.
    pub(crate) fn is_full(&self) -> bool {
        self.nodes.len() >= MOST_NODES
    }

    /// Returns the number of a reached node.
    pub(crate) fn find(&self, node: &Node) -> Option<usize> {
        self.index.get(node).copied()
    }

    /// Checks whether a node is expanded already. An edge from the current node can't lower its cost.
    pub(crate) fn is_done(&self, node: &Node) -> bool {
        self.find(node)
            .is_some_and(|number| self.done.get(number).copied().unwrap_or(false))
    }

    /// Adds an edge from the node that is being expanded.
    pub(crate) fn add_edge(&mut self, to: Node, edge: Edge) {
        self.add_edge_from(self.expanding, to, edge);
    }

    pub(crate) fn add_edge_from(&mut self, from: usize, to: Node, edge: Edge) {
        let unknown = match &edge.verdict {
            Verdict::Denied(judge) if !self.ignores_stops || !judge.is_configurable() => {
                let judge = judge.clone();
                if self.stopped.len() < MOST_STOPPED && self.stopped_nodes.insert(to.clone()) {
                    self.stopped.push(StoppedEdge { from, to, edge, judge });
                }
                return;
            }
            Verdict::Unknown(judges) if !self.ignores_stops => u32::try_from(judges.len()).unwrap_or(u32::MAX),
            _ => 0,
        };
        let Some((unknown_before, steps)) = self.arrivals.get(from).map(|arrival| arrival.cost) else {
            return;
        };
        // The path also needs the second node, so unknown answers on the way to that node count, too.
        let beside = edge.with.as_ref().and_then(|node| self.find(node));
        let beside = beside
            .and_then(|number| self.arrivals.get(number))
            .map_or(0, |arrival| arrival.cost.0);
        let cost = (
            unknown_before.max(beside).saturating_add(unknown),
            steps.saturating_add(1),
        );
        let arrival = Arrival {
            from: Some(from),
            edge: Some(edge),
            cost,
        };
        match self.find(&to) {
            None if self.is_full() => {
                self.notes
                    .insert("everything beyond the first 300,000 nodes".to_owned());
            }
            None => {
                let number = self.add_node(to, arrival);
                self.queue.push(Reverse((cost, number)));
            }
            Some(number) => {
                let is_done = self.done.get(number).copied().unwrap_or(true);
                if let Some(known) = self.arrivals.get_mut(number)
                    && !is_done
                    && cost < known.cost
                {
                    *known = arrival;
                    self.queue.push(Reverse((cost, number)));
                }
            }
        }
    }

    /// Returns the numbers of the nodes on the path to a node, from the subject on.
    pub(crate) fn trace_path(&self, number: usize) -> Vec<usize> {
        let mut path = vec![number];
        let mut at = number;
        while let Some(from) = self.arrivals.get(at).and_then(|arrival| arrival.from) {
            // Costs decrease along the way, so the loop ends.
            path.push(from);
            at = from;
        }
        path.reverse();
        path
    }

    /// Records a reached node of one sort. Returns its common scopes with each reached node of the sort `with`, and
    /// that node's scope.
    pub(crate) fn combine_scopes(
        &mut self,
        sort: &'static str,
        scope: &Scope,
        with: &'static str,
    ) -> Vec<(Scope, Scope)> {
        self.combined.entry(sort).or_default().insert(scope.clone());
        let Some(others) = self.combined.get(with) else {
            return Vec::new();
        };
        match scope {
            Scope::Namespace(_) => [scope.clone(), Scope::EveryNamespace, Scope::Cluster]
                .into_iter()
                .filter(|other| others.contains(other))
                .filter_map(|other| Some((other.intersect(scope)?, other)))
                .collect(),
            _ => others
                .iter()
                .filter_map(|other| Some((other.intersect(scope)?, other.clone())))
                .collect(),
        }
    }
}
