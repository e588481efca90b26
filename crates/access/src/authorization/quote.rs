//! Owns Go's quoting of strings (`%q`), in which Kubernetes' messages show names. Refuses nothing: every string has
//! a quoted form.

use std::fmt::Write as _;

/// `text` in double quotes with Go's escapes.
#[must_use]
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            printable if is_printable(printable) => out.push(printable),
            // Writing to a String can't fail.
            control if u32::from(control) < 0x80 => {
                let _ = write!(out, "\\x{:02x}", u32::from(control));
            }
            wide if u32::from(wide) < 0x1_0000 => {
                let _ = write!(out, "\\u{:04x}", u32::from(wide));
            }
            wider => {
                let _ = write!(out, "\\U{:08x}", u32::from(wider));
            }
        }
    }
    out.push('"');
    out
}

/// Several strings as Go prints a slice of them with `%q`: `["a" "b"]`.
#[must_use]
pub fn quote_list(items: &[String]) -> String {
    let quoted: Vec<String> = items.iter().map(|item| quote(item)).collect();
    format!("[{}]", quoted.join(" "))
}

/// Go's `unicode.IsPrint` as far as the standard library can tell: no control, format, private or unassigned
/// character, and of the spaces only the ASCII one. Rust's own Debug escapes by the same tables.
fn is_printable(character: char) -> bool {
    if character.is_ascii() {
        return (' '..='~').contains(&character);
    }
    // `escape_debug` leaves exactly the printable and the grapheme-extending characters alone; Go prints the latter.
    !character.is_whitespace() && (character.escape_debug().len() == 1 || is_combining(character))
}

fn is_combining(character: char) -> bool {
    // Rust escapes extending characters when they stand alone; after a letter it does not.
    let mut after_letter = String::from("a");
    after_letter.push(character);
    after_letter.escape_debug().count() == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_as_go_does() {
        for (text, want) in [
            ("plain", "\"plain\""),
            ("it's", "\"it's\""),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("\u{0}\u{7f}\u{1b}", r#""\x00\x7f\x1b""#),
            ("tab\tnl\n", r#""tab\tnl\n""#),
            ("é", "\"é\""),
            ("e\u{301}", "\"e\u{301}\""),
            ("\u{200b}\u{a0}", r#""\u200b\u00a0""#),
            ("😀", "\"😀\""),
            ("\u{10ffff}", r#""\U0010ffff""#),
        ] {
            assert_eq!(quote(text), want);
        }
        assert_eq!(quote_list(&["a".into(), "b".into()]), r#"["a" "b"]"#);
        assert_eq!(quote_list(&[]), "[]");
    }
}
