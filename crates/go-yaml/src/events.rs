//! Events of a YAML text: documents, collections and scalars, one event after the other, as Go's parser makes them from tokens. Tokens in
//! an order that isn't YAML are an error.

use std::borrow::Cow;

pub use super::cursor::Mark;
use super::scalar::Dialect;
pub use super::tokens::{Form, Problem};
use super::tokens::{Kind, Scanner, Token};

/// The prefix of YAML's own tags.
const OWN_TAGS: &str = "tag:yaml.org,2002:";
/// The number of bytes that Go reads at once.
const READ_AT_ONCE: usize = 512;

/// The anchor and the tag that may precede a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Properties<'text> {
    /// The name that aliases may use.
    pub anchor: Option<&'text str>,
    /// The tag in its short form.
    pub tag: Option<String>,
}

/// The kind of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind<'text> {
    /// The text begins.
    StreamStart,
    /// The text ends.
    StreamEnd,
    /// A document begins.
    DocumentStart,
    /// A document ends.
    DocumentEnd,
    /// An alias, with the name of its anchor.
    Alias(&'text str),
    /// A scalar's text and how it is written.
    Scalar(Cow<'text, str>, Form, Properties<'text>),
    /// A sequence, which may be in brackets.
    SequenceStart(bool, Properties<'text>),
    /// The innermost sequence ends.
    SequenceEnd,
    /// A mapping, which may be in braces.
    MappingStart(bool, Properties<'text>),
    /// The innermost mapping ends.
    MappingEnd,
}

/// An event of a text.
#[derive(Debug, Clone)]
pub struct Event<'text> {
    /// The kind of this event.
    pub what: EventKind<'text>,
    /// The start of the event.
    pub start: Mark,
    /// The end of the event.
    pub end: Mark,
}

/// The next event that the parser expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Stream,
    FirstDocument,
    Document,
    Content,
    DocumentEnd,
    BlockNode,
    Entry,
    /// An entry of a sequence in the column of the mapping that it is in.
    IndentlessEntry,
    Key,
    Value,
    FlowEntry(First),
    /// The parts of a pair in a sequence.
    PairKey,
    PairValue,
    PairEnd,
    FlowKey(First),
    FlowValue,
    /// The value of a key that has no colon.
    NoFlowValue,
    Over,
}

/// Whether an entry of a flow collection is the first one, which has no comma before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First {
    Yes,
    No,
}

/// The position of a node, which decides which nodes are valid.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Flow,
    Block,
    /// A place in a block mapping.
    BlockMapping,
}

/// The events of a text, one after the other.
pub struct EventReader<'text> {
    scanner: Scanner<'text>,
    state: State,
    /// The states to return to when the open collections end.
    states: Vec<State>,
    /// Handles of tags with their prefixes.
    handles: Vec<(String, String)>,
    /// The start of the block of text that contains the first forbidden control character. Go reads a block at once, so it refuses the
    /// whole block.
    limit: Option<(usize, Problem)>,
}

impl<'text> EventReader<'text> {
    /// Creates a reader of a text's events, with the scanner of one of the libraries.
    #[must_use]
    pub fn new(text: &'text str, dialect: Dialect) -> Self {
        EventReader {
            scanner: Scanner::new(text, dialect),
            state: State::Stream,
            states: Vec::new(),
            handles: Vec::new(),
            limit: find_forbidden(text),
        }
    }

    /// Returns the comments read since the last call, with their places. Some comments may stand behind the last event.
    pub fn take_comments(&mut self) -> Vec<(Mark, &'text str)> {
        self.scanner.take_comments()
    }

    /// Returns the next event. The last event is the end of the text.
    ///
    /// # Errors
    /// If the text isn't YAML. The error has the reason and the line.
    #[expect(clippy::should_implement_trait, reason = "it has no end but an event that says so")]
    pub fn next(&mut self) -> Result<Event<'text>, Problem> {
        let event = self.read_event();
        match self.limit {
            Some((from, problem)) if self.scanner.read_so_far() + 1 >= from => Err(problem),
            _ => event,
        }
    }

    fn read_event(&mut self) -> Result<Event<'text>, Problem> {
        match self.state {
            State::Stream => {
                let token = self.take_token()?;
                self.state = State::FirstDocument;
                Ok(of_token(EventKind::StreamStart, &token))
            }
            State::FirstDocument => self.read_document_start(true),
            State::Document => self.read_document_start(false),
            State::Content => {
                let is_empty = matches!(
                    self.peek_kind()?,
                    Kind::Version(..)
                        | Kind::TagDirective { .. }
                        | Kind::DocumentStart
                        | Kind::DocumentEnd
                        | Kind::StreamEnd
                );
                if is_empty {
                    self.state = self.pop_state();
                    self.read_empty_scalar()
                } else {
                    self.read_node(Place::Block)
                }
            }
            State::DocumentEnd => self.read_document_end(),
            State::BlockNode => self.read_node(Place::Block),
            State::Entry => self.read_entry(),
            State::IndentlessEntry => self.read_indentless_entry(),
            State::Key => self.read_key(),
            State::Value => self.read_value(),
            State::FlowEntry(first) => self.read_flow_entry(first),
            State::PairKey => self.read_pair_key(),
            State::PairValue => self.read_pair_value(),
            State::PairEnd => {
                self.state = State::FlowEntry(First::No);
                let mark = self.scanner.peek()?.start;
                Ok(at_mark(EventKind::MappingEnd, mark))
            }
            State::FlowKey(first) => self.read_flow_key(first),
            State::FlowValue => self.read_flow_value(),
            State::NoFlowValue => {
                self.state = State::FlowKey(First::No);
                self.read_empty_scalar()
            }
            State::Over => {
                let mark = self.scanner.peek()?.start;
                Ok(at_mark(EventKind::StreamEnd, mark))
            }
        }
    }

    fn peek_kind(&mut self) -> Result<&Kind<'text>, Problem> {
        self.scanner.peek().map(|token| &token.kind)
    }

    /// Takes the next token.
    fn take_token(&mut self) -> Result<Token<'text>, Problem> {
        let here = self.scanner.peek()?.start;
        self.scanner
            .take_token()
            .ok_or(Problem::new(here, "the text ends too early"))
    }

    /// Returns the state after the collection that just ended.
    fn pop_state(&mut self) -> State {
        self.states.pop().unwrap_or(State::Over)
    }

    fn fail(&mut self, message: &'static str) -> Result<Event<'text>, Problem> {
        let start = self.scanner.peek()?.start;
        Err(Problem::new(start, message))
    }

    /// Returns the empty scalar before the next token.
    fn read_empty_scalar(&mut self) -> Result<Event<'text>, Problem> {
        let mark = self.scanner.peek()?.start;
        Ok(empty_scalar(mark))
    }

    /// Ends a collection with its token.
    fn end_collection(&mut self, what: EventKind<'text>) -> Result<Event<'text>, Problem> {
        let token = self.take_token()?;
        self.state = self.pop_state();
        Ok(of_token(what, &token))
    }

    fn read_document_start(&mut self, is_first: bool) -> Result<Event<'text>, Problem> {
        if !is_first {
            while *self.peek_kind()? == Kind::DocumentEnd {
                self.take_token()?;
            }
        }
        let start = self.scanner.peek()?.start;
        match self.peek_kind()? {
            Kind::StreamEnd => {
                let token = self.take_token()?;
                self.state = State::Over;
                Ok(of_token(EventKind::StreamEnd, &token))
            }
            Kind::Version(..) | Kind::TagDirective { .. } | Kind::DocumentStart => self.read_marked_start(start),
            _ if is_first => {
                self.read_directives()?;
                self.states.push(State::DocumentEnd);
                self.state = State::BlockNode;
                Ok(at_mark(EventKind::DocumentStart, start))
            }
            _ => self.read_marked_start(start),
        }
    }

    fn read_marked_start(&mut self, start: Mark) -> Result<Event<'text>, Problem> {
        self.read_directives()?;
        if *self.peek_kind()? != Kind::DocumentStart {
            return self.fail("did not find the `---` that begins another document");
        }
        self.take_token()?;
        self.states.push(State::DocumentEnd);
        self.state = State::Content;
        Ok(at_mark(EventKind::DocumentStart, start))
    }

    fn read_directives(&mut self) -> Result<(), Problem> {
        let mut has_version = false;
        while let Kind::Version(..) | Kind::TagDirective { .. } = self.peek_kind()? {
            let token = self.take_token()?;
            let refuse = |message| Err(Problem::new(token.start, message));
            match token.kind {
                Kind::Version(..) if has_version => return refuse("found duplicate %YAML directive"),
                Kind::Version(1, 1) => has_version = true,
                Kind::Version(..) => {
                    return refuse("found incompatible YAML document: the version must be 1.1");
                }
                Kind::TagDirective { handle, prefix } => {
                    if self.handles.iter().any(|(known, _)| *known == handle) {
                        return refuse("found duplicate %TAG directive");
                    }
                    self.handles.push((handle, prefix));
                }
                _ => {}
            }
        }
        for (handle, prefix) in [("!", "!"), ("!!", OWN_TAGS)] {
            if !self.handles.iter().any(|(known, _)| known == handle) {
                self.handles.push((handle.to_owned(), prefix.to_owned()));
            }
        }
        Ok(())
    }

    fn read_document_end(&mut self) -> Result<Event<'text>, Problem> {
        let mark = self.scanner.peek()?.start;
        if *self.peek_kind()? == Kind::DocumentEnd {
            self.take_token()?;
        }
        self.handles.clear();
        self.state = State::Document;
        Ok(at_mark(EventKind::DocumentEnd, mark))
    }

    fn read_node(&mut self, place: Place) -> Result<Event<'text>, Problem> {
        if let Kind::Alias(name) = *self.peek_kind()? {
            return self.end_collection(EventKind::Alias(name));
        }
        let mut start = self.scanner.peek()?.start;
        let (mut properties, mut is_first) = (Properties::default(), true);
        let mut has_tag = false;
        loop {
            match self.peek_kind()? {
                Kind::Anchor(name) if properties.anchor.is_none() => properties.anchor = Some(name),
                Kind::Tag { .. } if !has_tag => has_tag = true,
                _ => break,
            }
            let token = self.take_token()?;
            if is_first {
                start = token.start;
            }
            is_first = false;
            if let Kind::Tag { handle, suffix } = token.kind {
                properties.tag = self.resolve_tag(token.start, &handle, &suffix)?;
            }
        }
        let is_block = place != Place::Flow;
        let what = match self.peek_kind()? {
            Kind::BlockEntry if place == Place::BlockMapping => {
                self.state = State::IndentlessEntry;
                let end = self.scanner.peek()?.end;
                let what = EventKind::SequenceStart(false, properties);
                return Ok(Event { what, start, end });
            }
            Kind::Scalar(..) => {
                let token = self.take_token()?;
                self.state = self.pop_state();
                let Kind::Scalar(text, form) = token.kind else {
                    return self.fail("did not find expected node content");
                };
                let end = token.end;
                let what = EventKind::Scalar(text, form, properties);
                return Ok(Event { what, start, end });
            }
            Kind::FlowSequenceStart => {
                self.state = State::FlowEntry(First::Yes);
                EventKind::SequenceStart(true, properties)
            }
            Kind::FlowMappingStart => {
                self.state = State::FlowKey(First::Yes);
                EventKind::MappingStart(true, properties)
            }
            Kind::BlockSequenceStart if is_block => {
                self.state = State::Entry;
                EventKind::SequenceStart(false, properties)
            }
            Kind::BlockMappingStart if is_block => {
                self.state = State::Key;
                EventKind::MappingStart(false, properties)
            }
            _ if properties != Properties::default() => {
                self.state = self.pop_state();
                let what = EventKind::Scalar("".into(), Form::Plain, properties);
                return Ok(at_mark(what, start));
            }
            _ => return self.fail("did not find expected node content"),
        };
        let token = self.take_token()?;
        Ok(Event {
            what,
            start,
            end: token.end,
        })
    }

    /// Returns the short form of a tag.
    fn resolve_tag(&self, mark: Mark, handle: &str, suffix: &str) -> Result<Option<String>, Problem> {
        let long = if handle.is_empty() {
            suffix.to_owned()
        } else {
            let known = self.handles.iter().find(|(known, _)| known == handle);
            let Some((_, prefix)) = known else {
                return Err(Problem::new(mark, "found undefined tag handle"));
            };
            format!("{prefix}{suffix}")
        };
        Ok(Some(match long.strip_prefix(OWN_TAGS) {
            Some(own) => format!("!!{own}"),
            None => long,
        }))
    }

    fn read_entry(&mut self) -> Result<Event<'text>, Problem> {
        match self.peek_kind()? {
            Kind::BlockEntry => {
                let mark = self.take_token()?.end;
                if matches!(self.peek_kind()?, Kind::BlockEntry | Kind::BlockEnd) {
                    return Ok(empty_scalar(mark));
                }
                self.states.push(State::Entry);
                self.read_node(Place::Block)
            }
            Kind::BlockEnd => self.end_collection(EventKind::SequenceEnd),
            _ => self.fail("did not find expected '-' indicator"),
        }
    }

    fn read_indentless_entry(&mut self) -> Result<Event<'text>, Problem> {
        if *self.peek_kind()? != Kind::BlockEntry {
            self.state = self.pop_state();
            let mark = self.scanner.peek()?.start;
            return Ok(at_mark(EventKind::SequenceEnd, mark));
        }
        let mark = self.take_token()?.end;
        if matches!(
            self.peek_kind()?,
            Kind::BlockEntry | Kind::Key | Kind::Value | Kind::BlockEnd
        ) {
            return Ok(empty_scalar(mark));
        }
        self.states.push(State::IndentlessEntry);
        self.read_node(Place::Block)
    }

    fn read_key(&mut self) -> Result<Event<'text>, Problem> {
        match self.peek_kind()? {
            Kind::Key => {
                let mark = self.take_token()?.end;
                self.read_key_or_value(mark, State::Value)
            }
            Kind::BlockEnd => self.end_collection(EventKind::MappingEnd),
            _ => self.fail("did not find expected key"),
        }
    }

    fn read_value(&mut self) -> Result<Event<'text>, Problem> {
        if *self.peek_kind()? != Kind::Value {
            self.state = State::Key;
            return self.read_empty_scalar();
        }
        let mark = self.take_token()?.end;
        self.read_key_or_value(mark, State::Key)
    }

    /// Reads a key or a value of a block mapping. `mark` is the end of its sign.
    fn read_key_or_value(&mut self, mark: Mark, next: State) -> Result<Event<'text>, Problem> {
        if matches!(self.peek_kind()?, Kind::Key | Kind::Value | Kind::BlockEnd) {
            self.state = next;
            return Ok(empty_scalar(mark));
        }
        self.states.push(next);
        self.read_node(Place::BlockMapping)
    }

    /// Skips the comma before an entry of a flow collection, except before the first entry.
    fn skip_comma(&mut self, first: First, message: &'static str) -> Result<(), Problem> {
        if first == First::No {
            if *self.peek_kind()? != Kind::FlowEntry {
                return self.fail(message).map(|_| ());
            }
            self.take_token()?;
        }
        Ok(())
    }

    fn read_flow_entry(&mut self, first: First) -> Result<Event<'text>, Problem> {
        if *self.peek_kind()? != Kind::FlowSequenceEnd {
            self.skip_comma(first, "did not find expected ',' or ']'")?;
            match self.peek_kind()? {
                Kind::Key => {
                    let token = self.take_token()?;
                    self.state = State::PairKey;
                    return Ok(of_token(EventKind::MappingStart(true, Properties::default()), &token));
                }
                Kind::FlowSequenceEnd => {}
                _ => {
                    self.states.push(State::FlowEntry(First::No));
                    return self.read_node(Place::Flow);
                }
            }
        }
        self.end_collection(EventKind::SequenceEnd)
    }

    fn read_pair_key(&mut self) -> Result<Event<'text>, Problem> {
        if !matches!(self.peek_kind()?, Kind::Value | Kind::FlowEntry | Kind::FlowSequenceEnd) {
            self.states.push(State::PairValue);
            return self.read_node(Place::Flow);
        }
        // Go skips this token without a look at its kind.
        let mark = self.take_token()?.end;
        self.state = State::PairValue;
        Ok(empty_scalar(mark))
    }

    fn read_pair_value(&mut self) -> Result<Event<'text>, Problem> {
        if *self.peek_kind()? == Kind::Value {
            self.take_token()?;
            if !matches!(self.peek_kind()?, Kind::FlowEntry | Kind::FlowSequenceEnd) {
                self.states.push(State::PairEnd);
                return self.read_node(Place::Flow);
            }
        }
        self.state = State::PairEnd;
        self.read_empty_scalar()
    }

    fn read_flow_key(&mut self, first: First) -> Result<Event<'text>, Problem> {
        if *self.peek_kind()? != Kind::FlowMappingEnd {
            self.skip_comma(first, "did not find expected ',' or '}'")?;
            match self.peek_kind()? {
                Kind::Key => {
                    self.take_token()?;
                    if matches!(self.peek_kind()?, Kind::Value | Kind::FlowEntry | Kind::FlowMappingEnd) {
                        self.state = State::FlowValue;
                        return self.read_empty_scalar();
                    }
                    self.states.push(State::FlowValue);
                    return self.read_node(Place::Flow);
                }
                Kind::FlowMappingEnd => {}
                _ => {
                    self.states.push(State::NoFlowValue);
                    return self.read_node(Place::Flow);
                }
            }
        }
        self.end_collection(EventKind::MappingEnd)
    }

    fn read_flow_value(&mut self) -> Result<Event<'text>, Problem> {
        if *self.peek_kind()? == Kind::Value {
            self.take_token()?;
            if !matches!(self.peek_kind()?, Kind::FlowEntry | Kind::FlowMappingEnd) {
                self.states.push(State::FlowKey(First::No));
                return self.read_node(Place::Flow);
            }
        }
        self.state = State::FlowKey(First::No);
        self.read_empty_scalar()
    }
}

fn of_token<'text>(what: EventKind<'text>, token: &Token<'text>) -> Event<'text> {
    Event {
        what,
        start: token.start,
        end: token.end,
    }
}

fn at_mark(what: EventKind<'_>, mark: Mark) -> Event<'_> {
    Event {
        what,
        start: mark,
        end: mark,
    }
}

fn empty_scalar<'text>(mark: Mark) -> Event<'text> {
    at_mark(EventKind::Scalar("".into(), Form::Plain, Properties::default()), mark)
}

/// Finds the first character that Go refuses at any position. Go reports the character at the start of the block of text that contains it.
fn find_forbidden(text: &str) -> Option<(usize, Problem)> {
    // Nothing that is refused begins with another byte.
    let is_suspicious =
        |byte: u8| byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r') || matches!(byte, 0x7f | 0xc2 | 0xef);
    if !text.bytes().any(is_suspicious) {
        return None;
    }
    let (at, _) = text.char_indices().find(|(_, character)| {
        !matches!(
            character,
            '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..
        )
    })?;
    let line = 1 + text.get(..at).unwrap_or("").matches('\n').count();
    let message = "control characters are not allowed: write them as escapes in double quotes";
    Some((at - at % READ_AT_ONCE, Problem { line, message }))
}
