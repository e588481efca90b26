//! Owns what becomes of a folded block when yaml.v3 writes it and reads it back: it decides about a blank line by the first
//! character of the text instead of the next one, so some texts change. kustomize sends every resource that way.

use super::emit::may_be_block;
use super::facts::is_break;
use super::read::{Lines, Source, first_document};
use super::scalar::Dialect;

/// The text of a folded block after it was written and read.
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
    match first_document(&written(text), source) {
        Ok(Some(node)) => node
            .get("x")
            .map_or_else(|| text.to_owned(), |value| value.text().to_owned()),
        _ => text.to_owned(),
    }
}

/// A folded block as the value of the only field of a document.
pub(super) fn written(text: &str) -> String {
    let mut out = format!("x: >{}\n", hints(text));
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

/// What stands after the indicator of a block scalar in lines of two spaces more: whether its first line decides the indentation, and
/// which of its last line breaks count.
pub(super) fn hints(text: &str) -> String {
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

/// Tells whether a block scalar of a text keeps all of its last line breaks.
pub(super) fn is_kept(text: &str) -> bool {
    hints(text).ends_with('+')
}
