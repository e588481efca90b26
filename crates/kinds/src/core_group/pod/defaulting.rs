//! The defaults of a Pod beyond those of its structs.

use serde_json::{Map, Value};

use crate::schema::defaults;
use crate::schema::resources::sum_container_resources;

const HUGE_PAGES: &str = "hugepages-";

pub(super) fn fill_in(spec: &mut Map<String, Value>) {
    defaults::set(spec, "enableServiceLinks", true);
    let host_network = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for field in ["containers", "initContainers"] {
        for container in spec.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten() {
            let Value::Object(container) = container else { continue };
            if let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut)
                && let Some(Value::Object(limits)) = resources.get("limits").cloned()
                && let Some(requests) = defaults::object_at(resources, "requests")
            {
                for (key, limit) in limits {
                    requests.entry(key).or_insert(limit);
                }
            }
            if host_network {
                for port in container
                    .get_mut("ports")
                    .and_then(Value::as_array_mut)
                    .into_iter()
                    .flatten()
                {
                    if let Value::Object(port) = port
                        && let Some(number) = port.get("containerPort").cloned()
                    {
                        defaults::set(port, "hostPort", number);
                    }
                }
            }
        }
    }
    whole_pod(spec);
}

/// Completes the requests and limits of a Pod as a whole, if the Pod has some. Limits of huge pages are those of its containers. If
/// the Pod has limits, a missing request is that of its containers; without that, it equals the limit.
fn whole_pod(spec: &mut Map<String, Value>) {
    let containers =
        |spec: &Map<String, Value>, side: &str| sum_container_resources(&Value::Object(spec.clone()), side).to_value();
    let part = |spec: &Map<String, Value>, side: &str| -> Map<String, Value> {
        let part = spec.get("resources").and_then(|resources| resources.get(side));
        part.and_then(Value::as_object).cloned().unwrap_or_default()
    };
    let (mut requests, mut limits) = (part(spec, "requests"), part(spec, "limits"));
    if requests.is_empty() && limits.is_empty() {
        return;
    }
    for (name, amount) in containers(spec, "limits").as_object().into_iter().flatten() {
        if name.starts_with(HUGE_PAGES) && !requests.contains_key(name) {
            limits.entry(name.as_str()).or_insert_with(|| amount.clone());
        }
    }
    if !limits.is_empty() {
        for (name, amount) in containers(spec, "requests").as_object().into_iter().flatten() {
            if matches!(name.as_str(), "cpu" | "memory") {
                requests.entry(name.as_str()).or_insert_with(|| amount.clone());
            }
        }
        for (name, amount) in &limits {
            if matches!(name.as_str(), "cpu" | "memory") || name.starts_with(HUGE_PAGES) {
                requests.entry(name.as_str()).or_insert_with(|| amount.clone());
            }
        }
    }
    if let Some(resources) = defaults::object_at(spec, "resources") {
        for (side, amounts) in [("requests", requests), ("limits", limits)] {
            if !amounts.is_empty() {
                resources.insert(side.to_owned(), Value::Object(amounts));
            }
        }
    }
}
