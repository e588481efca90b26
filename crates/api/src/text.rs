//! Text that came from a repository or a cluster, as it is shown: what can't be seen, or changes how the rest is seen, stands there as what
//! it is. A file name can hold a carriage return, an escape sequence for terminals, or marks that turn the direction of writing; none of
//! them reaches a status, an event, a log or a terminal. Refuses to change anything that can be seen.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The text with what can't be seen written as `\u{202e}`; lines stay lines.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, |character| character == '\n' || character == '\t')
}

/// The same in one line: for names, which have none.
#[must_use]
pub fn visible_line(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

fn escaped(text: &str, is_kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_shown = |character: char| !is_hidden(character) || is_kept(character);
    if text.chars().all(is_shown) {
        return Cow::Borrowed(text);
    }
    let mut result = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_shown(character) {
            result.push(character);
        } else {
            let _written = write!(result, "{}", character.escape_debug());
        }
    }
    Cow::Owned(result)
}

/// Whether a character is not one that can be seen: control and format characters, separators but the space, and what has no meaning yet.
fn is_hidden(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_control();
    }
    // Alone, marks that stand on letters count as hidden; behind a letter they don't.
    let mut text = String::with_capacity(8);
    text.push('a');
    text.push(character);
    text.escape_debug().count() > 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_shown_as_what_it_is() {
        for (text, shown) in [
            (
                "plain \"text\" with \\ and 'quotes'",
                "plain \"text\" with \\ and 'quotes'",
            ),
            ("äöü 漢字 हिन्दी e\u{301} 🦀", "äöü 漢字 हिन्दी e\u{301} 🦀"),
            ("a\u{202e}b", "a\\u{202e}b"),
            ("\u{2066}\u{200f}\u{61c}", "\\u{2066}\\u{200f}\\u{61c}"),
            ("a\u{200b}\u{feff}b", "a\\u{200b}\\u{feff}b"),
            ("\u{1b}[31mred\u{7}", "\\u{1b}[31mred\\u{7}"),
            ("a\rb\u{85}c\u{2028}d\0", "a\\rb\\u{85}c\\u{2028}d\\0"),
            ("\u{e0041}", "\\u{e0041}"),
        ] {
            assert_eq!(visible(text), shown);
            assert_eq!(visible_line(text), shown);
        }
        assert_eq!(visible("a\n\tb"), "a\n\tb");
        assert_eq!(visible_line("a\n\tb"), "a\\n\\tb");
        assert!(matches!(visible("nothing to do"), Cow::Borrowed(_)));
    }
}
