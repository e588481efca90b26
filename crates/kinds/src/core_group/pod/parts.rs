//! The endpoints that write a part of a Pod: debug containers, resources of running containers, and the status. Everything else stays.

use std::collections::{HashMap, VecDeque};

use serde_json::{Map, Value, json};

use super::validation::app_armor_of_annotation;
use crate::object::ObjectExt;

const CONTAINERS: [&str; 2] = ["containers", "initContainers"];

/// Restores the fields that this endpoint does not write; `None` for other endpoints.
pub(super) fn reset_foreign_fields(subresource: Option<&str>, live: &Value, new: &Value) -> Option<Value> {
    let mut result = live.clone();
    match new.metadata().and_then(|metadata| metadata.get("managedFields")) {
        Some(managed) => result.set_meta("managedFields", managed.clone()),
        None => {
            result.remove_meta("managedFields");
        }
    }
    let none = Map::new();
    let sent = new.get("spec").and_then(Value::as_object).unwrap_or(&none);
    let spec = result.get_mut("spec").and_then(Value::as_object_mut)?;
    let mut put = |field: &str| match sent.get(field) {
        Some(value) => spec.insert(field.to_owned(), value.clone()),
        None => spec.remove(field),
    };
    match subresource {
        Some("ephemeralcontainers") => {
            put("ephemeralContainers");
        }
        Some("resize") => {
            if CONTAINERS
                .iter()
                .any(|list| list_items(live, list).len() != list_items(new, list).len())
            {
                // A request that adds or removes containers stays as sent, so that the validation refuses it.
                return Some(new.clone());
            }
            put("resources");
            for list in CONTAINERS {
                if !list_items(live, list).is_empty() {
                    spec.insert(
                        list.to_owned(),
                        Value::Array(resize_containers(list_items(live, list), list_items(new, list))),
                    );
                }
            }
        }
        _ => return None,
    }
    Some(result)
}

fn list_items<'a>(pod: &'a Value, list: &str) -> &'a [Value] {
    let list = pod
        .get("spec")
        .and_then(|spec| spec.get(list))
        .and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}

/// Returns the containers with the resources that were sent; as sent, if those are others or in another order.
fn resize_containers(live: &[Value], new: &[Value]) -> Vec<Value> {
    let same = live
        .iter()
        .zip(new)
        .all(|(live, new)| live.get("name") == new.get("name"));
    if !same {
        return new.to_vec();
    }
    let resized = live.iter().zip(new).map(|(live, new)| {
        let mut container = live.clone();
        if let Some(map) = container.as_object_mut() {
            for field in ["resources", "resizePolicy"] {
                match new.get(field) {
                    Some(value) => map.insert(field.to_owned(), value.clone()),
                    None => map.remove(field),
                };
            }
        }
        container
    });
    resized.collect()
}

/// Keeps the fields that a status write can't remove: the QoS class, and the observed generations.
pub(super) fn keep_from_status(live: &Value, new: &mut Value) {
    let before = live.get("status").cloned().unwrap_or_default();
    let Some(status) = new
        .as_object_mut()
        .map(|map| map.entry("status").or_insert_with(|| json!({})))
    else {
        return;
    };
    keep_generation(&before, status);
    if let Some(status) = status.as_object_mut()
        && status.get("qosClass").and_then(Value::as_str).is_none_or(str::is_empty)
        && let Some(class) = before.get("qosClass")
    {
        status.insert("qosClass".to_owned(), class.clone());
    }
    let conditions = before.get("conditions").and_then(Value::as_array);
    let mut left: HashMap<Option<Value>, VecDeque<&Value>> = HashMap::new();
    for condition in conditions.into_iter().flatten() {
        left.entry(condition.get("type").cloned())
            .or_default()
            .push_back(condition);
    }
    let sent = status.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in sent.into_iter().flatten() {
        // If several conditions have one type, each gets the generation of the next old one with this type.
        let same = left
            .get_mut(&condition.get("type").cloned())
            .and_then(VecDeque::pop_front);
        if let Some(before) = same {
            keep_generation(before, condition);
        }
    }
}

fn keep_generation(before: &Value, now: &mut Value) {
    const FIELD: &str = "observedGeneration";
    if let Some(now) = now.as_object_mut()
        && now.get(FIELD).and_then(Value::as_i64).unwrap_or_default() == 0
        && let Some(kept) = before.get(FIELD)
    {
        now.insert(FIELD.to_owned(), kept.clone());
    }
}

/// Makes the two fields for a Pod's addresses agree. The older field takes precedence.
pub(super) fn agree_on_addresses(pod: &mut Value) {
    let Some(status) = pod.get_mut("status").and_then(Value::as_object_mut) else {
        return;
    };
    let one = status
        .get("podIP")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let first = status
        .get("podIPs")
        .and_then(|all| all.get(0))
        .and_then(|first| first.get("ip"))
        .cloned();
    match first {
        Some(first) if one.is_empty() => {
            status.insert("podIP".to_owned(), first);
        }
        first if !one.is_empty() && first.as_ref().and_then(Value::as_str) != Some(&one) => {
            status.insert("podIPs".to_owned(), json!([{"ip": one}]));
        }
        _ => {}
    }
}

/// Converts AppArmor profiles in annotations, the old form, into fields. Returns the warnings about them.
pub(super) fn app_armor(pod: &mut Value) -> Vec<String> {
    let mut warnings = Vec::new();
    if pod.pointer("/spec/os/name").and_then(Value::as_str) == Some("windows") {
        return warnings;
    }
    let annotations = pod.metadata().and_then(|metadata| metadata.get("annotations")).cloned();
    let Some(annotations) = annotations.as_ref().and_then(Value::as_object) else {
        return warnings;
    };
    let of_pod = pod.pointer("/spec/securityContext/appArmorProfile").cloned();
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let containers = pod
            .get_mut("spec")
            .and_then(|spec| spec.get_mut(list))
            .and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            let name = container.get("name").and_then(Value::as_str).unwrap_or_default();
            let key = format!("container.apparmor.security.beta.kubernetes.io/{name}");
            let Some(annotation) = annotations.get(&key).and_then(Value::as_str) else {
                continue;
            };
            let context = container.get("securityContext");
            if context.and_then(|context| context.get("appArmorProfile")).is_some() {
                continue;
            }
            let profile = app_armor_of_annotation(annotation);
            let readable = profile.is_some();
            // A container has the profile of its Pod even if its own field is empty.
            let own = profile.filter(|profile| Some(profile) != of_pod.as_ref());
            if !readable || own.is_some() {
                warnings.push(format!(
                    "metadata.annotations[{key}]: deprecated since v1.30; use the \"appArmorProfile\" field instead"
                ));
            }
            if let Some(own) = own {
                let context = container.entry("securityContext").or_insert_with(|| json!({}));
                if let Some(context) = context.as_object_mut() {
                    context.insert("appArmorProfile".to_owned(), own);
                }
            }
        }
    }
    warnings
}
