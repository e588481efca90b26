//! The texts of tokens: plain, quoted and block scalars, anchors, tags and directives, as Go's scanner reads them. The scanner in
//! [`super::tokens`] decides where each token may stand.

use std::borrow::Cow;

use super::cursor::Cursor;
use super::tokens::{Form, Kind, Problem};

/// The treatment of line breaks at the end of a block scalar.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Chomping {
    Strip,
    Clip,
    Keep,
}

/// The line breaks between two lines of a scalar, which are folded.
#[derive(Default)]
struct Breaks {
    first: String,
    more: String,
}

impl Breaks {
    /// Reads a line break: into `first` if `is_first` is true, else into `more`.
    fn read(&mut self, cursor: &mut Cursor<'_>, is_first: bool) {
        cursor.read_line(if is_first { &mut self.first } else { &mut self.more });
    }

    /// Writes the folded form of the line breaks: a single line feed becomes a space, but a line or paragraph separator stays.
    fn write_folded(&mut self, text: &mut String) {
        if !self.first.starts_with('\n') {
            text.push_str(&self.first);
            text.push_str(&self.more);
        } else if self.more.is_empty() {
            text.push(' ');
        } else {
            text.push_str(&self.more);
        }
        self.first.clear();
        self.more.clear();
    }
}

/// A plain scalar, where it ends, and whether blank lines were read after it.
pub(super) struct Plain<'text> {
    pub(super) text: Cow<'text, str>,
    pub(super) end: super::cursor::Mark,
    pub(super) ends_lines: bool,
}

/// Reads a plain scalar. Each further line must have a column of at least `indent`.
pub(super) fn read_plain<'text>(
    cursor: &mut Cursor<'text>,
    indent: usize,
    flow: bool,
) -> Result<Plain<'text>, Problem> {
    let mut text: Cow<'text, str> = Cow::Borrowed("");
    let mut end = cursor.mark;
    let mut breaks = Breaks::default();
    let mut ends_lines = false;
    loop {
        if cursor.is_document_marker() || cursor.next_is(b'#') {
            break;
        }
        let from = cursor.mark.at;
        while let Some(byte) = cursor.peek_byte(0).filter(|_| !cursor.is_blank_or_end(0)) {
            let ends = match byte {
                b':' => cursor.is_blank_or_end(1),
                b',' | b'?' | b'[' | b']' | b'{' | b'}' => flow,
                _ => false,
            };
            if ends {
                break;
            }
            cursor.skip_character();
        }
        if cursor.mark.at > from {
            if text.is_empty() {
                text = Cow::Borrowed(cursor.text_between(from, cursor.mark.at));
            } else {
                let text = text.to_mut();
                if ends_lines {
                    breaks.write_folded(text);
                } else {
                    text.push_str(cursor.text_between(end.at, from));
                }
                text.push_str(cursor.text_between(from, cursor.mark.at));
            }
            ends_lines = false;
            end = cursor.mark;
        }
        if !cursor.is_blank(0) && !cursor.is_break(0) {
            break;
        }
        loop {
            if cursor.is_blank(0) {
                if ends_lines && cursor.mark.column < indent && cursor.next_is(b'\t') {
                    return Err(Problem::new(
                        cursor.mark,
                        "found a tab character that violates indentation; indent with spaces",
                    ));
                }
                cursor.skip_character();
            } else if cursor.is_break(0) {
                breaks.read(cursor, !ends_lines);
                ends_lines = true;
            } else {
                break;
            }
        }
        if !flow && cursor.mark.column < indent {
            break;
        }
    }
    Ok(Plain { text, end, ends_lines })
}

/// Reads a quoted scalar, which begins with its quote.
pub(super) fn read_quoted<'text>(cursor: &mut Cursor<'text>) -> Result<Kind<'text>, Problem> {
    let start = cursor.mark;
    let single = cursor.next_is(b'\'');
    let quote = if single { b'\'' } else { b'"' };
    cursor.skip_character();
    let first = cursor.mark.at;
    let mut text = String::new();
    let mut is_whole = true;
    let mut breaks = Breaks::default();
    loop {
        if cursor.is_document_marker() {
            return Err(Problem::new(
                start,
                "found a document marker in a quoted scalar; close the quote",
            ));
        }
        if cursor.peek_byte(0).is_none() {
            return Err(Problem::new(start, "a quoted scalar doesn't end; close the quote"));
        }
        let mut ends_lines = false;
        let mut from = cursor.mark.at;
        while let Some(byte) = cursor.peek_byte(0).filter(|_| !cursor.is_blank_or_end(0)) {
            if byte == quote && !(single && cursor.peek_byte(1) == Some(quote)) {
                break;
            }
            if byte != quote && (single || byte != b'\\') {
                cursor.skip_character();
                continue;
            }
            text.push_str(cursor.text_between(from, cursor.mark.at));
            is_whole = false;
            if single {
                text.push('\'');
                cursor.skip_several(2);
            } else if cursor.is_break(1) {
                cursor.skip_character();
                cursor.skip_line();
                ends_lines = true;
                from = cursor.mark.at;
                break;
            } else {
                text.push(read_escape(cursor)?);
            }
            from = cursor.mark.at;
        }
        text.push_str(cursor.text_between(from, cursor.mark.at));
        if cursor.next_is(quote) {
            break;
        }
        from = cursor.mark.at;
        let mut until = from;
        loop {
            if cursor.is_blank(0) {
                cursor.skip_character();
            } else if cursor.is_break(0) {
                breaks.read(cursor, !ends_lines);
                ends_lines = true;
            } else {
                break;
            }
            if !ends_lines {
                until = cursor.mark.at;
            }
        }
        if ends_lines {
            breaks.write_folded(&mut text);
            is_whole = false;
        } else {
            text.push_str(cursor.text_between(from, until));
        }
    }
    let end = cursor.mark.at;
    cursor.skip_character();
    let text = if is_whole {
        Cow::Borrowed(cursor.text_between(first, end))
    } else {
        Cow::Owned(text)
    };
    Ok(Kind::Scalar(text, if single { Form::Single } else { Form::Double }))
}

/// Reads an escape in double quotes.
fn read_escape(cursor: &mut Cursor<'_>) -> Result<char, Problem> {
    let start = cursor.mark;
    let letter = cursor.peek_byte(1);
    let digits = match letter {
        Some(b'x') => 2,
        Some(b'u') => 4,
        Some(b'U') => 8,
        _ => 0,
    };
    if digits == 0 {
        let character = match letter {
            Some(b'0') => '\0',
            Some(b'a') => '\u{7}',
            Some(b'b') => '\u{8}',
            Some(b't' | b'\t') => '\t',
            Some(b'n') => '\n',
            Some(b'v') => '\u{b}',
            Some(b'f') => '\u{c}',
            Some(b'r') => '\r',
            Some(b'e') => '\u{1b}',
            Some(b' ') => ' ',
            Some(b'"') => '"',
            Some(b'\'') => '\'',
            Some(b'\\') => '\\',
            Some(b'N') => '\u{85}',
            Some(b'_') => '\u{a0}',
            Some(b'L') => '\u{2028}',
            Some(b'P') => '\u{2029}',
            Some(b'/') => {
                return Err(Problem::new(
                    start,
                    "found unknown escape character: a slash needs none",
                ));
            }
            _ => return Err(Problem::new(start, "found unknown escape character")),
        };
        cursor.skip_several(2);
        return Ok(character);
    }
    cursor.skip_several(2);
    let mut code = 0_u32;
    for _ in 0..digits {
        let Some(digit) = cursor.peek_byte(0).and_then(|byte| char::from(byte).to_digit(16)) else {
            return Err(Problem::new(start, "did not find expected hexadecimal number"));
        };
        code = code << 4 | digit;
        cursor.skip_character();
    }
    char::from_u32(code).ok_or(Problem::new(
        start,
        "found invalid Unicode character escape code: write a character beyond U+FFFF as one with eight digits",
    ))
}

/// Skips blanks and a comment at the end of a line. Any other text is an error of the token that began at `start`.
fn end_of_line(cursor: &mut Cursor<'_>, start: super::cursor::Mark, fault: &'static str) -> Result<(), Problem> {
    cursor.skip_blanks();
    if cursor.next_is(b'#') {
        cursor.skip_comment();
    }
    if !cursor.is_break_or_end(0) {
        return Err(Problem::new(start, fault));
    }
    cursor.skip_line();
    Ok(())
}

/// Reads a block scalar, which begins with its indicator. `parent` is the indentation of the surrounding block; `None` outside of all
/// blocks.
/// Go stores a comment behind the indicator with the comments; it has no meaning here.
pub(super) fn read_block<'text>(cursor: &mut Cursor<'text>, parent: Option<usize>) -> Result<Kind<'text>, Problem> {
    let start = cursor.mark;
    let literal = cursor.next_is(b'|');
    cursor.skip_character();
    let (chomping, given) = block_header(cursor)?;
    end_of_line(
        cursor,
        start,
        "did not find expected comment or line break after a block scalar's indicator",
    )?;
    let mut indent = given.map(|given| parent.unwrap_or(0) + given);
    let (mut text, mut breaks) = (String::new(), Breaks::default());
    let column = block_breaks(cursor, &mut indent, parent, &mut breaks)?;
    let mut leading_blank = false;
    while cursor.mark.column == column && cursor.peek_byte(0).is_some() {
        let is_blank = cursor.is_blank(0);
        if literal || leading_blank || is_blank || !breaks.first.starts_with('\n') {
            text.push_str(&breaks.first);
        } else if breaks.more.is_empty() {
            text.push(' ');
        }
        text.push_str(&breaks.more);
        breaks.first.clear();
        breaks.more.clear();
        leading_blank = is_blank;
        let from = cursor.mark.at;
        cursor.skip_to_break();
        text.push_str(cursor.text_between(from, cursor.mark.at));
        breaks.read(cursor, true);
        block_breaks(cursor, &mut indent, parent, &mut breaks)?;
    }
    if chomping != Chomping::Strip {
        text.push_str(&breaks.first);
    }
    if chomping == Chomping::Keep {
        text.push_str(&breaks.more);
    }
    let form = if literal { Form::Literal } else { Form::Folded };
    Ok(Kind::Scalar(text.into(), form))
}

/// Returns the indicators after `|` or `>`, in any order.
fn block_header(cursor: &mut Cursor<'_>) -> Result<(Chomping, Option<usize>), Problem> {
    let (mut chomping, mut given) = (Chomping::Clip, None);
    for _ in 0..2 {
        match cursor.peek_byte(0) {
            Some(sign @ (b'+' | b'-')) if chomping == Chomping::Clip => {
                chomping = if sign == b'+' { Chomping::Keep } else { Chomping::Strip };
            }
            Some(b'0') if given.is_none() => {
                return Err(Problem::new(cursor.mark, "found an indentation indicator equal to 0"));
            }
            Some(digit @ b'1'..=b'9') if given.is_none() => given = Some(usize::from(digit - b'0')),
            _ => break,
        }
        cursor.skip_character();
    }
    Ok((chomping, given))
}

/// Skips indentation and lines without content. Returns the indentation, which the first such text decides.
fn block_breaks(
    cursor: &mut Cursor<'_>,
    indent: &mut Option<usize>,
    parent: Option<usize>,
    breaks: &mut Breaks,
) -> Result<usize, Problem> {
    let mut widest = 0;
    loop {
        let is_short = |cursor: &Cursor<'_>| indent.is_none_or(|indent| cursor.mark.column < indent);
        while is_short(cursor) && cursor.next_is(b' ') {
            cursor.skip_character();
        }
        widest = widest.max(cursor.mark.column);
        if is_short(cursor) && cursor.next_is(b'\t') {
            return Err(Problem::new(
                cursor.mark,
                "found a tab character where an indentation space is expected",
            ));
        }
        if !cursor.is_break(0) {
            break;
        }
        breaks.read(cursor, false);
    }
    Ok(*indent.get_or_insert(widest.max(parent.map_or(1, |parent| parent + 1))))
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// Reads letters, digits, `_` and `-`.
fn read_word<'text>(cursor: &mut Cursor<'text>) -> &'text str {
    let from = cursor.mark.at;
    while cursor.peek_byte(0).is_some_and(is_word) {
        cursor.skip_character();
    }
    cursor.text_between(from, cursor.mark.at)
}

/// Reads the name of an anchor or alias, which begins with its sign.
pub(super) fn read_anchor<'text>(cursor: &mut Cursor<'text>) -> Result<&'text str, Problem> {
    let start = cursor.mark;
    cursor.skip_character();
    let name = read_word(cursor);
    let ends = cursor.is_blank_or_end(0)
        || matches!(
            cursor.peek_byte(0),
            Some(b'?' | b':' | b',' | b']' | b'}' | b'%' | b'@' | b'`')
        );
    if name.is_empty() || !ends {
        return Err(Problem::new(
            start,
            "the name of an anchor or alias must have letters, digits, _ and - only",
        ));
    }
    Ok(name)
}

/// Reads a tag.
pub(super) fn read_tag<'text>(cursor: &mut Cursor<'text>) -> Result<Kind<'text>, Problem> {
    let start = cursor.mark;
    let (handle, suffix);
    if cursor.peek_byte(1) == Some(b'<') {
        cursor.skip_several(2);
        (handle, suffix) = (String::new(), read_uri(cursor, None)?);
        if !cursor.next_is(b'>') {
            return Err(Problem::new(start, "did not find the `>` that ends a tag"));
        }
        cursor.skip_character();
    } else {
        let begun = tag_handle(cursor, false)?;
        if begun.len() > 1 && begun.ends_with('!') {
            (handle, suffix) = (begun, read_uri(cursor, None)?);
        } else {
            let rest = read_uri(cursor, Some(&begun))?;
            (handle, suffix) = if rest.is_empty() {
                (rest, "!".to_owned())
            } else {
                ("!".to_owned(), rest)
            };
        }
    }
    if !cursor.is_blank_or_end(0) {
        return Err(Problem::new(
            start,
            "did not find expected whitespace or line break after a tag",
        ));
    }
    Ok(Kind::Tag { handle, suffix })
}

fn tag_handle(cursor: &mut Cursor<'_>, directive: bool) -> Result<String, Problem> {
    let start = cursor.mark;
    if !cursor.next_is(b'!') {
        return Err(Problem::new(start, "did not find the `!` that a tag begins with"));
    }
    cursor.skip_character();
    read_word(cursor);
    if cursor.next_is(b'!') {
        cursor.skip_character();
    } else if directive && cursor.mark.at > start.at + 1 {
        return Err(Problem::new(start, "did not find the `!` that ends a tag's handle"));
    }
    Ok(cursor.text_between(start.at, cursor.mark.at).to_owned())
}

/// Reads the rest of a tag. `begun` is the part of the tag that has been read; its text after the `!` comes first.
fn read_uri(cursor: &mut Cursor<'_>, begun: Option<&str>) -> Result<String, Problem> {
    let start = cursor.mark;
    let mut bytes = begun.and_then(|begun| begun.get(1..)).unwrap_or("").as_bytes().to_vec();
    while let Some(byte) = cursor.peek_byte(0) {
        if byte == b'%' {
            escaped_character(cursor, &mut bytes)?;
        } else if is_word(byte) || b";/?:@&=+$,.!~*'()[]".contains(&byte) {
            bytes.push(byte);
            cursor.skip_character();
        } else {
            break;
        }
    }
    if cursor.mark.at == start.at && begun.is_none() {
        return Err(Problem::new(start, "did not find the rest of a tag"));
    }
    Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// Reads one character of a tag that is written as `%` and digits, byte by byte.
fn escaped_character(cursor: &mut Cursor<'_>, bytes: &mut Vec<u8>) -> Result<(), Problem> {
    let mut left = 1;
    let mut is_first = true;
    while left > 0 {
        let digit = |ahead| cursor.peek_byte(ahead).and_then(|byte| char::from(byte).to_digit(16));
        let octet = match (cursor.next_is(b'%'), digit(1), digit(2)) {
            (true, Some(high), Some(low)) => u8::try_from(high << 4 | low).unwrap_or(0),
            _ => return Err(Problem::new(cursor.mark, "did not find two digits after a tag's `%`")),
        };
        if is_first {
            left = match octet {
                0..=0x7f => 1,
                0xc0..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf7 => 4,
                _ => {
                    return Err(Problem::new(
                        cursor.mark,
                        "found an incorrect leading UTF-8 octet in a tag",
                    ));
                }
            };
        } else if octet & 0xc0 != 0x80 {
            return Err(Problem::new(
                cursor.mark,
                "found an incorrect trailing UTF-8 octet in a tag",
            ));
        }
        is_first = false;
        bytes.push(octet);
        cursor.skip_several(3);
        left -= 1;
    }
    Ok(())
}

/// Reads a directive and the rest of its line.
pub(super) fn read_directive<'text>(cursor: &mut Cursor<'text>) -> Result<Kind<'text>, Problem> {
    let start = cursor.mark;
    cursor.skip_character();
    let name = read_word(cursor);
    if name.is_empty() || !cursor.is_blank_or_end(0) {
        return Err(Problem::new(start, "could not find expected directive name"));
    }
    let kind = match name {
        "YAML" => {
            cursor.skip_blanks();
            let major = version_number(cursor)?;
            if !cursor.next_is(b'.') {
                return Err(Problem::new(
                    start,
                    "did not find expected digit or '.' character in a version",
                ));
            }
            cursor.skip_character();
            let minor = version_number(cursor)?;
            Kind::Version(major, minor)
        }
        "TAG" => {
            cursor.skip_blanks();
            let handle = tag_handle(cursor, true)?;
            if !cursor.is_blank(0) {
                return Err(Problem::new(
                    start,
                    "did not find expected whitespace in a %TAG directive",
                ));
            }
            cursor.skip_blanks();
            let prefix = read_uri(cursor, None)?;
            if !cursor.is_blank_or_end(0) {
                return Err(Problem::new(
                    start,
                    "did not find expected whitespace or line break in a %TAG directive",
                ));
            }
            Kind::TagDirective { handle, prefix }
        }
        _ => return Err(Problem::new(start, "found unknown directive name")),
    };
    end_of_line(
        cursor,
        start,
        "did not find expected comment or line break after a directive",
    )?;
    Ok(kind)
}

fn version_number(cursor: &mut Cursor<'_>) -> Result<u32, Problem> {
    let start = cursor.mark;
    let mut value = 0;
    while let Some(digit) = cursor.peek_byte(0).and_then(|byte| char::from(byte).to_digit(10)) {
        if cursor.mark.at - start.at >= 2 {
            return Err(Problem::new(start, "found extremely long version number"));
        }
        value = value * 10 + digit;
        cursor.skip_character();
    }
    if cursor.mark.at == start.at {
        return Err(Problem::new(start, "did not find expected version number"));
    }
    Ok(value)
}
