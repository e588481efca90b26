//! The forms in which yaml.v2 may write a string, and the facts about its characters that decide the form. One pass finds most of the
//! facts.

use memchr::memmem;

/// The forms in which a string may be written.
pub(super) struct Facts {
    /// The string contains line breaks.
    pub(super) multiline: bool,
    pub(super) plain: bool,
    /// Between single quotes.
    pub(super) single: bool,
    /// Whether a literal block is possible.
    pub(super) block: bool,
}

impl Facts {
    pub(super) fn read(text: &str) -> Self {
        if text.is_empty() {
            return Facts {
                multiline: false,
                plain: true,
                single: true,
                block: false,
            };
        }
        let bytes = ByteFacts::read(text);
        if bytes.are_printable && !bytes.have_breaks && is_harmless(text, &bytes) {
            return Facts {
                multiline: false,
                plain: true,
                single: true,
                block: true,
            };
        }
        if bytes.are_printable && bytes.have_breaks {
            let finder = |pair: &[u8; 2]| memmem::find(text.as_bytes(), pair).is_some();
            let (space_break, break_space) = (finder(b" \n"), finder(b"\n "));
            return Facts {
                multiline: true,
                plain: false,
                single: !(space_break || break_space),
                block: !(space_break || text.ends_with(' ')),
            };
        }
        let mut indicators = text.starts_with("---") || text.starts_with("...");
        let (mut breaks, mut special, mut space_break, mut break_space) = (false, false, false, false);
        let (mut previous_space, mut previous_break, mut preceded_by_blank) = (false, false, true);
        let mut characters = text.chars().peekable();
        let mut first = true;
        while let Some(character) = characters.next() {
            let followed_by_blank = characters.peek().is_none_or(|next| matches!(next, ' ' | '\t'));
            indicators |= match character {
                '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`'
                    if first =>
                {
                    true
                }
                '?' | ':' | '-' if first => followed_by_blank,
                ':' => followed_by_blank,
                '#' => preceded_by_blank,
                _ => false,
            };
            special |= !is_printable(character);
            if character == ' ' {
                break_space |= previous_break;
                (previous_space, previous_break) = (true, false);
            } else if is_break(character) {
                breaks = true;
                space_break |= previous_space;
                (previous_space, previous_break) = (false, true);
            } else {
                (previous_space, previous_break) = (false, false);
            }
            preceded_by_blank = matches!(character, ' ' | '\t') || is_break(character);
            first = false;
        }
        let edge = |character: Option<char>| character.is_some_and(|character| character == ' ' || is_break(character));
        let leading = edge(text.chars().next());
        let trailing = edge(text.chars().next_back());
        let bad = space_break || special;
        Facts {
            multiline: breaks,
            plain: !(leading || trailing || break_space || bad || breaks || indicators),
            single: !(break_space || bad),
            block: !(text.ends_with(' ') || bad),
        }
    }
}

/// Facts about the bytes of a text, found in one pass.
struct ByteFacts {
    /// The bytes are all printable ASCII or line feeds.
    are_printable: bool,
    have_breaks: bool,
    /// The text has colons or number signs, which may begin a value or a comment.
    have_signs: bool,
}

impl ByteFacts {
    fn read(text: &str) -> Self {
        let mut bytes = ByteFacts {
            are_printable: true,
            have_breaks: false,
            have_signs: false,
        };
        for byte in text.bytes() {
            let is_break = byte == b'\n';
            bytes.are_printable &= matches!(byte, b' '..=b'~') | is_break;
            bytes.have_breaks |= is_break;
            bytes.have_signs |= (byte == b':') | (byte == b'#');
        }
        bytes
    }
}

/// Recognises most texts on one line of printable ASCII quickly. Such texts contain nothing like an indicator, so every form is possible.
fn is_harmless(text: &str, bytes: &ByteFacts) -> bool {
    let (first, last) = (text.as_bytes().first(), text.as_bytes().last());
    first.is_some_and(|first| first.is_ascii_alphanumeric() || matches!(first, b'/' | b'_' | b'$' | b'('))
        && !matches!(last, Some(b' ' | b':'))
        && (!bytes.have_signs || !(text.contains(": ") || text.contains(" #")))
}

pub(super) fn is_break(character: char) -> bool {
    matches!(character, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Checks whether libyaml's Go port counts a character as printable. Tabs are not printable.
pub(super) fn is_printable(character: char) -> bool {
    matches!(character, '\n' | '\u{20}'..='\u{7e}' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}')
        && character != '\u{feff}'
}
