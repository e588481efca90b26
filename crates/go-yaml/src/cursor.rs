//! A position in a text of YAML, and the ways to advance it by characters, as Go's scanner counts them. A cursor knows which characters end
//! a line, but not what the text means.

/// A place in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark {
    /// Bytes before it.
    pub at: usize,
    /// Characters before it.
    pub index: usize,
    /// Lines before it.
    pub line: usize,
    /// Characters before it on its line.
    pub column: usize,
}

/// A place that moves on through a text.
#[derive(Debug, Clone)]
pub(super) struct Cursor<'text> {
    text: &'text str,
    pub(super) mark: Mark,
    /// Lines that ended since the last character that wasn't blank.
    pub(super) ended_lines: usize,
    /// The comments so far, and where they begin.
    pub(super) comments: Vec<(Mark, &'text str)>,
}

impl<'text> Cursor<'text> {
    pub(super) fn new(text: &'text str) -> Self {
        Cursor {
            text,
            mark: Mark::default(),
            ended_lines: 0,
            comments: Vec::new(),
        }
    }

    /// Returns the byte at a distance ahead; `None` behind the end of the text.
    pub(super) fn peek_byte(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.mark.at + ahead).copied()
    }

    pub(super) fn next_is(&self, byte: u8) -> bool {
        self.peek_byte(0) == Some(byte)
    }

    /// Returns the text between two places.
    pub(super) fn text_between(&self, from: usize, to: usize) -> &'text str {
        self.text.get(from..to).unwrap_or("")
    }

    /// Checks whether the rest of the text begins with `text`.
    pub(super) fn begins_with(&self, text: &str) -> bool {
        let rest = self.text.as_bytes().get(self.mark.at..).unwrap_or(&[]);
        rest.starts_with(text.as_bytes())
    }

    /// Checks for a space or a tab.
    pub(super) fn is_blank(&self, ahead: usize) -> bool {
        matches!(self.peek_byte(ahead), Some(b' ' | b'\t'))
    }

    /// Checks for a character that ends a line: the usual line breaks, and next-line, line and paragraph separators.
    pub(super) fn is_break(&self, ahead: usize) -> bool {
        match self.peek_byte(ahead) {
            Some(b'\n' | b'\r') => true,
            Some(0xc2) => self.peek_byte(ahead + 1) == Some(0x85),
            Some(0xe2) => {
                self.peek_byte(ahead + 1) == Some(0x80) && matches!(self.peek_byte(ahead + 2), Some(0xa8 | 0xa9))
            }
            _ => false,
        }
    }

    pub(super) fn is_break_or_end(&self, ahead: usize) -> bool {
        self.peek_byte(ahead).is_none() || self.is_break(ahead)
    }

    /// Checks whether a word ends at a distance ahead.
    pub(super) fn is_blank_or_end(&self, ahead: usize) -> bool {
        self.is_blank(ahead) || self.is_break_or_end(ahead)
    }

    /// Checks for the marker of a document's start or end.
    pub(super) fn is_document_marker(&self) -> bool {
        self.mark.column == 0 && (self.begins_with("---") || self.begins_with("...")) && self.is_blank_or_end(3)
    }

    /// Skips one character that does not end a line.
    pub(super) fn skip_character(&mut self) {
        let Some(first) = self.peek_byte(0) else { return };
        if !matches!(first, b' ' | b'\t') {
            self.ended_lines = 0;
        }
        self.mark.at += character_length(first);
        self.mark.index += 1;
        self.mark.column += 1;
    }

    /// Skips `count` ASCII characters that do not end a line.
    pub(super) fn skip_several(&mut self, count: usize) {
        (0..count).for_each(|_| self.skip_character());
    }

    /// Skips characters up to the end of the line.
    pub(super) fn skip_to_break(&mut self) {
        while !self.is_break_or_end(0) {
            self.skip_character();
        }
    }

    /// Skips a comment that begins here, up to the end of its line.
    pub(super) fn skip_comment(&mut self) {
        let start = self.mark;
        self.skip_to_break();
        self.comments.push((start, self.text_between(start.at, self.mark.at)));
    }

    pub(super) fn skip_blanks(&mut self) {
        while self.is_blank(0) {
            self.skip_character();
        }
    }

    /// Skips a line break, if one is here. A carriage return with a line feed is one line break.
    pub(super) fn skip_line(&mut self) {
        let Some(first) = self.peek_byte(0).filter(|_| self.is_break(0)) else {
            return;
        };
        let (bytes, characters) = if first == b'\r' && self.peek_byte(1) == Some(b'\n') {
            (2, 2)
        } else {
            (character_length(first), 1)
        };
        self.mark.at += bytes;
        self.mark.index += characters;
        self.mark.column = 0;
        self.mark.line += 1;
        self.ended_lines += 1;
    }

    /// Skips a line break, if one is here, and writes it to `into`: as a line feed, but separators unchanged.
    pub(super) fn read_line(&mut self, into: &mut String) {
        let from = self.mark.at;
        let is_separator = self.next_is(0xe2);
        self.skip_line();
        if is_separator {
            into.push_str(self.text_between(from, self.mark.at));
        } else if self.mark.at > from {
            into.push('\n');
        }
    }
}

/// Returns the length of the character that begins with a byte.
fn character_length(first: u8) -> usize {
    match first {
        0xf0.. => 4,
        0xe0.. => 3,
        0xc0.. => 2,
        _ => 1,
    }
}
