//! Texts of scalars for [`super::quick`]: quotes, folded lines and block scalars, if they have the usual form.

use std::borrow::Cow;

use memchr::{memchr, memchr2};

/// Checks whether every reader of YAML reads all characters of a text alike. Such a text has no tabs, carriage returns, control characters
/// or byte order marks, and no line breaks except line feeds.
pub(super) fn is_usual(text: &str) -> bool {
    text.as_bytes().chunks(64).enumerate().all(|(chunk, bytes)| {
        let is_ascii = bytes.iter().fold(true, |so_far, byte| {
            so_far & (matches!(*byte, b' '..=b'~') | (*byte == b'\n'))
        });
        // The text from the character on that this chunk begins in.
        is_ascii || has_usual_characters(text, chunk * 64, chunk * 64 + bytes.len())
    })
}

/// Like [`is_usual`], for the characters that begin in a part of the text.
fn has_usual_characters(text: &str, from: usize, to: usize) -> bool {
    (from..to).filter(|at| text.is_char_boundary(*at)).all(|at| {
        let character = text.get(at..).and_then(|rest| rest.chars().next());
        matches!(
            character,
            Some(
                '\n'
                | ' '..='~'
                | '\u{a1}'..='\u{167f}'
                | '\u{1681}'..='\u{1fff}'
                | '\u{2010}'..='\u{2027}'
                | '\u{2030}'..='\u{205e}'
                | '\u{2070}'..='\u{2fff}'
                | '\u{3001}'..='\u{d7ff}'
                | '\u{1f300}'..='\u{1faff}',
            )
        )
    })
}

/// Checks whether plain text may begin with a byte, independent of the next bytes. The complete parser reads other plain text.
pub(super) fn begins_plain(byte: u8) -> bool {
    byte >= 0x80
        || byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'/' | b'.' | b'_' | b'$' | b'(' | b')' | b'^' | b'~' | b'+' | b';' | b'=' | b'<' | b'\\'
        )
}

/// A part of a quoted scalar on one line.
pub(super) struct Quoted<'text> {
    pub(super) quote: u8,
    text: Cow<'text, str>,
    /// The length up to and with the last quote, when that is on the line.
    length: Option<usize>,
}

impl<'text> Quoted<'text> {
    /// Returns the text, and its length in the line from its start, when it ends there.
    pub(super) fn text_and_length(&self) -> Option<(Cow<'text, str>, usize)> {
        Some((self.text.clone(), self.length?))
    }

    /// Returns the text so far of a scalar that continues on the next line. `None` for an empty text, which folds by different rules.
    pub(super) fn so_far(self) -> Option<String> {
        Some(self.text.into_owned()).filter(|text| !text.is_empty())
    }
}

/// Returns the part of a quoted scalar on its first line, which begins with the quote.
pub(super) fn read_quoted(line: &str) -> Option<Quoted<'_>> {
    let quote = *line.as_bytes().first()?;
    let mut quoted = quoted_rest(line.get(1..)?, quote)?;
    quoted.length = quoted.length.map(|length| length + 1);
    Some(quoted)
}

/// Returns the part of a quoted scalar on a line, from its start or the first character of a line on.
pub(super) fn quoted_rest(line: &str, quote: u8) -> Option<Quoted<'_>> {
    let bytes = line.as_bytes();
    let (mut at, mut from) = (0, 0);
    let mut decoded = String::new();
    loop {
        let rest = bytes.get(at..)?;
        let found = if quote == b'"' {
            memchr2(b'"', b'\\', rest)
        } else {
            memchr(b'\'', rest)
        };
        let Some(place) = found.map(|found| at + found) else {
            let last = line.get(from..)?.trim_end_matches(' ');
            if last.is_empty() && from > 0 {
                // An escape wrote the text before this place. The complete parser decides how much to trim.
                return None;
            }
            return Some(Quoted {
                quote,
                text: join_text(decoded, last),
                length: None,
            });
        };
        let (next, is_escape) = (bytes.get(place + 1), bytes.get(place) == Some(&b'\\'));
        let escaped = match next {
            Some(b'\'') if quote == b'\'' => Some('\''),
            Some(b'"') if is_escape => Some('"'),
            Some(b'\\') if is_escape => Some('\\'),
            Some(b'n') if is_escape => Some('\n'),
            Some(b't') if is_escape => Some('\t'),
            _ if is_escape => return None,
            _ => None,
        };
        let before = line.get(from..place)?;
        let Some(escaped) = escaped else {
            return Some(Quoted {
                quote,
                text: join_text(decoded, before),
                length: Some(place + 1),
            });
        };
        decoded.push_str(before);
        decoded.push(escaped);
        at = place + 2;
        from = at;
    }
}

fn join_text(mut decoded: String, last: &str) -> Cow<'_, str> {
    if decoded.is_empty() {
        return Cow::Borrowed(last);
    }
    decoded.push_str(last);
    Cow::Owned(decoded)
}

/// Writes the folded form of a line break and the blank lines after it.
pub(super) fn fold_breaks(text: &mut String, blank: usize) {
    if blank == 0 {
        text.push(' ');
    } else {
        text.extend(std::iter::repeat_n('\n', blank));
    }
}

/// The line breaks that a block scalar keeps at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    Nothing,
    One,
    Everything,
}

/// Returns the text of a block scalar, given its lines up to the last with content, and how many line breaks end it, blank lines' included.
/// A folded one must have no line with more indentation.
pub(super) fn read_block(
    content: &str,
    indent: usize,
    is_literal: bool,
    keep: Keep,
    trailing: usize,
) -> Option<String> {
    let mut text = String::with_capacity(content.len());
    let (mut blank, mut is_first) = (0, true);
    let mut rest = content;
    while !rest.is_empty() {
        let (line, tail) = match memchr(b'\n', rest.as_bytes()) {
            Some(end) => (rest.get(..end)?, rest.get(end + 1..)?),
            None => (rest, ""),
        };
        rest = tail;
        if line.len() <= indent {
            blank += 1;
            continue;
        }
        if !is_first && !is_literal {
            fold_breaks(&mut text, blank);
        } else if !is_first {
            text.extend(std::iter::repeat_n('\n', blank + 1));
        }
        text.push_str(line.get(indent..)?);
        (blank, is_first) = (0, false);
    }
    let kept = match keep {
        Keep::Nothing => 0,
        Keep::One => 1,
        Keep::Everything => trailing,
    };
    text.extend(std::iter::repeat_n('\n', kept));
    Some(text)
}

/// Returns the length of a plain scalar inside a flow collection: a word of letters, digits and some signs; `None` for any other text.
pub(super) fn flow_plain(line: &str) -> Option<usize> {
    let bytes = line.as_bytes();
    let is_word = |byte: u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'/' | b'-' | b'=' | b'@' | b'+' | b'$' | b'~')
    };
    let first = bytes.first()?;
    if !(first.is_ascii_alphanumeric() || matches!(first, b'_' | b'.' | b'/' | b'$' | b'~')) {
        return None;
    }
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        // A colon is part of a word if another character of the word follows.
        let goes_on = *byte == b':' && bytes.get(at + 1).is_some_and(|next| is_word(*next));
        if !is_word(*byte) && !goes_on {
            break;
        }
        at += 1;
    }
    // Words of one scalar with spaces between them, comments, and ends of lines are not for here.
    let rest = line.get(at..)?;
    let ends = match rest.as_bytes() {
        [b',' | b']' | b'}' | b':', ..] => true,
        [b' ', ..] => matches!(
            rest.trim_start_matches(' ').as_bytes().first(),
            Some(b',' | b']' | b'}')
        ),
        _ => false,
    };
    ends.then_some(at)
}
