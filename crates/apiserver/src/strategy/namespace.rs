//! Namespaces: the finalizer in their spec, their phase, and the label with their name.

use serde_json::{Value, json};

use crate::registry::{ObjectExt, Operation};

/// The label that lets selectors name a namespace.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

pub(super) fn prepare_create(object: &mut Value) {
    if let Some(map) = object.as_object_mut() {
        map.insert("status".to_owned(), json!({"phase": "Active"}));
        let spec = map.entry("spec").or_insert_with(|| json!({}));
        if !spec.is_object() {
            *spec = json!({});
        }
        let finalizers = spec
            .as_object_mut()
            .map(|spec| spec.entry("finalizers").or_insert_with(|| json!([])));
        if let Some(Value::Array(finalizers)) = finalizers
            && !finalizers.contains(&json!("kubernetes"))
        {
            finalizers.push(json!("kubernetes"));
        }
    }
    label(object);
}

pub(super) fn prepare_update(op: &Operation, live: &Value, new: &mut Value) {
    if op.subresource.as_deref() != Some("finalize")
        && let Some(map) = new.as_object_mut()
    {
        match live.get("spec") {
            Some(spec) => map.insert("spec".to_owned(), spec.clone()),
            None => map.remove("spec"),
        };
    }
    label(new);
}

pub(super) fn prepare_delete(object: &mut Value) {
    object.remove_meta("deletionGracePeriodSeconds");
    if let Some(map) = object.as_object_mut() {
        let status = map.entry("status").or_insert_with(|| json!({}));
        if let Some(status) = status.as_object_mut() {
            status.insert("phase".to_owned(), json!("Terminating"));
        }
    }
}

fn label(object: &mut Value) {
    let name = object.name().to_owned();
    if let Some(metadata) = object.metadata_mut() {
        let labels = metadata.entry("labels").or_insert_with(|| json!({}));
        if !labels.is_object() {
            *labels = json!({});
        }
        if let Some(labels) = labels.as_object_mut() {
            labels.insert(NAME_LABEL.to_owned(), Value::from(name));
        }
    }
}
