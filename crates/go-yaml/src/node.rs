//! The tree of YAML nodes that transformations work on. A node keeps its notation (style, tag, line) as well as its meaning. A build of
//! kustomize holds all its objects as nodes at once, so a node is small: 40 bytes, with short texts inside.

use std::collections::{BTreeMap, HashMap};

use smol_str::SmolStr;

use crate::meter;

/// The notation of a scalar. It decides whether text that looks like a number is a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Without quotes.
    Plain,
    /// In quotes of either kind.
    Quoted,
    /// A literal block (`|`), which keeps its lines.
    Literal,
    /// A value left out inside `{}` or `[]`: nothing to a patch, but written as an empty string.
    LeftOut,
    /// A folded block (`>`), which Go's emitter doesn't always write as it was.
    Folded,
    /// A collection in `{}` or `[]`: everything in it is written so too, on the way through a build.
    Flow,
}

impl Style {
    /// Returns the style for a scalar that replaces the node. The style of a collection means nothing to a scalar.
    fn of_scalar(self) -> Style {
        if self == Style::Flow { Style::Plain } else { self }
    }
}

/// The type of a node, as far as it has been decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    /// Undecided: the text decides.
    None,
    /// `!!null`.
    Null,
    /// `!!bool`.
    Bool,
    /// `!!int`.
    Int,
    /// `!!float`.
    Float,
    /// `!!str`.
    Str,
    /// `!!timestamp`.
    Timestamp,
    /// `!!merge`: the key `<<`.
    Merge,
    /// `!!binary`.
    Binary,
    /// `!!map`.
    Map,
    /// `!!seq`.
    Seq,
    /// A custom tag, which makes a text of any scalar.
    Other,
}

impl Tag {
    /// Returns the tag as authors write it.
    pub fn name(self) -> &'static str {
        match self {
            Tag::None => "",
            Tag::Null => "!!null",
            Tag::Bool => "!!bool",
            Tag::Int => "!!int",
            Tag::Float => "!!float",
            Tag::Str => "!!str",
            Tag::Timestamp => "!!timestamp",
            Tag::Merge => "!!merge",
            Tag::Binary => "!!binary",
            Tag::Map => "!!map",
            Tag::Seq => "!!seq",
            Tag::Other => "!other",
        }
    }
}

/// The content of a node. An inline vector would make every node a third bigger, and most nodes are scalars.
#[derive(Debug, Clone, PartialEq)]
pub enum Data {
    /// A text.
    Scalar(SmolStr),
    /// Keys and values, in their order.
    Map(Box<Vec<(Node, Node)>>),
    /// Items.
    Seq(Box<Vec<Node>>),
}

/// The group of places that share one node, and the number of writes to this place. kustomize puts the same node into all fields that a
/// pair of labels or annotations creates. So a write to one place changes all places.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    /// The group, by its number in the resource; 0 for a node that is only in one place.
    pub group: u16,
    /// The number of writes to this place.
    pub writes: u16,
}

/// A rare property of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remark {
    /// Nothing.
    None,
    /// A null that a patch must not clear.
    KeptNull,
    /// The root of a document that ends with a comment.
    BeforeComment,
}

/// A node of a document. Creating or copying a node spends what [`meter`] counts.
#[derive(Debug)]
pub struct Node {
    /// The content of the node.
    pub data: Data,
    /// The type of the node, if it is decided.
    pub tag: Tag,
    /// The notation of the node in the text.
    pub style: Style,
    /// The tag was written out, so it wins over the text.
    pub tagged: bool,
    /// A rare property of the node.
    pub remark: Remark,
    /// The group of places that share this node.
    pub share: Share,
    /// The line in its source, from 1; 0 if it is unknown.
    pub line: u32,
    /// The source file, by the number that its reader gave it; 0 when unknown.
    pub source: u32,
}

impl Clone for Node {
    fn clone(&self) -> Self {
        meter::count_bytes(size_of::<Node>());
        meter::count_steps(1);
        // A text of more than 23 bytes isn't copied but shared.
        Node {
            data: self.data.clone(),
            ..*self
        }
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.data == other.data && self.tag == other.tag && self.style == other.style
    }
}

impl Node {
    fn new(data: Data, tag: Tag, style: Style) -> Self {
        meter::count_bytes(size_of::<Node>());
        match &data {
            Data::Scalar(text) if text.is_heap_allocated() => meter::count_text(text.len()),
            _ => meter::count_steps(1),
        }
        Node {
            data,
            tag,
            style,
            tagged: false,
            remark: Remark::None,
            share: Share::default(),
            line: 0,
            source: 0,
        }
    }

    /// Creates a scalar whose text decides its type.
    #[inline]
    pub fn untyped(text: impl Into<SmolStr>) -> Self {
        Self::new(Data::Scalar(text.into()), Tag::None, Style::Plain)
    }

    /// Creates a scalar with a type that quotes may still change.
    #[inline]
    pub fn scalar(text: impl Into<SmolStr>, tag: Tag) -> Self {
        Self::new(Data::Scalar(text.into()), tag, Style::Plain)
    }

    /// Creates a string.
    #[inline]
    pub fn string(text: impl Into<SmolStr>) -> Self {
        Self::new(Data::Scalar(text.into()), Tag::Str, Style::Plain)
    }

    /// Creates a quoted string.
    #[inline]
    pub fn quoted(text: impl Into<SmolStr>) -> Self {
        Self::new(Data::Scalar(text.into()), Tag::Str, Style::Quoted)
    }

    /// Creates an empty mapping.
    #[inline]
    pub fn map() -> Self {
        Self::mapping(Vec::new())
    }

    /// Creates a mapping.
    #[inline]
    pub fn mapping(entries: Vec<(Node, Node)>) -> Self {
        Self::new(Data::Map(Box::new(entries)), Tag::Map, Style::Plain)
    }

    /// Creates a sequence.
    #[inline]
    pub fn seq(items: Vec<Node>) -> Self {
        Self::new(Data::Seq(Box::new(items)), Tag::Seq, Style::Plain)
    }

    /// Returns the collection, with flow style (`{}` or `[]`) if `is` is true.
    #[inline]
    pub fn in_flow(mut self, is: bool) -> Self {
        if is {
            self.style = Style::Flow;
        }
        self
    }

    /// Returns the node with the file and line of `other`.
    #[inline]
    pub fn with_place_of(mut self, other: &Node) -> Self {
        self.line = other.line;
        self.source = other.source;
        self
    }

    /// Returns the node with a known file and line.
    #[inline]
    pub fn with_place(mut self, source: u32, line: u32) -> Self {
        self.line = line;
        self.source = source;
        self
    }

    /// Checks whether the node is null.
    #[inline]
    pub fn is_null(&self) -> bool {
        self.tag == Tag::Null
    }

    /// Checks whether the node is null, an empty mapping or an empty sequence. kyaml calls these nil or empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.is_null()
            || match &self.data {
                Data::Map(entries) => entries.is_empty(),
                Data::Seq(items) => items.is_empty(),
                Data::Scalar(_) => false,
            }
    }

    /// Checks whether the node is a scalar.
    #[inline]
    pub fn is_scalar(&self) -> bool {
        matches!(self.data, Data::Scalar(_))
    }

    /// Checks whether the node is a mapping.
    #[inline]
    pub fn is_map(&self) -> bool {
        matches!(self.data, Data::Map(_))
    }

    /// Returns the text of a scalar; an empty text for a collection.
    #[inline]
    pub fn text(&self) -> &str {
        match &self.data {
            Data::Scalar(text) => text,
            _ => "",
        }
    }

    /// Checks whether the node is a string, or undecided.
    #[inline]
    pub fn is_string(&self) -> bool {
        self.is_scalar() && matches!(self.tag, Tag::Str | Tag::None)
    }

    /// Checks whether the node is unquoted text that YAML 1.1 would not read as a string.
    pub fn needs_quotes(&self) -> bool {
        self.is_string() && self.style == Style::Plain && super::scalar::is_non_string_in_yaml_1_1(self.text())
    }

    /// Returns the entries of a mapping; other nodes have no entries.
    #[inline]
    pub fn entries(&self) -> &[(Node, Node)] {
        match &self.data {
            Data::Map(entries) => entries,
            _ => &[],
        }
    }

    /// Returns the entries of a mapping for changes.
    #[inline]
    pub fn entries_mut(&mut self) -> Option<&mut Vec<(Node, Node)>> {
        match &mut self.data {
            Data::Map(entries) => Some(entries),
            _ => None,
        }
    }

    /// Returns the items of a sequence; other nodes have no items.
    #[inline]
    pub fn items(&self) -> &[Node] {
        match &self.data {
            Data::Seq(items) => items,
            _ => &[],
        }
    }

    /// Returns the items of a sequence for changes.
    #[inline]
    pub fn items_mut(&mut self) -> Option<&mut Vec<Node>> {
        match &mut self.data {
            Data::Seq(items) => Some(items),
            _ => None,
        }
    }

    /// Writes over the text of a scalar, or over a collection.
    pub fn set_text(&mut self, text: impl Into<SmolStr>) {
        let text = text.into();
        meter::count_text(text.len());
        self.data = Data::Scalar(text);
    }

    /// Returns the position of the first key with this text.
    #[inline]
    pub fn position(&self, key: &str) -> Option<usize> {
        let entries = self.entries();
        let found = entries.iter().position(|(name, _)| name.text() == key);
        meter::count_steps(1 + found.unwrap_or(entries.len()) / 8);
        found
    }

    /// Returns the value of the first key with this text.
    #[inline]
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entries().get(self.position(key)?).map(|(_, value)| value)
    }

    /// Returns the value of the first key with this text for changes.
    #[inline]
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        let position = self.position(key)?;
        self.entries_mut()?.get_mut(position).map(|(_, value)| value)
    }

    /// Returns the value at a path of keys.
    #[inline]
    pub fn find_at(&self, path: &[&str]) -> Option<&Node> {
        path.iter().try_fold(self, |node, key| node.get(key))
    }

    /// Removes the first key with this text.
    pub fn remove(&mut self, key: &str) -> Option<Node> {
        let position = self.position(key)?;
        Some(self.entries_mut()?.remove(position).1)
    }

    /// Writes a scalar over this node, which keeps its quotes: as kyaml's FieldSetter without a name.
    pub fn assign_scalar(&mut self, mut value: Node) {
        if value.is_null() {
            return;
        }
        value.style = self.style.of_scalar();
        value.tagged = self.tagged && value.tag != Tag::None;
        value.line = if value.line == 0 { self.line } else { value.line };
        value.source = if value.source == 0 { self.source } else { value.source };
        value.share = self.written_over(&value);
        *self = value;
    }

    /// Returns the share of a node that is written over this one.
    pub fn written_over(&self, value: &Node) -> Share {
        match self.share {
            share if share.group == 0 || share.group == value.share.group => value.share,
            Share { group, writes } => Share {
                group,
                writes: writes.saturating_add(1),
            },
        }
    }

    /// Takes this node, and all in it, out of its groups.
    pub fn unshare(&mut self) {
        self.share = Share::default();
        match &mut self.data {
            Data::Scalar(_) => {}
            Data::Map(entries) => entries.iter_mut().for_each(|(_, value)| value.unshare()),
            Data::Seq(items) => items.iter_mut().for_each(Node::unshare),
        }
    }

    /// Copies the latest write to one place of a group to its other places.
    pub fn settle_shares(&mut self) {
        let mut latest: BTreeMap<u16, (Node, bool)> = BTreeMap::new();
        self.latest_shares(&mut latest);
        latest.retain(|_, (_, is_uneven)| *is_uneven);
        if !latest.is_empty() {
            self.even_shares(&latest);
        }
    }

    fn latest_shares(&self, latest: &mut BTreeMap<u16, (Node, bool)>) {
        if self.share.group != 0 {
            match latest.get_mut(&self.share.group) {
                None => {
                    latest.insert(self.share.group, (self.clone(), false));
                }
                Some((node, is_uneven)) if node.share.writes != self.share.writes => {
                    *is_uneven = true;
                    if node.share.writes < self.share.writes {
                        *node = self.clone();
                    }
                }
                Some(_) => {}
            }
        }
        self.items().iter().for_each(|item| item.latest_shares(latest));
        self.entries().iter().for_each(|(_, value)| value.latest_shares(latest));
    }

    fn even_shares(&mut self, latest: &BTreeMap<u16, (Node, bool)>) {
        if let Some((node, _)) = latest.get(&self.share.group) {
            *self = node.clone();
            return;
        }
        match &mut self.data {
            Data::Scalar(_) => {}
            Data::Map(entries) => entries.iter_mut().for_each(|(_, value)| value.even_shares(latest)),
            Data::Seq(items) => items.iter_mut().for_each(|item| item.even_shares(latest)),
        }
    }

    /// Sets a field, as kyaml's FieldSetter: a null clears the field, and an existing field keeps its quotes. In a new field, text that
    /// YAML 1.1 would not read as a string gets quotes.
    pub fn set_field(&mut self, key: &str, value: Node) {
        self.set_entry(Node::untyped(key), value);
    }

    /// Like [`Self::set_field`], with the key node for a new field.
    pub fn set_entry(&mut self, key: Node, mut value: Node) {
        if value.is_null() && value.remark != Remark::KeptNull {
            self.remove(key.text());
            return;
        }
        if value.needs_quotes() {
            value.style = Style::Quoted;
        }
        if let Some(existing) = self.get_mut(key.text()) {
            value.style = if value.is_scalar() {
                existing.style.of_scalar()
            } else {
                existing.style
            };
            // To Go, that a tag was written out is part of the style.
            value.tagged = existing.tagged && value.tag != Tag::None;
            value.share = existing.written_over(&value);
            if value.line == 0 {
                value.line = existing.line;
                value.source = existing.source;
            }
            *existing = value;
            return;
        }
        if let Some(entries) = self.entries_mut() {
            entries.push((key, value));
        }
    }

    /// Returns the field, created as an empty mapping when it is missing.
    pub fn map_field(&mut self, key: &str) -> Option<&mut Node> {
        if self.get(key).is_none() {
            let place = (self.source, self.line);
            let entries = self.entries_mut()?;
            entries.push((Node::untyped(key), Node::map().with_place(place.0, place.1)));
        }
        self.get_mut(key)
    }

    /// Gives this node and those in it the places that `written` has for them.
    pub fn place_as(&mut self, written: &Node) {
        if written.line != 0 {
            self.line = written.line;
        }
        match (&mut self.data, &written.data) {
            (Data::Map(entries), Data::Map(others)) => {
                meter::count_steps(entries.len() + others.len());
                let mut known: HashMap<&str, &(Node, Node)> = HashMap::with_capacity(others.len());
                for other in others.iter() {
                    known.entry(other.0.text()).or_insert(other);
                }
                for (key, value) in entries.iter_mut() {
                    if let Some((name, other)) = known.get(key.text()) {
                        key.line = name.line;
                        value.place_as(other);
                    }
                }
            }
            (Data::Seq(items), Data::Seq(others)) => {
                items
                    .iter_mut()
                    .zip(others.iter())
                    .for_each(|(item, other)| item.place_as(other));
            }
            _ => {}
        }
    }

    /// Marks all nodes as coming from one place: for content that a field of a kustomization holds inline.
    pub fn place_all(&mut self, source: u32, line: u32) {
        self.source = source;
        self.line = line;
        match &mut self.data {
            Data::Scalar(_) => {}
            Data::Map(entries) => {
                for (key, value) in entries.iter_mut() {
                    key.place_all(source, line);
                    value.place_all(source, line);
                }
            }
            Data::Seq(items) => items.iter_mut().for_each(|item| item.place_all(source, line)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds hold all their objects as nodes; a field more here is paid for by every line of every file.
    #[test]
    fn a_node_stays_small() {
        assert_eq!(std::mem::size_of::<Node>(), 40);
    }
}
