//! Owns where Go's YAML scanner and the parser in use part: tabs that Go takes for bad indentation, and text that Go reads though
//! the parser doesn't. It follows Go's tokens just far enough to know where they begin and end; refuses to say what they mean.

use std::borrow::Cow;

/// A tab that Go refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadTab {
    /// Its line in the text, from 1.
    pub(super) line: u32,
    pub(super) message: &'static str,
}

const NO_TOKEN: &str = "found a tab character that cannot start any token; indent with spaces";
const INDENTATION: &str = "found a tab character that violates indentation; indent with spaces";
const BLOCK_SCALAR: &str = "found a tab character where an indentation space is expected";

/// Looks for tabs that Go refuses.
///
/// # Errors
/// The first of them.
pub(super) fn check_tabs(text: &str) -> Result<(), BadTab> {
    if !text.contains('\t') {
        return Ok(());
    }
    let lines_begin_so = text.lines().any(|line| line.trim_start_matches(' ').starts_with('\t'));
    if lines_begin_so
        || ["-\t", "- \t", "?\t", "? \t", ":\t"]
            .iter()
            .any(|sign| text.contains(sign))
    {
        Scanner::new(text).run()?;
    }
    Ok(())
}

/// The text written so that the parser reads what Go reads, on the same lines: lines of quoted scalars that aren't indented are,
/// and comments right behind a token stand apart.
pub(super) fn mended(text: &str) -> Cow<'_, str> {
    let mut scanner = Scanner::new(text);
    let _ = scanner.run();
    if scanner.changes.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut into = String::with_capacity(text.len() + 64);
    let mut done = 0;
    for (at, length, instead) in scanner.changes {
        into.push_str(text.get(done..at).unwrap_or(""));
        into.push_str(&instead);
        done = at + length;
    }
    into.push_str(text.get(done..).unwrap_or(""));
    Cow::Owned(into)
}

/// Why Go refuses an escape in quoted text, if it does.
pub(super) fn bad_escape(quoted: &str) -> Option<&'static str> {
    let mut rest = quoted;
    while let Some(at) = rest.find('\\') {
        let escape = rest.get(at + 1..).unwrap_or("");
        let letter = escape.chars().next()?;
        match letter {
            '/' => return Some("found unknown escape character: a slash needs none"),
            'u' => {
                let code = escape.get(1..5).and_then(|digits| u32::from_str_radix(digits, 16).ok());
                if code.is_some_and(|code| (0xd800..0xe000).contains(&code)) {
                    return Some("found invalid Unicode character escape code: write it as one with eight digits");
                }
            }
            _ => {}
        }
        rest = escape.get(letter.len_utf8()..).unwrap_or("");
    }
    None
}

struct Scanner<'text> {
    text: &'text [u8],
    at: usize,
    line: u32,
    /// Where the line begins.
    start: usize,
    flows: usize,
    /// Go's simple_key_allowed: a key may begin here, so a tab may not.
    may_be_key: bool,
    /// Columns of the block collections that are open.
    indents: Vec<usize>,
    /// The line and column of what may turn out to be a key.
    key: Option<(u32, usize)>,
    /// What is written otherwise: where, how many bytes, and what instead.
    changes: Vec<(usize, usize, String)>,
}

impl<'text> Scanner<'text> {
    fn new(text: &'text str) -> Self {
        Scanner {
            text: text.as_bytes(),
            at: 0,
            line: 1,
            start: 0,
            flows: 0,
            may_be_key: true,
            indents: Vec::new(),
            key: None,
            changes: Vec::new(),
        }
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.get(self.at + ahead).copied()
    }

    fn column(&self) -> usize {
        self.at - self.start
    }

    /// Tells whether a blank, a line's end or the text's end is so far ahead.
    fn is_blank(&self, ahead: usize) -> bool {
        matches!(self.peek(ahead), None | Some(b' ' | b'\t' | b'\n' | b'\r'))
    }

    /// Tells whether there is nothing but blanks before this on the line.
    fn is_indentation(&self) -> bool {
        let before = self.text.get(self.start..self.at).unwrap_or(&[]);
        before.iter().all(|byte| matches!(byte, b' ' | b'\t'))
    }

    fn bad(&self, message: &'static str) -> BadTab {
        BadTab {
            line: self.line,
            message,
        }
    }

    /// Goes over a line's end.
    fn end_line(&mut self) {
        self.at += if self.peek(0) == Some(b'\r') && self.peek(1) == Some(b'\n') {
            2
        } else {
            1
        };
        self.line += 1;
        self.start = self.at;
    }

    fn skip_line(&mut self) {
        while !matches!(self.peek(0), None | Some(b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// To the next token.
    fn skip_to_token(&mut self) -> Result<(), BadTab> {
        loop {
            if self.column() == 0
                && self
                    .text
                    .get(self.at..)
                    .is_some_and(|rest| rest.starts_with("\u{feff}".as_bytes()))
            {
                self.at += 3;
            }
            while match self.peek(0) {
                Some(b' ') => true,
                Some(b'\t') if self.flows > 0 || !self.may_be_key => true,
                Some(b'\t') => return Err(self.bad(NO_TOKEN)),
                _ => false,
            } {
                if self.peek(0) == Some(b'\t') && self.is_indentation() {
                    self.changes.push((self.at, 1, " ".to_owned()));
                }
                self.at += 1;
            }
            if self.peek(0) == Some(b'#') {
                let before = self.at.checked_sub(1).and_then(|before| self.text.get(before));
                if self.column() > 0 && !matches!(before, Some(b' ' | b'\t')) {
                    self.changes.push((self.at, 0, " ".to_owned()));
                }
                self.skip_line();
            }
            match self.peek(0) {
                Some(b'\n' | b'\r') => {
                    self.end_line();
                    self.may_be_key |= self.flows == 0;
                }
                _ => return Ok(()),
            }
        }
    }

    fn run(&mut self) -> Result<(), BadTab> {
        loop {
            self.skip_to_token()?;
            let Some(first) = self.peek(0) else { return Ok(()) };
            let column = self.column();
            if self.flows == 0 {
                while self.indents.last().is_some_and(|indent| *indent > column) {
                    self.indents.pop();
                }
            }
            let rest = self.text.get(self.at..).unwrap_or(&[]);
            match first {
                b'-' | b'.'
                    if column == 0 && (rest.starts_with(b"---") || rest.starts_with(b"...")) && self.is_blank(3) =>
                {
                    self.indents.clear();
                    self.may_be_key = false;
                    self.key = None;
                    self.at += 3;
                }
                b'%' if column == 0 => self.skip_line(),
                b'[' | b'{' => {
                    self.note_key();
                    self.flows += 1;
                    self.may_be_key = true;
                    self.at += 1;
                }
                b']' | b'}' => {
                    self.flows = self.flows.saturating_sub(1);
                    self.may_be_key = false;
                    self.at += 1;
                }
                b',' if self.flows > 0 => {
                    self.may_be_key = true;
                    self.at += 1;
                }
                b'-' if self.is_blank(1) => {
                    self.open(column);
                    self.may_be_key = true;
                    self.at += 1;
                }
                b'?' if self.flows > 0 || self.is_blank(1) => {
                    self.open(column);
                    self.may_be_key = self.flows == 0;
                    self.at += 1;
                }
                b':' if self.flows > 0 || self.is_blank(1) => {
                    match self.key.take().filter(|(line, _)| *line == self.line) {
                        Some((_, column)) => {
                            self.open(column);
                            self.may_be_key = false;
                        }
                        None => {
                            self.open(column);
                            self.may_be_key = self.flows == 0;
                        }
                    }
                    self.at += 1;
                }
                b'*' | b'&' | b'!' => {
                    self.note_key();
                    self.may_be_key = false;
                    let in_flow = self.flows > 0;
                    while !(self.is_blank(0) || in_flow && matches!(self.peek(0), Some(b',' | b']' | b'}'))) {
                        self.at += 1;
                    }
                }
                b'|' | b'>' if self.flows == 0 => {
                    self.block_scalar()?;
                    self.key = None;
                    self.may_be_key = true;
                }
                b'"' | b'\'' => {
                    self.note_key();
                    self.quoted(first);
                    self.may_be_key = false;
                }
                // Nothing begins so; the parser says what it is.
                b',' | b'%' | b'@' | b'`' | b'|' | b'>' => return Ok(()),
                _ => {
                    self.note_key();
                    self.plain()?;
                }
            }
        }
    }

    /// Opens a block collection at a column, if it is deeper than those that are open.
    fn open(&mut self, column: usize) {
        if self.flows == 0 && self.indents.last().is_none_or(|indent| *indent < column) {
            self.indents.push(column);
        }
    }

    fn note_key(&mut self) {
        if self.flows == 0 && self.may_be_key {
            self.key = Some((self.line, self.column()));
        }
    }

    /// The column that the text of a scalar must pass.
    fn indent(&self) -> usize {
        self.indents.last().map_or(0, |indent| indent + 1)
    }

    fn quoted(&mut self, quote: u8) {
        let indent = self.indent().max(1);
        self.at += 1;
        while let Some(byte) = self.peek(0) {
            match byte {
                b'\\' if quote == b'"' && self.peek(1) == Some(b'\'') => {
                    self.changes.push((self.at, 2, "'".to_owned()));
                    self.at += 2;
                }
                b'\\' if quote == b'"' && !matches!(self.peek(1), Some(b'\n' | b'\r')) => self.at += 2,
                b'\'' if quote == b'\'' && self.peek(1) == Some(b'\'') => self.at += 2,
                b'\n' | b'\r' => {
                    self.end_line();
                    while matches!(self.peek(0), Some(b' ' | b'\t')) {
                        self.at += 1;
                    }
                    let length = self.column();
                    let written = self.text.get(self.start..self.at).unwrap_or(&[]);
                    let is_short = length < indent && !matches!(self.peek(0), None | Some(b'\n' | b'\r'));
                    if is_short || written.contains(&b'\t') {
                        self.changes.push((self.start, length, " ".repeat(length.max(indent))));
                    }
                }
                _ if byte == quote => {
                    self.at += 1;
                    return;
                }
                _ => self.at += 1,
            }
        }
    }

    fn plain(&mut self) -> Result<(), BadTab> {
        let indent = self.indent();
        let (first, mut end) = (self.at, self.at);
        let mut ends_a_line = false;
        while !self.is_marker() && self.peek(0) != Some(b'#') {
            while let Some(byte) = self.peek(0) {
                let ends = match byte {
                    b' ' | b'\t' | b'\n' | b'\r' => true,
                    b':' => self.is_blank(1),
                    b',' | b'[' | b']' | b'{' | b'}' | b'?' => self.flows > 0,
                    _ => false,
                };
                if ends {
                    break;
                }
                ends_a_line = false;
                self.at += 1;
                end = self.at;
            }
            if self.peek(0).is_none() || !self.is_blank(0) {
                break;
            }
            while let Some(byte @ (b' ' | b'\t' | b'\n' | b'\r')) = self.peek(0) {
                match byte {
                    b'\t' if ends_a_line && self.column() < indent => return Err(self.bad(INDENTATION)),
                    b' ' | b'\t' => {
                        if byte == b'\t' && ends_a_line && self.flows > 0 {
                            self.changes.push((self.at, 1, " ".to_owned()));
                        }
                        self.at += 1;
                    }
                    _ => {
                        self.end_line();
                        ends_a_line = true;
                    }
                }
            }
            if self.flows == 0 && self.column() < indent {
                break;
            }
        }
        self.may_be_key = ends_a_line;
        if self.flows > 0 && self.text.get(first..end) == Some(b"-") {
            // A dash alone is text to Go.
            self.changes.push((first, 1, "'-'".to_owned()));
        }
        Ok(())
    }

    fn is_marker(&self) -> bool {
        let rest = self.text.get(self.at..).unwrap_or(&[]);
        self.column() == 0 && (rest.starts_with(b"---") || rest.starts_with(b"...")) && self.is_blank(3)
    }

    fn block_scalar(&mut self) -> Result<(), BadTab> {
        self.at += 1;
        let mut given = 0;
        while let Some(byte) = self.peek(0).filter(|byte| matches!(byte, b'+' | b'-' | b'0'..=b'9')) {
            if byte.is_ascii_digit() {
                given = usize::from(byte - b'0');
            }
            self.at += 1;
        }
        self.skip_line();
        let parent = self.indents.last().copied();
        let mut indent = if given > 0 { parent.unwrap_or(0) + given } else { 0 };
        loop {
            if self.peek(0).is_none() {
                return Ok(());
            }
            self.end_line();
            // Lines that are empty, or blank up to the indentation.
            loop {
                while (indent == 0 || self.column() < indent) && self.peek(0) == Some(b' ') {
                    self.at += 1;
                }
                if (indent == 0 || self.column() < indent) && self.peek(0) == Some(b'\t') {
                    return Err(self.bad(BLOCK_SCALAR));
                }
                match self.peek(0) {
                    Some(b'\n' | b'\r') => self.end_line(),
                    _ => break,
                }
            }
            if indent == 0 {
                indent = self.column().max(parent.map_or(1, |parent| parent + 1));
            }
            if self.peek(0).is_none() || self.column() < indent {
                return Ok(());
            }
            self.skip_line();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{bad_escape, check_tabs, mended};

    #[test]
    fn lines_of_quoted_text_are_indented() {
        assert_eq!(mended("a: '{\n\"b\": 1\n\n}'\n"), "a: '{\n \"b\": 1\n\n }'\n");
        assert_eq!(mended("a:\n  b: \"c\n\td\"\n"), "a:\n  b: \"c\n   d\"\n");
        assert_eq!(mended("a: \"it\\'s\"\n"), "a: \"it's\"\n");
    }

    #[test]
    fn what_needs_nothing_is_left_alone() {
        for text in [
            "a: |\n  \"b\n c\n",
            "a: b\n  c\n",
            "# \"a\nb: c\n",
            "a: it's\nb: 'c\n  d'\n",
        ] {
            assert_eq!(mended(text), text);
        }
    }

    #[test]
    fn comments_stand_apart_and_a_dash_is_quoted() {
        assert_eq!(mended("a: \"b\"#c\n"), "a: \"b\" #c\n");
        assert_eq!(mended("a: [-, b]\n"), "a: ['-', b]\n");
        assert_eq!(mended("a: b#c\n"), "a: b#c\n");
    }

    #[test]
    fn tabs_are_refused_where_go_refuses_them() {
        let line = |text: &str| check_tabs(text).err().map(|tab| tab.line);
        assert_eq!(line("a: b\n\t\nc: d\n"), Some(2));
        assert_eq!(line("a: \"b\"\n  \t\n"), Some(2));
        assert_eq!(line("a:\n-\tb\n"), Some(2));
        assert_eq!(line("a: |\n  b\n\t\n"), Some(3));
        assert_eq!(line("a: b\n \t\nc: d\n"), None);
        assert_eq!(line("a: {\n\tb: c}\n"), None);
        assert_eq!(line("a: |\n  b\n  \tc\n"), None);
        assert_eq!(line("a:\tb\t# c\n"), None);
    }

    #[test]
    fn escapes_that_go_does_not_know_are_found() {
        assert!(bad_escape("\"a\\/b\"").is_some());
        assert!(bad_escape("\"\\ud83d\\ude00\"").is_some());
        assert!(bad_escape("\"\\\\/ \\u00e9\"").is_none());
    }
}
