//! Reads YAML text into nodes: documents, aliases and all limits. A text that isn't UTF-8 or exceeds a limit is an error.

use std::collections::HashMap;

use memchr::{memchr_iter, memmem};

use super::cursor::Mark;
use super::events::{Event, EventKind, EventReader, Properties};
use super::folded;
use super::node::{Data, Node, Remark, Style, Tag};
use super::scalar::{Dialect, resolve, resolve_node};
use super::tokens::{Form, Problem};
use crate::meter;

/// The deepest nesting that a document may have.
pub(super) const MAXIMUM_DEPTH: usize = 200;

/// The maximum number of nodes that the aliases of one document may stand for together. yaml.v3 begins to refuse at this number too.
const MAXIMUM_ALIASED: usize = 400_000;

/// A mark that some Windows editors write at the start of a text. The mark is no part of the text.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// The reason why a text can't be read, and the line.
#[derive(Debug)]
pub struct ReadError {
    /// The line in the text, from 1.
    pub line: u32,
    /// The error.
    pub message: String,
}

/// How the line numbers of a text become line numbers of its file.
#[derive(Debug, Clone, Copy)]
pub enum Lines {
    /// The text has its own lines in its file, after this number of other lines.
    After(u32),
    /// The whole text counts as one line of its file, because quotes and folded blocks move line breaks.
    On(u32),
}

impl Lines {
    /// Returns the line in the file for a line of the text.
    pub fn number_in_file(self, line: u32) -> u32 {
        match self {
            Lines::After(before) => before.saturating_add(line),
            Lines::On(line) => line,
        }
    }

    /// Returns the lines of the text after its first `lines` lines.
    pub fn skip(self, lines: usize) -> Self {
        match self {
            Lines::After(before) => Lines::After(before.saturating_add(u32::try_from(lines).unwrap_or(0))),
            Lines::On(line) => Lines::On(line),
        }
    }
}

/// The origin of a text, with limits for reading it.
#[derive(Debug, Clone, Copy)]
pub struct Source {
    /// The number of the file, which the nodes keep.
    pub file: u32,
    /// The position of the text in the file.
    pub lines: Lines,
    /// The most nodes that the text may grow to, aliases expanded.
    pub maximum_nodes: usize,
    /// The library whose scanner reads the text. Only yaml.v3's scanner reads on for comments, and accepts tabs before them.
    pub scanner: Dialect,
}

/// Reads the first document of the text; `None` if the text has no document, or only null.
///
/// Like kyaml, the function decodes one document and ignores the text after it.
///
/// # Errors
/// If the text isn't YAML, or exceeds a limit.
pub fn first_document(text: &str, source: Source) -> Result<Option<Node>, ReadError> {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let quick = {
        // If the fast parser gives up, the complete parser reads from the start.
        let begun = meter::in_passing();
        let read = super::quick::read_document(text, source);
        if read.is_some() {
            begun.stays();
        }
        read
    };
    let Some(read) = quick else {
        return any_document(text, source);
    };
    debug_assert!(
        {
            let _passing = meter::in_passing();
            let any = any_document(text, source);
            meter::check().is_err() || matches!(any, Ok(any) if is_identical(any.as_ref(), read.as_ref()))
        },
        "the two ways to read don't agree on {text:?}"
    );
    Ok(read)
}

/// Checks whether two nodes are equal, including their lines.
fn is_identical(one: Option<&Node>, other: Option<&Node>) -> bool {
    let (Some(one), Some(other)) = (one, other) else {
        return one.is_none() && other.is_none();
    };
    let facts = |node: &Node| {
        let places = (node.line, node.source, node.remark);
        (node.tag, node.style, node.tagged, places)
    };
    let each = |one: &Node, other: &Node| is_identical(Some(one), Some(other));
    facts(one) == facts(other)
        && match (&one.data, &other.data) {
            (Data::Scalar(one), Data::Scalar(other)) => one == other,
            (Data::Seq(one), Data::Seq(other)) => {
                one.len() == other.len() && one.iter().zip(other.iter()).all(|(one, other)| each(one, other))
            }
            (Data::Map(one), Data::Map(other)) => {
                let both = |((key, value), (other_key, other_value)): (&(Node, Node), &(Node, Node))| {
                    each(key, other_key) && each(value, other_value)
                };
                one.len() == other.len() && one.iter().zip(other.iter()).all(both)
            }
            _ => false,
        }
}

/// Reads the first document of any text.
fn any_document(text: &str, source: Source) -> Result<Option<Node>, ReadError> {
    Ok(any_node(text, source)?.filter(|node| !node.is_null()))
}

/// Reads the first document of any text. The document may be an explicit null.
///
/// # Errors
/// As [`first_document`].
pub fn first_node(text: &str, source: Source) -> Result<Option<Node>, ReadError> {
    any_node(text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text), source)
}

fn any_node(text: &str, source: Source) -> Result<Option<Node>, ReadError> {
    let mut reader = Reader {
        events: EventReader::new(text, source.scanner),
        source,
        anchors: HashMap::new(),
        items: Vec::new(),
        entries: Vec::new(),
        left: source.maximum_nodes,
        aliased: 0,
        flows: 0,
        end_of_content: usize::MAX,
    };
    loop {
        let event = reader.next()?;
        match event.what {
            EventKind::StreamStart | EventKind::DocumentStart => {}
            EventKind::StreamEnd | EventKind::DocumentEnd => return Ok(None),
            _ => {
                let mut node = reader.read_node(event, 0)?;
                // Finding the document's end makes text after it that isn't YAML an error, as far as Go reads on.
                let behind = reader.end_of_content..reader.next()?.start.at;
                let mut comments = reader.events.take_comments().into_iter();
                if comments.any(|(mark, _)| behind.contains(&mark.at)) {
                    node.remark = Remark::BeforeComment;
                }
                return Ok(Some(node));
            }
        }
    }
}

/// The state of reading one text: its events, its anchors, and the limits that are left.
struct Reader<'text> {
    events: EventReader<'text>,
    source: Source,
    /// The node of each anchor; `None` while the reader is inside that node.
    anchors: HashMap<&'text str, Option<Anchored>>,
    /// The parts of the open collections that have been read. Each collection is allocated with its exact size when it ends.
    items: Vec<Node>,
    entries: Vec<(Node, Node)>,
    left: usize,
    /// Nodes that aliases have stood for so far.
    aliased: usize,
    /// The number of open `{` and `[`.
    flows: usize,
    /// The end of the last scalar, if it is a block that keeps its last blank lines. A comment after any other scalar has no effect.
    end_of_content: usize,
}

/// An anchor's node, measured once: a bomb is refused before anything of it is copied or walked.
struct Anchored {
    node: Node,
    size: usize,
    depth: usize,
}

impl<'text> Reader<'text> {
    fn next(&mut self) -> Result<Event<'text>, ReadError> {
        self.events.next().map_err(|Problem { line, message }| ReadError {
            line: self
                .source
                .lines
                .number_in_file(u32::try_from(line).unwrap_or(u32::MAX)),
            message: message.to_owned(),
        })
    }

    fn line_of(&self, mark: Mark) -> u32 {
        self.source
            .lines
            .number_in_file(u32::try_from(mark.line + 1).unwrap_or(u32::MAX))
    }

    fn fail<T>(&self, mark: Mark, message: impl Into<String>) -> Result<T, ReadError> {
        Err(ReadError {
            line: self.line_of(mark),
            message: message.into(),
        })
    }

    fn spend_nodes(&mut self, nodes: usize, mark: Mark) -> Result<(), ReadError> {
        if let Err(message) = meter::check() {
            return self.fail(mark, message);
        }
        match self.left.checked_sub(nodes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => self.fail(
                mark,
                format!(
                    "the document has more than {} nodes with its aliases expanded",
                    self.source.maximum_nodes
                ),
            ),
        }
    }

    fn read_node(&mut self, event: Event<'text>, depth: usize) -> Result<Node, ReadError> {
        let mark = event.start;
        if depth > MAXIMUM_DEPTH {
            return self.fail(mark, format!("nested deeper than {MAXIMUM_DEPTH} levels"));
        }
        self.spend_nodes(1, mark)?;
        let (mut node, Properties { anchor, tag }) = match event.what {
            EventKind::Alias(name) => return self.copy_alias(name, mark, depth),
            EventKind::Scalar(text, form, properties) => {
                self.end_of_content = match form {
                    Form::Literal | Form::Folded if folded::is_kept(&text) => event.end.at,
                    _ => usize::MAX,
                };
                (untagged_scalar(&text, form, self.flows > 0), properties)
            }
            EventKind::SequenceStart(is_flow, properties) => {
                self.enter_collection(&properties, is_flow);
                let first = self.items.len();
                loop {
                    let event = self.next()?;
                    if event.what == EventKind::SequenceEnd {
                        break;
                    }
                    let item = self.read_node(event, depth + 1)?;
                    self.items.push(item);
                }
                self.flows -= usize::from(is_flow);
                let node = Node::seq(self.items.drain(first..).collect());
                (node.in_flow(is_flow), properties)
            }
            EventKind::MappingStart(is_flow, properties) => {
                self.enter_collection(&properties, is_flow);
                let first = self.entries.len();
                loop {
                    let event = self.next()?;
                    if event.what == EventKind::MappingEnd {
                        break;
                    }
                    let key = self.read_node(event, depth + 1)?;
                    let event = self.next()?;
                    let value = self.read_node(event, depth + 1)?;
                    self.entries.push((key, value));
                }
                self.flows -= usize::from(is_flow);
                let node = Node::mapping(self.entries.drain(first..).collect());
                (node.in_flow(is_flow), properties)
            }
            EventKind::StreamStart
            | EventKind::StreamEnd
            | EventKind::DocumentStart
            | EventKind::DocumentEnd
            | EventKind::SequenceEnd
            | EventKind::MappingEnd => return self.fail(mark, "the document ends inside a collection"),
        };
        node.line = self.line_of(mark);
        node.source = self.source.file;
        if let Some(tag) = tag {
            match self.source.scanner {
                Dialect::V3 => tag_node(&mut node, &tag),
                Dialect::V2 => {
                    tag_scalar_at_once(&mut node, &tag).or_else(|message| self.fail(mark, message))?;
                }
            }
        }
        if let Some(anchor) = anchor {
            let anchored = Anchored {
                size: count_nodes(&node),
                depth: measure_depth(&node),
                node: node.clone(),
            };
            self.anchors.insert(anchor, Some(anchored));
        }
        Ok(node)
    }

    /// Copies the node that an alias stands for.
    fn copy_alias(&mut self, name: &str, mark: Mark, depth: usize) -> Result<Node, ReadError> {
        let (size, deep) = match self.anchors.get(name) {
            Some(Some(anchored)) => (anchored.size, anchored.depth),
            Some(None) => return self.fail(mark, "an anchor's value contains itself"),
            None => return self.fail(mark, "unknown anchor"),
        };
        self.aliased = self.aliased.saturating_add(size);
        if self.aliased > MAXIMUM_ALIASED {
            return self.fail(
                mark,
                format!(
                    "the document's aliases stand for more than {MAXIMUM_ALIASED} nodes: write less of it by aliases"
                ),
            );
        }
        self.spend_nodes(size, mark)?;
        if depth + deep > MAXIMUM_DEPTH {
            return self.fail(mark, format!("nested deeper than {MAXIMUM_DEPTH} levels"));
        }
        match self.anchors.get(name) {
            Some(Some(anchored)) => Ok(anchored.node.clone()),
            _ => self.fail(mark, "unknown anchor"),
        }
    }

    /// Enters a collection. Its anchor has no node yet.
    fn enter_collection(&mut self, properties: &Properties<'text>, is_flow: bool) {
        if let Some(anchor) = properties.anchor {
            self.anchors.insert(anchor, None);
        }
        self.flows += usize::from(is_flow);
    }
}

/// Reads one scalar as yaml.v2 does, with the tag before it.
///
/// # Errors
/// If the tag doesn't fit the text.
pub fn read_scalar(text: &str, form: Form, tag: Option<&str>) -> Result<Node, String> {
    let mut node = untagged_scalar(text, form, false);
    if let Some(tag) = tag {
        tag_scalar_at_once(&mut node, tag)?;
    }
    Ok(node)
}

fn untagged_scalar(text: &str, form: Form, is_in_flow: bool) -> Node {
    let tag = match form {
        Form::Plain => resolve(text, Dialect::V3).tag(),
        _ => Tag::Str,
    };
    let mut node = Node::scalar(text, tag);
    node.style = match form {
        Form::Plain if is_in_flow && text.is_empty() => Style::LeftOut,
        Form::Plain => Style::Plain,
        Form::Folded => Style::Folded,
        Form::Literal => Style::Literal,
        Form::Single | Form::Double => Style::Quoted,
    };
    node
}

/// Gives a node its tag, which yaml.v3 looks at when it decodes the node.
fn tag_node(node: &mut Node, tag: &str) {
    if tag != "!" {
        node.tagged = true;
        node.tag = parse_tag(tag);
    }
}

/// Gives a scalar its tag as yaml.v2 does, which decodes immediately and ignores tags of collections.
///
/// # Errors
/// If the tag doesn't fit the text.
fn tag_scalar_at_once(node: &mut Node, tag: &str) -> Result<(), String> {
    if !node.is_scalar() {
        return Ok(());
    }
    node.tagged = true;
    node.tag = match parse_tag(tag) {
        Tag::Merge if node.text() == "<<" => Tag::Merge,
        Tag::Merge | Tag::Map | Tag::Seq | Tag::Other => Tag::Str,
        known => known,
    };
    if node.tag != Tag::Merge {
        resolve_node(node, Dialect::V2)?;
    }
    Ok(())
}

/// Returns the meaning of a tag in its short form.
fn parse_tag(tag: &str) -> Tag {
    match tag {
        "!!null" => Tag::Null,
        "!!bool" => Tag::Bool,
        "!!int" => Tag::Int,
        "!!float" => Tag::Float,
        "!!str" => Tag::Str,
        "!!map" => Tag::Map,
        "!!seq" => Tag::Seq,
        "!!timestamp" => Tag::Timestamp,
        "!!binary" => Tag::Binary,
        "!!merge" => Tag::Merge,
        _ => Tag::Other,
    }
}

fn count_nodes(node: &Node) -> usize {
    match &node.data {
        Data::Scalar(_) => 1,
        Data::Seq(items) => 1 + items.iter().map(count_nodes).sum::<usize>(),
        Data::Map(entries) => {
            1 + entries
                .iter()
                .map(|(key, value)| count_nodes(key) + count_nodes(value))
                .sum::<usize>()
        }
    }
}

fn measure_depth(node: &Node) -> usize {
    match &node.data {
        Data::Scalar(_) => 0,
        Data::Seq(items) => 1 + items.iter().map(measure_depth).max().unwrap_or(0),
        Data::Map(entries) => {
            1 + entries
                .iter()
                .map(|(key, value)| measure_depth(key).max(measure_depth(value)))
                .max()
                .unwrap_or(0)
        }
    }
}

/// A document of a text with several documents. Like kyaml, the cut is at lines that start with `---`, before any parsing.
#[derive(Debug, PartialEq, Eq)]
pub struct Chunk<'text> {
    /// The text of the document.
    pub text: &'text str,
    /// Lines of the whole text before this chunk.
    pub lines_before: u32,
}

/// Cuts a text into its documents.
///
/// # Errors
/// If content follows a separator on its line. kyaml refuses such content too.
pub fn split_documents(text: &str) -> Result<Vec<Chunk<'_>>, ReadError> {
    let mut chunks = Vec::new();
    let mut rest = text;
    let mut lines_before = 0;
    let mut from = 0;
    if text.is_empty() {
        return Ok(chunks);
    }
    let separator = memmem::Finder::new("\n---");
    while let Some(found) = rest.get(from..).and_then(|tail| separator.find(tail.as_bytes())) {
        let start = from + found;
        let after = start + 4;
        let Some(line_length) = rest.get(after..).and_then(|tail| tail.find('\n')) else {
            break;
        };
        let trailing = rest.get(after..after + line_length).unwrap_or("").trim();
        let chunk = rest.get(..start + 1).unwrap_or("");
        let lines = u32::try_from(memchr_iter(b'\n', chunk.as_bytes()).count()).unwrap_or(0);
        if !trailing.is_empty() && !trailing.starts_with('#') {
            return Err(ReadError {
                line: lines_before + lines + 1,
                message: format!(
                    "invalid document separator: ---{}",
                    rest.get(after..after + line_length).unwrap_or("").trim_end()
                ),
            });
        }
        chunks.push(Chunk {
            text: chunk,
            lines_before,
        });
        lines_before += lines + 1;
        rest = rest.get(after + line_length + 1..).unwrap_or("");
        from = 0;
    }
    chunks.push(Chunk {
        text: rest,
        lines_before,
    });
    Ok(chunks)
}
