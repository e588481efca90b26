//! Fields of objects of any kind. An absent field and a field of another type read as empty.

use serde_json::Value;

pub(crate) fn read_text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn read_list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object
        .pointer(pointer)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

pub(crate) fn list_texts(object: &Value, pointer: &str) -> Vec<String> {
    read_list(object, pointer)
        .iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

pub(crate) fn is_true(object: &Value, pointer: &str) -> bool {
    object.pointer(pointer).and_then(Value::as_bool) == Some(true)
}

/// Returns the API group of an object.
pub(crate) fn read_group(object: &Value) -> &str {
    read_text(object, "/apiVersion")
        .rsplit_once('/')
        .map_or("", |(group, _)| group)
}

/// Returns the value of a label. Labels have slashes in their names, so no pointer is used.
pub(crate) fn read_label<'a>(object: &'a Value, key: &str) -> &'a str {
    object
        .pointer("/metadata/labels")
        .and_then(|labels| labels.get(key))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

pub(crate) fn read_annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    object
        .pointer("/metadata/annotations")
        .and_then(|annotations| annotations.get(key))
        .and_then(Value::as_str)
        .unwrap_or_default()
}
