//! Pods and Pod templates on a write. Fields that Kubernetes knows but has disabled are removed. Values that come from the Pod itself are
//! added.

use serde_json::{Map, Value, json};

use super::warnings as pod_warnings;
use crate::schema::FieldPath;

/// The usual place of a Pod template.
pub(crate) const AT: &str = "/spec/template";
/// The usual place of the spec of a Pod template.
pub(crate) const TEMPLATE: &str = "/spec/template/spec";

/// Replaces a negative grace period, which earlier versions accepted, with one second.
pub(super) fn normalize_pod(pod: &mut Value) {
    let field = "terminationGracePeriodSeconds";
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut)
        && spec
            .get(field)
            .and_then(Value::as_i64)
            .is_some_and(|seconds| seconds < 0)
    {
        spec.insert(field.to_owned(), json!(1));
    }
}

/// Removes disabled fields from the Pod spec at `at`, unless the stored object has them.
pub(crate) fn drop_disabled(at: &str, object: &mut Value, live: Option<&Value>) {
    if let Some(spec) = object.pointer_mut(at) {
        let live = live.and_then(|live| live.pointer(at)).cloned().unwrap_or_default();
        drop_from_spec(spec, &live);
    }
}

/// Removes disabled fields from the Pod spec at the usual place.
pub(crate) fn drop_disabled_of_template(object: &mut Value, live: Option<&Value>) {
    drop_disabled(TEMPLATE, object, live);
}

/// Checks whether an object has the generation of its predecessor. If so, its spec is unchanged.
pub(crate) fn has_same_generation(object: &Value, live: Option<&Value>) -> bool {
    let generation = |object: &Value| object.pointer("/metadata/generation").cloned();
    live.is_some_and(|live| generation(live) == generation(object))
}

/// Returns the warnings for the writer of the template at `at`.
pub(crate) fn warnings_at(object: &Value, at: &str) -> Vec<String> {
    let Some(template) = object.pointer(at) else {
        return Vec::new();
    };
    let path = at
        .split('/')
        .skip(1)
        .fold(FieldPath::default(), |path, field| path.child(field));
    pod_warnings::list_template_warnings(template, &path)
}

/// Returns the warnings about the template at the usual place.
pub(crate) fn list_warnings(object: &Value) -> Vec<String> {
    warnings_at(object, AT)
}

/// Returns the warnings about a template, if it is new or its object has changed.
pub(crate) fn warnings_of_changed_generation(object: &Value, live: Option<&Value>) -> Vec<String> {
    if has_same_generation(object, live) {
        return Vec::new();
    }
    list_warnings(object)
}

fn list_objects_mut<'a>(spec: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    let list = spec.get_mut(list).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

fn has_stop_signal(spec: &Value) -> bool {
    let lists = CONTAINERS.iter().filter_map(|list| spec.get(*list)?.as_array());
    lists
        .flatten()
        .any(|container| container.pointer("/lifecycle/stopSignal").is_some())
}

fn has_projected_source(spec: &Value, source: &str) -> bool {
    let volumes = spec.get("volumes").and_then(Value::as_array);
    let sources = volumes
        .into_iter()
        .flatten()
        .filter_map(|volume| volume.pointer("/projected/sources")?.as_array());
    sources.flatten().any(|one| one.get(source).is_some())
}

fn drop_from_spec(spec: &mut Value, live: &Value) {
    if !has_stop_signal(live) {
        for list in CONTAINERS {
            for container in list_objects_mut(spec, list) {
                if let Some(lifecycle) = container.get_mut("lifecycle").and_then(Value::as_object_mut)
                    && lifecycle.remove("stopSignal").is_some()
                    && lifecycle.is_empty()
                {
                    container.remove("lifecycle");
                }
            }
        }
    }
    for source in ["clusterTrustBundle", "podCertificate"] {
        if has_projected_source(live, source) {
            continue;
        }
        for volume in list_objects_mut(spec, "volumes") {
            if let Some(projected) = volume.get_mut("projected") {
                for found in list_objects_mut(projected, "sources") {
                    found.remove(source);
                }
            }
        }
    }
    if live.get("schedulingGroup").is_none()
        && let Some(spec) = spec.as_object_mut()
    {
        spec.remove("schedulingGroup");
    }
}

/// Adds the Pod's own label values where terms name label keys. A Pod with scheduling gates gets the condition that it
/// is not scheduled.
pub(super) fn prepare_pod(pod: &mut Value, now: &str) {
    let labels = pod.pointer("/metadata/labels").cloned().unwrap_or_default();
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = pod.pointer_mut(&format!("/spec/affinity/{kind}")) else {
            continue;
        };
        for weighted in list_objects_mut(affinity, "preferredDuringSchedulingIgnoredDuringExecution") {
            if let Some(term) = weighted.get_mut("podAffinityTerm").and_then(Value::as_object_mut) {
                fill_in(term, &labels);
            }
        }
        list_objects_mut(affinity, "requiredDuringSchedulingIgnoredDuringExecution")
            .for_each(|term| fill_in(term, &labels));
    }
    if let Some(spec) = pod.get_mut("spec") {
        list_objects_mut(spec, "topologySpreadConstraints").for_each(|constraint| fill_in(constraint, &labels));
    }
    let gates = pod.pointer("/spec/schedulingGates").and_then(Value::as_array);
    if gates.is_some_and(|gates| !gates.is_empty())
        && let Some(status) = pod.get_mut("status").and_then(Value::as_object_mut)
    {
        let condition = json!({
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "lastProbeTime": null,
            "lastTransitionTime": now, "message": "Scheduling is blocked due to non-empty scheduling gates",
        });
        status.insert("conditions".to_owned(), json!([condition]));
    }
}

fn fill_in(term: &mut Map<String, Value>, labels: &Value) {
    let mut added = Vec::new();
    for (field, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        let keys = term.get(field).and_then(Value::as_array);
        for key in keys.into_iter().flatten().filter_map(Value::as_str) {
            if let Some(value) = labels.get(key) {
                added.push(json!({"key": key, "operator": operator, "values": [value]}));
            }
        }
    }
    if added.is_empty() {
        return;
    }
    if let Some(selector) = term.get_mut("labelSelector").and_then(Value::as_object_mut) {
        let expressions = selector.entry("matchExpressions").or_insert_with(|| json!([]));
        if let Some(expressions) = expressions.as_array_mut() {
            expressions.append(&mut added);
        }
    }
}
