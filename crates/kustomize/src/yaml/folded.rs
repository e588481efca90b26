//! Owns what becomes of a folded block when yaml.v3 writes it and reads it back: it decides about a blank line by the first
//! character of the text instead of the next one, so some texts change. kustomize sends every resource that way.

use super::emit::may_be_block;
use super::read::{Lines, Source, first_document};

/// The text of a folded block after it was written and read.
pub(crate) fn written_and_read(text: &str) -> String {
    if text.is_empty() || !may_be_block(text) {
        return text.to_owned();
    }
    let source = Source {
        file: 0,
        lines: Lines::After(0),
        maximum_nodes: 8,
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
    let mut out = "x: >".to_owned();
    if text.starts_with([' ', '\n']) {
        out.push('2');
    }
    let trailing = text.len() - text.trim_end_matches('\n').len();
    match trailing {
        0 => out.push('-'),
        1 if text.len() > 1 => {}
        _ => out.push('+'),
    }
    out.push('\n');
    let first_after_breaks = text.trim_start_matches('\n').chars().next();
    let doubles = !matches!(first_after_breaks, None | Some(' ' | '\t'));
    let (mut after_break, mut leading_spaces) = (true, true);
    for character in text.chars() {
        if character == '\n' {
            if !after_break && !leading_spaces && doubles {
                out.push('\n');
            }
            out.push('\n');
            after_break = true;
        } else {
            if after_break {
                out.push_str("  ");
                leading_spaces = matches!(character, ' ' | '\t');
            }
            out.push(character);
            after_break = false;
        }
    }
    if !text.ends_with('\n') {
        out.push('\n');
    }
    out
}
