//! The change of a folded block that yaml.v3 writes and reads back. For each blank line, yaml.v3 checks the first character of the text
//! instead of the next character, so some texts change. kustomize sends every resource through yaml.v3 in this way.

use super::emit::may_be_block;
use super::facts::is_break;
use super::read::{Lines, Source, first_document};
use super::scalar::Dialect;

/// Returns the text of a folded block after it was written and read.
pub(crate) fn written_and_read(text: &str) -> String {
    if text.is_empty() || !may_be_block(text) {
        return text.to_owned();
    }
    let source = Source {
        file: 0,
        lines: Lines::After(0),
        maximum_nodes: 8,
        scanner: Dialect::V3,
    };
    match first_document(&write_folded(text), source) {
        Ok(Some(node)) => node
            .get("x")
            .map_or_else(|| text.to_owned(), |value| value.text().to_owned()),
        _ => text.to_owned(),
    }
}

/// Returns a folded block as the value of the only field of a document.
pub(super) fn write_folded(text: &str) -> String {
    let mut out = format!("x: >{}\n", find_block_hints(text));
    let first_after_breaks = text.trim_start_matches(is_break).chars().next();
    let doubles = !matches!(first_after_breaks, None | Some(' ' | '\t'));
    let (mut after_break, mut leading_spaces) = (true, true);
    for character in text.chars() {
        if is_break(character) {
            if !after_break && !leading_spaces && character == '\n' && doubles {
                out.push('\n');
            }
            after_break = true;
        } else {
            if after_break {
                out.push_str("  ");
                leading_spaces = matches!(character, ' ' | '\t');
            }
            after_break = false;
        }
        out.push(character);
    }
    if !text.ends_with(is_break) {
        out.push('\n');
    }
    out
}

/// Returns the hints after the indicator of a block scalar whose lines are indented by two more spaces. The hints say whether an explicit
/// indentation is necessary, and which of the last line breaks count.
pub(super) fn find_block_hints(text: &str) -> String {
    let mut hints = String::new();
    if text.starts_with(|first| first == ' ' || is_break(first)) {
        hints.push('2');
    }
    let mut last = text.chars().rev();
    match (last.next().is_some_and(is_break), last.next()) {
        (false, _) => hints.push('-'),
        (true, Some(before)) if !is_break(before) => {}
        (true, _) => hints.push('+'),
    }
    hints
}

/// Checks whether a block scalar of a text keeps all its last line breaks.
pub(super) fn is_kept(text: &str) -> bool {
    find_block_hints(text).ends_with('+')
}
