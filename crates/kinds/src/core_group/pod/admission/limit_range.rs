//! The defaults and limits that Pods get from the LimitRanges of their namespace.

use serde_json::{Map, Value, json};

use crate::core_group::limit_range::ranges;
use crate::kind::Admitted;
use crate::object::ObjectExt as _;
use crate::schema::resources::{Resources, list, sum_pod_resources};
use crate::schema::validation::get_text;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Checks whether the request creates a Pod, or changes the resources of its containers.
fn sets_resources(admitted: &Admitted<'_>) -> bool {
    admitted.is_creation() || (admitted.request.subresource == Some("resize") && admitted.old.is_some())
}

/// Adds defaults to containers.
pub(super) fn mutate(admitted: &Admitted<'_>, pod: &mut Value) -> Result<(), String> {
    if !sets_resources(admitted) {
        return Ok(());
    }
    for range in ranges::list_ranges(admitted) {
        let (mut requests, mut limits) = (Map::new(), Map::new());
        for limit in list(&range, "/spec/limits") {
            if get_text(limit, "type") != "Container" {
                continue;
            }
            let take = |key: &str, into: &mut Map<String, Value>| {
                if let Some(defaults) = limit.get(key).and_then(Value::as_object) {
                    into.extend(defaults.clone());
                }
            };
            take("defaultRequest", &mut requests);
            take("default", &mut limits);
        }
        let mut notes = Vec::new();
        for (key, what) in [("containers", "container"), ("initContainers", "init container")] {
            let containers = pod
                .pointer_mut(&format!("/spec/{key}"))
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten();
            for container in containers {
                let name = get_text(container, "name").to_owned();
                for (side, defaults, word) in [("requests", &requests, "request"), ("limits", &limits, "limit")] {
                    let set = add_default_amounts(container, side, defaults);
                    if !set.is_empty() {
                        notes.push(format!("{} {word} for {what} {name}", set.join(", ")));
                    }
                }
            }
        }
        if !notes.is_empty()
            && let Some(metadata) = pod.metadata_mut()
        {
            let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
            if let Some(annotations) = annotations.as_object_mut() {
                let note = format!("LimitRanger plugin set: {}", notes.join("; "));
                annotations.insert(ANNOTATION.to_owned(), Value::from(note));
            }
        }
    }
    Ok(())
}

/// Adds missing amounts to one side of a container's resources, and returns their names.
fn add_default_amounts(container: &mut Value, side: &str, defaults: &Map<String, Value>) -> Vec<String> {
    let Some(container) = container.as_object_mut().filter(|_| !defaults.is_empty()) else {
        return Vec::new();
    };
    let resources = container.entry("resources").or_insert_with(|| json!({}));
    let Some(resources) = resources.as_object_mut() else {
        return Vec::new();
    };
    let own = resources.entry(side).or_insert_with(|| json!({}));
    let Some(own) = own.as_object_mut() else {
        return Vec::new();
    };
    let mut set = Vec::new();
    for (name, amount) in defaults {
        if !own.contains_key(name) {
            own.insert(name.clone(), amount.clone());
            set.push(name.clone());
        }
    }
    set.sort();
    set
}

/// Refuses a Pod outside of the ranges.
pub(super) fn validate(admitted: &Admitted<'_>, pod: &Value) -> Result<(), String> {
    if !sets_resources(admitted) {
        return Ok(());
    }
    ranges::check_ranges(admitted, |kind, limit, faults| match kind {
        "Container" => {
            for container in list(pod, "/spec/containers")
                .iter()
                .chain(list(pod, "/spec/initContainers"))
            {
                let side = |side: &str| Resources::read(container.pointer(&format!("/resources/{side}")));
                ranges::check_limit(kind, limit, &side("requests"), &side("limits"), faults);
            }
        }
        "Pod" => ranges::check_limit(
            kind,
            limit,
            &sum_pod_resources(pod, "requests"),
            &sum_pod_resources(pod, "limits"),
            faults,
        ),
        _ => {}
    })
}
