//! DaemonSets: the deprecated count of their templates, which lives on in an annotation.

use serde_json::{Value, json};

use crate::registry::ObjectExt;

const ANNOTATION: &str = "deprecated.daemonset.template.generation";

fn count(object: &Value) -> i64 {
    let annotations = object.metadata().and_then(|metadata| metadata.get("annotations"));
    let text = annotations.and_then(|annotations| annotations.get(ANNOTATION));
    text.and_then(Value::as_str)
        .and_then(|text| text.parse().ok())
        .unwrap_or_default()
}

fn set_count(object: &mut Value, count: i64) {
    if let Some(metadata) = object.metadata_mut() {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        if !annotations.is_object() {
            *annotations = json!({});
        }
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(ANNOTATION.to_owned(), Value::from(count.to_string()));
        }
    }
}

/// What a client sends has a count, be it zero.
pub(super) fn normalize(object: &mut Value) {
    let count = count(object);
    set_count(object, count);
}

pub(super) fn prepare_create(object: &mut Value) {
    set_count(object, 1);
}

pub(super) fn prepare_update(live: &Value, new: &mut Value) {
    let changed = live.pointer("/spec/template") != new.pointer("/spec/template");
    set_count(new, count(live) + i64::from(changed));
}
