//! Which objects a quota with scopes is about.

use serde_json::Value;
use tenure_kinds::schema::resources::list;

use super::usage::Counted;

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Whether all scopes of a quota hold for an object. Only Pods have scopes; a quota with some is about nothing else.
pub(super) fn matches(quota: &Value, counted: &Counted, object: &Value) -> bool {
    let plain = list(quota, "/spec/scopes")
        .iter()
        .all(|scope| holds(counted, object, scope.as_str().unwrap_or_default(), "Exists", &[]));
    plain
        && list(quota, "/spec/scopeSelector/matchExpressions")
            .iter()
            .all(|selector| {
                let values = list(selector, "/values");
                holds(
                    counted,
                    object,
                    text(selector, "scopeName"),
                    text(selector, "operator"),
                    values,
                )
            })
}

fn holds(counted: &Counted, object: &Value, scope: &str, operator: &str, values: &[Value]) -> bool {
    let among = |name: &str| values.iter().any(|value| value.as_str() == Some(name));
    let is_named = |name: &str| match operator {
        "In" => among(name),
        "NotIn" => !among(name),
        "DoesNotExist" => name.is_empty(),
        _ => !name.is_empty(),
    };
    let usage = counted.behavior.usage;
    usage.is_some_and(|usage| (usage.is_in_scope)(object, scope, &is_named))
}
