//! Go's quoting of texts (`%q`, `strconv.Quote`), in which Kubernetes' messages show names and values. Every text has a quoted form.

use std::fmt::Write as _;

/// Returns `text` in double quotes, with Go's escapes.
#[must_use]
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    write_quoted(&mut out, text);
    out
}

/// Appends `text` in double quotes, with Go's escapes.
pub fn write_quoted(out: &mut String, text: &str) {
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
}

/// Returns several texts as Go prints a slice of them with `%q`: `["a" "b"]`.
#[must_use]
pub fn quote_list<T: AsRef<str>>(items: &[T]) -> String {
    let quoted: Vec<String> = items.iter().map(|item| quote(item.as_ref())).collect();
    format!("[{}]", quoted.join(" "))
}

/// Implements Go's `unicode.IsPrint` as far as the standard library can tell: no control, format, private or unassigned
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
    fn lists_are_quoted_item_by_item() {
        assert_eq!(quote_list(&["a", "b\n"]), r#"["a" "b\n"]"#);
        assert_eq!(quote_list::<String>(&[]), "[]");
    }
}
