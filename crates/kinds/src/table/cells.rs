//! What many kinds' cells have in common.

use jiff::Timestamp;
use serde_json::Value;

use super::duration;

pub(super) const NONE: &str = "<none>";

pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

pub(super) fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object
        .pointer(pointer)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

pub(super) fn size(object: &Value, pointer: &str) -> usize {
    object
        .pointer(pointer)
        .and_then(Value::as_object)
        .map_or(0, serde_json::Map::len)
}

pub(super) fn or<'a>(text: &'a str, other: &'a str) -> &'a str {
    if text.is_empty() { other } else { text }
}

pub(super) fn age(object: &Value, now: Timestamp) -> Value {
    Value::from(duration::since(text(object, "/metadata/creationTimestamp"), now))
}

/// Containers' names and images.
pub(super) fn containers(object: &Value, pointer: &str) -> [Value; 2] {
    let join = |field: &str| {
        let parts: Vec<&str> = list(object, pointer)
            .iter()
            .map(|container| text(container, field))
            .collect();
        Value::from(parts.join(","))
    };
    [join("/name"), join("/image")]
}

/// Labels as `a=b,c=d`.
pub(super) fn labels(object: &Value, pointer: &str) -> String {
    let map = object.pointer(pointer).and_then(Value::as_object);
    let parts: Vec<String> = map
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    or(&parts.join(","), NONE).to_owned()
}

/// A label selector as kubectl writes it; an empty one is `<none>`, a missing one too.
pub(super) fn selector(object: &Value, pointer: &str) -> String {
    let mut parts: Vec<(String, String)> = Vec::new();
    let at = object.pointer(pointer).unwrap_or(&Value::Null);
    for (key, value) in at.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
        parts.push((key.clone(), format!("{key}={}", value.as_str().unwrap_or_default())));
    }
    for expression in list(at, "/matchExpressions") {
        let key = text(expression, "/key");
        let mut values: Vec<&str> = list(expression, "/values").iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let shown = match text(expression, "/operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        };
        parts.push((key.to_owned(), shown));
    }
    parts.sort();
    let shown: Vec<String> = parts.into_iter().map(|(_, shown)| shown).collect();
    or(&shown.join(","), NONE).to_owned()
}

/// At most `most` parts, and how many more there are.
pub(super) fn shortened(parts: &[String], most: usize) -> String {
    if parts.is_empty() {
        return NONE.to_owned();
    }
    let shown = parts.get(..most).unwrap_or(parts).join(",");
    if parts.len() > most {
        format!("{shown} + {} more...", parts.len() - most)
    } else {
        shown
    }
}

/// A number or text, as Go prints an IntOrString.
pub(super) fn int_or_string(object: &Value, pointer: &str) -> Option<String> {
    match object.pointer(pointer)? {
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}
