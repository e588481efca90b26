//! Owns reading YAML text into nodes: documents, aliases and every limit. Refuses text that isn't UTF-8 or passes a limit.

use std::borrow::Cow;
use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle, Span, StructureStyle};
use memchr::{memchr_iter, memmem};

use super::go_scanner;
use super::node::{Data, Node, Style, Tag};
use super::scalar::{Dialect, resolve};

/// The deepest nesting that a document may have.
pub(super) const MAXIMUM_DEPTH: usize = 200;

/// The most nodes that the aliases of one document may stand for together. yaml.v3 begins to refuse there, too.
const MAXIMUM_ALIASED: usize = 400_000;

/// Why text couldn't be read.
#[derive(Debug)]
pub(crate) struct ReadError {
    /// The line in the text, from 1.
    pub(crate) line: u32,
    pub(crate) message: String,
}

/// How the lines of a text are counted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lines {
    /// The text has lines of its own in its file, after so many others.
    After(u32),
    /// All of the text counts as one line of its file: quotes and folded blocks move line breaks about.
    On(u32),
}

impl Lines {
    /// The line in the file for a line of the text.
    pub(crate) fn number(self, line: u32) -> u32 {
        match self {
            Lines::After(before) => before.saturating_add(line),
            Lines::On(line) => line,
        }
    }

    /// The same after so many lines of the text.
    pub(crate) fn skip(self, lines: usize) -> Self {
        match self {
            Lines::After(before) => Lines::After(before.saturating_add(u32::try_from(lines).unwrap_or(0))),
            Lines::On(line) => Lines::On(line),
        }
    }
}

/// Where text comes from and how much of it may be read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source {
    /// The number of the file in this build.
    pub(crate) file: u32,
    /// Where the text stands in the file.
    pub(crate) lines: Lines,
    /// The most nodes that the text may grow to, aliases expanded.
    pub(crate) maximum_nodes: usize,
}

/// Reads the first document of the text; `None` when it has none, or only null.
///
/// Like kyaml, which decodes one document and ignores what follows it.
///
/// # Errors
/// When the text isn't YAML, or passes a limit.
pub(crate) fn first_document(text: &str, source: Source) -> Result<Option<Node>, ReadError> {
    let Some(read) = super::quick::document(text, source) else {
        return any_document(text, source);
    };
    debug_assert!(
        matches!(any_document(text, source), Ok(any) if is_identical(any.as_ref(), read.as_ref())),
        "the two ways to read don't agree on {text:?}"
    );
    Ok(read)
}

/// Tells whether two nodes are one to the last line of them.
fn is_identical(one: Option<&Node>, other: Option<&Node>) -> bool {
    let (Some(one), Some(other)) = (one, other) else {
        return one.is_none() && other.is_none();
    };
    let facts = |node: &Node| (node.tag, node.style, node.tagged, node.line, node.source);
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
    Ok(first_node(text, source)?.filter(|node| !node.is_null()))
}

/// Reads the first document of any text, which may be a null that somebody spelled out.
///
/// # Errors
/// As [`first_document`].
pub(crate) fn first_node(text: &str, source: Source) -> Result<Option<Node>, ReadError> {
    let read = match parsed(text, source) {
        Ok(read) => read,
        Err(error) => match go_scanner::mended(text) {
            Cow::Owned(mended) => parsed(&mended, source).map_err(|_| error)?,
            Cow::Borrowed(_) => return Err(error),
        },
    };
    go_scanner::check_tabs(text).map_err(|tab| ReadError {
        line: source.lines.number(tab.line),
        message: tab.message.to_owned(),
    })?;
    Ok(read)
}

fn parsed(text: &str, source: Source) -> Result<Option<Node>, ReadError> {
    let mut options = granit_parser::Options::default();
    options.set_emit_comments(false);
    let parser = Parser::new_from_str_with_options(text, options);
    let mut reader = Reader {
        parser,
        text,
        source,
        anchors: HashMap::new(),
        items: Vec::new(),
        entries: Vec::new(),
        left: source.maximum_nodes,
        aliased: 0,
        flows: 0,
    };
    loop {
        let Some((event, span)) = reader.next()? else {
            return Ok(None);
        };
        match event {
            Event::StreamStart | Event::DocumentStart(..) => {}
            // The end of a document that never began.
            Event::StreamEnd if text.lines().any(|line| line.trim_end() == "...") => {
                return reader.fail(&span, "did not find expected node content");
            }
            Event::StreamEnd | Event::DocumentEnd => return Ok(None),
            other => {
                let node = reader.node(other, span, 0)?;
                reader.end_of_document()?;
                return Ok(Some(node));
            }
        }
    }
}

struct Reader<'text> {
    parser: Parser<'text, granit_parser::StrInput<'text>>,
    text: &'text str,
    source: Source,
    /// What each anchor stands for; nothing while it is being read.
    anchors: HashMap<usize, Option<Anchored>>,
    /// What has been read of the collections that are open, so that each gets exactly the room that it needs when it ends.
    items: Vec<Node>,
    entries: Vec<(Node, Node)>,
    left: usize,
    /// Nodes that aliases have stood for so far.
    aliased: usize,
    /// How many `{` and `[` are open.
    flows: usize,
}

/// An anchor's node, measured once: a bomb is refused before anything of it is copied or walked.
struct Anchored {
    node: Node,
    size: usize,
    depth: usize,
}

impl<'text> Reader<'text> {
    fn next(&mut self) -> Result<Option<(Event<'text>, Span)>, ReadError> {
        match self.parser.next_event() {
            None => Ok(None),
            Some(Ok(pair)) => Ok(Some(pair)),
            Some(Err(error)) => Err(ReadError {
                line: self
                    .source
                    .lines
                    .number(u32::try_from(error.marker().line()).unwrap_or(0)),
                message: error.info().to_owned(),
            }),
        }
    }

    fn end_of_document(&mut self) -> Result<(), ReadError> {
        // The rest of this document was read; reading its end makes text after it that isn't YAML an error, as in Go.
        self.next().map(|_| ())
    }

    fn line(&self, span: &Span) -> u32 {
        self.source.lines.number(u32::try_from(span.start.line()).unwrap_or(0))
    }

    fn fail<T>(&self, span: &Span, message: impl Into<String>) -> Result<T, ReadError> {
        Err(ReadError {
            line: self.line(span),
            message: message.into(),
        })
    }

    fn spend(&mut self, nodes: usize, span: &Span) -> Result<(), ReadError> {
        match self.left.checked_sub(nodes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => self.fail(
                span,
                format!(
                    "the document has more than {} nodes with its aliases expanded",
                    self.source.maximum_nodes
                ),
            ),
        }
    }

    fn node(&mut self, event: Event<'text>, span: Span, depth: usize) -> Result<Node, ReadError> {
        if depth > MAXIMUM_DEPTH {
            return self.fail(&span, format!("nested deeper than {MAXIMUM_DEPTH} levels"));
        }
        self.spend(1, &span)?;
        let mut line = self.line(&span);
        let (mut node, anchor, tag) = match event {
            Event::Alias(id) => {
                return self.alias(id, &span, depth);
            }
            Event::Scalar(text, style, anchor, tag) => {
                let quoted = style != ScalarStyle::Plain;
                // An empty value arrives as a null without text; its source has none either.
                let mut text = if !quoted && span.is_empty() { "" } else { &*text };
                if matches!(style, ScalarStyle::Literal | ScalarStyle::Folded) && self.ends_without_break(&span) {
                    text = text.strip_suffix('\n').unwrap_or(text);
                }
                if style == ScalarStyle::DoubleQuoted
                    && let Some(why) = span
                        .byte_range()
                        .and_then(|range| go_scanner::bad_escape(self.text.get(range)?))
                {
                    return self.fail(&span, why);
                }
                if matches!(style, ScalarStyle::Literal | ScalarStyle::Folded) {
                    line = self.source.lines.number(self.header_line(&span));
                }
                let own = if quoted {
                    Tag::Str
                } else {
                    resolve(text, Dialect::V3).tag()
                };
                let left_out = self.flows > 0 && !quoted && text.is_empty();
                let mut node = Node::scalar(text, own);
                node.style = match style {
                    ScalarStyle::Plain if left_out => Style::LeftOut,
                    ScalarStyle::Plain => Style::Plain,
                    ScalarStyle::Folded => Style::Folded,
                    ScalarStyle::Literal => Style::Literal,
                    _ => Style::Quoted,
                };
                (node, anchor, tag)
            }
            Event::SequenceStart(structure, anchor, tag) => {
                self.open(anchor);
                let first = self.items.len();
                let flow = usize::from(structure == StructureStyle::Flow);
                self.flows += flow;
                loop {
                    match self.next()? {
                        None => return self.fail(&span, "the sequence doesn't end"),
                        Some((Event::SequenceEnd, _)) => break,
                        Some((event, span)) => {
                            let item = self.node(event, span, depth + 1)?;
                            self.items.push(item);
                        }
                    }
                }
                self.flows -= flow;
                let node = Node::seq(self.items.drain(first..).collect());
                (node.in_flow(structure == StructureStyle::Flow), anchor, tag)
            }
            Event::MappingStart(structure, anchor, tag) => {
                self.open(anchor);
                let first = self.entries.len();
                let flow = usize::from(structure == StructureStyle::Flow);
                self.flows += flow;
                loop {
                    let key = match self.next()? {
                        None => return self.fail(&span, "the mapping doesn't end"),
                        Some((Event::MappingEnd, _)) => break,
                        Some((event, span)) => self.node(event, span, depth + 1)?,
                    };
                    let Some((event, span)) = self.next()? else {
                        return self.fail(&span, "the mapping doesn't end");
                    };
                    let value = self.node(event, span, depth + 1)?;
                    self.entries.push((key, value));
                }
                self.flows -= flow;
                let node = Node::mapping(self.entries.drain(first..).collect());
                (node.in_flow(structure == StructureStyle::Flow), anchor, tag)
            }
            other => return self.fail(&span, format!("unexpected {other:?}")),
        };
        node.line = line;
        node.source = self.source.file;
        if let Some(tag) = tag {
            let name = tag
                .core_suffix()
                .map_or_else(|| tag.original(), |suffix| format!("!!{suffix}"));
            if name != "!" {
                node.tagged = true;
                node.tag = named(&name, &tag.original());
            }
        }
        if anchor != 0 {
            let anchored = Anchored {
                size: size(&node),
                depth: deep(&node),
                node: node.clone(),
            };
            self.anchors.insert(anchor, Some(anchored));
        }
        Ok(node)
    }

    /// A copy of what an alias stands for.
    fn alias(&mut self, id: usize, span: &Span, depth: usize) -> Result<Node, ReadError> {
        let (size, deep) = match self.anchors.get(&id) {
            Some(Some(anchored)) => (anchored.size, anchored.depth),
            Some(None) => return self.fail(span, "an anchor's value contains itself"),
            None => return self.fail(span, "unknown anchor"),
        };
        self.aliased = self.aliased.saturating_add(size);
        if self.aliased > MAXIMUM_ALIASED {
            return self.fail(
                span,
                format!(
                    "the document's aliases stand for more than {MAXIMUM_ALIASED} nodes: write less of it by aliases"
                ),
            );
        }
        self.spend(size, span)?;
        if depth + deep > MAXIMUM_DEPTH {
            return self.fail(span, format!("nested deeper than {MAXIMUM_DEPTH} levels"));
        }
        match self.anchors.get(&id) {
            Some(Some(anchored)) => Ok(anchored.node.clone()),
            _ => self.fail(span, "unknown anchor"),
        }
    }

    /// Tells whether a block scalar's last line is the last of the text and has no line break: then, in Go, its value has none.
    fn ends_without_break(&self, span: &Span) -> bool {
        !self.text.ends_with(['\n', '\r']) && span.byte_range().is_some_and(|range| range.end >= self.text.len())
    }

    /// The line of a block scalar's indicator: its span begins where its text does.
    fn header_line(&self, span: &Span) -> u32 {
        let before = span
            .byte_range()
            .and_then(|range| self.text.get(..range.start))
            .unwrap_or("");
        let blank = before.trim_end().len();
        let breaks = before.get(blank..).unwrap_or("").matches('\n').count();
        u32::try_from(span.start.line().saturating_sub(breaks)).unwrap_or(0)
    }

    fn open(&mut self, anchor: usize) {
        if anchor != 0 {
            self.anchors.insert(anchor, None);
        }
    }
}

fn named(name: &str, original: &str) -> Tag {
    match name {
        "!!null" => Tag::Null,
        "!!bool" => Tag::Bool,
        "!!int" => Tag::Int,
        "!!float" => Tag::Float,
        "!!str" => Tag::Str,
        "!!map" => Tag::Map,
        "!!seq" => Tag::Seq,
        _ => match original {
            "!!timestamp" => Tag::Timestamp,
            "!!binary" => Tag::Binary,
            "!!merge" => Tag::Merge,
            _ => Tag::Other,
        },
    }
}

fn size(node: &Node) -> usize {
    match &node.data {
        Data::Scalar(_) => 1,
        Data::Seq(items) => 1 + items.iter().map(size).sum::<usize>(),
        Data::Map(entries) => {
            1 + entries
                .iter()
                .map(|(key, value)| size(key) + size(value))
                .sum::<usize>()
        }
    }
}

fn deep(node: &Node) -> usize {
    match &node.data {
        Data::Scalar(_) => 0,
        Data::Seq(items) => 1 + items.iter().map(deep).max().unwrap_or(0),
        Data::Map(entries) => {
            1 + entries
                .iter()
                .map(|(key, value)| deep(key).max(deep(value)))
                .max()
                .unwrap_or(0)
        }
    }
}

/// One document of a text of several, as kyaml cuts them: at lines that start with `---`, even before any parsing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Chunk<'text> {
    pub(crate) text: &'text str,
    /// Lines of the whole text before this chunk.
    pub(crate) lines_before: u32,
}

/// Cuts a text into its documents.
///
/// # Errors
/// When a separator is followed by content on its own line, which kyaml refuses too.
pub(crate) fn documents(text: &str) -> Result<Vec<Chunk<'_>>, ReadError> {
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
