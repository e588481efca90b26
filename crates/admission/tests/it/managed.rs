//! Objects that Kustomizations applied, in the form of the table and in the form of a server.

use serde_json::{Value, json};

/// Checks by its labels whether a Kustomization applied the object.
pub(crate) fn is_applied(object: &Value) -> bool {
    object
        .pointer("/metadata/labels/kustomize.toolkit.fluxcd.io~1name")
        .is_some()
}

/// Gives an object in deletion a finalizer, so that it still exists in the test. Returns true if
/// the object is in deletion.
pub(crate) fn keep_if_leaving(object: &mut Value) -> bool {
    let metadata = object["metadata"].as_object_mut().unwrap();
    let is_leaving = metadata.remove("deletionTimestamp").is_some();
    if is_leaving {
        metadata.insert("finalizers".to_owned(), json!(["example.org/keep"]));
    }
    is_leaving
}

/// Adds the required fields of a Deployment: a case has only the fields from Git. Removes empty
/// maps, which no stored object has.
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

/// Returns the `scale` subresource of a Deployment.
pub(crate) fn write_scale(deployment: &Value) -> Value {
    json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale",
        "metadata": { "name": deployment["metadata"]["name"], "namespace": deployment["metadata"]["namespace"] },
        "spec": { "replicas": deployment["spec"]["replicas"] }
    })
}
