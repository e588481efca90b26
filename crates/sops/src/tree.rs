//! Owns the tree that every format is read into: maps in their order with comments between the pairs, lists, and scalars of the types
//! that SOPS knows. Says where an encrypted text stands, so that the clear one can be put in its place.

use zeroize::Zeroizing;

use crate::error::Error;
use crate::limits::Limits;

/// Where something stands in a file, in bytes; both 0 where nobody has to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// A value and where it stands. Has no `Debug`: it may be clear.
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) span: Span,
    /// It was encrypted, and is decrypted.
    pub(crate) is_opened: bool,
    /// It is what an alias stands for.
    pub(crate) is_alias: bool,
}

/// What there can be at a place.
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Zeroizing<String>),
    /// A text that isn't UTF-8.
    Bytes(Zeroizing<Vec<u8>>),
    /// A time as RFC 3339 writes it.
    Time(Zeroizing<String>),
    /// A comment among the items of a list, or what was encrypted as one.
    Comment(Comment),
    Map(Vec<Entry>),
    List(Vec<Node>),
}

/// One part of a map.
pub(crate) enum Entry {
    Comment(Comment),
    Pair { key: String, value: Node, whole: Span },
}

/// A comment without the character that begins it.
pub(crate) struct Comment {
    pub(crate) text: Zeroizing<String>,
    /// All of it, with what begins it.
    pub(crate) span: Span,
    /// It was encrypted, and is decrypted.
    pub(crate) is_opened: bool,
}

/// One document of a file; formats but YAML have one.
pub(crate) struct Document {
    pub(crate) entries: Vec<Entry>,
    /// Where the metadata stood.
    pub(crate) cuts: Vec<Span>,
    /// It is written in braces.
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

    /// The text, if it is one.
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

/// The value of the first pair with this key.
pub(crate) fn find<'a>(entries: &'a [Entry], wanted: &str) -> Option<&'a Node> {
    entries.iter().find_map(|entry| match entry {
        Entry::Pair { key, value, .. } if key == wanted => Some(value),
        _ => None,
    })
}

/// Counts what a file is made of while it is read.
pub(crate) struct Count {
    limits: Limits,
    nodes: usize,
}

impl Count {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, nodes: 0 }
    }

    /// One more node, so deep.
    pub(crate) fn node(&mut self, depth: usize) -> Result<(), Error> {
        self.nodes += 1;
        go_yaml::meter::made(size_of::<Entry>());
        go_yaml::meter::work(1);
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
