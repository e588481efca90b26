//! Validation of partial writes: added debug containers, and changed resources of a running Pod.

use serde_json::{Map, Value};

use super::{NOTHING, validate_pod};
use crate::schema::validation::{get_text, list_items, metadata};
use crate::schema::{FieldError, FieldPath};

const MIRROR: &str = "/metadata/annotations/kubernetes.io~1config.mirror";
/// Kubernetes' text for the path of an error about the whole Pod.
const WHOLE: &str = "[]";

/// Checks a pod that is written through one of these endpoints. `class` is the quality of service of a pod by its resources.
pub(crate) fn part_update(
    value: &Value,
    old: &Value,
    subresource: &str,
    class: impl Fn(&Value) -> &'static str,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    metadata::object_meta_update(value, old, &FieldPath::new("metadata"), &mut errors);
    validate_pod(value, &mut errors);
    let fixed = match subresource {
        "ephemeralcontainers" => "static pods do not support ephemeral containers",
        _ => "static pods cannot be resized",
    };
    if old.pointer(MIRROR).is_some() {
        return vec![FieldError::forbidden(WHOLE, fixed)];
    }
    match subresource {
        "ephemeralcontainers" => validate_ephemeral_containers(value, old, &mut errors),
        _ => {
            if old.pointer("/spec/os/name").and_then(Value::as_str) == Some("windows") {
                return vec![FieldError::forbidden(WHOLE, "windows pods cannot be resized")];
            }
            validate_resize(value, old, class, &mut errors);
        }
    }
    errors
}

fn get_spec(pod: &Value) -> &Value {
    pod.get("spec").unwrap_or(&NOTHING)
}

/// Checks that existing debug containers stay unchanged.
fn validate_ephemeral_containers(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let at = FieldPath::new("spec").child("ephemeralContainers");
    let root = FieldPath::new("spec");
    for (before, _) in list_items(get_spec(old), "ephemeralContainers", &root) {
        let name = get_text(before, "name");
        let mut now = list_items(get_spec(value), "ephemeralContainers", &root).map(|(one, _)| one);
        match now.rfind_named(name) {
            None => {
                let why = format!("existing ephemeral containers {name:?} may not be removed\n");
                errors.push(FieldError::forbidden(&at, why));
            }
            Some(now) if now != before => {
                let why = format!("existing ephemeral containers {name:?} may not be changed\n");
                errors.push(FieldError::forbidden(&at, why));
            }
            Some(_) => {}
        }
    }
}

/// Finds an item of a list by its field `name`.
trait FindByName<'a> {
    /// Returns the last container of that name.
    fn rfind_named(&mut self, name: &str) -> Option<&'a Value>;
}

impl<'a, I: Iterator<Item = &'a Value>> FindByName<'a> for I {
    fn rfind_named(&mut self, name: &str) -> Option<&'a Value> {
        self.filter(|one| get_text(one, "name") == name).last()
    }
}

fn validate_resize(value: &Value, old: &Value, class: impl Fn(&Value) -> &'static str, errors: &mut Vec<FieldError>) {
    let at = FieldPath::new("spec");
    let known = old.pointer("/status/qosClass").and_then(Value::as_str);
    let known = known.filter(|class| !class.is_empty());
    if known.unwrap_or_else(|| class(old)) != class(value) {
        let shown = value
            .pointer("/status/qosClass")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let why = "Pod QOS Class may not change as a result of resizing";
        errors.push(FieldError::invalid(&at, shown, why));
    }
    if !node_resizes(old) {
        errors.push(FieldError::forbidden(
            &at,
            "Pod running on node without support for resize",
        ));
    }
    let mut masked = get_spec(value).clone();
    whole_pod(value, old, &mut masked, &at, errors);
    if !same_containers(value, old, &at, errors) {
        return;
    }
    for list in ["initContainers", "containers"] {
        let before = list_items(get_spec(old), list, &at);
        for ((before, _), (now, at)) in before.zip(list_items(get_spec(value), list, &at)) {
            report_removed_amounts(now, before, "resource", &at.child("resources"), errors);
        }
    }
    mask_containers(&mut masked, get_spec(old), &at, errors);
    if errors.is_empty() && !is_same_without_empty(&masked, get_spec(old)) {
        errors.push(FieldError::forbidden(&at, "only cpu and memory resources are mutable"));
    }
}

/// Returns whether the Pod's node supports the change, as far as its containers show that.
fn node_resizes(pod: &Value) -> bool {
    let statuses = pod.pointer("/status/containerStatuses").and_then(Value::as_array);
    let mut running = statuses.into_iter().flatten();
    let first = running.find(|status| status.pointer("/state/running").is_some());
    first.is_none_or(|status| status.get("resources").is_some())
}

fn get_amounts<'a>(of: &'a Value, side: &str) -> Option<&'a Map<String, Value>> {
    of.get("resources")?.get(side)?.as_object()
}

/// Reports removed amounts.
fn report_removed_amounts(now: &Value, before: &Value, what: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    for side in ["requests", "limits"] {
        let gone = |name: &String| !get_amounts(now, side).is_some_and(|now| now.contains_key(name));
        if get_amounts(before, side).is_some_and(|before| before.keys().any(gone)) {
            errors.push(FieldError::forbidden(
                at.child(side),
                format!("{what} {side} cannot be removed"),
            ));
        }
    }
}

/// Checks the resources of the Pod as a whole.
fn whole_pod(value: &Value, old: &Value, masked: &mut Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let says = |pod: &Value| {
        ["requests", "limits"]
            .iter()
            .any(|side| get_amounts(get_spec(pod), side).is_some_and(|all| !all.is_empty()))
    };
    if !says(value) && !says(old) {
        return;
    }
    if get_spec(old).get("resources").is_some() {
        if get_spec(value).get("resources").is_none() {
            let why = "pod-level resources cannot be removed";
            errors.push(FieldError::forbidden(at.child("resources"), why));
            return;
        }
        report_removed_amounts(
            get_spec(value),
            get_spec(old),
            "pod-level resource",
            &at.child("resources"),
            errors,
        );
    }
    restore_old_amounts(masked, get_spec(old), true);
    let part = |spec: &Value| spec.get("resources").cloned().unwrap_or_default();
    if !is_same_without_empty(&part(masked), &part(get_spec(old))) {
        let why = "only cpu and memory resources are mutable at pod-level";
        errors.push(FieldError::forbidden(at, why));
    }
}

/// Checks that the containers keep their number, names and order. Returns true if they do.
fn same_containers(value: &Value, old: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) -> bool {
    let found = errors.len();
    for list in ["containers", "initContainers"] {
        let before: Vec<&Value> = list_items(get_spec(old), list, at).map(|(one, _)| one).collect();
        let now: Vec<(&Value, FieldPath)> = list_items(get_spec(value), list, at).collect();
        if before.len() != now.len() {
            let why = format!("{list} may not be added or removed on resize");
            errors.push(FieldError::forbidden(at.child(list), why));
            continue;
        }
        for (before, (now, at)) in before.iter().zip(now) {
            if get_text(before, "name") != get_text(now, "name") {
                let why = format!("{list} may not be renamed or reordered on resize");
                errors.push(FieldError::forbidden(at.child("name"), why));
            }
        }
    }
    errors.len() == found
}

/// Replaces changeable amounts with the old ones, so that the rest can be compared.
fn restore_old_amounts(of: &mut Value, old: &Value, keeps_claims: bool) {
    let Some(of) = of.as_object_mut() else { return };
    let mut resources = of
        .get("resources")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    if !keeps_claims {
        resources.remove("claims");
    }
    for side in ["requests", "limits"] {
        let mut masked = resources
            .get(side)
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        for name in ["cpu", "memory"] {
            masked.remove(name);
            if let Some(amount) = get_amounts(old, side).and_then(|old| old.get(name)) {
                masked.insert(name.to_owned(), amount.clone());
            }
        }
        resources.insert(side.to_owned(), Value::Object(masked));
    }
    of.insert("resources".to_owned(), Value::Object(resources));
}

fn mask_containers(masked: &mut Value, old: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    for list in ["containers", "initContainers"] {
        let before = old.get(list).and_then(Value::as_array).into_iter().flatten();
        let now = masked.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for (index, (now, before)) in now.zip(before).enumerate() {
            let modified = !is_same_without_empty(now, before);
            restore_old_amounts(now, before, false);
            let of_init = list == "initContainers";
            if !is_same_without_empty(now, before) {
                errors.push(if of_init {
                    let why = "only cpu and memory resources for init or sidecar containers are mutable";
                    FieldError::forbidden(at.child(list).index(index), why)
                } else {
                    FieldError::forbidden(at, "only cpu and memory resources are mutable")
                });
            }
            let sidecar = get_text(now, "restartPolicy") == "Always";
            if of_init && modified && !sidecar {
                let policies = now.get("resizePolicy").and_then(Value::as_array).into_iter().flatten();
                for _ in policies.filter(|policy| get_text(policy, "restartPolicy") == "RestartContainer") {
                    let why = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
                    errors.push(FieldError::forbidden(at.child(list).index(index), why));
                }
            }
        }
    }
}

/// Checks whether two values are equal apart from empty parts.
fn is_same_without_empty(one: &Value, other: &Value) -> bool {
    fn drop_empty_parts(value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                let kept = map.iter().map(|(key, value)| (key.clone(), drop_empty_parts(value)));
                let kept: Map<String, Value> = kept.filter(|(_, value)| !value.is_null()).collect();
                if kept.is_empty() {
                    Value::Null
                } else {
                    Value::Object(kept)
                }
            }
            Value::Array(items) if items.is_empty() => Value::Null,
            Value::Array(items) => items.iter().map(drop_empty_parts).collect(),
            other => other.clone(),
        }
    }
    drop_empty_parts(one) == drop_empty_parts(other)
}
