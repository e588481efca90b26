//! The document that a patch changes. A list that a patch enters becomes a tree, so that an insertion has the same
//! cost at every index. The size and depth of the document are known before anything is copied. An operation fails if
//! it would make the document larger or deeper than a request body may be.

use std::borrow::Cow;
use std::collections::BTreeMap;

use imbl::Vector;
use serde_json::Value;
use tenure_kinds::schema::strict::DEEPEST;

use super::FaultReason;
use crate::http::body::MAX_BODY;

/// Limit for the sum of all copies of one patch, in bytes of JSON: Kubernetes' own limit.
pub(super) const MOST_COPIED: usize = 3 * 1024 * 1024;

/// Limit for the bytes of JSON that one patch may measure, to check that moved values stay within the allowed depth.
const MOST_MEASURED: usize = 16 * 1024 * 1024;

/// Size and depth of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extent {
    /// Bytes as JSON without spaces.
    bytes: usize,
    /// Nesting levels of lists and objects.
    depth: usize,
}

/// A value within the document: unchanged as a whole, or split so that its parts can change.
#[derive(Debug, Clone)]
pub(super) enum Node {
    /// A value that no path has entered yet.
    Whole(Value),
    Object(BTreeMap<String, Node>),
    List(Vector<Node>),
}

/// A writer that counts the bytes and drops them.
struct Counter(usize);

impl std::io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.saturating_add(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn bytes_of(value: &impl serde::Serialize) -> usize {
    let mut counter = Counter(0);
    // The counter never fails, and every value can be written.
    let _counted = serde_json::to_writer(&mut counter, value);
    counter.0
}

fn depth_of(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth_of).max().unwrap_or_default(),
        Value::Object(map) => 1 + map.values().map(depth_of).max().unwrap_or_default(),
        _ => 0,
    }
}

impl Node {
    fn extent(&self) -> Extent {
        let around = |parts: usize, inside: (usize, usize)| Extent {
            bytes: 2 + parts.saturating_sub(1) + inside.0,
            depth: 1 + inside.1,
        };
        match self {
            Self::Whole(value) => Extent {
                bytes: bytes_of(value),
                depth: depth_of(value),
            },
            Self::Object(map) => {
                let inside = map.iter().fold((0, 0), |(bytes, depth), (key, node)| {
                    let extent = node.extent();
                    (bytes + bytes_of(key) + 1 + extent.bytes, depth.max(extent.depth))
                });
                around(map.len(), inside)
            }
            Self::List(items) => {
                let inside = items.iter().fold((0, 0), |(bytes, depth), node| {
                    let extent = node.extent();
                    (bytes + extent.bytes, depth.max(extent.depth))
                });
                around(items.len(), inside)
            }
        }
    }

    /// Splits a whole list or object into nodes of its items, so that a path can enter it.
    fn open(&mut self) {
        match self {
            Self::Whole(Value::Object(map)) => {
                let parts = std::mem::take(map).into_iter();
                *self = Self::Object(parts.map(|(key, value)| (key, Self::Whole(value))).collect());
            }
            Self::Whole(Value::Array(items)) => {
                *self = Self::List(std::mem::take(items).into_iter().map(Self::Whole).collect());
            }
            _ => {}
        }
    }

    fn find(&mut self, path: &[Cow<'_, str>]) -> Option<&mut Self> {
        let mut node = self;
        for token in path {
            node.open();
            node = match node {
                Self::Object(map) => map.get_mut(token.as_ref())?,
                Self::List(items) => {
                    let index = index_in(token, items.len()).filter(|index| *index < items.len())?;
                    items.get_mut(index)?
                }
                Self::Whole(_) => return None,
            };
        }
        Some(node)
    }

    fn equals(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Whole(whole), value) => whole == value,
            (Self::Object(map), Value::Object(other)) => {
                map.len() == other.len()
                    && map
                        .iter()
                        .all(|(key, node)| other.get(key).is_some_and(|value| node.equals(value)))
            }
            (Self::List(items), Value::Array(other)) => {
                items.len() == other.len() && items.iter().zip(other).all(|(node, value)| node.equals(value))
            }
            _ => false,
        }
    }

    fn into_value(self) -> Value {
        match self {
            Self::Whole(value) => value,
            Self::Object(map) => Value::Object(map.into_iter().map(|(key, node)| (key, node.into_value())).collect()),
            Self::List(items) => Value::Array(items.into_iter().map(Self::into_value).collect()),
        }
    }
}

/// Returns the index that a token of a path names in a list of this length; `-` is the index after the last.
fn index_in(token: &str, length: usize) -> Option<usize> {
    if token == "-" {
        return Some(length);
    }
    let plain = token.bytes().all(|byte| byte.is_ascii_digit()) && (token.len() == 1 || !token.starts_with('0'));
    plain.then(|| token.parse().ok()).flatten()
}

/// The document of a patch after the operations so far, with its size and depth.
#[derive(Debug)]
pub(super) struct Document {
    root: Node,
    /// The current size, except for about one comma per change.
    bytes: usize,
    /// The size before the patch.
    began_with: usize,
    /// An upper bound for the depth.
    deepest: usize,
    copied: usize,
    measured: usize,
}

impl Document {
    pub(super) fn new(value: Value) -> Self {
        let root = Node::Whole(value);
        let extent = root.extent();
        Self {
            root,
            bytes: extent.bytes,
            began_with: extent.bytes,
            deepest: extent.depth,
            copied: 0,
            measured: 0,
        }
    }

    pub(super) fn into_value(self) -> Value {
        self.root.into_value()
    }

    /// Adds a value at a path: into an object, or between the items of a list.
    pub(super) fn add(&mut self, path: &[Cow<'_, str>], value: &Value) -> Result<(), FaultReason> {
        let node = Node::Whole(value.clone());
        let extent = node.extent();
        self.put_node(path, node, extent)
    }

    /// Replaces a value. Also accepts a key that the object lacks, as Kubernetes does.
    pub(super) fn replace(&mut self, path: &[Cow<'_, str>], value: &Value) -> Result<(), FaultReason> {
        let node = Node::Whole(value.clone());
        let extent = node.extent();
        let Some((last, parent)) = path.split_last() else {
            self.root = node;
            self.bytes = extent.bytes;
            self.deepest = extent.depth;
            return self.check_size();
        };
        let parent = self.root.find(parent).ok_or(FaultReason::BadPath)?;
        parent.open();
        let Node::List(items) = parent else {
            return self.put_node(path, node, extent);
        };
        let index = index_in(last, items.len()).ok_or(FaultReason::BadPath)?;
        let place = items.get_mut(index).ok_or(FaultReason::BadPath)?;
        let before = std::mem::replace(place, node);
        self.bytes = self.bytes.saturating_sub(before.extent().bytes);
        self.check_growth(path, extent, 0)
    }

    pub(super) fn remove(&mut self, path: &[Cow<'_, str>]) -> Result<(), FaultReason> {
        let removed = self.take_node(path)?;
        self.bytes = self.bytes.saturating_sub(removed.extent().bytes);
        Ok(())
    }

    pub(super) fn move_value(&mut self, from: &[Cow<'_, str>], path: &[Cow<'_, str>]) -> Result<(), FaultReason> {
        if path.starts_with(from) && path.len() != from.len() {
            return Err(FaultReason::IntoItself);
        }
        let node = self.take_node(from).map_err(|why| match why {
            FaultReason::BadPath => FaultReason::BadFrom,
            other => other,
        })?;
        // A moved value is at most as deep as the deepest known value. It is measured only if that bound is not
        // enough.
        let mut extent = Extent {
            bytes: 0,
            depth: self.deepest.saturating_sub(from.len()),
        };
        if path.len() + extent.depth > DEEPEST {
            let exact = node.extent();
            extent.depth = exact.depth;
            self.measured = self.measured.saturating_add(exact.bytes);
            if self.measured > MOST_MEASURED {
                return Err(FaultReason::TooDeep);
            }
        }
        self.put_node(path, node, extent)
    }

    pub(super) fn copy(&mut self, from: &[Cow<'_, str>], path: &[Cow<'_, str>]) -> Result<(), FaultReason> {
        let source = self.root.find(from).ok_or(FaultReason::BadFrom)?;
        let extent = source.extent();
        // Checked before the copy: repeated doubling soon exceeds the memory.
        self.copied = self.copied.saturating_add(extent.bytes);
        if self.copied > MOST_COPIED {
            return Err(FaultReason::CopiesTooMuch(self.copied));
        }
        let copy = source.clone();
        self.put_node(path, copy, extent)
    }

    pub(super) fn test(&mut self, path: &[Cow<'_, str>], value: &Value) -> Result<(), FaultReason> {
        if let Some(node) = self.root.find(path) {
            return if node.equals(value) {
                Ok(())
            } else {
                Err(FaultReason::TestFailed)
            };
        }
        // A test of a key that the object lacks compares with null.
        let parent = path.split_last().and_then(|(_, parent)| self.root.find(parent));
        let lacks = parent.is_some_and(|parent| matches!(parent, Node::Object(_) | Node::Whole(Value::Object(_))));
        if lacks && value.is_null() {
            Ok(())
        } else {
            Err(FaultReason::BadPath)
        }
    }

    fn take_node(&mut self, path: &[Cow<'_, str>]) -> Result<Node, FaultReason> {
        let (last, parent) = path.split_last().ok_or(FaultReason::BadPath)?;
        let parent = self.root.find(parent).ok_or(FaultReason::BadPath)?;
        parent.open();
        match parent {
            Node::Object(map) => {
                let node = map.remove(last.as_ref()).ok_or(FaultReason::BadPath)?;
                self.bytes = self.bytes.saturating_sub(last.len());
                Ok(node)
            }
            Node::List(items) => {
                let index = index_in(last, items.len()).filter(|index| *index < items.len());
                Ok(items.remove(index.ok_or(FaultReason::BadPath)?))
            }
            Node::Whole(_) => Err(FaultReason::BadPath),
        }
    }

    fn put_node(&mut self, path: &[Cow<'_, str>], node: Node, extent: Extent) -> Result<(), FaultReason> {
        let (last, parent) = path.split_last().ok_or(FaultReason::BadPath)?;
        if path.len() + extent.depth > DEEPEST {
            return Err(FaultReason::TooDeep);
        }
        let parent = self.root.find(parent).ok_or(FaultReason::BadPath)?;
        parent.open();
        let before = match parent {
            Node::Object(map) => map.insert(last.clone().into_owned(), node),
            Node::List(items) => {
                let index = index_in(last, items.len()).filter(|index| *index <= items.len());
                items.insert(index.ok_or(FaultReason::BadPath)?, node);
                None
            }
            Node::Whole(_) => return Err(FaultReason::BadPath),
        };
        if let Some(before) = before {
            self.bytes = self.bytes.saturating_sub(before.extent().bytes);
        }
        self.check_growth(path, extent, last.len())
    }

    fn check_growth(&mut self, path: &[Cow<'_, str>], extent: Extent, key: usize) -> Result<(), FaultReason> {
        if path.len() + extent.depth > DEEPEST {
            return Err(FaultReason::TooDeep);
        }
        self.deepest = self.deepest.max(path.len() + extent.depth);
        self.bytes = self.bytes.saturating_add(extent.bytes).saturating_add(key);
        self.check_size()
    }

    /// Checks the size limit. A document that is already too large may become smaller.
    fn check_size(&self) -> Result<(), FaultReason> {
        if self.bytes > MAX_BODY && self.bytes > self.began_with {
            Err(FaultReason::TooLarge)
        } else {
            Ok(())
        }
    }
}
