//! The notation of a YAML text: quotes, braces and comments, in the same tree shape as its nodes. An error reports notation that
//! [`super::rewrite`] can't write as yaml.v3 would: anchors, tags of collections, and comments that belong to several lines.

use std::collections::BTreeMap;

use super::cursor::Mark;
use super::events::{Event, EventKind, EventReader, Properties};
use super::facts::is_break;
use super::scalar::Dialect;
use super::tokens::Form as Written;

/// The notation of one node.
#[derive(Debug, Default)]
pub struct Notation {
    /// The quotes or braces of the node.
    pub form: Form,
    /// The comment lines above it.
    pub above: Vec<String>,
    /// The comment behind the node.
    pub behind: Option<String>,
    /// The tag that a scalar is written with.
    pub tag: Option<String>,
    /// The notations of the items of a sequence.
    pub items: Vec<Notation>,
    /// Keys and values.
    pub entries: Vec<(Notation, Notation)>,
}

/// The notation of a node without its comments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// A plain scalar, or a collection on lines of its own.
    #[default]
    Plain,
    /// A scalar in single quotes.
    Single,
    /// A scalar in double quotes.
    Double,
    /// A literal block (`|`).
    Literal,
    /// A folded block (`>`).
    Folded,
    /// A collection in braces or brackets.
    Flow,
}

/// A comment, its first `#` included.
struct Comment {
    column: usize,
    /// Whether the line has no text before the comment.
    alone: bool,
    text: String,
}

/// Comments by their line.
type CommentsByLine = BTreeMap<usize, Comment>;

/// Reads the notation of the first document of a text that has already been read as YAML.
///
/// # Errors
/// If the text has notation that can't be rewritten. The message says what it is, and on which line of the text.
pub fn read_notation(text: &str) -> Result<Notation, String> {
    let mut reader = Reader {
        events: EventReader::new(text, Dialect::V3),
        text,
        comments: CommentsByLine::new(),
        waiting: Vec::new(),
    };
    let mut root = loop {
        let event = reader.next()?;
        match event.what {
            EventKind::StreamStart | EventKind::DocumentStart => {}
            EventKind::StreamEnd => return Err("the text ends before its document".to_owned()),
            _ => break reader.read_node(event)?,
        }
    };
    // Between the content and the end of the document, comments may follow.
    reader.next()?;
    let mut comments = reader.comments;
    place_comments(&mut root, &mut reader.waiting.into_iter(), &mut comments);
    match comments.keys().next() {
        None => Ok(root),
        Some(line) => Err(format!(
            "the comment on line {} of the text stands neither behind a value nor right above a field or an element, so it can't be \
             kept in its place; move it there",
            line + 1
        )),
    }
}

/// The position of a node that may have comments, in the order of [`place_comments`].
struct Spot {
    /// The first line, and the column where it or its dash begins.
    start: (usize, usize),
    /// The last line of a scalar, when nothing but a comment follows it there.
    end: Option<usize>,
}

/// The events of a text, its comments, and the nodes that may have comments.
struct Reader<'text> {
    events: EventReader<'text>,
    text: &'text str,
    comments: CommentsByLine,
    waiting: Vec<Spot>,
}

impl<'text> Reader<'text> {
    /// Returns the next event, and records the comments before it.
    fn next(&mut self) -> Result<Event<'text>, String> {
        let event = self.events.next().map_err(|problem| problem.message.to_owned())?;
        for (mark, comment) in self.events.take_comments() {
            let comment = Comment {
                column: mark.column,
                alone: self.line_before(mark).trim_matches([' ', '\t']).is_empty(),
                text: comment.to_owned(),
            };
            self.comments.insert(mark.line, comment);
        }
        Ok(event)
    }

    fn read_node(&mut self, event: Event<'text>) -> Result<Notation, String> {
        let line = event.start.line + 1;
        let refuse = |what: &str| {
            Err(format!(
                "{what} on line {line} of the text can't be written again; write it out"
            ))
        };
        let mut notation = Notation::default();
        let mut is_scalar = false;
        let Properties { anchor, tag } = match event.what {
            EventKind::Alias(_) => return refuse("an alias"),
            EventKind::Scalar(_, form, properties) => {
                notation.form = form_of(form);
                is_scalar = true;
                properties
            }
            EventKind::SequenceStart(is_flow, properties) => {
                loop {
                    let event = self.next()?;
                    if event.what == EventKind::SequenceEnd {
                        break;
                    }
                    let column = if is_flow { None } else { self.dash_column(event.start) };
                    let item = self.read_spotted(event, column, !is_flow)?;
                    notation.items.push(item);
                }
                notation.form = if is_flow { Form::Flow } else { Form::Plain };
                properties
            }
            EventKind::MappingStart(is_flow, properties) => {
                loop {
                    let event = self.next()?;
                    if event.what == EventKind::MappingEnd {
                        break;
                    }
                    let column = (!is_flow).then_some(event.start.column);
                    let key = self.read_spotted(event, column, false)?;
                    let event = self.next()?;
                    let value = self.read_spotted(event, None, !is_flow)?;
                    notation.entries.push((key, value));
                }
                notation.form = if is_flow { Form::Flow } else { Form::Plain };
                properties
            }
            _ => return Err(format!("line {line} of the text can't be read")),
        };
        if anchor.is_some() {
            return refuse("an anchor");
        }
        match tag {
            Some(tag) if is_scalar && tag != "!" => notation.tag = Some(tag),
            Some(_) => return refuse("a tag"),
            None => {}
        }
        Ok(notation)
    }

    /// Reads a node and records where its comments would stand: above the node if it has a column, and behind it if `behind` is true.
    fn read_spotted(&mut self, event: Event<'text>, column: Option<usize>, behind: bool) -> Result<Notation, String> {
        let is_block = |form: Written| matches!(form, Written::Literal | Written::Folded);
        let ends = matches!(&event.what, EventKind::Scalar(_, form, _) if !is_block(*form) && event.start != event.end);
        let spot = Spot {
            start: (event.start.line, column.unwrap_or(usize::MAX)),
            end: (behind && ends && self.ends_line(event.end)).then_some(event.end.line),
        };
        self.waiting.push(spot);
        self.read_node(event)
    }

    /// Returns the text before a mark on its line.
    fn line_before(&self, mark: Mark) -> &'text str {
        let before = self.text.get(..mark.at).unwrap_or("");
        before.rsplit(is_break).next().unwrap_or("")
    }

    /// Returns the column of the dash before an element, when they share a line.
    fn dash_column(&self, start: Mark) -> Option<usize> {
        let before = self.line_before(start).trim_end_matches([' ', '\t']);
        before.strip_suffix('-').map(|before| before.chars().count())
    }

    /// Checks whether only a comment can follow a node on its last line.
    fn ends_line(&self, end: Mark) -> bool {
        let rest = self.text.get(end.at..).unwrap_or("");
        let rest = rest
            .split(is_break)
            .next()
            .unwrap_or("")
            .trim_start_matches([' ', '\t']);
        rest.is_empty() || rest.starts_with('#')
    }
}

fn form_of(form: Written) -> Form {
    match form {
        Written::Plain => Form::Plain,
        Written::Single => Form::Single,
        Written::Double => Form::Double,
        Written::Literal => Form::Literal,
        Written::Folded => Form::Folded,
    }
}

/// Moves comments to the nodes that they belong to. A comment that belongs to no node stays in `comments`.
fn place_comments(node: &mut Notation, spots: &mut std::vec::IntoIter<Spot>, comments: &mut CommentsByLine) {
    let mut one = |node: &mut Notation| {
        if let Some(spot) = spots.next() {
            take_comments(node, &spot, comments);
        }
        place_comments(node, spots, comments);
    };
    node.items.iter_mut().for_each(&mut one);
    for (key, value) in &mut node.entries {
        one(key);
        one(value);
    }
}

fn take_comments(node: &mut Notation, spot: &Spot, comments: &mut CommentsByLine) {
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
