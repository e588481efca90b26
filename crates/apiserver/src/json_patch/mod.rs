//! JSON patches (RFC 6902) as Kubernetes applies them: patches from clients and from webhooks.
//!
//! This module has the six operations and the limits of one patch: the sum of its copies, and the size and depth of
//! the document after each step. The callers word the errors for clients.

mod document;

use std::borrow::Cow;
use std::fmt;

use document::{Document, MOST_COPIED};
use serde_json::{Map, Value};

/// The reason why an operation of a JSON patch can't be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultReason {
    /// The operation is malformed.
    Unreadable,
    /// The value differs from the tested one.
    TestFailed,
    /// The operation's `path` leads nowhere.
    BadPath,
    /// The operation's `from` leads nowhere.
    BadFrom,
    /// The operation moves a value into itself.
    IntoItself,
    /// All copies so far would add this many bytes.
    CopiesTooMuch(usize),
    /// The document would be nested deeper than a readable one.
    TooDeep,
    /// The document would be larger than a request may be.
    TooLarge,
}

impl fmt::Display for FaultReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Unreadable => "the operation is not valid in a JSON patch",
            Self::TestFailed => "value did not match",
            Self::BadPath => "path is invalid",
            Self::BadFrom => "\"from\" path is invalid",
            Self::IntoItself => "cannot move the value inside itself",
            Self::TooDeep => "the document would be nested too deeply",
            Self::TooLarge => "the document would be too large",
            Self::CopiesTooMuch(bytes) => {
                return write!(
                    formatter,
                    "Unable to complete the copy, the accumulated size increase of copy is {bytes}, exceeding the limit {MOST_COPIED}"
                );
            }
        })
    }
}

/// An operation that can't be carried out, and with it the patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The index of the operation in the patch.
    pub(crate) operation: usize,
    /// The operation's `path`.
    pub(crate) path: String,
    pub(crate) why: FaultReason,
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, path, why } = self;
        match why {
            // kube-apiserver's message, which does not name the operation.
            FaultReason::CopiesTooMuch(_) => why.fmt(formatter),
            _ => write!(formatter, "operation '/{operation}' failed at path '{path}': {why}"),
        }
    }
}

/// Returns the document after all operations.
///
/// # Errors
/// The first operation that can't be applied.
pub(crate) fn apply(document: Value, operations: &[Value]) -> Result<Value, Fault> {
    let mut document = Document::new(document);
    for (operation, step) in operations.iter().enumerate() {
        apply_operation(&mut document, step).map_err(|why| Fault {
            operation,
            path: get_text(step, "path").unwrap_or_default().to_owned(),
            why,
        })?;
    }
    Ok(document.into_value())
}

fn get_text<'a>(step: &'a Value, key: &str) -> Option<&'a str> {
    step.get(key).and_then(Value::as_str)
}

/// Applies one operation of a patch to the document.
fn apply_operation(document: &mut Document, step: &Value) -> Result<(), FaultReason> {
    let fields: &Map<String, Value> = step.as_object().ok_or(FaultReason::Unreadable)?;
    let path = |key| {
        get_text(step, key)
            .ok_or(FaultReason::Unreadable)
            .and_then(|text| parse_pointer(text).ok_or(FaultReason::Unreadable))
    };
    // A missing value counts as null.
    let value = fields.get("value").unwrap_or(&Value::Null);
    // `test` and `replace` accept the whole document; `add`, `remove`, `move` and `copy` do not.
    match get_text(step, "op").unwrap_or_default() {
        "add" => document.add(&path("path")?, value),
        "replace" => document.replace(&path("path")?, value),
        "test" => document.test(&path("path")?, value),
        "remove" => document.remove(&path("path")?),
        "move" => document.move_value(&path("from")?, &path("path")?),
        "copy" => {
            let (from, path) = (path("from")?, path("path")?);
            if from.is_empty() {
                return Err(FaultReason::BadFrom);
            }
            document.copy(&from, &path)
        }
        _ => Err(FaultReason::Unreadable),
    }
}

/// Returns the parts of a JSON pointer; `None` if it is malformed.
fn parse_pointer(pointer: &str) -> Option<Vec<Cow<'_, str>>> {
    if pointer.is_empty() {
        return Some(Vec::new());
    }
    pointer.strip_prefix('/')?.split('/').map(unescape_token).collect()
}

/// Replaces `~0` and `~1` in a part of a JSON pointer; `None` for another escape.
fn unescape_token(escaped: &str) -> Option<Cow<'_, str>> {
    let Some((before, mut rest)) = escaped.split_once('~') else {
        return Some(Cow::Borrowed(escaped));
    };
    let mut token = before.to_owned();
    loop {
        let after = match rest.strip_prefix('0') {
            Some(after) => {
                token.push('~');
                after
            }
            None => {
                let after = rest.strip_prefix('1')?;
                token.push('/');
                after
            }
        };
        match after.split_once('~') {
            None => {
                token.push_str(after);
                return Some(Cow::Owned(token));
            }
            Some((plain, more)) => {
                token.push_str(plain);
                rest = more;
            }
        }
    }
}

#[cfg(test)]
mod tests;
