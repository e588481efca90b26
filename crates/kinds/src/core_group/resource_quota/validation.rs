//! Validation of quotas and of their status.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::core_group::amounts::{is_counted, is_extended, parse_amounts, resource_name};
use crate::schema::quantity::Quantity;
use crate::schema::validation::{get_text, list_items};
use crate::schema::{FieldError, FieldPath};

/// The resources that only have whole amounts.
const WHOLE: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];
const OF_PODS: [&str; 7] = [
    "pods",
    "cpu",
    "memory",
    "limits.cpu",
    "limits.memory",
    "requests.cpu",
    "requests.memory",
];
const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];
const CONFLICTING: [[&str; 2]; 2] = [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];

/// Checks a ResourceQuota.
pub(super) fn validate_quota(value: &Value, errors: &mut Vec<FieldError>) {
    static NOTHING: Value = Value::Null;
    let spec = value.get("spec").unwrap_or(&NOTHING);
    validate_counts(spec, "hard", &FieldPath::new("spec"), errors);
    let hard = parse_amounts(spec, "hard");
    let scopes: Vec<&str> = spec
        .get("scopes")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let path = FieldPath::new("spec").child("scopes");
    let mut fault = |why: &str| errors.push(FieldError::invalid(&path, scopes.clone(), why));
    for scope in &scopes {
        if !SCOPES.contains(scope) {
            fault("unsupported scope");
        }
        for name in hard.keys().filter(|name| is_counted(name)) {
            if !scope_applies(scope, name) {
                fault("unsupported scope applied to resource");
            }
        }
    }
    if CONFLICTING
        .iter()
        .any(|pair| pair.iter().all(|scope| scopes.contains(scope)))
    {
        fault("conflicting scopes");
    }
    if let Some(selector) = spec.get("scopeSelector").filter(|selector| selector.is_object()) {
        scope_selector(selector, &hard, &scopes, errors);
    }
}

/// Checks the names and amounts that a quota counts.
fn validate_counts(value: &Value, field: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for (name, amount) in parse_amounts(value, field) {
        let path = path.child(field).key(&name);
        resource_name(&name, &path, errors);
        if !name.contains('/') && !is_counted(&name) {
            errors.push(FieldError::invalid(
                &path,
                name.as_str(),
                "must be a standard resource for quota",
            ));
        }
        if amount.is_negative() {
            errors.push(FieldError::invalid(
                &path,
                amount.canonical(),
                "must be greater than or equal to 0",
            ));
        }
        if (WHOLE.contains(&name.as_str()) || is_extended(&name)) && !amount.is_whole() {
            errors.push(FieldError::invalid(&path, amount.canonical(), "must be an integer"));
        }
    }
}

fn scope_applies(scope: &str, name: &str) -> bool {
    match scope {
        "BestEffort" => name == "pods",
        "VolumeAttributesClass" => matches!(name, "persistentvolumeclaims" | "requests.storage"),
        _ if SCOPES.contains(&scope) => OF_PODS.contains(&name),
        _ => true,
    }
}

fn scope_selector(selector: &Value, hard: &BTreeMap<String, Quantity>, scopes: &[&str], errors: &mut Vec<FieldError>) {
    let path = FieldPath::new("spec").child("scopeSelector").child("matchExpressions");
    let mut named = BTreeSet::new();
    for (requirement, _) in list_items(selector, "matchExpressions", &FieldPath::default()) {
        let (scope, operator) = (get_text(requirement, "scopeName"), get_text(requirement, "operator"));
        let values = requirement
            .get("values")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        if !SCOPES.contains(&scope) {
            errors.push(FieldError::invalid(path.child("scopeName"), scope, "unsupported scope"));
        }
        for name in hard.keys().filter(|name| is_counted(name)) {
            if !scope_applies(scope, name) {
                errors.push(FieldError::invalid(
                    &path,
                    selector.clone(),
                    "unsupported scope applied to resource",
                ));
            }
        }
        if !matches!(scope, "PriorityClass" | "VolumeAttributesClass")
            && SCOPES.contains(&scope)
            && operator != "Exists"
        {
            errors.push(FieldError::invalid(path.child("operator"), operator, "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"));
        }
        match operator {
            "In" | "NotIn" => {
                if values.is_empty() {
                    errors.push(FieldError::required(
                        path.child("values"),
                        "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
                    ));
                }
            }
            "Exists" | "DoesNotExist" => {
                if !values.is_empty() {
                    errors.push(FieldError::invalid(
                        path.child("values"),
                        values,
                        "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
                    ));
                }
            }
            _ => errors.push(FieldError::invalid(
                path.child("operator"),
                operator,
                "not a valid selector operator",
            )),
        }
        named.insert(scope);
    }
    if CONFLICTING
        .iter()
        .any(|pair| pair.iter().all(|scope| named.contains(scope)))
    {
        errors.push(FieldError::invalid(&path, scopes.to_vec(), "conflicting scopes"));
    }
}

/// Checks that a quota's scopes stay unchanged.
pub(super) fn quota_update(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let scopes = |value: &Value| -> BTreeSet<String> {
        let list = value.pointer("/spec/scopes").and_then(Value::as_array);
        let list = list.into_iter().flatten();
        list.filter_map(|scope| scope.as_str().map(str::to_owned)).collect()
    };
    if scopes(value) != scopes(old) {
        let shown = value.pointer("/spec/scopes").cloned().unwrap_or(Value::Null);
        errors.push(FieldError::invalid("spec.scopes", shown, "field is immutable"));
    }
}

/// Checks the counts in a quota's status.
pub(super) fn quota_status(value: &Value, errors: &mut Vec<FieldError>) {
    if let Some(status) = value.get("status") {
        for field in ["hard", "used"] {
            validate_counts(status, field, &FieldPath::new("status"), errors);
        }
    }
}
