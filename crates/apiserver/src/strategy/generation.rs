//! metadata.generation: which kinds count the changes of what their users want, and what counts as one.

use serde_json::{Value, json};

use crate::catalog::Resource;
use crate::registry::{ObjectExt, Operation};

/// The built-in kinds with a generation, as the real server gives them one.
const WITH_GENERATION: [(&str, &str); 19] = [
    ("", "pods"),
    ("", "podtemplates"),
    ("", "replicationcontrollers"),
    ("apps", "daemonsets"),
    ("apps", "deployments"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("batch", "cronjobs"),
    ("batch", "jobs"),
    ("networking.k8s.io", "ingresses"),
    ("networking.k8s.io", "ingressclasses"),
    ("networking.k8s.io", "networkpolicies"),
    ("policy", "poddisruptionbudgets"),
    ("discovery.k8s.io", "endpointslices"),
    ("scheduling.k8s.io", "priorityclasses"),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
];

/// Whether objects of this resource carry a generation.
pub(crate) fn has_generation(resource: &Resource) -> bool {
    resource.is_custom()
        || WITH_GENERATION.contains(&(resource.group.as_str(), resource.plural.as_str()))
        || (resource.group == "admissionregistration.k8s.io" && resource.plural == "validatingadmissionpolicybindings")
}

/// Counts a change of anything but metadata and status.
pub(crate) fn bump_generation(op: &Operation, live: &Value, new: &mut Value) {
    let counts = |name: &str| matches!(name, "scale" | "ephemeralcontainers" | "resize");
    // A driver has no generation until it changes.
    let late = op.resource.group == "storage.k8s.io" && op.resource.plural == "csidrivers";
    if !(has_generation(&op.resource) || late) || op.subresource.as_deref().is_some_and(|name| !counts(name)) {
        return;
    }
    // Nobody watches a class for changes.
    if (op.resource.group.as_str(), op.resource.plural.as_str()) == ("scheduling.k8s.io", "priorityclasses") {
        return;
    }
    // A Deployment's annotations are carried over to its ReplicaSets, and a slice's labels say whose it is: they count too.
    let counted = match (op.resource.group.as_str(), op.resource.plural.as_str()) {
        ("apps", "deployments") => Some("annotations"),
        ("discovery.k8s.io", "endpointslices") => Some("labels"),
        _ => None,
    };
    let metadata = |object: &Value, field: &str| {
        let found = object.metadata().and_then(|metadata| metadata.get(field));
        found.cloned()
    };
    let annotated = counted.is_some_and(|field| metadata(live, field) != metadata(new, field));
    let with_status = !op.resource.has_status();
    if annotated || wanted(live, with_status) != wanted(new, with_status) {
        let generation = live
            .metadata()
            .and_then(|metadata| metadata.get("generation"))
            .and_then(Value::as_i64)
            .unwrap_or_default();
        new.set_meta("generation", json!(generation + 1));
    }
}

/// What the user wants: all but metadata, and but a status that has an endpoint of its own.
fn wanted(object: &Value, with_status: bool) -> Vec<(&String, &Value)> {
    object
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, _)| match key.as_str() {
            "metadata" | "apiVersion" | "kind" => false,
            "status" => with_status,
            _ => true,
        })
        .collect()
}
