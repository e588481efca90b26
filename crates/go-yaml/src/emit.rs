//! Writes JSON values as yaml.v2 does: sorted keys, indentation, quoting, folding at column 80, block scalars.

use memchr::memchr;
use serde_json::{Map, Value};

use super::facts::{Facts, is_break, is_printable};
use super::number;
use super::scalar::{Dialect, Scalar, resolve};
use crate::meter;

/// The column after which long lines are folded at a space.
const BEST_WIDTH: usize = 80;
/// The longest key that stays on one line with its value, in bytes.
const LONGEST_SIMPLE_KEY: usize = 128;

/// Writes one value as a document, without a separator.
#[must_use]
pub fn write_document(value: &Value) -> String {
    let mut emitter = Emitter {
        out: String::new(),
        column: 0,
        whitespace: true,
        indention: true,
    };
    emitter.write_node(value, None, Context::Root);
    if emitter.column != 0 {
        emitter.out.push('\n');
    }
    emitter.out
}

/// The position of a value, which decides how it may be written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Context {
    Root,
    Sequence,
    Mapping,
    SimpleKey,
}

/// The text so far, and the state of its last line.
struct Emitter {
    out: String,
    /// Characters since the last line break.
    column: usize,
    /// The last character was a space or a line break.
    whitespace: bool,
    /// Whether this line contains only indentation and indicators so far.
    indention: bool,
}

impl Emitter {
    fn put(&mut self, character: char) {
        self.out.push(character);
        self.column += 1;
    }

    /// Puts text without line breaks.
    fn put_all(&mut self, text: &str) {
        self.out.push_str(text);
        self.column += text.chars().count();
    }

    fn line_break(&mut self) {
        self.out.push('\n');
        self.column = 0;
    }

    fn write_indicator(&mut self, text: &str, need_whitespace: bool, is_whitespace: bool, is_indention: bool) {
        if need_whitespace && !self.whitespace {
            self.put(' ');
        }
        text.chars().for_each(|character| self.put(character));
        self.whitespace = is_whitespace;
        self.indention = self.indention && is_indention;
    }

    fn write_indent(&mut self, indent: usize) {
        if !self.indention || self.column > indent || (self.column == indent && !self.whitespace) {
            self.line_break();
        }
        while self.column < indent {
            self.put(' ');
        }
        self.whitespace = true;
        self.indention = true;
    }

    /// Writes a node. `indent` is the indentation of its parent, `None` at the root.
    fn write_node(&mut self, value: &Value, indent: Option<usize>, context: Context) {
        // The indentation counts, too: in deep nesting it is most of a line.
        meter::count_text(indent.unwrap_or(0) + value.as_str().map_or(8, str::len));
        if meter::exhausted_limit().is_some() {
            return;
        }
        match value {
            Value::Object(map) if map.is_empty() => self.write_empty("{", "}"),
            Value::Array(items) if items.is_empty() => self.write_empty("[", "]"),
            Value::Object(map) => {
                let indent = indent.map_or(0, |indent| indent + 2);
                let mut each = |(key, held): (&String, &Value)| {
                    self.write_indent(indent);
                    self.write_entry(key, held, indent);
                };
                if is_in_order(map) {
                    map.iter().for_each(each);
                } else {
                    let mut entries: Vec<(&String, &Value)> = map.iter().collect();
                    sort_entries(&mut entries);
                    entries.into_iter().for_each(&mut each);
                }
            }
            Value::Array(items) => {
                // A sequence in a mapping isn't indented, unless it begins on the line of an indicator.
                let indentless = context == Context::Mapping && !self.indention;
                let indent = match indent {
                    None => 0,
                    Some(indent) if indentless => indent,
                    Some(indent) => indent + 2,
                };
                for item in items {
                    self.write_indent(indent);
                    self.write_indicator("-", true, false, true);
                    self.write_node(item, Some(indent), Context::Sequence);
                }
            }
            scalar => self.write_scalar(scalar, indent.map_or(2, |indent| indent + 2), context),
        }
    }

    fn write_entry(&mut self, key: &str, held: &Value, indent: usize) {
        let simple = key.len() <= LONGEST_SIMPLE_KEY && !key.contains(is_break);
        if simple {
            self.write_string(key, indent + 2, Context::SimpleKey);
            self.write_indicator(":", false, false, false);
        } else {
            self.write_indicator("?", true, false, true);
            self.write_string(key, indent + 2, Context::Mapping);
            self.write_indent(indent);
            self.write_indicator(":", true, false, true);
        }
        self.write_node(held, Some(indent), Context::Mapping);
    }

    fn write_empty(&mut self, open: &str, close: &str) {
        self.write_indicator(open, true, true, false);
        self.write_indicator(close, false, false, false);
    }

    fn write_scalar(&mut self, value: &Value, indent: usize, context: Context) {
        let text = match value {
            Value::String(text) => return self.write_string(text, indent, context),
            Value::Bool(truth) => truth.to_string(),
            Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
                (Some(integer), _, _) => integer.to_string(),
                (_, Some(integer), _) => integer.to_string(),
                (_, _, Some(float)) => number::format_general(float),
                _ => number.to_string(),
            },
            _ => "null".to_owned(),
        };
        self.write_plain(&text, indent, context != Context::SimpleKey);
    }

    fn write_string(&mut self, text: &str, indent: usize, context: Context) {
        let simple_key = context == Context::SimpleKey;
        let facts = Facts::read(text);
        let is_text = matches!(resolve(text, Dialect::V2), Scalar::Text(_)) && !is_base_60(text);
        let mut style = if text.contains('\n') {
            Form::Literal
        } else if is_text {
            Form::Plain
        } else {
            Form::Double
        };
        if simple_key && facts.multiline {
            style = Form::Double;
        }
        if style == Form::Plain && (!facts.plain || (text.is_empty() && simple_key)) {
            style = Form::Single;
        }
        if style == Form::Single && !facts.single {
            style = Form::Double;
        }
        if style == Form::Literal && (!facts.block || simple_key) {
            style = Form::Double;
        }
        match style {
            Form::Plain => self.write_plain(text, indent, !simple_key),
            Form::Single => self.write_single_quoted(text, indent, !simple_key),
            Form::Double => self.write_double_quoted(text, indent, !simple_key),
            Form::Literal => self.write_literal(text, indent),
        }
    }

    /// Folds at a space if the line is long enough. Returns whether it did so.
    fn fold_at_space(&mut self, indent: usize, allowed: bool, next: Option<char>) -> bool {
        let fold = allowed && self.column > BEST_WIDTH && next != Some(' ');
        if fold {
            self.write_indent(indent);
        }
        fold
    }

    fn write_plain(&mut self, text: &str, indent: usize, breaks_allowed: bool) {
        if !self.whitespace {
            self.put(' ');
        }
        let mut spaces = false;
        let mut rest = text;
        if text.is_ascii() {
            // Fast path for ASCII text: everything up to the next fold is copied at once. Most text has no fold.
            self.indention = false;
            while let Some(place) = self.place_to_fold(rest).filter(|_| breaks_allowed) {
                let (line, tail) = rest.split_at_checked(place).unwrap_or((rest, ""));
                self.out.push_str(line);
                self.column += line.len();
                self.write_indent(indent);
                self.indention = false;
                rest = tail.get(1..).unwrap_or("");
            }
            self.out.push_str(rest);
            self.column += rest.len();
            self.whitespace = false;
            return;
        }
        while let Some((word, tail)) = rest.split_once(' ') {
            if !word.is_empty() {
                self.put_all(word);
                self.indention = false;
                spaces = false;
            }
            if !self.fold_at_space(indent, breaks_allowed && !spaces, tail.chars().next()) {
                self.put(' ');
            }
            spaces = true;
            rest = tail;
        }
        self.put_all(rest);
        self.whitespace = false;
        self.indention = false;
    }

    /// Returns the place for the next line break in ASCII text: the first single space beyond the width.
    fn place_to_fold(&self, text: &str) -> Option<usize> {
        let bytes = text.as_bytes();
        let mut from = (BEST_WIDTH + 1).saturating_sub(self.column);
        loop {
            let place = from + memchr(b' ', bytes.get(from..)?)?;
            let is_space = |at: Option<usize>| at.and_then(|at| bytes.get(at)) == Some(&b' ');
            if !is_space(place.checked_sub(1)) && !is_space(Some(place + 1)) {
                return Some(place);
            }
            from = place + 1;
        }
    }

    fn write_single_quoted(&mut self, text: &str, indent: usize, breaks_allowed: bool) {
        self.write_indicator("'", true, false, false);
        let (mut spaces, mut after_break) = (false, false);
        let mut characters = text.chars().peekable();
        let mut first = true;
        while let Some(character) = characters.next() {
            if character == ' ' {
                let inside = !first && characters.peek().is_some();
                if !self.fold_at_space(indent, breaks_allowed && !spaces && inside, characters.peek().copied()) {
                    self.put(' ');
                }
                spaces = true;
            } else if is_break(character) {
                self.out.push(character);
                self.column = 0;
                self.indention = true;
                after_break = true;
            } else {
                if after_break {
                    self.write_indent(indent);
                }
                if character == '\'' {
                    self.put('\'');
                }
                self.put(character);
                self.indention = false;
                (spaces, after_break) = (false, false);
            }
            first = false;
        }
        self.write_indicator("'", false, false, false);
        self.whitespace = false;
        self.indention = false;
    }

    fn write_double_quoted(&mut self, text: &str, indent: usize, breaks_allowed: bool) {
        self.write_indicator("\"", true, false, false);
        let mut spaces = false;
        let mut first = true;
        // Go's emitter checks for a byte order mark at the start of the text, whichever character it writes. So one mark at the start makes
        // it escape all characters.
        let all = text.starts_with('\u{feff}');
        let mut characters = text.chars().peekable();
        while let Some(character) = characters.next() {
            if all || !is_printable(character) || is_break(character) || matches!(character, '"' | '\\') {
                self.write_escape(character);
                spaces = false;
            } else if character == ' ' {
                let inside = !first && characters.peek().is_some();
                if breaks_allowed && !spaces && self.column > BEST_WIDTH && inside {
                    self.write_indent(indent);
                    if characters.peek() == Some(&' ') {
                        self.put('\\');
                    }
                } else {
                    self.put(' ');
                }
                spaces = true;
            } else {
                self.put(character);
                spaces = false;
            }
            first = false;
        }
        self.write_indicator("\"", false, false, false);
        self.whitespace = false;
        self.indention = false;
    }

    fn write_escape(&mut self, character: char) {
        escape_character(character, &mut |character| self.put(character));
    }

    fn write_literal(&mut self, text: &str, indent: usize) {
        self.write_indicator("|", true, false, false);
        if text.starts_with([' ', '\n']) || text.chars().next().is_some_and(is_break) {
            self.write_indicator("2", false, false, false);
        }
        let mut from_end = text.chars().rev();
        if !from_end.next().is_some_and(is_break) {
            self.write_indicator("-", false, false, false);
        } else if from_end.next().is_none_or(is_break) {
            self.write_indicator("+", false, false, false);
        }
        self.line_break();
        self.indention = true;
        self.whitespace = true;
        for line in text.split_inclusive(is_break) {
            let last = line.chars().next_back().filter(|last| is_break(*last));
            let content = line.get(..line.len() - last.map_or(0, char::len_utf8)).unwrap_or(line);
            if !content.is_empty() {
                self.write_indent(indent);
                self.put_all(content);
                self.indention = false;
            }
            match last {
                Some('\n') => self.line_break(),
                Some(other) => {
                    self.out.push(other);
                    self.column = 0;
                }
                None => return,
            }
            self.indention = true;
        }
    }
}

/// The notation of a string.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Plain,
    Single,
    Double,
    Literal,
}

/// Checks whether yaml.v3 may write a string as a block. Unlike yaml.v2, it does so for strings with tabs.
pub(crate) fn may_be_block(text: &str) -> bool {
    Facts::read(&text.replace('\t', "x")).block
}

/// Checks whether a string may be written without quotes, even if the text means something else then.
pub(crate) fn may_be_plain(text: &str) -> bool {
    Facts::read(text).plain && !is_base_60(text)
}

/// Writes the escape of a character between double quotes, with its backslash.
pub(super) fn escape_character(character: char, put: &mut dyn FnMut(char)) {
    put('\\');
    put(match character {
        '\0' => '0',
        '\u{7}' => 'a',
        '\u{8}' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\u{b}' => 'v',
        '\u{c}' => 'f',
        '\r' => 'r',
        '\u{1b}' => 'e',
        '"' => '"',
        '\\' => '\\',
        '\u{85}' => 'N',
        '\u{a0}' => '_',
        '\u{2028}' => 'L',
        '\u{2029}' => 'P',
        _ => {
            let code = u32::from(character);
            let text = match code {
                0..=0xff => format!("x{code:02X}"),
                0x100..=0xffff => format!("u{code:04X}"),
                _ => format!("U{code:08X}"),
            };
            text.chars().for_each(put);
            return;
        }
    });
}

fn is_base_60(text: &str) -> bool {
    let body = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !body.starts_with(|first: char| first.is_ascii_digit()) {
        return false;
    }
    let mut parts = body.split(':');
    let Some(head) = parts.next() else {
        return false;
    };
    let Some(mut last) = parts.next_back() else {
        return false;
    };
    if !head.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_') {
        return false;
    }
    if let Some((whole, fraction)) = last.split_once('.') {
        if !fraction.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_') {
            return false;
        }
        last = whole;
    }
    let sexagesimal = |part: &str| match part.as_bytes() {
        [digit] => digit.is_ascii_digit(),
        [tens, digit] => (b'0'..=b'5').contains(tens) && digit.is_ascii_digit(),
        _ => false,
    };
    sexagesimal(last) && parts.all(sexagesimal)
}

/// Checks whether the keys are already in order by their bytes. This is so if all keys have only letters, `-`, `.` and `/`.
fn is_in_order(map: &Map<String, Value>) -> bool {
    let is_simple = |byte: u8| byte.is_ascii_alphabetic() || matches!(byte, b'-'..=b'/');
    map.keys().is_sorted() && map.keys().all(|key| key.bytes().all(is_simple))
}

/// Sorts entries by key, by merging: yaml.v2's order has circles (`1a` < `6` < `18` < `1a`), at which the standard sort may panic.
fn sort_entries(entries: &mut Vec<(&String, &Value)>) {
    if entries.len() < 2 {
        return;
    }
    let mut right = entries.split_off(entries.len() / 2);
    let mut left = std::mem::take(entries);
    sort_entries(&mut left);
    sort_entries(&mut right);
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    while let (Some(first), Some(second)) = (left.peek(), right.peek()) {
        let next = if sorts_before(second.0, first.0) {
            right.next()
        } else {
            left.next()
        };
        entries.extend(next);
    }
    entries.extend(left);
    entries.extend(right);
}

/// Returns whether yaml.v2 sorts a key before another: letters come after other characters, and runs of digits sort by value.
fn sorts_before(a: &str, b: &str) -> bool {
    let common: usize = a
        .chars()
        .zip(b.chars())
        .take_while(|(x, y)| x == y)
        .map(|(x, _)| x.len_utf8())
        .sum();
    let (rest_a, rest_b) = (a.get(common..).unwrap_or(""), b.get(common..).unwrap_or(""));
    let (Some(x), Some(y)) = (rest_a.chars().next(), rest_b.chars().next()) else {
        return a.chars().count() < b.chars().count();
    };
    match (x.is_alphabetic(), y.is_alphabetic()) {
        (true, true) => return x < y,
        (false, false) => {}
        (_, right) => return right,
    }
    let digits = |text: &str| text.chars().take_while(|digit| digit.is_numeric()).count();
    let mut start = 0_i64;
    if x == '0' || y == '0' {
        let before = a
            .get(..common)
            .unwrap_or("")
            .chars()
            .rev()
            .take_while(|digit| digit.is_numeric());
        if before.into_iter().any(|digit| digit != '0') {
            start = 1;
        }
    }
    let number = |text: &str| {
        text.chars()
            .take_while(|digit| digit.is_numeric())
            .fold(start, |sum, digit| {
                sum.wrapping_mul(10)
                    .wrapping_add(i64::from(u32::from(digit)) - i64::from(u32::from('0')))
            })
    };
    let (value_a, value_b) = (number(rest_a), number(rest_b));
    if value_a != value_b {
        return value_a < value_b;
    }
    let (length_a, length_b) = (digits(rest_a), digits(rest_b));
    if length_a != length_b {
        return length_a < length_b;
    }
    x < y
}
