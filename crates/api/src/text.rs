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

/// JSON that shows what can't be seen in its texts as `\u202e`. It means the same.
#[must_use]
pub fn escape_json(text: &str) -> Cow<'_, str> {
    escape_texts(text, |character, result| {
        let mut units = [0; 2];
        for unit in character.encode_utf16(&mut units) {
            let _written = write!(result, "\\u{unit:04x}");
        }
    })
}

/// The same for JSON that is read as YAML, which has no pairs of surrogates.
#[must_use]
pub fn escape_json_as_yaml(text: &str) -> Cow<'_, str> {
    escape_texts(text, |character, result| {
        let _written = write!(result, "\\U{:08x}", u32::from(character));
    })
}

/// Whether a text has characters that can't be seen, besides line feeds and tabs.
#[must_use]
pub fn has_hidden(text: &str) -> bool {
    let is_between = |character: char| character == '\n' || character == '\t';
    text.chars()
        .any(|character| is_hidden(character) && !is_between(character))
}

/// JSON has line feeds between its texts alone, and nothing else there that can't be seen.
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
