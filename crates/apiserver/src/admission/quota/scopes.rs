//! Which objects a quota with scopes is about.

use serde_json::Value;
use tenure_kinds::core::quality_of_service;
use tenure_kinds::schema::resources::list;

use super::usage::Kind;

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Whether all scopes of a quota hold for an object. Only Pods have scopes; a quota with some is about nothing else.
pub(super) fn matches(quota: &Value, kind: &Kind, object: &Value) -> bool {
    let plain = list(quota, "/spec/scopes")
        .iter()
        .all(|scope| holds(kind, object, scope.as_str().unwrap_or_default(), "Exists", &[]));
    plain
        && list(quota, "/spec/scopeSelector/matchExpressions")
            .iter()
            .all(|selector| {
                let values = list(selector, "/values");
                holds(
                    kind,
                    object,
                    text(selector, "scopeName"),
                    text(selector, "operator"),
                    values,
                )
            })
}

fn holds(kind: &Kind, object: &Value, scope: &str, operator: &str, values: &[Value]) -> bool {
    let among = |name: &str| values.iter().any(|value| value.as_str() == Some(name));
    let named = |name: &str| match operator {
        "In" => among(name),
        "NotIn" => !among(name),
        "DoesNotExist" => name.is_empty(),
        _ => !name.is_empty(),
    };
    match (kind, scope) {
        (Kind::Pods, "Terminating") => is_terminating(object),
        (Kind::Pods, "NotTerminating") => !is_terminating(object),
        (Kind::Pods, "BestEffort") => is_best_effort(object),
        (Kind::Pods, "NotBestEffort") => !is_best_effort(object),
        (Kind::Pods, "PriorityClass") => {
            let class = object.pointer("/spec/priorityClassName").and_then(Value::as_str);
            named(class.unwrap_or_default())
        }
        (Kind::Pods, "CrossNamespacePodAffinity") => crosses_namespaces(object),
        (Kind::Claims, "VolumeAttributesClass") => {
            let class = object
                .pointer("/spec/volumeAttributesClassName")
                .and_then(Value::as_str);
            named(class.unwrap_or_default())
        }
        _ => false,
    }
}

/// Whether a Pod is to end by itself.
pub(super) fn is_terminating(pod: &Value) -> bool {
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
