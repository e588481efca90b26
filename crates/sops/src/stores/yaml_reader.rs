//! Builds documents from YAML's events: aliases are expanded, comments are put between the pairs as SOPS does, and each scalar has its position. Keys that aren't
//! strings, repeated keys, and documents that aren't maps are refused.

use std::collections::{HashMap, HashSet, VecDeque};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use go_yaml::events::{Event, EventKind, EventReader, Form, Mark, Problem, Properties};
use go_yaml::scalar::{Dialect, Scalar, resolve};
use zeroize::Zeroizing;

use crate::error::Error;
use crate::tree::{Comment, Document, Entry, Node, NodeCounter, Span, Value};

/// Reads all documents of a file.
///
/// # Errors
/// When the file isn't YAML, or has a form that SOPS doesn't encrypt.
pub(crate) fn read(file: &str, count: &mut NodeCounter) -> Result<Vec<Document>, Error> {
    let mut reader = Reader {
        events: EventReader::new(file, Dialect::V3),
        comments: VecDeque::new(),
        anchors: HashMap::new(),
        count,
        last_end: 0,
    };
    let mut documents = Vec::new();
    loop {
        let event = reader.next()?;
        match event.what {
            EventKind::StreamEnd => return Ok(documents),
            EventKind::DocumentStart => documents.push(reader.read_document()?),
            _ => {}
        }
    }
}

/// Builds nodes from the events of a YAML file.
struct Reader<'text, 'count> {
    events: EventReader<'text>,
    /// Comments that were read and not assigned yet.
    comments: VecDeque<(Mark, &'text str)>,
    /// The nodes of anchors; `None` while a node is read.
    anchors: HashMap<&'text str, Option<Node>>,
    count: &'count mut NodeCounter,
    /// The end of the last scalar or bracket.
    last_end: usize,
}

fn syntax_error(problem: Problem) -> Error {
    Error::Syntax {
        line: problem.line,
        what: problem.message,
    }
}

fn fail(mark: Mark, what: &'static str) -> Error {
    Error::Syntax {
        line: mark.line + 1,
        what,
    }
}

impl<'text> Reader<'text, '_> {
    fn next(&mut self) -> Result<Event<'text>, Error> {
        let event = self.events.next().map_err(syntax_error)?;
        self.comments.extend(self.events.take_comments());
        Ok(event)
    }

    fn read_document(&mut self) -> Result<Document, Error> {
        self.anchors.clear();
        let event = self.next()?;
        let mut document = Document {
            entries: Vec::new(),
            cuts: Vec::new(),
            is_flow: false,
        };
        match event.what {
            EventKind::MappingStart(is_flow, ref properties) => {
                document.is_flow = is_flow;
                document.entries = self.read_map(&event, properties, 1)?;
            }
            EventKind::Scalar(ref text, form, ref properties)
                if matches!(read_scalar(&event, text, form, properties)?, Value::Null) => {}
            EventKind::SequenceStart(..) => return Err(fail(event.start, "SOPS encrypts no document that is a list")),
            _ => return Err(fail(event.start, "SOPS encrypts no document that is a value")),
        }
        let end = self.next()?;
        // Comments at the end belong to the document, in any column.
        for comment in self.comments_before(end.start, 0) {
            document.entries.push(Entry::Comment(comment));
        }
        Ok(document)
    }

    /// Takes the next comment if `is_wanted` accepts it.
    fn take_comment(&mut self, is_wanted: impl Fn(Mark) -> bool) -> Option<Comment> {
        self.comments.front().filter(|(mark, _)| is_wanted(*mark))?;
        self.comments.pop_front().map(|(mark, text)| make_comment(mark, text))
    }

    /// Takes the comments before a place, in this column or to the right of it.
    fn comments_before(&mut self, place: Mark, column: usize) -> Vec<Comment> {
        std::iter::from_fn(|| self.take_comment(|mark| mark.at < place.at && mark.column >= column)).collect()
    }

    /// Takes the comment after a scalar on its line.
    fn comment_behind(&mut self, end: Mark) -> Option<Comment> {
        self.take_comment(|mark| mark.line == end.line && mark.at >= end.at)
    }

    fn read_map(
        &mut self,
        start: &Event<'text>,
        properties: &Properties<'text>,
        depth: usize,
    ) -> Result<Vec<Entry>, Error> {
        self.reserve_anchor(properties);
        let mut entries: Vec<Entry> = Vec::new();
        entries.extend(self.comments_before(start.start, 0).into_iter().map(Entry::Comment));
        let mut known = HashSet::new();
        let mut column = start.start.column;
        loop {
            let event = self.next()?;
            if event.what == EventKind::MappingEnd {
                entries.extend(
                    self.comments_before(event.start, column)
                        .into_iter()
                        .map(Entry::Comment),
                );
                self.last_end = self.last_end.max(flow_end(&event, start));
                break;
            }
            self.count.count_node(depth)?;
            entries.extend(self.comments_before(event.start, 0).into_iter().map(Entry::Comment));
            column = event.start.column;
            let key = self.read_key(&event)?;
            if !known.insert(key.clone()) {
                return Err(fail(event.start, "a key comes twice"));
            }
            let key_at = event.start.at;
            let first = self.next()?;
            if !matches!(first.what, EventKind::Scalar(..) | EventKind::Alias(_)) {
                entries.extend(self.comment_behind(event.end).map(Entry::Comment));
            }
            let value = self.read_node(&first, depth + 1)?;
            if value.span != Span::default() || value.is_alias {
                entries.extend(self.comments_before(first.start, 0).into_iter().map(Entry::Comment));
                entries.extend(self.comment_behind(first.end).map(Entry::Comment));
            }
            entries.push(Entry::Pair {
                key,
                value,
                whole: Span {
                    start: key_at,
                    end: self.last_end,
                },
            });
        }
        self.remember_anchor(properties, || Node::new(Value::Map(copy_entries(&entries))))?;
        Ok(entries)
    }

    fn read_key(&mut self, event: &Event<'text>) -> Result<String, Error> {
        const NOT_A_STRING: &str = "a key is not a string";
        let value = match &event.what {
            EventKind::Scalar(text, form, properties) => {
                let value = read_scalar(event, text, *form, properties)?;
                self.reserve_anchor(properties);
                self.remember_anchor(properties, || Node::new(copy_value(&value)))?;
                value
            }
            EventKind::Alias(name) => match self.anchors.get(name) {
                Some(Some(node)) => copy_value(&node.value),
                _ => return Err(fail(event.start, "an alias stands for nothing")),
            },
            _ => return Err(fail(event.start, NOT_A_STRING)),
        };
        self.last_end = event.end.at;
        match value {
            Value::Text(text) => Ok(text.to_string()),
            _ => Err(fail(event.start, NOT_A_STRING)),
        }
    }

    fn read_list(
        &mut self,
        start: &Event<'text>,
        properties: &Properties<'text>,
        depth: usize,
    ) -> Result<Vec<Node>, Error> {
        self.reserve_anchor(properties);
        let as_item = |comment| Node::new(Value::Comment(comment));
        let mut items: Vec<Node> = self.comments_before(start.start, 0).into_iter().map(as_item).collect();
        let column = start.start.column;
        loop {
            let event = self.next()?;
            if event.what == EventKind::SequenceEnd {
                items.extend(self.comments_before(event.start, column).into_iter().map(as_item));
                self.last_end = self.last_end.max(flow_end(&event, start));
                break;
            }
            self.count.count_node(depth)?;
            items.extend(self.comments_before(event.start, 0).into_iter().map(as_item));
            let value = self.read_node(&event, depth + 1)?;
            if value.span != Span::default() {
                items.extend(self.comment_behind(event.end).map(as_item));
            }
            items.push(value);
        }
        self.remember_anchor(properties, || {
            Node::new(Value::List(items.iter().map(copy_node).collect()))
        })?;
        Ok(items)
    }

    fn read_node(&mut self, event: &Event<'text>, depth: usize) -> Result<Node, Error> {
        self.count.count_node(depth)?;
        Ok(match &event.what {
            EventKind::Scalar(text, form, properties) => {
                let mut node = Node::new(read_scalar(event, text, *form, properties)?);
                node.span = Span {
                    start: event.start.at,
                    end: event.end.at,
                };
                self.last_end = self.last_end.max(event.end.at);
                self.reserve_anchor(properties);
                self.remember_anchor(properties, || copy_node(&node))?;
                node
            }
            EventKind::Alias(name) => {
                self.last_end = self.last_end.max(event.end.at);
                match self.anchors.get(name) {
                    Some(Some(node)) => {
                        let node = copy_node(node);
                        self.count_copy(&node, depth)?;
                        node
                    }
                    _ => return Err(fail(event.start, "an alias stands for nothing, or for what it is in")),
                }
            }
            EventKind::MappingStart(_, properties) => Node::new(Value::Map(self.read_map(event, properties, depth)?)),
            EventKind::SequenceStart(_, properties) => {
                Node::new(Value::List(self.read_list(event, properties, depth)?))
            }
            _ => return Err(fail(event.start, "there is no value where one must be")),
        })
    }

    /// Counts the nodes of a copy that is made for an anchor or an alias, within the limits.
    fn count_copy(&mut self, node: &Node, depth: usize) -> Result<(), Error> {
        self.count.count_node(depth)?;
        match &node.value {
            Value::Map(entries) => entries.iter().try_for_each(|entry| match entry {
                Entry::Pair { value, .. } => self.count_copy(value, depth + 1),
                Entry::Comment(_) => self.count.count_node(depth),
            }),
            Value::List(items) => items.iter().try_for_each(|item| self.count_copy(item, depth + 1)),
            Value::Text(text) => {
                go_yaml::meter::count_text(text.len());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn reserve_anchor(&mut self, properties: &Properties<'text>) {
        if let Some(anchor) = properties.anchor {
            self.anchors.insert(anchor, None);
        }
    }

    fn remember_anchor(&mut self, properties: &Properties<'text>, copy: impl FnOnce() -> Node) -> Result<(), Error> {
        if let Some(anchor) = properties.anchor {
            let node = copy();
            self.count_copy(&node, 0)?;
            self.anchors.insert(anchor, Some(node));
        }
        Ok(())
    }
}

/// Returns the end of a collection in brackets; a collection without brackets ends with its last part.
fn flow_end(end: &Event<'_>, start: &Event<'_>) -> usize {
    match start.what {
        EventKind::MappingStart(true, _) | EventKind::SequenceStart(true, _) => end.end.at,
        _ => 0,
    }
}

fn make_comment(mark: Mark, text: &str) -> Comment {
    let text = text.trim_end_matches(['\r', '\n']);
    let span = Span {
        start: mark.at,
        end: mark.at + text.len(),
    };
    Comment::new(text.strip_prefix('#').unwrap_or(text), span)
}

/// Copies the node of an alias, without positions and comments.
fn copy_node(node: &Node) -> Node {
    Node {
        value: copy_value(&node.value),
        span: Span::default(),
        is_opened: false,
        is_alias: true,
    }
}

fn copy_value(value: &Value) -> Value {
    match value {
        Value::Null | Value::Comment(_) => Value::Null,
        Value::Bool(truth) => Value::Bool(*truth),
        Value::Int(number) => Value::Int(*number),
        Value::Float(number) => Value::Float(*number),
        Value::Text(text) => Value::Text(text.clone()),
        Value::Bytes(bytes) => Value::Bytes(bytes.clone()),
        Value::Time(time) => Value::Time(time.clone()),
        Value::Map(entries) => Value::Map(copy_entries(entries)),
        Value::List(items) => {
            let values = items.iter().filter(|item| !matches!(item.value, Value::Comment(_)));
            Value::List(values.map(copy_node).collect())
        }
    }
}

fn copy_entries(entries: &[Entry]) -> Vec<Entry> {
    let pairs = entries.iter().filter_map(|entry| match entry {
        Entry::Pair { key, value, .. } => Some(Entry::Pair {
            key: key.clone(),
            value: copy_node(value),
            whole: Span::default(),
        }),
        Entry::Comment(_) => None,
    });
    pairs.collect()
}

/// Reads a scalar with its meaning in yaml.v3.
fn read_scalar(event: &Event<'_>, text: &str, form: Form, properties: &Properties<'_>) -> Result<Value, Error> {
    let as_text = || Value::Text(Zeroizing::new(text.to_owned()));
    go_yaml::meter::count_text(text.len());
    let resolved = match (properties.tag.as_deref(), form) {
        (None, Form::Plain) => resolve(text, Dialect::V3),
        (Some("!!binary"), _) => {
            let joined: String = text.chars().filter(|one| !matches!(one, '\r' | '\n')).collect();
            let bytes = STANDARD
                .decode(joined)
                .map_err(|_| fail(event.start, "what is tagged !!binary is not base64"))?;
            return Ok(match String::from_utf8(bytes) {
                Ok(text) => Value::Text(Zeroizing::new(text)),
                Err(error) => Value::Bytes(Zeroizing::new(error.into_bytes())),
            });
        }
        (Some(tag @ ("!!int" | "!!float" | "!!bool" | "!!null" | "!!timestamp")), _) => {
            match (tag, resolve(text, Dialect::V3)) {
                ("!!float", Scalar::Int(number)) => {
                    #[expect(clippy::cast_precision_loss, reason = "Go converts in the same way")]
                    return Ok(Value::Float(number as f64));
                }
                (tag, resolved) if resolved.tag().name() == tag => resolved,
                _ => return Err(fail(event.start, "a value is not of the type that its tag says")),
            }
        }
        _ => return Ok(as_text()),
    };
    Ok(match resolved {
        Scalar::Null => Value::Null,
        Scalar::Bool(truth) => Value::Bool(truth),
        Scalar::Int(number) => match i64::try_from(number) {
            Ok(number) => Value::Int(number),
            Err(_) => return Err(fail(event.start, "an integer has more than 64 bits with its sign")),
        },
        Scalar::Float(number) => Value::Float(number),
        Scalar::Timestamp(time) => Value::Time(Zeroizing::new(time)),
        Scalar::Text(_) | Scalar::Merge => as_text(),
    })
}
