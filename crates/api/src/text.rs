//! Text from a repository or a cluster in a visible form: invisible characters, and those that change how the rest is displayed, are
//! escaped. A file name can contain a carriage return, an escape sequence for terminals, or marks that turn the direction of writing. None
//! of them reaches a status, an event, a log or a terminal. Visible characters are never changed. Also numbers with their nouns.

use std::borrow::Cow;
use std::fmt::{Display, Write as _};

/// Returns the text with invisible characters written as `\u{202e}`. Line feeds stay.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    escape(text, |character| character == '\n' || character == '\t')
}

/// Returns the text with invisible characters and line feeds escaped: for names, which have one
/// line.
#[must_use]
pub fn visible_line(text: &str) -> Cow<'_, str> {
    escape(text, |_| false)
}

/// Writes a number with its noun, whose plural ends with `s`: `1 object`, `2 objects`.
#[must_use]
pub fn count_of<N: Copy + Display + PartialEq + From<u8>>(number: N, singular: &str) -> String {
    let ending = if number == N::from(1_u8) { "" } else { "s" };
    format!("{number} {singular}{ending}")
}

fn escape(text: &str, is_kept: impl Fn(char) -> bool) -> Cow<'_, str> {
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

/// Returns JSON with invisible characters in its texts written as `\u202e`. Its meaning is
/// unchanged.
#[must_use]
pub fn escape_json(text: &str) -> Cow<'_, str> {
    escape_texts(text, |character, result| {
        let mut units = [0; 2];
        for unit in character.encode_utf16(&mut units) {
            let _written = write!(result, "\\u{unit:04x}");
        }
    })
}

/// Returns such JSON for readers of YAML, which has no pairs of surrogates.
#[must_use]
pub fn escape_json_as_yaml(text: &str) -> Cow<'_, str> {
    escape_texts(text, |character, result| {
        let _written = write!(result, "\\U{:08x}", u32::from(character));
    })
}

/// Checks whether a text has invisible characters besides line feeds and tabs.
#[must_use]
pub fn has_hidden(text: &str) -> bool {
    let is_between = |character: char| character == '\n' || character == '\t';
    text.chars()
        .any(|character| is_hidden(character) && !is_between(character))
}

/// Escapes the texts in JSON. Outside of texts, JSON has no invisible characters except line feeds.
fn escape_texts(text: &str, write: impl Fn(char, &mut String)) -> Cow<'_, str> {
    if !has_hidden(text) {
        return Cow::Borrowed(text);
    }
    let mut result = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            '\n' | '\t' => result.push(character),
            hidden if is_hidden(hidden) => write(hidden, &mut result),
            shown => result.push(shown),
        }
    }
    Cow::Owned(result)
}

/// Checks whether a character is invisible: control and format characters, separators except the space, and unassigned ones.
fn is_hidden(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_control();
    }
    // Combining marks count as hidden alone, and not behind a letter.
    let mut text = String::with_capacity(8);
    text.push('a');
    text.push(character);
    text.escape_debug().count() > 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_means_the_same_with_nothing_hidden_in_it() {
        let value = serde_json::json!({ "a\u{9b}": ["b\u{202e}\u{7f}", "c\u{e0041}\n\t", "äé 漢字"], "d": "\u{1b}" });
        let text = serde_json::to_string_pretty(&value).expect("JSON");
        assert!(has_hidden(&text));
        let escaped = escape_json(&text);
        assert!(
            !has_hidden(&escaped) && escaped.contains("\\u202e\\u007f") && escaped.contains("äé 漢字"),
            "{escaped}"
        );
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&escaped).expect("JSON"),
            value
        );
        let yaml = escape_json_as_yaml(&text);
        assert!(!has_hidden(&yaml) && yaml.contains("c\\U000e0041"), "{yaml}");
        assert!(matches!(escape_json("{\n  \"a\": 1\n}"), Cow::Borrowed(_)));
    }

    #[test]
    fn one_of_a_noun_is_singular() {
        assert_eq!(count_of(0_usize, "object"), "0 objects");
        assert_eq!(count_of(1_usize, "object"), "1 object");
        assert_eq!(count_of(2_i64, "hour"), "2 hours");
    }

    #[test]
    fn invisible_characters_are_escaped() {
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
