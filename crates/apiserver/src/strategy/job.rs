//! Jobs: the selector that the server makes, unless the user manages it.

use serde_json::{Map, Value, json};

use crate::registry::ObjectExt;

pub(super) fn prepare_create(object: &mut Value) {
    if object.pointer("/spec/manualSelector").and_then(Value::as_bool) == Some(true) {
        return;
    }
    let (name, uid) = (object.name().to_owned(), object.uid().to_owned());
    let labels = [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("job-name", &name),
    ];
    let add = |metadata: &mut Map<String, Value>| {
        let map = metadata.entry("labels").or_insert_with(|| json!({}));
        if let Some(map) = map.as_object_mut() {
            // What is there and says otherwise is refused later.
            for (key, value) in labels {
                map.entry(key).or_insert_with(|| Value::from(value.as_str()));
            }
        }
    };
    // Labels that are the template's by default are one with them in Kubernetes: what is added here is added there.
    // But for a Job with a generated name, of which Kubernetes works on a copy.
    let own = object.metadata().and_then(|metadata| metadata.get("labels")).cloned();
    let generated = object
        .metadata()
        .is_some_and(|metadata| metadata.contains_key("generateName"));
    if own.is_some()
        && !generated
        && own.as_ref() == object.pointer("/spec/template/metadata/labels")
        && let Some(metadata) = object.metadata_mut()
    {
        add(metadata);
    }
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    let selector = spec.entry("selector").or_insert_with(|| json!({}));
    if let Some(selector) = selector.as_object_mut()
        && let Some(selected) = selector
            .entry("matchLabels")
            .or_insert_with(|| json!({}))
            .as_object_mut()
    {
        let key = "batch.kubernetes.io/controller-uid";
        selected.entry(key).or_insert_with(|| Value::from(uid.as_str()));
    }
    let metadata = spec
        .get_mut("template")
        .and_then(Value::as_object_mut)
        .map(|template| template.entry("metadata").or_insert_with(|| json!({})));
    if let Some(Value::Object(metadata)) = metadata {
        add(metadata);
    }
}

/// A Job without labels of its own has those of its Pods.
pub(super) fn default_labels(object: &mut Value) {
    let labels = |pointer: &str| {
        let found = object.pointer(pointer).and_then(Value::as_object);
        found.filter(|labels| !labels.is_empty()).cloned()
    };
    if labels("/metadata/labels").is_none()
        && let Some(labels) = labels("/spec/template/metadata/labels")
    {
        object.set_meta("labels", Value::Object(labels));
    }
}
