//! YAML files: clear values replace the encrypted ones in place, and SOPS' metadata are removed, so that every line stays where it is. A document for which this is
//! impossible is written as one line of JSON.

use std::fmt::Write as _;

use zeroize::Zeroizing;

use crate::error::Error;
use crate::stores::json;
use crate::text;
use crate::tree::{Comment, Document, Entry, Node, Span, Value};

pub(crate) use super::yaml_reader::read;

/// A replacement of a part of the YAML file: an encrypted value by its clear text, or metadata by nothing.
struct Edit {
    span: Span,
    text: Zeroizing<String>,
}

/// Writes the clear file: with its lines if editing in place is possible, or else each document on one line. Documents of the file that are not in `documents` stay
/// unchanged.
///
/// # Errors
/// When a value can't be written, or a document has to stay in a file that can't be edited in place.
pub(crate) fn write(file: &str, documents: &[Document], are_some_kept: bool) -> Result<Zeroizing<Vec<u8>>, Error> {
    let mut edits = Vec::new();
    let mended = documents
        .iter()
        .all(|document| edit_document(document, file, &mut edits).is_some());
    let written = if mended { apply_edits(file, edits) } else { None };
    match written {
        Some(written) => Ok(written),
        None if are_some_kept => Err(Error::Unwritable(
            "a document that stays encrypted can't be kept beside one in braces, or one whose list has comments alone",
        )),
        None => write_lines(documents),
    }
}

/// Writes each document on one line.
///
/// # Errors
/// When a value can't be written.
pub(crate) fn write_lines(documents: &[Document]) -> Result<Zeroizing<Vec<u8>>, Error> {
    let mut written = Zeroizing::new(Vec::new());
    for document in documents {
        written.extend_from_slice(b"---\n");
        written.extend_from_slice(json::write_line(document)?.as_bytes());
        written.push(b'\n');
    }
    Ok(written)
}

fn apply_edits(file: &str, mut edits: Vec<Edit>) -> Option<Zeroizing<Vec<u8>>> {
    edits.sort_by_key(|edit| edit.span.start);
    let mut written = Zeroizing::new(Vec::with_capacity(file.len()));
    let mut at = 0;
    for edit in &edits {
        written.extend_from_slice(file.get(at..edit.span.start)?.as_bytes());
        written.extend_from_slice(edit.text.as_bytes());
        at = edit.span.end;
    }
    written.extend_from_slice(file.get(at..)?.as_bytes());
    go_yaml::meter::count_text(written.len());
    Some(written)
}

/// Collects the edits of one document; `None` if it can't be edited in place.
fn edit_document(document: &Document, file: &str, edits: &mut Vec<Edit>) -> Option<()> {
    if document.is_flow {
        return None;
    }
    for (index, cut) in document.cuts.iter().enumerate() {
        let cut_text = file.get(cut.start..cut.end)?;
        let mut text = Zeroizing::new("\n".repeat(cut_text.matches('\n').count()));
        if index == 0 && !document.entries.iter().any(|entry| matches!(entry, Entry::Pair { .. })) {
            text.insert_str(0, "{}");
        }
        edits.push(Edit { span: *cut, text });
    }
    edit_entries(&document.entries, file, edits)
}

fn edit_entries(entries: &[Entry], file: &str, edits: &mut Vec<Edit>) -> Option<()> {
    for entry in entries {
        match entry {
            Entry::Comment(comment) => edits.extend(edit_comment(comment)),
            Entry::Pair { value, .. } => edit_node(value, file, edits)?,
        }
    }
    Some(())
}

/// Returns the edit of a clear comment if it has one line. Any other comment stays encrypted, which has no effect.
fn edit_comment(comment: &Comment) -> Option<Edit> {
    let is_line = !comment
        .text
        .contains(|one: char| one.is_control() || matches!(one, '\u{2028}' | '\u{2029}' | '\u{feff}'));
    (comment.is_opened && is_line && comment.span != Span::default()).then(|| Edit {
        span: comment.span,
        text: Zeroizing::new(format!("#{}", comment.text.as_str())),
    })
}

fn edit_node(node: &Node, file: &str, edits: &mut Vec<Edit>) -> Option<()> {
    match &node.value {
        Value::Map(entries) if !node.is_alias => return edit_entries(entries, file, edits),
        Value::List(items) if !node.is_alias => {
            let mut has_items = items.is_empty();
            for item in items {
                match &item.value {
                    Value::Comment(comment) if item.is_opened => edits.push(remove_item(item.span, file, comment)?),
                    Value::Comment(comment) => edits.extend(edit_comment(comment)),
                    _ => {
                        has_items = true;
                        edit_node(item, file, edits)?;
                    }
                }
            }
            // Without its items, the list would become null instead of an empty list.
            return has_items.then_some(());
        }
        _ => {}
    }
    if !node.is_opened {
        return Some(());
    }
    let mut text = Zeroizing::new(String::new());
    match &node.value {
        Value::Null => text.push_str("null"),
        Value::Bool(truth) => text.push_str(if *truth { "true" } else { "false" }),
        Value::Int(number) => text.push_str(&number.to_string()),
        Value::Float(number) if number.is_nan() => text.push_str(".nan"),
        Value::Float(number) if number.is_infinite() => text.push_str(if *number > 0.0 { ".inf" } else { "-.inf" }),
        Value::Float(number) => text.push_str(&text::general_float(*number)),
        Value::Time(time) => text.push_str(time),
        Value::Text(content) => text::write_yaml_string(&mut text, content),
        Value::Bytes(bytes) => {
            use base64::Engine as _;
            let encoded = Zeroizing::new(base64::engine::general_purpose::STANDARD.encode(bytes.as_slice()));
            let _written = write!(text, "!!binary \"{}\"", encoded.as_str());
        }
        Value::Comment(_) | Value::Map(_) | Value::List(_) => return None,
    }
    // Encrypted values usually have one line. For one with several lines, the following lines still keep their places.
    let lines = file.get(node.span.start..node.span.end)?.matches('\n').count();
    (0..lines).for_each(|_| text.push('\n'));
    edits.push(Edit { span: node.span, text });
    Some(())
}

/// Removes a comment that SOPS had made an item of a list, together with its dash.
fn remove_item(span: Span, file: &str, comment: &Comment) -> Option<Edit> {
    let before = file.get(..span.start)?;
    let dash = before.trim_end_matches(' ').strip_suffix('-')?.len();
    let text = match edit_comment(&Comment {
        text: comment.text.clone(),
        span,
        is_opened: true,
    }) {
        Some(edit) => edit.text,
        None => Zeroizing::new("#".to_owned()),
    };
    let is_line = file.get(span.end..)?.starts_with(['\n', '\r']) || file.len() == span.end;
    is_line.then_some(Edit {
        span: Span {
            start: dash,
            end: span.end,
        },
        text,
    })
}
