//! The tree that every format is read into: ordered maps with comments between the pairs, lists, and scalars of SOPS' types. Each encrypted text has its position, so
//! that the clear one can replace it.

use zeroize::Zeroizing;

use crate::error::Error;
use crate::limits::Limits;

/// A position in a file, in bytes; both 0 if it is not needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// A value of a file's tree, with its position. The type has no `Debug`, because the value may be clear text.
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) span: Span,
    /// The value was decrypted.
    pub(crate) is_opened: bool,
    /// The node is the copy for an alias.
    pub(crate) is_alias: bool,
}

/// A value of a file's tree: a scalar of SOPS' types, a map or a list.
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Zeroizing<String>),
    /// A text that isn't UTF-8.
    Bytes(Zeroizing<Vec<u8>>),
    /// A time in RFC 3339 form.
    Time(Zeroizing<String>),
    /// A comment among the items of a list, or a value that was encrypted as one.
    Comment(Comment),
    Map(Vec<Entry>),
    List(Vec<Node>),
}

/// An entry of a map: a pair, or a comment between the pairs.
pub(crate) enum Entry {
    Comment(Comment),
    Pair { key: String, value: Node, whole: Span },
}

/// A comment without its first character.
pub(crate) struct Comment {
    pub(crate) text: Zeroizing<String>,
    /// The whole comment, with its first character.
    pub(crate) span: Span,
    /// The comment was decrypted.
    pub(crate) is_opened: bool,
}

/// A document of a file; only YAML can have several.
pub(crate) struct Document {
    pub(crate) entries: Vec<Entry>,
    /// The positions of the metadata.
    pub(crate) cuts: Vec<Span>,
    /// The document is a map in braces.
    pub(crate) is_flow: bool,
}

impl Node {
    pub(crate) fn new(value: Value) -> Self {
        Self {
            value,
            span: Span::default(),
            is_opened: false,
            is_alias: false,
        }
    }

    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::new(Value::Text(Zeroizing::new(text.into())))
    }

    /// Returns the text, if the value is one.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl Comment {
    pub(crate) fn new(text: &str, span: Span) -> Self {
        Self {
            text: Zeroizing::new(text.to_owned()),
            span,
            is_opened: false,
        }
    }
}

/// Returns the value of the first pair with this key.
pub(crate) fn find_field<'a>(entries: &'a [Entry], wanted: &str) -> Option<&'a Node> {
    entries.iter().find_map(|entry| match entry {
        Entry::Pair { key, value, .. } if key == wanted => Some(value),
        _ => None,
    })
}

/// Counts the nodes of a file while it is read, and enforces the limits for their number and depth.
pub(crate) struct NodeCounter {
    limits: Limits,
    nodes: usize,
}

impl NodeCounter {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, nodes: 0 }
    }

    /// Counts one more node at this depth.
    pub(crate) fn count_node(&mut self, depth: usize) -> Result<(), Error> {
        self.nodes += 1;
        go_yaml::meter::count_bytes(size_of::<Entry>());
        go_yaml::meter::count_steps(1);
        if self.nodes > self.limits.nodes {
            return Err(Error::TooMany {
                what: "values",
                most: self.limits.nodes,
            });
        }
        if depth > self.limits.depth {
            return Err(Error::TooMany {
                what: "levels",
                most: self.limits.depth,
            });
        }
        go_yaml::meter::check().map_err(Error::Spent)
    }
}
