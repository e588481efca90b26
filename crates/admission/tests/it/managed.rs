//! What Kustomizations applied, as the table has it and as a server wants it.

use serde_json::{Value, json};

/// Whether a Kustomization applied it, by its labels.
pub(crate) fn is_applied(object: &Value) -> bool {
    object
        .pointer("/metadata/labels/kustomize.toolkit.fluxcd.io~1name")
        .is_some()
}

/// Lets somebody wait for the end of what is on its way out, so that it is there; whether it is.
pub(crate) fn keep_if_leaving(object: &mut Value) -> bool {
    let metadata = object["metadata"].as_object_mut().unwrap();
    let is_leaving = metadata.remove("deletionTimestamp").is_some();
    if is_leaving {
        metadata.insert("finalizers".to_owned(), json!(["example.org/keep"]));
    }
    is_leaving
}

/// What a Deployment needs besides: a case says what Git has of it. Nobody has an empty map.
pub(crate) fn complete(kind: &str, object: &mut Value) {
    if !["Deployment", "ClusterRole"].contains(&kind) {
        return;
    }
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.retain(|_, value| *value != json!({}));
    if kind == "Deployment" {
        let labels = json!({ "app": "table" });
        object["spec"]["selector"] = json!({ "matchLabels": labels });
        object["spec"]["template"] = json!({
            "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "main", "image": "example.org/x" }] }
        });
    }
}

/// How many a Deployment is to have, as its part `scale` has it.
pub(crate) fn write_scale(deployment: &Value) -> Value {
    json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale",
        "metadata": { "name": deployment["metadata"]["name"], "namespace": deployment["metadata"]["namespace"] },
        "spec": { "replicas": deployment["spec"]["replicas"] }
    })
}
