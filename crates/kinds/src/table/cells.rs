//! Code for the cells of many kinds.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use super::duration;

pub(crate) const NONE: &str = "<none>";
/// The usual place of the containers of a Pod template.
pub(crate) const CONTAINERS: &str = "/spec/template/spec/containers";

pub(crate) fn get_text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn get_number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

pub(crate) fn list_items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object
        .pointer(pointer)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

pub(crate) fn size(object: &Value, pointer: &str) -> usize {
    object
        .pointer(pointer)
        .and_then(Value::as_object)
        .map_or(0, serde_json::Map::len)
}

pub(crate) fn non_empty_or<'a>(text: &'a str, other: &'a str) -> &'a str {
    if text.is_empty() { other } else { text }
}

pub(crate) fn format_age(object: &Value, now: Timestamp) -> Value {
    Value::from(duration::format_since(
        get_text(object, "/metadata/creationTimestamp"),
        now,
    ))
}

/// Returns the containers' names and images.
pub(crate) fn format_containers(object: &Value, pointer: &str) -> [Value; 2] {
    let join = |field: &str| {
        let parts: Vec<&str> = list_items(object, pointer)
            .iter()
            .map(|container| get_text(container, field))
            .collect();
        Value::from(parts.join(","))
    };
    [join("/name"), join("/image")]
}

/// Returns labels as `a=b,c=d`.
pub(crate) fn format_labels(object: &Value, pointer: &str) -> String {
    let map = object.pointer(pointer).and_then(Value::as_object);
    let parts: Vec<String> = map
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    non_empty_or(&parts.join(","), NONE).to_owned()
}

/// Shows a label selector as kubectl writes it. An empty or missing selector is `<none>`.
pub(crate) fn format_selector(object: &Value, pointer: &str) -> String {
    let mut parts: Vec<(String, String)> = Vec::new();
    let at = object.pointer(pointer).unwrap_or(&Value::Null);
    for (key, value) in at.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
        parts.push((key.clone(), format!("{key}={}", value.as_str().unwrap_or_default())));
    }
    for expression in list_items(at, "/matchExpressions") {
        let key = get_text(expression, "/key");
        let mut values: Vec<&str> = list_items(expression, "/values")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        values.sort_unstable();
        let values = values.join(",");
        let shown = match get_text(expression, "/operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        };
        parts.push((key.to_owned(), shown));
    }
    parts.sort();
    let shown: Vec<String> = parts.into_iter().map(|(_, shown)| shown).collect();
    non_empty_or(&shown.join(","), NONE).to_owned()
}

/// Returns at most `most` parts, and the number of the others.
pub(crate) fn join_first(parts: &[String], most: usize) -> String {
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

/// Returns a number or text, as Go prints an IntOrString.
pub(crate) fn int_or_string(object: &Value, pointer: &str) -> Option<String> {
    match object.pointer(pointer)? {
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// Returns the name, which is every row's first cell.
pub(crate) fn name_cell(object: &Value) -> Value {
    get_text(object, "/metadata/name").into()
}

/// Returns the texts of a list with commas between them.
pub(crate) fn join_texts(object: &Value, pointer: &str) -> String {
    list_items(object, pointer)
        .iter()
        .filter_map(Value::as_str)
        .collect::<Vec<_>>()
        .join(",")
}

/// Shows the addresses of the load balancer.
pub(crate) fn format_load_balancer(object: &Value) -> String {
    let addresses: BTreeSet<&str> = list_items(object, "/status/loadBalancer/ingress")
        .iter()
        .map(|one| non_empty_or(get_text(one, "/ip"), get_text(one, "/hostname")))
        .collect();
    addresses
        .into_iter()
        .filter(|address| !address.is_empty())
        .collect::<Vec<_>>()
        .join(",")
}

/// Shows the access modes of volumes in short form.
pub(crate) fn access_modes(object: &Value, pointer: &str) -> String {
    let given: Vec<&str> = list_items(object, pointer).iter().filter_map(Value::as_str).collect();
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let shown: Vec<&str> = short
        .iter()
        .filter(|(mode, _)| given.contains(mode))
        .map(|(_, short)| *short)
        .collect();
    shown.join(",")
}

/// Returns the storage class that is named, in the older way or in the newer one.
pub(crate) fn class_of(object: &Value) -> String {
    const ANNOTATION: &str = "/metadata/annotations/volume.beta.kubernetes.io~1storage-class";
    non_empty_or(get_text(object, ANNOTATION), get_text(object, "/spec/storageClassName")).to_owned()
}

/// Returns a text that may be unset.
pub(crate) fn text_or_unset(object: &Value, pointer: &str) -> Value {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or("<unset>")
        .into()
}
