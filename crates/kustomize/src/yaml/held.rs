//! Owns nodes as Go's yaml.v3 holds them in memory, to the last field: the bits of their style, their tag, the line and column where
//! they were read. Knows how a text becomes such nodes, how a value is written and read again, and what Go's JSON encoder makes of
//! them. Refuses anchors, aliases, merge keys, tags that are written out, and comments.

use serde_json::Value;

use super::cursor::Mark;
use super::emit;
use super::events::{Event, Events, Properties, What};
use super::json::from_value;
use super::node::{Data, Node, Style, Tag};
use super::notation::{Form, Notation};
use super::read::{Lines, Source, first_node};
use super::rewrite;
use super::scalar::{Dialect, Scalar, is_non_string_in_yaml_1_1, resolve};
use super::tokens::Form as Written;
use crate::meter;

/// The bits of a node's style.
pub(crate) const PLAIN: u32 = 0;
pub(crate) const DOUBLE: u32 = 2;
pub(crate) const SINGLE: u32 = 4;
pub(crate) const LITERAL: u32 = 8;
pub(crate) const FOLDED: u32 = 16;
pub(crate) const FLOW: u32 = 32;
/// Of a text of which it isn't known whether it gets quotes.
const UNKNOWN: u32 = u32::MAX;
/// The most nodes that a text may stand for in YAML 1.1.
const MAXIMUM_NODES: usize = 10_000;

/// What a node is, by Go's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Sequence = 2,
    Mapping = 4,
    Scalar = 8,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) kind: Kind,
    pub(crate) style: u32,
    /// In its short form; empty when nobody decided it.
    pub(crate) tag: &'static str,
    pub(crate) text: String,
    /// From 1; 0 for what was read nowhere.
    pub(crate) line: usize,
    pub(crate) column: usize,
    /// Items, or keys and values in turn.
    pub(crate) content: Vec<Held>,
    /// There is a list for the content, which may be empty.
    has_list: bool,
}

impl Held {
    fn new(kind: Kind, text: &str, tag: &'static str, style: u32) -> Self {
        meter::text(size_of::<Held>() + text.len());
        Held {
            kind,
            style,
            tag,
            text: text.to_owned(),
            line: 0,
            column: 0,
            content: Vec::new(),
            has_list: false,
        }
    }

    pub(crate) fn scalar(text: &str, tag: &'static str, style: u32) -> Self {
        Self::new(Kind::Scalar, text, tag, style)
    }

    /// A string as yaml.v3 makes one: text of several lines becomes a literal block.
    pub(crate) fn string(text: &str) -> Self {
        Self::scalar(text, "!!str", if text.contains('\n') { LITERAL } else { PLAIN })
    }

    /// A mapping that nobody gave a tag.
    pub(crate) fn map() -> Self {
        Self::new(Kind::Mapping, "", "", PLAIN)
    }

    pub(crate) fn at(mut self, line: usize, column: usize) -> Self {
        self.line = line;
        self.column = column;
        self
    }

    pub(crate) fn push(&mut self, item: Held) {
        self.content.push(item);
        self.has_list = true;
    }

    pub(crate) fn is_null(&self) -> bool {
        self.tag == "!!null"
    }

    /// The keys and values of a mapping.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&Held, &Held)> {
        let content = if self.kind == Kind::Mapping {
            &*self.content
        } else {
            &[]
        };
        content.chunks_exact(2).filter_map(|pair| match pair {
            [key, value] => Some((key, value)),
            _ => None,
        })
    }

    fn position(&self, key: &str) -> Option<usize> {
        meter::work(1 + self.content.len() / 16);
        self.entries().position(|(name, _)| name.text == key)
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Held> {
        self.entries()
            .find(|(name, _)| name.text == key)
            .map(|(_, value)| value)
    }

    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Held> {
        let position = self.position(key)?;
        self.content.get_mut(position * 2 + 1)
    }

    pub(crate) fn remove(&mut self, key: &str) {
        if let Some(position) = self.position(key) {
            self.content.drain(position * 2..position * 2 + 2);
        }
    }

    /// Quotes what YAML 1.1 would not read as the string that it is.
    pub(crate) fn protect(&mut self) {
        let is_string = self.kind == Kind::Scalar && matches!(self.tag, "" | "!!str");
        if is_string && self.style == PLAIN {
            self.style = match is_text_in_yaml_1_1(&self.text) {
                Some(true) => PLAIN,
                Some(false) => DOUBLE,
                None => UNKNOWN,
            };
        }
    }

    /// Tells whether there is a text in it of which it isn't known whether it gets quotes.
    pub(crate) fn has_unknown_style(&self) -> bool {
        self.style == UNKNOWN || self.content.iter().any(Held::has_unknown_style)
    }

    /// Sets a field: one that is there keeps its style, a new one gets a key of the given style.
    pub(crate) fn set(&mut self, key: &str, mut value: Held, key_style: u32) {
        value.protect();
        if let Some(existing) = self.get_mut(key) {
            value.style = existing.style;
            *existing = value;
            return;
        }
        self.push(Held::scalar(key, "", key_style));
        self.push(value);
    }

    /// The field as a mapping, made when it is missing; nothing when it is something else.
    pub(crate) fn map_at(&mut self, key: &str) -> Option<&mut Held> {
        if self.position(key).is_none() {
            self.push(Held::scalar(key, "", PLAIN));
            self.push(Held::map());
        }
        self.get_mut(key).filter(|value| value.kind == Kind::Mapping)
    }

    /// Appends what Go's JSON encoder makes of the node; `put_text` writes a string as it does.
    pub(crate) fn write_json(&self, put_text: fn(&str, &mut String), into: &mut String) {
        into.push_str(&format!(
            "{{\"Kind\":{},\"Style\":{},\"Tag\":",
            self.kind as u32, self.style
        ));
        put_text(self.tag, into);
        into.push_str(",\"Value\":");
        put_text(&self.text, into);
        into.push_str(",\"Anchor\":\"\",\"Alias\":null,\"Content\":");
        if self.has_list {
            into.push('[');
            for (position, item) in self.content.iter().enumerate() {
                if position > 0 {
                    into.push(',');
                }
                item.write_json(put_text, into);
            }
            into.push(']');
        } else {
            into.push_str("null");
        }
        into.push_str(",\"HeadComment\":\"\",\"LineComment\":\"\",\"FootComment\":\"\"");
        into.push_str(&format!(",\"Line\":{},\"Column\":{}}}", self.line, self.column));
    }

    /// The same as a node that transformations work on.
    ///
    /// # Errors
    /// When a scalar has a tag that such a node can't have.
    pub(crate) fn to_node(&self) -> Result<Node, String> {
        Ok(match self.kind {
            Kind::Scalar => {
                let tag = tag_named(self.tag).ok_or("a tag that isn't known")?;
                let mut node = Node::scalar(self.text.clone(), tag);
                node.style = match self.style {
                    DOUBLE | SINGLE | UNKNOWN => Style::Quoted,
                    LITERAL => Style::Literal,
                    FOLDED => Style::Folded,
                    _ => Style::Plain,
                };
                node
            }
            Kind::Sequence => {
                let items: Result<Vec<Node>, String> = self.content.iter().map(Held::to_node).collect();
                Node::seq(items?).in_flow(self.style == FLOW)
            }
            Kind::Mapping => {
                let entries: Result<Vec<(Node, Node)>, String> = self
                    .entries()
                    .map(|(key, value)| Ok((key.to_node()?, value.to_node()?)))
                    .collect();
                Node::mapping(entries?).in_flow(self.style == FLOW)
            }
        })
    }

    /// Tells whether a node holds the same keys and texts; mappings in any order.
    pub(crate) fn says(&self, node: &Node) -> bool {
        match &node.data {
            Data::Scalar(text) => self.kind == Kind::Scalar && self.text == *text,
            Data::Seq(items) => {
                self.kind == Kind::Sequence
                    && self.content.len() == items.len()
                    && self
                        .content
                        .iter()
                        .zip(items.iter())
                        .all(|(held, item)| held.says(item))
            }
            Data::Map(entries) => {
                self.kind == Kind::Mapping
                    && self.content.len() == entries.len() * 2
                    && entries
                        .iter()
                        .all(|(key, value)| self.get(key.text()).is_some_and(|held| held.says(value)))
            }
        }
    }
}

/// Tells whether text without quotes is text to yaml.v2, too; nothing when that isn't known.
fn is_text_in_yaml_1_1(text: &str) -> Option<bool> {
    if text.is_empty() || text.contains('\n') {
        return Some(true);
    }
    let is_word = |character: char| character.is_alphanumeric() || "-_./+=@:".contains(character);
    let begins = text.starts_with(|first: char| first.is_alphanumeric());
    if begins && text.chars().all(is_word) && !text.ends_with(':') {
        return Some(!is_non_string_in_yaml_1_1(text));
    }
    if text.contains(['&', '*', '!', '?', '<', '%', '\u{feff}']) {
        return None;
    }
    let source = Source {
        file: 0,
        lines: Lines::After(0),
        maximum_nodes: MAXIMUM_NODES,
        scanner: Dialect::V2,
    };
    let Ok(read) = first_node(text, source) else {
        // What isn't YAML at all is text.
        return Some(true);
    };
    // Nothing but a comment reads as null.
    Some(read.is_some_and(|node| {
        let is_text = matches!(
            resolve(node.text(), Dialect::V2),
            Scalar::Text(_) | Scalar::Timestamp(_)
        );
        node.is_scalar() && (is_text || node.style != Style::Plain)
    }))
}

fn tag_named(name: &str) -> Option<Tag> {
    [
        Tag::None,
        Tag::Null,
        Tag::Bool,
        Tag::Int,
        Tag::Float,
        Tag::Str,
        Tag::Timestamp,
    ]
    .into_iter()
    .find(|tag| tag.name() == name)
}

/// Reads a text of one document.
///
/// # Errors
/// When it isn't that, or has what isn't followed here.
pub(crate) fn read(text: &str) -> Result<Held, String> {
    if text.contains(['\r', '\u{feff}', '\u{85}', '\u{2028}', '\u{2029}']) || text.contains("\n---") {
        return Err("line breaks of other systems, and several documents".to_owned());
    }
    let mut reader = Reader {
        events: Events::new(text, Dialect::V3),
    };
    let root = loop {
        let event = reader.next()?;
        match event.what {
            What::StreamStart | What::DocumentStart => {}
            What::StreamEnd => return Err("an empty text".to_owned()),
            _ => break reader.node(event)?,
        }
    };
    loop {
        match reader.next()?.what {
            What::DocumentEnd => {}
            What::StreamEnd => return Ok(root),
            _ => return Err("several documents".to_owned()),
        }
    }
}

struct Reader<'text> {
    events: Events<'text>,
}

impl<'text> Reader<'text> {
    fn next(&mut self) -> Result<Event<'text>, String> {
        let event = self.events.next().map_err(|_| "a text that isn't YAML".to_owned())?;
        if self.events.comments().is_empty() {
            Ok(event)
        } else {
            Err("comments".to_owned())
        }
    }

    fn node(&mut self, event: Event<'text>) -> Result<Held, String> {
        let plain = |properties: &Properties<'_>| {
            if properties.anchor.is_none() && properties.tag.is_none() {
                Ok(())
            } else {
                Err("anchors, and tags that are written out".to_owned())
            }
        };
        let place = event.start;
        let held = match event.what {
            What::Scalar(text, form, properties) => {
                plain(&properties)?;
                let tag = match form {
                    Written::Plain => resolve(&text, Dialect::V3).tag(),
                    _ => Tag::Str,
                };
                if tag == Tag::Merge {
                    return Err("merge keys".to_owned());
                }
                Held::scalar(&text, tag.name(), style_of(form))
            }
            What::SequenceStart(flow, properties) => {
                plain(&properties)?;
                let mut held = Held::new(Kind::Sequence, "", "!!seq", if flow { FLOW } else { PLAIN });
                loop {
                    let event = self.next()?;
                    if event.what == What::SequenceEnd {
                        break;
                    }
                    held.push(self.node(event)?);
                }
                held
            }
            What::MappingStart(flow, properties) => {
                plain(&properties)?;
                let mut held = Held::new(Kind::Mapping, "", "!!map", if flow { FLOW } else { PLAIN });
                loop {
                    let event = self.next()?;
                    if event.what == What::MappingEnd {
                        break;
                    }
                    let key = self.node(event)?;
                    if key.kind != Kind::Scalar || held.get(&key.text).is_some() {
                        return Err("keys that are no texts, or repeated".to_owned());
                    }
                    held.push(key);
                    let event = self.next()?;
                    held.push(self.node(event)?);
                }
                held
            }
            _ => return Err("aliases".to_owned()),
        };
        let Mark { line, column, .. } = place;
        Ok(held.at(line + 1, column + 1))
    }
}

fn style_of(form: Written) -> u32 {
    match form {
        Written::Plain => PLAIN,
        Written::Single => SINGLE,
        Written::Double => DOUBLE,
        Written::Literal => LITERAL,
        Written::Folded => FOLDED,
    }
}

/// What becomes of a value that yaml.v3 writes and reads again, as kustomize does behind a JSON patch.
///
/// # Errors
/// When the text that yaml.v3 would write isn't known.
pub(crate) fn written_again(value: &Value) -> Result<Held, String> {
    let mut node = from_value(value);
    sort(&mut node)?;
    let text = rewrite::document(&node, &notation(&node))?;
    let held = read(&format!("{text}\n"))?;
    if held.says(&node) {
        Ok(held)
    } else {
        Err("a text that reads otherwise than it was written".to_owned())
    }
}

/// The most keys of a mapping that are put in order here.
const MAXIMUM_KEYS: usize = 1000;

/// Puts the keys of all mappings in yaml.v3's order.
fn sort(node: &mut Node) -> Result<(), String> {
    node.items_mut().into_iter().flatten().try_for_each(sort)?;
    let Some(entries) = node.entries_mut() else {
        return Ok(());
    };
    entries.iter_mut().try_for_each(|(_, value)| sort(value))?;
    if entries.len() > MAXIMUM_KEYS {
        return Err(format!("a mapping of more than {MAXIMUM_KEYS} keys"));
    }
    let mut sorted: Vec<(Node, Node)> = Vec::with_capacity(entries.len());
    for entry in entries.drain(..) {
        let position = sorted
            .iter()
            .position(|(key, _)| is_before(entry.0.text(), key.text()))
            .unwrap_or(sorted.len());
        sorted.insert(position, entry);
    }
    // The order has circles, in which Go's result depends on its algorithm.
    let mut rest = sorted.as_slice();
    while let Some(((first, _), others)) = rest.split_first() {
        if others.iter().any(|(other, _)| is_before(other.text(), first.text())) {
            return Err("keys that yaml.v3 has no one order for".to_owned());
        }
        rest = others;
    }
    *entries = sorted;
    Ok(())
}

/// Whether yaml.v3 puts a key before another: behind a digit letters come first, everything else is as in yaml.v2.
fn is_before(one: &str, other: &str) -> bool {
    let mut after_digit = false;
    for (first, second) in one.chars().zip(other.chars()) {
        if first == second {
            after_digit = first.is_numeric();
            continue;
        }
        if after_digit && first.is_alphabetic() != second.is_alphabetic() {
            return first.is_alphabetic();
        }
        break;
    }
    emit::less(one, other)
}

/// The notation that yaml.v3 chooses for new nodes.
fn notation(node: &Node) -> Notation {
    let form = match &node.data {
        Data::Scalar(text) if text.contains('\n') => Form::Literal,
        Data::Scalar(text) if node.tag == Tag::Str => {
            let is_read_otherwise = resolve(text, Dialect::V3).tag() != Tag::Str
                || resolve(text, Dialect::V2).tag() == Tag::Bool
                || emit::is_base_60(text);
            if is_read_otherwise { Form::Double } else { Form::Plain }
        }
        _ => Form::Plain,
    };
    Notation {
        form,
        items: node.items().iter().map(notation).collect(),
        entries: node
            .entries()
            .iter()
            .map(|(key, value)| (notation(key), notation(value)))
            .collect(),
        ..Notation::default()
    }
}
