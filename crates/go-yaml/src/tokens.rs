//! The tokens of a YAML text, and the places where each may stand: indentation, simple keys and comments, as Go's scanner handles them.
//! [`super::token_text`] reads their texts, and [`super::events`] combines them.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use super::cursor::{Cursor, Mark};
use super::scalar::Dialect;
use super::token_text;

/// The furthest that a key's colon may be from its start, in characters.
const LONGEST_KEY: usize = 1024;
/// The distance in which yaml.v3 looks for a comment, in bytes.
const COMMENT_AHEAD: usize = 512;

/// The reason why a text isn't YAML, and the line.
#[derive(Debug, Clone, Copy)]
pub struct Problem {
    /// The line in the text, from 1.
    pub line: usize,
    /// The error, in Go's words.
    pub message: &'static str,
}

impl Problem {
    pub(super) fn new(mark: Mark, message: &'static str) -> Self {
        Problem {
            line: mark.line + 1,
            message,
        }
    }
}

/// The notation of a scalar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Without quotes.
    Plain,
    /// In single quotes.
    Single,
    /// In double quotes.
    Double,
    /// A literal block (`|`).
    Literal,
    /// A folded block (`>`).
    Folded,
}

/// The kind of a token, with its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind<'text> {
    StreamStart,
    StreamEnd,
    Version(u32, u32),
    TagDirective { handle: String, prefix: String },
    DocumentStart,
    DocumentEnd,
    BlockSequenceStart,
    BlockMappingStart,
    BlockEnd,
    FlowSequenceStart,
    FlowSequenceEnd,
    FlowMappingStart,
    FlowMappingEnd,
    BlockEntry,
    FlowEntry,
    Key,
    Value,
    Alias(&'text str),
    Anchor(&'text str),
    Tag { handle: String, suffix: String },
    Scalar(Cow<'text, str>, Form),
}

/// A token of a text, with its place.
#[derive(Debug, Clone)]
pub(super) struct Token<'text> {
    pub(super) kind: Kind<'text>,
    pub(super) start: Mark,
    pub(super) end: Mark,
}

/// A token that may become a key without a sign before it.
#[derive(Debug, Clone, Copy, Default)]
struct SimpleKey {
    possible: bool,
    /// Whether only a key can stand at this place.
    required: bool,
    /// The number of its token.
    token: usize,
    mark: Mark,
}

/// Splits a text into tokens, and decides which tokens are keys.
pub(super) struct Scanner<'text> {
    cursor: Cursor<'text>,
    dialect: Dialect,
    /// The text begins with a byte order mark: Go looks for one there whenever it looks for one at the start of a line.
    begins_with_mark: bool,
    queue: VecDeque<Token<'text>>,
    /// The number of tokens that have left the queue.
    taken: usize,
    /// Whether the first token of the queue is final.
    is_settled: bool,
    has_begun: bool,
    /// The column of the innermost block collection that is open.
    indent: Option<usize>,
    indents: Vec<Option<usize>>,
    may_be_key: bool,
    /// The possible keys: first the one of the block, then one for each open flow collection.
    keys: Vec<SimpleKey>,
    /// The index into `keys` for the number of a token.
    key_of_token: BTreeMap<usize, usize>,
}

impl<'text> Scanner<'text> {
    pub(super) fn new(text: &'text str, dialect: Dialect) -> Self {
        Scanner {
            cursor: Cursor::new(text),
            dialect,
            begins_with_mark: text.starts_with('\u{feff}'),
            queue: VecDeque::new(),
            taken: 0,
            is_settled: false,
            has_begun: false,
            indent: None,
            indents: Vec::new(),
            may_be_key: true,
            keys: vec![SimpleKey::default()],
            key_of_token: BTreeMap::new(),
        }
    }

    /// Returns the number of bytes that have been read.
    pub(super) fn read_so_far(&self) -> usize {
        self.cursor.mark.at
    }

    /// Returns the comments read since the last call.
    pub(super) fn take_comments(&mut self) -> Vec<(Mark, &'text str)> {
        std::mem::take(&mut self.cursor.comments)
    }

    /// Returns the next token.
    pub(super) fn peek(&mut self) -> Result<&Token<'text>, Problem> {
        if !self.is_settled {
            self.fill_queue()?;
        }
        self.queue
            .front()
            .ok_or(Problem::new(self.cursor.mark, "the text ends too early"))
    }

    /// Takes the token that [`Self::peek`] returned.
    pub(super) fn take_token(&mut self) -> Option<Token<'text>> {
        self.is_settled = false;
        self.taken += 1;
        self.queue.pop_front()
    }

    /// Reads until the first token of the queue is final. yaml.v3 reads two more tokens, for the comments behind it.
    fn fill_queue(&mut self) -> Result<(), Problem> {
        let ahead = if self.dialect == Dialect::V3 { 2 } else { 0 };
        while self.queue.len() <= ahead || self.may_first_be_key()? {
            self.next_token()?;
        }
        self.is_settled = true;
        Ok(())
    }

    fn may_first_be_key(&mut self) -> Result<bool, Problem> {
        match self.key_of_token.get(&self.taken) {
            Some(level) => self.is_possible_key(*level),
            None => Ok(false),
        }
    }

    fn next_token(&mut self) -> Result<(), Problem> {
        if !self.has_begun {
            self.has_begun = true;
            self.push_token(Kind::StreamStart, self.cursor.mark);
            return Ok(());
        }
        self.skip_to_token()?;
        self.close_blocks(Some(self.cursor.mark.column));
        let Some(first) = self.cursor.peek_byte(0) else {
            return self.end_of_stream();
        };
        if self.cursor.mark.column == 0 && first == b'%' {
            return self.read_directive();
        }
        if self.cursor.is_document_marker() {
            return self.document_marker(first);
        }
        self.read_token(first)?;
        if self.dialect == Dialect::V3 && self.queue.back().is_none_or(|last| last.kind != Kind::BlockEntry) {
            self.skip_comment_behind();
        }
        Ok(())
    }

    fn read_token(&mut self, first: u8) -> Result<(), Problem> {
        let in_flow = self.in_flow();
        let blank_follows = self.cursor.is_blank_or_end(1);
        match first {
            b'[' => self.open_flow(Kind::FlowSequenceStart),
            b'{' => self.open_flow(Kind::FlowMappingStart),
            b']' => self.close_flow(Kind::FlowSequenceEnd),
            b'}' => self.close_flow(Kind::FlowMappingEnd),
            b',' => {
                self.forget_key()?;
                self.may_be_key = true;
                self.push_sign(Kind::FlowEntry);
                Ok(())
            }
            b'-' if blank_follows => self.block_entry(),
            b'?' if in_flow || blank_follows => self.key_sign(),
            b':' if in_flow || blank_follows => self.value_sign(),
            b'*' | b'&' => {
                self.begin_scalar()?;
                let start = self.cursor.mark;
                let name = token_text::read_anchor(&mut self.cursor)?;
                let kind = if first == b'*' {
                    Kind::Alias(name)
                } else {
                    Kind::Anchor(name)
                };
                self.push_token(kind, start);
                Ok(())
            }
            b'!' => {
                self.begin_scalar()?;
                let start = self.cursor.mark;
                let kind = token_text::read_tag(&mut self.cursor)?;
                self.push_token(kind, start);
                Ok(())
            }
            b'|' | b'>' if !in_flow => {
                self.forget_key()?;
                self.may_be_key = true;
                let start = self.cursor.mark;
                let kind = token_text::read_block(&mut self.cursor, self.indent)?;
                self.push_token(kind, start);
                Ok(())
            }
            b'\'' | b'"' => {
                self.begin_scalar()?;
                let start = self.cursor.mark;
                let kind = token_text::read_quoted(&mut self.cursor)?;
                self.push_token(kind, start);
                Ok(())
            }
            b'#' | b'|' | b'>' | b'%' | b'@' | b'`' | b'\t' => self.no_token(),
            _ => {
                self.begin_scalar()?;
                self.read_plain()
            }
        }
    }

    fn no_token(&self) -> Result<(), Problem> {
        let message = if self.cursor.next_is(b'\t') {
            "found a tab character that cannot start any token; indent with spaces"
        } else {
            "found character that cannot start any token; put the text in quotes"
        };
        Err(Problem::new(self.cursor.mark, message))
    }

    fn in_flow(&self) -> bool {
        self.keys.len() > 1
    }

    /// Puts a token that ends here into the queue.
    fn push_token(&mut self, kind: Kind<'text>, start: Mark) {
        let end = self.cursor.mark;
        self.queue.push_back(Token { kind, start, end });
    }

    /// Puts a token of one character into the queue.
    fn push_sign(&mut self, kind: Kind<'text>) {
        let start = self.cursor.mark;
        self.cursor.skip_character();
        self.push_token(kind, start);
    }

    /// Inserts a token without text before another token in the queue. Without another token, or if that token has left the queue, the new
    /// token comes last.
    fn insert(&mut self, kind: Kind<'text>, mark: Mark, before: Option<usize>) {
        // A token that has left the queue already can't have another before it: Go then puts that last, too.
        let place = before.and_then(|number| number.checked_sub(self.taken));
        let token = Token {
            kind,
            start: mark,
            end: mark,
        };
        let last = self.queue.len();
        self.queue.insert(place.map_or(last, |place| place.min(last)), token);
    }

    fn read_plain(&mut self) -> Result<(), Problem> {
        let start = self.cursor.mark;
        let indent = self.indent.map_or(0, |indent| indent + 1);
        let in_flow = self.in_flow();
        let plain = token_text::read_plain(&mut self.cursor, indent, in_flow)?;
        self.may_be_key |= plain.ends_lines;
        self.queue.push_back(Token {
            kind: Kind::Scalar(plain.text, Form::Plain),
            start,
            end: plain.end,
        });
        Ok(())
    }

    /// Checks whether a noted token may still become a key. A key stays on one line and is short.
    fn is_possible_key(&mut self, level: usize) -> Result<bool, Problem> {
        let here = self.cursor.mark;
        let Some(key) = self.keys.get_mut(level).filter(|key| key.possible) else {
            return Ok(false);
        };
        if key.mark.line < here.line || key.mark.index + LONGEST_KEY < here.index {
            if key.required {
                return Err(Problem::new(key.mark, "could not find expected ':'"));
            }
            key.possible = false;
        }
        Ok(key.possible)
    }

    /// Notes the token that begins here as a possible key, if a key may stand here.
    fn note_key(&mut self) -> Result<(), Problem> {
        if !self.may_be_key {
            return Ok(());
        }
        self.forget_key()?;
        let token = self.taken + self.queue.len();
        let (level, required) = (
            self.keys.len() - 1,
            !self.in_flow() && self.indent == Some(self.cursor.mark.column),
        );
        if let Some(key) = self.keys.last_mut() {
            *key = SimpleKey {
                possible: true,
                required,
                token,
                mark: self.cursor.mark,
            };
        }
        self.key_of_token.insert(token, level);
        Ok(())
    }

    fn forget_key(&mut self) -> Result<(), Problem> {
        let Some(key) = self.keys.last_mut().filter(|key| key.possible) else {
            return Ok(());
        };
        if key.required {
            return Err(Problem::new(key.mark, "could not find expected ':'"));
        }
        key.possible = false;
        self.key_of_token.remove(&key.token);
        Ok(())
    }

    fn begin_scalar(&mut self) -> Result<(), Problem> {
        self.note_key()?;
        self.may_be_key = false;
        Ok(())
    }

    /// Opens a block collection at a column, unless the innermost one is at this column or deeper. Its token comes before another token, if
    /// one is given.
    fn open_block(&mut self, column: usize, kind: Kind<'text>, mark: Mark, before: Option<usize>) {
        if !self.in_flow() && self.indent.is_none_or(|indent| indent < column) {
            self.indents.push(self.indent.replace(column));
            self.insert(kind, mark, before);
        }
    }

    /// Closes the block collections that are deeper than a column; all block collections, if `column` is `None`.
    fn close_blocks(&mut self, column: Option<usize>) {
        if self.in_flow() {
            return;
        }
        while self.indent > column {
            self.push_token(Kind::BlockEnd, self.cursor.mark);
            self.indent = self.indents.pop().flatten();
        }
    }

    fn end_of_stream(&mut self) -> Result<(), Problem> {
        if self.cursor.mark.column != 0 {
            self.cursor.mark.column = 0;
            self.cursor.mark.line += 1;
        }
        self.close_blocks(None);
        self.forget_key()?;
        self.may_be_key = false;
        self.push_token(Kind::StreamEnd, self.cursor.mark);
        Ok(())
    }

    fn read_directive(&mut self) -> Result<(), Problem> {
        self.close_blocks(None);
        self.forget_key()?;
        self.may_be_key = false;
        let start = self.cursor.mark;
        let kind = token_text::read_directive(&mut self.cursor)?;
        self.push_token(kind, start);
        Ok(())
    }

    fn document_marker(&mut self, first: u8) -> Result<(), Problem> {
        self.close_blocks(None);
        self.forget_key()?;
        self.may_be_key = false;
        let start = self.cursor.mark;
        self.cursor.skip_several(3);
        let kind = if first == b'-' {
            Kind::DocumentStart
        } else {
            Kind::DocumentEnd
        };
        self.push_token(kind, start);
        Ok(())
    }

    fn open_flow(&mut self, kind: Kind<'text>) -> Result<(), Problem> {
        self.note_key()?;
        self.keys.push(SimpleKey {
            token: self.taken + self.queue.len(),
            ..SimpleKey::default()
        });
        self.may_be_key = true;
        self.push_sign(kind);
        Ok(())
    }

    fn close_flow(&mut self, kind: Kind<'text>) -> Result<(), Problem> {
        self.forget_key()?;
        if self.in_flow()
            && let Some(key) = self.keys.pop()
        {
            self.key_of_token.remove(&key.token);
        }
        self.may_be_key = false;
        self.push_sign(kind);
        Ok(())
    }

    fn block_entry(&mut self) -> Result<(), Problem> {
        let mark = self.cursor.mark;
        if !self.in_flow() {
            if !self.may_be_key {
                return Err(Problem::new(
                    mark,
                    "block sequence entries are not allowed in this context",
                ));
            }
            self.open_block(mark.column, Kind::BlockSequenceStart, mark, None);
        }
        self.forget_key()?;
        self.may_be_key = true;
        self.push_sign(Kind::BlockEntry);
        Ok(())
    }

    fn key_sign(&mut self) -> Result<(), Problem> {
        let mark = self.cursor.mark;
        if !self.in_flow() {
            if !self.may_be_key {
                return Err(Problem::new(mark, "mapping keys are not allowed in this context"));
            }
            self.open_block(mark.column, Kind::BlockMappingStart, mark, None);
        }
        self.forget_key()?;
        self.may_be_key = !self.in_flow();
        self.push_sign(Kind::Key);
        Ok(())
    }

    fn value_sign(&mut self) -> Result<(), Problem> {
        let level = self.keys.len() - 1;
        if self.is_possible_key(level)?
            && let Some(key) = self.keys.last_mut()
        {
            key.possible = false;
            let SimpleKey { token, mark, .. } = *key;
            self.insert(Kind::Key, mark, Some(token));
            self.open_block(mark.column, Kind::BlockMappingStart, mark, Some(token));
            self.key_of_token.remove(&token);
            self.may_be_key = false;
        } else {
            let mark = self.cursor.mark;
            if !self.in_flow() {
                if !self.may_be_key {
                    return Err(Problem::new(mark, "mapping values are not allowed in this context"));
                }
                self.open_block(mark.column, Kind::BlockMappingStart, mark, None);
            }
            self.may_be_key = !self.in_flow();
        }
        self.push_sign(Kind::Value);
        Ok(())
    }

    fn skip_to_token(&mut self) -> Result<(), Problem> {
        loop {
            if self.begins_with_mark && self.cursor.mark.column == 0 {
                self.cursor.skip_character();
            }
            let tabs = self.in_flow() || !self.may_be_key;
            while self.cursor.next_is(b' ') || tabs && self.cursor.next_is(b'\t') {
                self.cursor.skip_character();
            }
            if self.cursor.next_is(b'#') {
                self.skip_comments();
            }
            if !self.cursor.is_break(0) {
                return Ok(());
            }
            self.cursor.skip_line();
            self.may_be_key |= !self.in_flow();
        }
    }

    /// Skips a comment. yaml.v3 then continues to a further comment, if only blanks, tabs and line breaks are between them.
    fn skip_comments(&mut self) {
        loop {
            self.cursor.skip_comment();
            if self.dialect != Dialect::V3 {
                return;
            }
            let mut ahead = 1;
            while ahead < COMMENT_AHEAD && (self.cursor.is_blank(ahead) || self.cursor.is_break(ahead)) {
                ahead += 1;
            }
            if ahead == COMMENT_AHEAD || self.cursor.peek_byte(ahead) != Some(b'#') {
                return;
            }
            while !self.cursor.next_is(b'#') {
                if self.cursor.is_break(0) {
                    self.cursor.skip_line();
                } else {
                    self.cursor.skip_character();
                }
            }
        }
    }

    /// Skips a comment behind the last token. No space is necessary before such a comment.
    fn skip_comment_behind(&mut self) {
        if self.cursor.ended_lines > 0 {
            return;
        }
        let mut ahead = 0;
        while ahead < COMMENT_AHEAD && self.cursor.is_blank(ahead) {
            ahead += 1;
        }
        if ahead < COMMENT_AHEAD && self.cursor.peek_byte(ahead) == Some(b'#') {
            self.cursor.skip_blanks();
            self.cursor.skip_comment();
        }
    }
}
