//! Owns how a text of YAML is written: quotes, braces and comments, in the shape of the nodes that it holds. Refuses what
//! [`super::rewrite`] can't write again as yaml.v3 would: anchors, tags of collections, and comments that belong to no single line.

use std::collections::BTreeMap;

use granit_parser::{Event, Parser, ScalarStyle, Span, StructureStyle};

/// How one node is written.
#[derive(Debug, Default)]
pub(crate) struct Notation {
    pub(crate) form: Form,
    /// The comment lines above it.
    pub(crate) above: Vec<String>,
    /// The comment behind it.
    pub(crate) behind: Option<String>,
    /// The tag that a scalar is written with.
    pub(crate) tag: Option<String>,
    pub(crate) items: Vec<Notation>,
    /// Keys and values.
    pub(crate) entries: Vec<(Notation, Notation)>,
}

/// The notation of a node without its comments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Form {
    /// A plain scalar, or a collection in lines of its own.
    #[default]
    Plain,
    Single,
    Double,
    Literal,
    Folded,
    /// A collection in braces or brackets.
    Flow,
}

/// A comment, its first `#` included.
struct Comment {
    column: usize,
    /// Nothing stands before it on its line.
    alone: bool,
    text: String,
}

/// Comments by their line.
type Comments = BTreeMap<usize, Comment>;

/// Reads the notation of the first document of a text that has been read as YAML already.
///
/// # Errors
/// When the text has something that can't be written again; says what and on which line of the text.
pub(crate) fn of(text: &str) -> Result<Notation, String> {
    let mut options = granit_parser::Options::default();
    options.set_emit_comments(true);
    let mut reader = Reader {
        parser: Parser::new_from_str_with_options(text, options),
        lines: text.lines().collect(),
        comments: Comments::new(),
        waiting: Vec::new(),
    };
    let mut root = loop {
        match reader.next()? {
            None => return Err("the text ends before its document".to_owned()),
            Some((Event::StreamStart | Event::DocumentStart(..), _)) => {}
            Some((event, span)) => break reader.node(event, &span)?,
        }
    };
    // What follows the document's content, until its end, may still be a comment.
    while let Some((event, _)) = reader.next()? {
        if matches!(event, Event::DocumentEnd | Event::StreamEnd) {
            break;
        }
    }
    let mut comments = reader.comments;
    place(&mut root, &mut reader.waiting.into_iter(), &mut comments);
    match comments.keys().next() {
        None => Ok(root),
        Some(line) => Err(format!(
            "the comment on line {line} of the text stands neither behind a value nor right above a field or an element, so it \
             can't be kept in its place; move it there"
        )),
    }
}

/// Where a node that may have comments was found, in the order of [`place`].
struct Spot {
    /// The first line, and the column where it or its dash begins.
    start: (usize, usize),
    /// The last line of a scalar, when nothing but a comment follows it there.
    end: Option<usize>,
}

struct Reader<'text> {
    parser: Parser<'text, granit_parser::StrInput<'text>>,
    lines: Vec<&'text str>,
    comments: Comments,
    waiting: Vec<Spot>,
}

impl<'text> Reader<'text> {
    /// The next event that is no comment.
    fn next(&mut self) -> Result<Option<(Event<'text>, Span)>, String> {
        loop {
            match self.parser.next_event() {
                None => return Ok(None),
                Some(Err(error)) => return Err(error.info().to_owned()),
                Some(Ok((Event::Comment(text, _), span))) => {
                    let line = self.lines.get(span.start.line().saturating_sub(1)).copied();
                    let comment = Comment {
                        column: span.start.col(),
                        alone: line.is_some_and(|line| line.trim_start().starts_with('#')),
                        text: format!("#{text}"),
                    };
                    self.comments.insert(span.start.line(), comment);
                }
                Some(Ok(pair)) => return Ok(Some(pair)),
            }
        }
    }

    fn inside(&mut self) -> Result<(Event<'text>, Span), String> {
        self.next()?
            .ok_or_else(|| "the text ends inside a collection".to_owned())
    }

    fn node(&mut self, event: Event<'text>, span: &Span) -> Result<Notation, String> {
        let line = span.start.line();
        let refuse = |what: &str| {
            Err(format!(
                "{what} on line {line} of the text can't be written again; write it out"
            ))
        };
        let mut notation = Notation::default();
        let (anchor, tag) = match event {
            Event::Alias(_) => return refuse("an alias"),
            Event::Scalar(_, style, anchor, tag) => {
                notation.form = match style {
                    ScalarStyle::SingleQuoted => Form::Single,
                    ScalarStyle::DoubleQuoted => Form::Double,
                    ScalarStyle::Literal => Form::Literal,
                    ScalarStyle::Folded => Form::Folded,
                    _ => Form::Plain,
                };
                (anchor, tag)
            }
            Event::SequenceStart(structure, anchor, tag) => {
                notation.form = form_of(structure);
                loop {
                    let (event, inner) = self.inside()?;
                    if event == Event::SequenceEnd {
                        break;
                    }
                    let block = notation.form == Form::Plain;
                    let column = if block { self.dash(&inner) } else { None };
                    let item = self.spotted(event, &inner, column, block)?;
                    notation.items.push(item);
                }
                (anchor, tag)
            }
            Event::MappingStart(structure, anchor, tag) => {
                notation.form = form_of(structure);
                loop {
                    let (event, inner) = self.inside()?;
                    if event == Event::MappingEnd {
                        break;
                    }
                    let block = notation.form == Form::Plain;
                    let column = block.then(|| inner.start.col());
                    let key = self.spotted(event, &inner, column, false)?;
                    let (event, inner) = self.inside()?;
                    let value = self.spotted(event, &inner, None, block)?;
                    notation.entries.push((key, value));
                }
                (anchor, tag)
            }
            _ => return Err(format!("line {line} of the text can't be read")),
        };
        if anchor != 0 {
            return refuse("an anchor");
        }
        if let Some(tag) = tag {
            let is_scalar = notation.items.is_empty() && notation.entries.is_empty() && notation.form != Form::Flow;
            match tag.core_suffix() {
                Some(suffix) if is_scalar => notation.tag = Some(format!("!!{suffix}")),
                None if is_scalar && tag.original() != "!" => notation.tag = Some(tag.original().to_string()),
                _ => return refuse("a tag"),
            }
        }
        Ok(notation)
    }

    /// Reads a node and notes where comments of its own would stand: above it when it has a column, behind it when it may.
    fn spotted(
        &mut self,
        event: Event<'text>,
        span: &Span,
        column: Option<usize>,
        behind: bool,
    ) -> Result<Notation, String> {
        let one_line = |style: ScalarStyle| !matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
        let ends = matches!(&event, Event::Scalar(_, style, ..) if one_line(*style) && !span.is_empty());
        let spot = Spot {
            start: (span.start.line(), column.unwrap_or(usize::MAX)),
            end: (behind && ends && self.ends_line(span)).then(|| span.end.line()),
        };
        self.waiting.push(spot);
        self.node(event, span)
    }

    /// The column of the dash before an element, when they share a line.
    fn dash(&self, span: &Span) -> Option<usize> {
        let line = self.lines.get(span.start.line().checked_sub(1)?)?;
        let before: String = line.chars().take(span.start.col()).collect();
        before.trim_end().strip_suffix('-').map(|before| before.chars().count())
    }

    /// Tells whether only a comment can follow a node on its last line.
    fn ends_line(&self, span: &Span) -> bool {
        let line = self.lines.get(span.end.line().saturating_sub(1)).copied().unwrap_or("");
        let rest: String = line.chars().skip(span.end.col()).collect();
        let rest = rest.trim_start();
        rest.is_empty() || rest.starts_with('#')
    }
}

fn form_of(structure: StructureStyle) -> Form {
    match structure {
        StructureStyle::Flow => Form::Flow,
        StructureStyle::Block => Form::Plain,
    }
}

/// Gives the comments that belong to a node and those in it their places; what is left in `comments` belongs to none.
fn place(node: &mut Notation, spots: &mut std::vec::IntoIter<Spot>, comments: &mut Comments) {
    let mut one = |node: &mut Notation| {
        if let Some(spot) = spots.next() {
            take(node, &spot, comments);
        }
        place(node, spots, comments);
    };
    node.items.iter_mut().for_each(&mut one);
    for (key, value) in &mut node.entries {
        one(key);
        one(value);
    }
}

fn take(node: &mut Notation, spot: &Spot, comments: &mut Comments) {
    let (line, column) = spot.start;
    let mut above = line;
    while let Some(before) = above.checked_sub(1) {
        match comments.get(&before) {
            Some(comment) if comment.alone && comment.column == column => above = before,
            _ => break,
        }
    }
    node.above = (above..line)
        .filter_map(|line| comments.remove(&line))
        .map(|comment| comment.text)
        .collect();
    node.behind = spot
        .end
        .and_then(|line| comments.remove(&line))
        .map(|comment| comment.text);
}
