//! Sets of fields, as trees: union, intersection, difference, and the rest of a set after some fields are ignored.
//!
//! Sets are independent of schemas and JSON objects (`typed` handles them) and of the wire form (`fields_v1`).

use std::cmp::Ordering;
use std::fmt;

use crate::path::{FieldPath, PathElement};

/// A set of fields of one object. The root itself is never a member.
///
/// A field and its content are members independently: a manager of `.metadata.labels` does not automatically own `.metadata.labels.app`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    /// Sorted by element; each node is a member or has descendants that are.
    pub(crate) nodes: Vec<Node>,
}

/// A node of a [`FieldSet`]'s tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The step from the parent.
    pub element: PathElement,
    /// Whether the field at this step is in the set itself.
    pub member: bool,
    /// The members below this node.
    pub children: FieldSet,
}

impl Node {
    pub(crate) fn is_vacant(&self) -> bool {
        !self.member && self.children.is_empty()
    }
}

impl FieldSet {
    /// Creates the empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { nodes: Vec::new() }
    }

    /// Creates the set of these paths.
    #[must_use]
    pub fn from_paths<'a>(paths: impl IntoIterator<Item = &'a FieldPath>) -> Self {
        let mut set = Self::new();
        for path in paths {
            set.insert(&path.0);
        }
        set
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        // Empty nodes are never stored, so a set with nodes has members.
        self.nodes.is_empty()
    }

    /// Returns the number of fields in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes
            .iter()
            .map(|node| usize::from(node.member) + node.children.len())
            .sum()
    }

    /// Returns the steps from the root, sorted.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    fn find(&self, element: &PathElement) -> Result<usize, usize> {
        self.nodes.binary_search_by(|node| node.element.cmp(element))
    }

    /// Returns the node one step below the root.
    #[must_use]
    pub fn node(&self, element: &PathElement) -> Option<&Node> {
        self.find(element).ok().and_then(|at| self.nodes.get(at))
    }

    /// Returns the node of `element`; creates the node if it is missing, as no member and without children. The caller must fill it,
    /// because a set contains no empty nodes.
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

    /// Adds the members of `children` below `element`.
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

    /// Returns whether the field at `path` is in the set.
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

    /// Calls `visit` for every path in the set. On each level, the paths that end there come before the paths below.
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

    /// Returns every path in the set, in the order that Kubernetes lists conflicts.
    #[must_use]
    pub fn paths(&self) -> Vec<FieldPath> {
        let mut paths = Vec::with_capacity(self.len());
        self.for_each(&mut |path| paths.push(FieldPath(path.to_vec())));
        paths
    }

    /// Returns the members of this set or of `other`.
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

    /// Returns the members of both sets.
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

    /// Returns the members of this set that are not in `other`. Paths below a member of `other` stay.
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

    /// Returns the members of this set that are neither in `other` nor below a member of `other`.
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

    /// Returns the union of these sets. Sets are merged in pairs, so the work for each set grows with the logarithm of their number.
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

    /// Joins as [`Self::zip`] does, for a `join` that returns `None` for nodes that only `other` has. If `other` is much larger, the
    /// function searches in it and does not traverse it. Many managers own a few fields each, and the changed fields may be a whole large
    /// object.
    fn look_up_or_zip(&self, other: &Self, join: impl Fn(Option<&Node>, Option<&Node>) -> Option<Node>) -> Self {
        /// The ratio above which a search is cheaper than a walk.
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

    /// Walks both sets in step and collects the results of `join` for each pair, without vacant nodes.
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

    /// Returns whether some field is in both sets; cheaper than their intersection.
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
    /// Writes one path on each line.
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
