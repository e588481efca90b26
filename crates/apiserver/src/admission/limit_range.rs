//! LimitRange: what containers get that say nothing, and what Pods and claims may ask for.

use serde_json::{Map, Value, json};
use tenure_kinds::object::ObjectExt;
use tenure_kinds::schema::once;
use tenure_kinds::schema::quantity::Quantity;
use tenure_kinds::schema::resources::{Resources, list, of_pod};

use super::{Action, Attributes};
use crate::http::ApiError;
use crate::view::View;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

fn applies(attributes: &Attributes<'_>) -> bool {
    let resized = attributes.subresource() == "resize" && attributes.action == Action::Update;
    (attributes.is("", "pods") && attributes.action == Action::Create)
        || (attributes.is_part_of("", "pods") && resized)
        || (attributes.is("", "persistentvolumeclaims")
            && attributes.action != Action::Delete
            && !attributes.old.is_some_and(ObjectExt::is_deleting))
}

fn ranges(view: &View, attributes: &Attributes<'_>) -> Vec<Value> {
    view.list("", "limitranges", Some(attributes.namespace()))
}

/// Fills in what containers don't say.
pub(super) fn mutate(attributes: &Attributes<'_>, view: &View, pod: &mut Value) {
    if !applies(attributes) || !attributes.is_part_of("", "pods") {
        return;
    }
    for range in ranges(view, attributes) {
        let (mut requests, mut limits) = (Map::new(), Map::new());
        for limit in list(&range, "/spec/limits") {
            if text(limit, "type") != "Container" {
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
                let name = text(container, "name").to_owned();
                for (side, defaults, word) in [("requests", &requests, "request"), ("limits", &limits, "limit")] {
                    let set = fill(container, side, defaults);
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
}

/// Sets what is missing on one side of a container's resources, and names it.
fn fill(container: &mut Value, side: &str, defaults: &Map<String, Value>) -> Vec<String> {
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

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Refuses what is outside of the ranges.
pub(super) fn validate(attributes: &Attributes<'_>, view: &View, object: &Value) -> Result<(), ApiError> {
    if !applies(attributes) {
        return Ok(());
    }
    for range in ranges(view, attributes) {
        let mut faults = Vec::new();
        for limit in list(&range, "/spec/limits") {
            let kind = text(limit, "type");
            if attributes.is("", "persistentvolumeclaims") {
                if kind == "PersistentVolumeClaim" {
                    claim(limit, object, &mut faults);
                }
            } else if kind == "Container" {
                for container in list(object, "/spec/containers")
                    .iter()
                    .chain(list(object, "/spec/initContainers"))
                {
                    let side = |side: &str| Resources::read(container.pointer(&format!("/resources/{side}")));
                    check(kind, limit, &side("requests"), &side("limits"), &mut faults);
                }
            } else if kind == "Pod" {
                check(
                    kind,
                    limit,
                    &of_pod(object, "requests"),
                    &of_pod(object, "limits"),
                    &mut faults,
                );
            }
        }
        match once(faults).as_slice() {
            [] => {}
            [only] => return Err(attributes.denied(Some(object), only)),
            many => return Err(attributes.denied(Some(object), &format!("[{}]", many.join(", ")))),
        }
    }
    Ok(())
}

fn claim(limit: &Value, object: &Value, faults: &mut Vec<String>) {
    let requests = Resources::read(object.pointer("/spec/resources/requests"));
    for (name, least) in Resources::read(limit.get("min")).0 {
        minimum("PersistentVolumeClaim", &name, least, requests.get(&name), None, faults);
    }
    for (name, most) in Resources::read(limit.get("max")).0 {
        let bound = format!("maximum {name} usage per PersistentVolumeClaim is {}", most.canonical());
        match requests.get(&name) {
            None => faults.push(format!("{bound}.  No request is specified")),
            Some(request) if request > most => {
                faults.push(format!("{bound}, but request is {}", request.canonical()));
            }
            Some(_) => {}
        }
    }
}

fn check(kind: &str, limit: &Value, requests: &Resources, limits: &Resources, faults: &mut Vec<String>) {
    for (name, least) in Resources::read(limit.get("min")).0 {
        minimum(kind, &name, least, requests.get(&name), limits.get(&name), faults);
    }
    for (name, most) in Resources::read(limit.get("max")).0 {
        let bound = format!("maximum {name} usage per {kind} is {}", most.canonical());
        match (limits.get(&name), requests.get(&name)) {
            (None, _) => faults.push(format!("{bound}.  No limit is specified")),
            (Some(limit), _) if limit > most => {
                faults.push(format!("{bound}, but limit is {}", limit.canonical()));
            }
            (_, Some(request)) if request > most => {
                faults.push(format!("{bound}, but request is {}", request.canonical()));
            }
            _ => {}
        }
    }
    for (name, most) in Resources::read(limit.get("maxLimitRequestRatio")).0 {
        let bound = format!("{name} max limit to request ratio per {kind} is {}", most.canonical());
        let something = |amount: Option<Quantity>| amount.filter(|amount| !amount.is_zero());
        match (something(requests.get(&name)), something(limits.get(&name))) {
            (None, _) => faults.push(format!("{bound}, but no request is specified or request is 0")),
            (_, None) => faults.push(format!("{bound}, but no limit is specified or limit is 0")),
            (Some(request), Some(limit)) => {
                let ratio = limit.ratio_to(&request);
                if ratio > most.ratio_to(&Quantity::whole(1)) {
                    faults.push(format!("{bound}, but provided ratio is {ratio:.6}"));
                }
            }
        }
    }
}

fn minimum(
    kind: &str,
    name: &str,
    least: Quantity,
    request: Option<Quantity>,
    limit: Option<Quantity>,
    faults: &mut Vec<String>,
) {
    let bound = format!("minimum {name} usage per {kind} is {}", least.canonical());
    match (request, limit) {
        (None, _) => faults.push(format!("{bound}.  No request is specified")),
        (Some(request), _) if request < least => {
            faults.push(format!("{bound}, but request is {}", request.canonical()));
        }
        (_, Some(limit)) if limit < least => {
            faults.push(format!("{bound}, but limit is {}", limit.canonical()));
        }
        _ => {}
    }
}
