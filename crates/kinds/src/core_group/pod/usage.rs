//! The amounts of a Pod that quotas count, and the scopes of the Pod.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::quality_of_service;
use crate::kind::{IsNamed, Usage};
use crate::schema::quantity::Quantity;
use crate::schema::resources::{Resources, list, sum_pod_resources};

/// The rules of quotas for Pods.
pub(super) const USAGE: Usage = Usage {
    is_charged: |subresource| matches!(subresource, None | Some("resize")),
    // A change to or from a terminating Pod puts it under other quotas, so it is charged again. Other changes are not charged.
    is_charged_anew: |subresource, old, new| subresource.is_some() || is_terminating(old) != is_terminating(new),
    counts: is_counted,
    add: add_usage,
    check,
    is_in_scope,
};

/// The resources that Pods use, beside their number.
const COMPUTE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
/// The resources that each container must set if a quota counts them.
const REQUIRED: [&str; 6] = [
    "cpu",
    "limits.cpu",
    "limits.memory",
    "memory",
    "requests.cpu",
    "requests.memory",
];

fn is_counted(name: &str) -> bool {
    let bare = name.strip_prefix("requests.").unwrap_or(name);
    let compute = COMPUTE.contains(&bare) || name.strip_prefix("limits.").is_some_and(|name| COMPUTE.contains(&name));
    compute || bare.starts_with("hugepages-") || is_extended(name)
}

/// Returns whether a quota's resource is one that nodes offer beside the usual ones, `requests.nvidia.com/gpu`.
fn is_extended(name: &str) -> bool {
    name.strip_prefix("requests.")
        .is_some_and(|name| name.contains('/') && !name.contains("kubernetes.io/"))
}

fn add_usage(pod: &Value, used: &mut Resources) {
    if !has_ended(pod) {
        used.set("pods", Quantity::whole(1));
        used.add(&name_for_quotas(
            &sum_pod_resources(pod, "requests"),
            &sum_pod_resources(pod, "limits"),
        ));
    }
}

/// Returns whether a Pod has finished and uses no resources.
fn has_ended(pod: &Value) -> bool {
    let phase = pod.pointer("/status/phase").and_then(Value::as_str);
    let grace = pod
        .pointer("/metadata/deletionGracePeriodSeconds")
        .and_then(Value::as_i64);
    matches!(phase, Some("Failed" | "Succeeded")) || grace == Some(0)
}

/// Returns requests and limits under the names that quotas have for them.
fn name_for_quotas(requests: &Resources, limits: &Resources) -> Resources {
    let mut used = Resources::default();
    for (name, amount) in &requests.0 {
        if COMPUTE.contains(&name.as_str()) || name.starts_with("hugepages-") {
            used.set(name.as_str(), *amount);
            used.set(format!("requests.{name}"), *amount);
        } else if name.contains('/') {
            used.set(format!("requests.{name}"), *amount);
        }
    }
    for (name, amount) in &limits.0 {
        if COMPUTE.contains(&name.as_str()) {
            used.set(format!("limits.{name}"), *amount);
        }
    }
    used
}

/// Returns an error for counted resources that containers omit, as `cpu for: a,b; memory for: a`.
fn check(restricted: &Resources, pod: &Value) -> Result<(), String> {
    let whole = pod.pointer("/spec/resources").and_then(Value::as_object);
    if whole.is_some_and(|whole| !whole.is_empty()) {
        return Ok(());
    }
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let containers = list(pod, "/spec/containers").iter();
    for container in containers.chain(list(pod, "/spec/initContainers")) {
        let side = |side: &str| Resources::read(container.pointer(&format!("/resources/{side}")));
        let computed = name_for_quotas(&side("requests"), &side("limits"));
        for name in REQUIRED {
            if restricted.get(name).is_some() && computed.get(name).is_none() {
                let container = container.get("name").and_then(Value::as_str).unwrap_or_default();
                missing.entry(name).or_default().insert(container);
            }
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let parts: Vec<String> = missing
        .into_iter()
        .map(|(name, containers)| {
            let containers: Vec<&str> = containers.into_iter().collect();
            format!("{name} for: {}", containers.join(","))
        })
        .collect();
    Err(parts.join("; "))
}

fn is_in_scope(pod: &Value, scope: &str, is_named: IsNamed<'_>) -> bool {
    match scope {
        "Terminating" => is_terminating(pod),
        "NotTerminating" => !is_terminating(pod),
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "PriorityClass" => {
            let class = pod.pointer("/spec/priorityClassName").and_then(Value::as_str);
            is_named(class.unwrap_or_default())
        }
        "CrossNamespacePodAffinity" => crosses_namespaces(pod),
        _ => false,
    }
}

/// Returns whether a Pod is to end by itself.
fn is_terminating(pod: &Value) -> bool {
    let deadline = pod.pointer("/spec/activeDeadlineSeconds").and_then(Value::as_i64);
    deadline.is_some_and(|seconds| seconds >= 0)
}

fn is_best_effort(pod: &Value) -> bool {
    quality_of_service(pod) == "BestEffort"
}

fn crosses_namespaces(pod: &Value) -> bool {
    let crosses = |term: &Value| {
        !list(term, "/namespaces").is_empty()
            || term
                .get("namespaceSelector")
                .is_some_and(|selector| !selector.is_null())
    };
    ["podAffinity", "podAntiAffinity"].iter().any(|side| {
        let at = |rule: &str| list(pod, &format!("/spec/affinity/{side}/{rule}"));
        at("requiredDuringSchedulingIgnoredDuringExecution").iter().any(crosses)
            || at("preferredDuringSchedulingIgnoredDuringExecution")
                .iter()
                .filter_map(|weighted| weighted.get("podAffinityTerm"))
                .any(crosses)
    })
}
