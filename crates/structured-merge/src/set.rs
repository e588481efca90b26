//! Sets of fields, as trees: union, intersection, difference, and what of a set is left when some
//! fields don't count.
//!
//! Refuses to know about schemas and JSON objects (`typed` does) and about the wire form (`fields_v1`).

use std::cmp::Ordering;
use std::fmt;

use crate::path::{FieldPath, PathElement};

/// A set of fields of one object. The root itself is never a member.
///
/// A field and what it holds are members independently: owning `.metadata.labels` is not owning
/// `.metadata.labels.app`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    /// Sorted by element; each node is a member or has descendants that are.
    pub(crate) nodes: Vec<Node>,
}

/// One step of a [`FieldSet`]'s tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The step from the parent.
    pub element: PathElement,
    /// Whether the field at this step is in the set itself.
    pub member: bool,
    /// What is in the set below it.
    pub children: FieldSet,
}

impl Node {
    pub(crate) fn is_vacant(&self) -> bool {
        !self.member && self.children.is_empty()
    }
}

impl FieldSet {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { nodes: Vec::new() }
    }

    /// The set of these paths.
    #[must_use]
    pub fn from_paths<'a>(paths: impl IntoIterator<Item = &'a FieldPath>) -> Self {
        let mut set = Self::new();
        for path in paths {
            set.insert(&path.0);
        }
        set
    }

    /// Whether no field is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        // Nodes are dropped when nothing is left in them, so that this needn't walk.
        self.nodes.is_empty()
    }

    /// The number of fields in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes
            .iter()
            .map(|node| usize::from(node.member) + node.children.len())
            .sum()
    }

    /// The steps from the root, sorted.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    fn find(&self, element: &PathElement) -> Result<usize, usize> {
        self.nodes.binary_search_by(|node| node.element.cmp(element))
    }

    /// The node one step below the root.
    #[must_use]
    pub fn node(&self, element: &PathElement) -> Option<&Node> {
        self.find(element).ok().and_then(|at| self.nodes.get(at))
    }

    /// The node that `element` leads to, made (neither a member nor with children) if need be. Whoever
    /// asks for it fills it: an empty node must not stay.
    pub(crate) fn node_mut(&mut self, element: PathElement) -> Option<&mut Node> {
        // Walks go in order, so the last node is the likely place.
        let at = match self.nodes.last().map(|last| last.element.cmp(&element)) {
            None | Some(Ordering::Less) => Err(self.nodes.len()),
            Some(Ordering::Equal) => Ok(self.nodes.len() - 1),
            Some(Ordering::Greater) => self.find(&element),
        };
        let at = at.unwrap_or_else(|at| {
            self.nodes.insert(
                at,
                Node {
                    element,
                    member: false,
                    children: Self::new(),
                },
            );
            at
        });
        self.nodes.get_mut(at)
    }

    /// Adds the field at `path`; the empty path is ignored.
    pub fn insert(&mut self, path: &[PathElement]) {
        let Some((first, rest)) = path.split_first() else {
            return;
        };
        let Some(node) = self.node_mut(first.clone()) else {
            return;
        };
        if rest.is_empty() {
            node.member = true;
        } else {
            node.children.insert(rest);
        }
    }

    /// Adds the field one step below the root.
    pub(crate) fn insert_element(&mut self, element: PathElement) {
        if let Some(node) = self.node_mut(element) {
            node.member = true;
        }
    }

    /// Puts what is in `children` under `element`.
    pub(crate) fn extend_below(&mut self, element: PathElement, children: Self) {
        if children.is_empty() {
            return;
        }
        if let Some(node) = self.node_mut(element) {
            if node.children.is_empty() {
                node.children = children;
            } else {
                node.children = node.children.union(&children);
            }
        }
    }

    /// Whether the field at `path` is in the set.
    #[must_use]
    pub fn contains(&self, path: &[PathElement]) -> bool {
        let Some((first, rest)) = path.split_first() else {
            return false;
        };
        self.node(first).is_some_and(|node| {
            if rest.is_empty() {
                node.member
            } else {
                node.children.contains(rest)
            }
        })
    }

    /// Calls `visit` for every path in the set: first those that end at a level, then those below it.
    pub fn for_each(&self, visit: &mut dyn FnMut(&[PathElement])) {
        fn walk(set: &FieldSet, prefix: &mut Vec<PathElement>, visit: &mut dyn FnMut(&[PathElement])) {
            for node in set.nodes.iter().filter(|node| node.member) {
                prefix.push(node.element.clone());
                visit(prefix);
                prefix.pop();
            }
            for node in set.nodes.iter().filter(|node| !node.children.is_empty()) {
                prefix.push(node.element.clone());
                walk(&node.children, prefix, visit);
                prefix.pop();
            }
        }
        walk(self, &mut Vec::new(), visit);
    }

    /// Every path in the set, in the order that Kubernetes lists conflicts.
    #[must_use]
    pub fn paths(&self) -> Vec<FieldPath> {
        let mut paths = Vec::with_capacity(self.len());
        self.for_each(&mut |path| paths.push(FieldPath(path.to_vec())));
        paths
    }

    /// What is in this set or in `other`.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        if self.is_empty() {
            return other.clone();
        }
        self.zip(other, |left, right| match (left, right) {
            (Some(left), Some(right)) => Some(Node {
                element: left.element.clone(),
                member: left.member || right.member,
                children: left.children.union(&right.children),
            }),
            (left, right) => left.or(right).cloned(),
        })
    }

    /// What is in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        if other.nodes.len() < self.nodes.len() {
            return other.intersection(self);
        }
        self.look_up_or_zip(other, |left, right| {
            let (left, right) = (left?, right?);
            Some(Node {
                element: left.element.clone(),
                member: left.member && right.member,
                children: left.children.intersection(&right.children),
            })
        })
    }

    /// What is in this set but not in `other`. What lies below a member of `other` stays.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        if other.is_empty() {
            return self.clone();
        }
        self.look_up_or_zip(other, |left, right| {
            let left = left?;
            let Some(right) = right else {
                return Some(left.clone());
            };
            Some(Node {
                element: left.element.clone(),
                member: left.member && !right.member,
                children: left.children.difference(&right.children),
            })
        })
    }

    /// What is in this set and neither in `other` nor below a member of it.
    #[must_use]
    pub fn recursive_difference(&self, other: &Self) -> Self {
        if other.is_empty() {
            return self.clone();
        }
        self.look_up_or_zip(other, |left, right| {
            let left = left?;
            let Some(right) = right else {
                return Some(left.clone());
            };
            let children = if right.member {
                Self::new()
            } else {
                left.children.recursive_difference(&right.children)
            };
            Some(Node {
                element: left.element.clone(),
                member: left.member && !right.member,
                children,
            })
        })
    }

    /// What is in any of these sets. Each is gone through a few times, and not once for each of the others.
    #[must_use]
    pub fn union_of<'a>(sets: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut sets: Vec<Self> = sets.into_iter().cloned().collect();
        while sets.len() > 1 {
            let pairs = sets.chunks(2);
            sets = pairs
                .map(|pair| match pair {
                    [left, right] => left.union(right),
                    rest => rest.first().cloned().unwrap_or_default(),
                })
                .collect();
        }
        sets.pop().unwrap_or_default()
    }

    /// As [`Self::zip`], for a `join` that makes nothing of what only `other` has: a set that is much larger is looked into,
    /// and not gone through. Many managers own a few fields each, and what was changed may be all of a large object.
    fn look_up_or_zip(&self, other: &Self, join: impl Fn(Option<&Node>, Option<&Node>) -> Option<Node>) -> Self {
        /// From here on a search is cheaper than a walk.
        const MUCH_LARGER: usize = 16;
        if other.nodes.len() / MUCH_LARGER <= self.nodes.len() {
            return self.zip(other, join);
        }
        let joined = self
            .nodes
            .iter()
            .map(|left| join(Some(left), other.node(&left.element)));
        Self {
            nodes: joined.flatten().filter(|node| !node.is_vacant()).collect(),
        }
    }

    /// Walks both sets in step and keeps what `join` makes of each pair, without vacant nodes.
    fn zip(&self, other: &Self, join: impl Fn(Option<&Node>, Option<&Node>) -> Option<Node>) -> Self {
        let mut nodes = Vec::new();
        let (mut lefts, mut rights) = (self.nodes.iter().peekable(), other.nodes.iter().peekable());
        loop {
            let order = match (lefts.peek(), rights.peek()) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(left), Some(right)) => left.element.cmp(&right.element),
            };
            let left = if order.is_le() { lefts.next() } else { None };
            let right = if order.is_ge() { rights.next() } else { None };
            nodes.extend(join(left, right).filter(|node| !node.is_vacant()));
        }
        Self { nodes }
    }

    /// Whether some field is in both sets; cheaper than their intersection.
    #[must_use]
    pub fn intersects(&self, other: &Self) -> bool {
        if other.nodes.len() < self.nodes.len() {
            return other.intersects(self);
        }
        self.nodes.iter().any(|left| {
            other
                .node(&left.element)
                .is_some_and(|right| (left.member && right.member) || left.children.intersects(&right.children))
        })
    }
}

impl fmt::Display for FieldSet {
    /// One path a line.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, path) in self.paths().iter().enumerate() {
            if index > 0 {
                writeln!(formatter)?;
            }
            write!(formatter, "{path}")?;
        }
        Ok(())
    }
}
