//! The annotation in which client-side `kubectl apply` stores its configuration, and the migration to server-side apply. `kubectl` may take
//! the fields in the annotation without a conflict.

use serde_json::Value;

use super::FieldManager;
use crate::set::FieldSet;
use crate::typed::{Duplicates, TypedObject};

/// The only manager with this migration.
pub(super) const KUBECTL: &str = "kubectl";
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Bytes of all the keys and values of an object's annotations.
const MOST_ANNOTATION_BYTES: usize = 256 * 1024;

fn read_annotation(object: &Value) -> Option<&str> {
    let annotation = object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str()?;
    (!annotation.is_empty()).then_some(annotation)
}

/// Returns the fields that have equal values in the annotation and in the live object. `None` without a readable annotation of this
/// version.
pub(super) fn allowed_conflicts(manager: &FieldManager, live: &Value) -> Option<FieldSet> {
    let last_applied: Value = serde_json::from_str(read_annotation(live)?).ok()?;
    if last_applied.get("apiVersion").and_then(Value::as_str) != Some(manager.api_version.as_str()) {
        return None;
    }
    let live = TypedObject::new(live, &manager.typing, Duplicates::Refused).ok()?;
    let last_applied = TypedObject::new(&last_applied, &manager.typing, Duplicates::Refused).ok()?;
    let comparison = last_applied.compare(&live);
    Some(
        last_applied
            .field_set()
            .difference(&comparison.modified)
            .difference(&comparison.added)
            .difference(&comparison.removed),
    )
}

/// Returns the change of the annotation in `object` after `manager` has applied `config`; `None` without a change. The inner value is the
/// new text, or `None` to remove the annotation because the annotations would be too large.
pub(super) fn refresh_annotation(manager: &str, object: &Value, config: &Value) -> Option<Option<String>> {
    if manager != KUBECTL {
        return None;
    }
    let present = read_annotation(object)?;
    let mut config = config.clone();
    if let Some(annotations) = config
        .get_mut("metadata")
        .and_then(|metadata| metadata.get_mut("annotations"))
        .and_then(Value::as_object_mut)
    {
        annotations.remove(ANNOTATION);
    }
    let text = go_json(&config);
    if text == present {
        return None;
    }
    let annotations = object
        .get("metadata")
        .and_then(|metadata| metadata.get("annotations"))
        .and_then(Value::as_object);
    let others: usize = annotations
        .into_iter()
        .flatten()
        .filter(|(name, _)| *name != ANNOTATION)
        .map(|(name, value)| name.len() + value.as_str().map_or(0, str::len))
        .sum();
    Some((others + ANNOTATION.len() + text.len() <= MOST_ANNOTATION_BYTES).then_some(text))
}

/// Sets or removes the annotation.
pub(super) fn write(object: &mut Value, text: Option<String>) {
    let annotations = object
        .get_mut("metadata")
        .and_then(|metadata| metadata.get_mut("annotations"));
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        match text {
            Some(text) => annotations.insert(ANNOTATION.to_owned(), Value::from(text)),
            None => annotations.remove(ANNOTATION),
        };
    }
}

/// Writes JSON as Go's encoder does: with a newline at the end, and with the characters escaped that are special in HTML.
fn go_json(value: &Value) -> String {
    let mut out = String::new();
    for character in value.to_string().chars() {
        match character {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            character => out.push(character),
        }
    }
    out.push('\n');
    out
}
