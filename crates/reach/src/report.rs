//! The answer: the reached nodes with their paths and rights, and the stopped edges.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::Serialize;

use crate::admission::{Verdict, WriteCheck};
use crate::cluster::Cluster;
use crate::node::{Node, Scope};
use crate::rules::{RequestedRight, Rule};
use crate::search::{Edge, Search};
use crate::subject::Subject;

/// The greatest number of hypothetical writes on which a search evaluates admission.
const MOST_EVALUATIONS: usize = 20_000;

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The node at its beginning.
    pub from: String,
    /// The name of the edge.
    pub edge: String,
    /// The right that it needs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub right: String,
    /// The binding, or another object, that gives the right.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// A second node that the step needs. The subject reaches it, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with: Option<String>,
    /// The policies and webhooks that check the write of this step, and whose answers can't be
    /// computed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub judged_by: Vec<WriteCheck>,
    /// The policy or webhook that denies the write of this step, if the subject can remove it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken_away: Option<WriteCheck>,
    /// The node at its end.
    pub to: String,
}

/// A reached node with a shortest path to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reached {
    /// The node: `cluster-admin`, `serviceaccount a/b`, `Secrets in namespace a`.
    pub node: Node,
    /// The sort of node.
    pub sort: &'static str,
    /// Whether every write on the path is known to be admitted.
    pub is_certain: bool,
    /// A shortest path.
    pub path: Vec<Step>,
}

impl std::fmt::Display for Reached {
    /// Writes the path in one line.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: ", self.node)?;
        for step in &self.path {
            write!(f, "{} --{}", step.from, step.edge)?;
            if !step.by.is_empty() {
                write!(f, " ({})", step.by)?;
            }
            f.write_str("--> ")?;
        }
        write!(f, "{}", self.node)
    }
}

/// A role that a reached identity has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Right {
    /// The identity.
    pub identity: String,
    /// The binding.
    pub binding: String,
    /// The role.
    pub role: String,
    /// The scope of the role.
    pub scope: String,
    /// Its rules.
    pub rules: Vec<Rule>,
}

/// An edge that the subject can't follow, because a policy denies the write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stopped {
    /// The node at its beginning.
    pub from: String,
    /// Its name.
    pub edge: String,
    /// The node to which it would lead.
    pub to: String,
    /// The obstacle.
    pub by: WriteCheck,
}

/// The object whose readers, writers and deleters are searched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The API group.
    pub group: String,
    /// The resource.
    pub resource: String,
    /// The namespace. Empty for a cluster-scoped object.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// A right by which the subject can read, write or delete the target object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Access {
    /// `read`, `write` or `delete`.
    pub access: &'static str,
    /// The right, and the binding that gives it.
    pub by: String,
    /// The holder of the right.
    pub reached: Reached,
}

/// All nodes that a subject reaches.
pub struct Reach<'c> {
    cluster: &'c Cluster,
    search: Search<'c>,
}

impl<'c> Reach<'c> {
    /// Searches from a subject.
    ///
    /// # Errors
    /// When the cluster has no such tenant.
    pub fn search(cluster: &'c Cluster, subject: &Subject) -> Result<Self, String> {
        if let Subject::Tenant(name) = subject
            && !cluster.tenants.contains_key(name)
        {
            return Err(format!("Tenant/{name}: it does not exist, or could not be read."));
        }
        let (start, groups) = subject.start();
        let mut search = Search::new(cluster, groups, MOST_EVALUATIONS);
        search.run(start);
        Ok(Self { cluster, search })
    }

    /// Lists all reached nodes, the nearest first. The subject itself is the first.
    #[must_use]
    pub fn list_reached(&self) -> Vec<Reached> {
        let mut numbers: Vec<usize> = (0..self.search.nodes.len()).collect();
        numbers.sort_by_key(|number| self.search.arrivals.get(*number).map(|arrival| arrival.cost));
        numbers.into_iter().filter_map(|number| self.describe(number)).collect()
    }

    /// Returns a node with its path, if it was reached.
    #[must_use]
    pub fn find(&self, node: &Node) -> Option<Reached> {
        self.describe(self.search.find(node)?)
    }

    /// Returns the path to cluster-admin, if it was reached.
    #[must_use]
    pub fn find_cluster_admin(&self) -> Option<Reached> {
        self.find(&Node::Everything(Scope::Cluster))
    }

    pub(crate) fn nodes(&self) -> &[Node] {
        &self.search.nodes
    }

    pub(crate) fn cluster(&self) -> &'c Cluster {
        self.cluster
    }

    /// Returns the nodes on the path to a node, the subject first.
    pub(crate) fn list_way(&self, number: usize) -> Vec<&Node> {
        let way = self.search.trace_path(number);
        way.into_iter()
            .filter_map(|number| self.search.nodes.get(number))
            .collect()
    }

    pub(crate) fn describe(&self, number: usize) -> Option<Reached> {
        let node = self.search.nodes.get(number)?.clone();
        let way = self.search.trace_path(number);
        let steps = way.windows(2).filter_map(|pair| match pair {
            [from, to] => self.describe_step(*from, *to),
            _ => None,
        });
        Some(Reached {
            sort: node.sort(),
            is_certain: self.search.arrivals.get(number)?.cost.0 == 0,
            path: steps.collect(),
            node,
        })
    }

    fn describe_step(&self, from: usize, to: usize) -> Option<Step> {
        let edge: &Edge = self.search.arrivals.get(to)?.edge.as_ref()?;
        let (judged_by, taken_away) = match &edge.verdict {
            Verdict::Admitted => (Vec::new(), None),
            Verdict::Unknown(judges) => (judges.clone(), None),
            Verdict::Denied(judge) => (Vec::new(), Some(judge.clone())),
        };
        Some(Step {
            from: self.search.nodes.get(from)?.to_string(),
            edge: edge.name.to_owned(),
            right: edge.right.clone(),
            by: edge.by.clone(),
            with: edge.with.as_ref().map(ToString::to_string),
            judged_by,
            taken_away,
            to: self.search.nodes.get(to)?.to_string(),
        })
    }

    /// Lists the roles of all reached identities, each role once in each scope.
    #[must_use]
    pub fn list_rights(&self) -> Vec<Right> {
        let mut seen = BTreeSet::new();
        let mut rights = Vec::new();
        for node in &self.search.nodes {
            let Some(identity) = node.identity() else { continue };
            for binding in self.cluster.list_bindings(identity, &self.search.list_groups(identity)) {
                let Some(role) = self.cluster.roles.get(binding.role) else {
                    continue;
                };
                if seen.insert((binding.role, binding.scope.clone())) {
                    rights.push(Right {
                        identity: identity.to_string(),
                        binding: binding.label.clone(),
                        role: role.label.clone(),
                        scope: binding.scope.to_string(),
                        rules: role.rules.clone(),
                    });
                }
            }
        }
        rights
    }

    /// Lists the edges that a policy stops.
    #[must_use]
    pub fn list_stopped(&self) -> Vec<Stopped> {
        let stopped = self.search.stopped.iter();
        stopped
            .filter(|stopped| self.search.find(&stopped.to).is_none())
            .filter_map(|stopped| {
                Some(Stopped {
                    from: self.search.nodes.get(stopped.from)?.to_string(),
                    edge: stopped.edge.name.to_owned(),
                    to: stopped.to.to_string(),
                    by: stopped.judge.clone(),
                })
            })
            .collect()
    }

    /// Lists the parts that could not be read or computed.
    #[must_use]
    pub fn list_unknown(&self) -> Vec<String> {
        self.cluster.unknown.iter().chain(&self.search.notes).cloned().collect()
    }

    /// Returns the nearest ways to read, write and delete an object.
    #[must_use]
    pub fn find_access(&self, target: &Target) -> Vec<Access> {
        const WAYS: [(&str, &[&str]); 3] = [
            ("read", &["get", "list", "watch"]),
            ("write", &["update", "patch"]),
            // An ownerReference to a missing object lets the garbage collector delete an object that may
            // be changed.
            ("delete", &["delete", "deletecollection", "update", "patch"]),
        ];
        let mut numbers: Vec<usize> = (0..self.search.nodes.len()).collect();
        numbers.sort_by_key(|number| self.search.arrivals.get(*number).map(|arrival| arrival.cost));
        let mut found = Vec::new();
        for (access, verbs) in WAYS {
            let first = numbers.iter().find_map(|number| {
                Some((
                    *number,
                    self.find_allowing_right(self.search.nodes.get(*number)?, target, access, verbs)?,
                ))
            });
            if let Some((number, by)) = first
                && let Some(reached) = self.describe(number)
            {
                found.push(Access { access, by, reached });
            }
        }
        found
    }

    /// Returns the right by which a node allows one of the verbs on an object.
    fn find_allowing_right(&self, node: &Node, target: &Target, access: &str, verbs: &[&str]) -> Option<String> {
        let is_secret = target.group.is_empty() && target.resource == "secrets";
        let holds = |scope: &Scope| match scope {
            Scope::Cluster => true,
            Scope::EveryNamespace => !target.namespace.is_empty(),
            Scope::Namespace(own) => *own == target.namespace,
        };
        let by_rules = |rules: &[Rule], label: &str| {
            verbs.iter().find_map(|verb| {
                let asked = RequestedRight {
                    verb,
                    group: &target.group,
                    resource: &target.resource,
                    name: &target.name,
                };
                rules.iter().any(|rule| rule.allows(&asked)).then(|| {
                    let through = match (access, *verb) {
                        ("delete", "update" | "patch") => ", through an ownerReference",
                        _ => "",
                    };
                    format!("{verb} {}{through} ({label})", target.resource)
                })
            })
        };
        match node {
            Node::Everything(scope) if holds(scope) => Some(format!("every right in {scope}")),
            Node::Secrets(scope) if access == "read" && is_secret && holds(scope) => Some("get secrets".to_owned()),
            Node::Role { role, scope, .. } if holds(scope) => {
                let role = self.cluster.roles.get(*self.cluster.role_index.get(role)?)?;
                by_rules(&role.rules, &role.label)
            }
            Node::Identity(identity) => {
                let bindings = self.cluster.list_bindings(identity, &self.search.list_groups(identity));
                bindings
                    .into_iter()
                    .filter(|binding| holds(&binding.scope))
                    .find_map(|binding| by_rules(&self.cluster.roles.get(binding.role)?.rules, &binding.label))
            }
            _ => None,
        }
    }

    /// Returns the paths as a graph in the language of Graphviz.
    #[must_use]
    pub fn write_dot(&self) -> String {
        let mut text = String::from("digraph reach {\n  rankdir=LR;\n  node [shape=box];\n");
        for (number, node) in self.search.nodes.iter().enumerate() {
            let colour = if node.is_cluster_admin() { ", color=red" } else { "" };
            let _written = writeln!(
                text,
                "  n{number} [label={}{colour}];",
                quote_for_graphviz(&node.to_string())
            );
        }
        for (number, arrival) in self.search.arrivals.iter().enumerate() {
            let (Some(from), Some(edge)) = (arrival.from, &arrival.edge) else {
                continue;
            };
            let style = if edge.verdict == Verdict::Admitted {
                ""
            } else {
                ", style=dashed"
            };
            let label = match edge.by.as_str() {
                "" => edge.name.to_owned(),
                by => format!("{}\n{by}", edge.name),
            };
            let _written = writeln!(
                text,
                "  n{from} -> n{number} [label={}{style}];",
                quote_for_graphviz(&label)
            );
        }
        text.push_str("}\n");
        text
    }
}

/// Returns a quoted text in the language of Graphviz.
fn quote_for_graphviz(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(character);
            }
            '\n' => quoted.push_str("\\n"),
            control if control.is_control() => {}
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
