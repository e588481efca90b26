//! ResourceQuota, LimitRange and PriorityClass.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::metadata::qualified_name;
use super::{immutable, items, one_of, text};
use crate::schema::quantity::Quantity;
use crate::schema::{FieldError, FieldPath};

/// What a quota can count without a prefix that says whose name it is.
const COUNTED: [&str; 19] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
];
/// Of these there is no half.
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
const HIGHEST_PRIORITY: i64 = 1_000_000_000;

fn is_huge(name: &str) -> bool {
    name.strip_prefix("requests.").unwrap_or(name).starts_with("hugepages-")
}

fn is_counted(name: &str) -> bool {
    COUNTED.contains(&name) || is_huge(name)
}

/// Whether a name with a prefix is one that nodes offer, and not Kubernetes itself.
fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}

fn amounts(value: &Value, field: &str) -> BTreeMap<String, Quantity> {
    let list = value.get(field).and_then(Value::as_object);
    list.into_iter()
        .flatten()
        .filter_map(|(name, amount)| Some((name.clone(), Quantity::parse(amount.as_str()?).ok()?)))
        .collect()
}

fn resource_name(name: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let faults = qualified_name(name);
    if faults.is_empty() && !name.contains('/') && !is_counted(name) && name != "storage" {
        errors.push(FieldError::invalid(
            path,
            name,
            "must be a standard resource type or fully qualified",
        ));
    }
    for fault in faults {
        errors.push(FieldError::invalid(path, name, fault));
    }
}

/// Checks a ResourceQuota.
pub(crate) fn quota(value: &Value, errors: &mut Vec<FieldError>) {
    static NOTHING: Value = Value::Null;
    let spec = value.get("spec").unwrap_or(&NOTHING);
    counts(spec, "hard", &FieldPath::new("spec"), errors);
    let hard = amounts(spec, "hard");
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
            if !applies(scope, name) {
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

/// Checks names and amounts of what a quota counts.
fn counts(value: &Value, field: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for (name, amount) in amounts(value, field) {
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

fn applies(scope: &str, name: &str) -> bool {
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
    for (requirement, _) in items(selector, "matchExpressions", &FieldPath::default()) {
        let (scope, operator) = (text(requirement, "scopeName"), text(requirement, "operator"));
        let values = requirement
            .get("values")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        if !SCOPES.contains(&scope) {
            errors.push(FieldError::invalid(path.child("scopeName"), scope, "unsupported scope"));
        }
        for name in hard.keys().filter(|name| is_counted(name)) {
            if !applies(scope, name) {
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

/// A quota's scopes stay what they are.
pub(crate) fn quota_update(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
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
pub(crate) fn quota_status(value: &Value, errors: &mut Vec<FieldError>) {
    if let Some(status) = value.get("status") {
        for field in ["hard", "used"] {
            counts(status, field, &FieldPath::new("status"), errors);
        }
    }
}

/// Checks a LimitRange.
pub(crate) fn limit_range(value: &Value, errors: &mut Vec<FieldError>) {
    static NOTHING: Value = Value::Null;
    let spec = value.get("spec").unwrap_or(&NOTHING);
    let mut seen = BTreeSet::new();
    for (limit, path) in items(spec, "limits", &FieldPath::new("spec")) {
        let kind = text(limit, "type");
        let own = path.child("type");
        let faults = qualified_name(kind);
        if faults.is_empty() && !kind.contains('/') && !["Pod", "Container", "PersistentVolumeClaim"].contains(&kind) {
            errors.push(FieldError::invalid(
                &own,
                kind,
                "must be a standard limit type or fully qualified",
            ));
        }
        for fault in faults {
            errors.push(FieldError::invalid(&own, kind, fault));
        }
        if !seen.insert(kind) {
            errors.push(FieldError::duplicate(&own, kind));
        }
        limit_item(kind, limit, &path, errors);
    }
}

fn limit_item(kind: &str, limit: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut names = BTreeSet::new();
    let mut take = |field: &str, errors: &mut Vec<FieldError>| {
        let amounts = amounts(limit, field);
        for name in amounts.keys() {
            let path = path.child(field).key(name);
            resource_name(name, &path, errors);
            if matches!(kind, "Pod" | "Container") {
                container_resource(name, &path, errors);
            }
            names.insert(name.clone());
        }
        amounts
    };
    let most = take("max", errors);
    let least = take("min", errors);
    let (mut default, mut request) = (BTreeMap::new(), BTreeMap::new());
    if kind == "Pod" {
        for field in ["default", "defaultRequest"] {
            if !amounts(limit, field).is_empty() {
                errors.push(FieldError::forbidden(
                    path.child(field),
                    "may not be specified when `type` is 'Pod'",
                ));
            }
        }
    } else {
        default = take("default", errors);
        request = take("defaultRequest", errors);
    }
    if kind == "PersistentVolumeClaim" && !least.contains_key("storage") && !most.contains_key("storage") {
        errors.push(FieldError::required(
            path.child("limits"),
            "either minimum or maximum storage value is required, but neither was provided",
        ));
    }
    let ratio = take("maxLimitRequestRatio", errors);
    for name in &names {
        let [most, least, default, request, ratio] =
            [&most, &least, &default, &request, &ratio].map(|amounts| amounts.get(name));
        let mut above = |first: Option<&Quantity>,
                         second: Option<&Quantity>,
                         field: &str,
                         shown: Option<&Quantity>,
                         words: [&str; 2]| {
            if let (Some(first), Some(second), Some(shown)) = (first, second, shown)
                && first > second
            {
                let why = format!(
                    "{} value {} is greater than {} value {}",
                    words[0],
                    first.canonical(),
                    words[1],
                    second.canonical()
                );
                errors.push(FieldError::invalid(path.child(field).key(name), shown.canonical(), why));
            }
        };
        above(least, most, "min", least, ["min", "max"]);
        above(least, request, "defaultRequest", request, ["min", "default request"]);
        above(request, most, "defaultRequest", request, ["default request", "max"]);
        above(
            request,
            default,
            "defaultRequest",
            request,
            ["default request", "default limit"],
        );
        above(least, default, "default", least, ["min", "default"]);
        above(default, most, "default", most, ["default", "max"]);
        if let Some(ratio) = ratio {
            let own = path.child("maxLimitRequestRatio").key(name);
            if *ratio < Quantity::whole(1) {
                let why = format!("ratio {} is less than 1", ratio.canonical());
                errors.push(FieldError::invalid(&own, ratio.canonical(), why));
            }
            if let (Some(least), Some(most)) = (least, most) {
                let bound = most.ratio_to(least);
                if ratio.ratio_to(&Quantity::whole(1)) > bound {
                    let why = format!("ratio {} is greater than max/min = {bound:.6}", ratio.canonical());
                    errors.push(FieldError::invalid(&own, ratio.canonical(), why));
                }
            }
        }
        if let (Some(default), Some(request)) = (default, request)
            && (is_huge(name) || is_extended(name))
            && default != request
        {
            let why = format!(
                "default value {} must equal to defaultRequest value {} in {name}",
                default.canonical(),
                request.canonical()
            );
            errors.push(FieldError::invalid(
                path.child("defaultRequest").key(name),
                request.canonical(),
                why,
            ));
        }
    }
}

fn container_resource(name: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let known = ["cpu", "memory", "ephemeral-storage"].contains(&name) || name.starts_with("hugepages-");
    if !name.contains('/') && !known {
        errors.push(FieldError::invalid(
            path,
            name,
            "must be a standard resource for containers",
        ));
    }
}

/// Checks a PriorityClass.
pub(crate) fn priority_class(value: &Value, errors: &mut Vec<FieldError>) {
    const SYSTEM: [(&str, i64); 2] = [
        ("system-node-critical", 2_000_001_000),
        ("system-cluster-critical", 2_000_000_000),
    ];
    let name = value
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let number = value.get("value").and_then(Value::as_i64).unwrap_or_default();
    let is_default = value.get("globalDefault").and_then(Value::as_bool) == Some(true);
    if name.starts_with("system-") {
        let why = match SYSTEM.iter().find(|(system, _)| *system == name) {
            None => format!("{name} is not a known system priority class"),
            Some((_, wanted)) if number != *wanted => format!("value of {name} PriorityClass must be {wanted}"),
            Some(_) if is_default => format!("globalDefault of {name} PriorityClass must be false"),
            Some(_) => return,
        };
        errors.push(FieldError::forbidden(
            "metadata.name",
            format!("priority class names with 'system-' prefix are reserved for system use only. error: {why}"),
        ));
    } else if number > HIGHEST_PRIORITY {
        errors.push(FieldError::forbidden(
            "value",
            format!("maximum allowed value of a user defined priority is {HIGHEST_PRIORITY}"),
        ));
    }
    let policies = ["PreemptLowerPriority", "Never"];
    one_of(
        value,
        "preemptionPolicy",
        &policies,
        false,
        &FieldPath::default(),
        errors,
    );
}

/// A PriorityClass stays worth what it is.
pub(crate) fn priority_class_update(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let number = |value: &Value| value.get("value").and_then(Value::as_i64).unwrap_or_default();
    if number(value) != number(old) {
        errors.push(FieldError::forbidden("value", "may not be changed in an update."));
    }
    immutable(value, old, "preemptionPolicy", &FieldPath::default(), errors);
}
