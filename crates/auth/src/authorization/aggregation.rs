//! ClusterRole aggregation: the rules that an aggregated role gathers. This module is pure. A malformed selector
//! matches nothing, so that a typo grants nothing.

use serde_json::{Map, Value};

/// Returns the rules that `role` should have by its aggregation rule, if they differ from its current rules.
///
/// `all` are the cluster's ClusterRoles. Rules are gathered selector by selector, within one by the roles' names,
/// each rule once. `None` for a role without an aggregation rule, or with the right rules.
#[must_use]
pub fn aggregate_rules<'a>(role: &Value, all: impl IntoIterator<Item = &'a Value>) -> Option<Vec<Value>> {
    let selectors = role.pointer("/aggregationRule/clusterRoleSelectors")?.as_array()?;
    let own = name_of(role);
    let mut others: Vec<&Value> = all.into_iter().filter(|other| name_of(other) != own).collect();
    others.sort_by(|one, other| name_of(one).cmp(name_of(other)));
    let mut rules: Vec<Value> = Vec::new();
    for selector in selectors {
        for other in &others {
            let labels = other.pointer("/metadata/labels").and_then(Value::as_object);
            if !selects_labels(selector, labels) {
                continue;
            }
            for rule in rules_of(other) {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    (rules != rules_of(role)).then_some(rules)
}

fn rules_of(role: &Value) -> &[Value] {
    role.get("rules")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

fn name_of(object: &Value) -> &str {
    object
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Checks whether a `metav1.LabelSelector` selects an object with these labels. An empty selector selects everything.
#[must_use]
pub fn selects_labels(selector: &Value, labels: Option<&Map<String, Value>>) -> bool {
    let label = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
    let exact = selector
        .get("matchLabels")
        .and_then(Value::as_object)
        .is_none_or(|wanted| wanted.iter().all(|(key, value)| label(key) == value.as_str()));
    let expressions = selector
        .get("matchExpressions")
        .and_then(Value::as_array)
        .is_none_or(|wanted| {
            wanted.iter().all(|expression| {
                let Some(key) = expression.get("key").and_then(Value::as_str) else {
                    return false;
                };
                let listed = |value: &str| {
                    expression
                        .get("values")
                        .and_then(Value::as_array)
                        .is_some_and(|values| values.iter().any(|item| item.as_str() == Some(value)))
                };
                match expression.get("operator").and_then(Value::as_str) {
                    Some("In") => label(key).is_some_and(listed),
                    Some("NotIn") => !label(key).is_some_and(listed),
                    Some("Exists") => label(key).is_some(),
                    Some("DoesNotExist") => label(key).is_none(),
                    _ => false,
                }
            })
        });
    exact && expressions
}
