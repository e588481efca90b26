//! Validation of autoscalers: bounds, target, metrics and speed.

use serde_json::Value;

use crate::schema::quantity::Quantity;
use crate::schema::validation::names::path_segment;
use crate::schema::validation::{get_text, is_empty_field, list_items, one_of, validate_name};
use crate::schema::{FieldError, FieldPath};

static NOTHING: Value = Value::Null;
const LONGEST_WINDOW: i64 = 3600;
const LONGEST_PERIOD: i64 = 1800;

/// Checks an autoscaler.
pub(super) fn validate_autoscaler(value: &Value, errors: &mut Vec<FieldError>) {
    let spec = value.get("spec").unwrap_or(&NOTHING);
    let path = FieldPath::new("spec");
    let least = spec.get("minReplicas").and_then(Value::as_i64);
    let most = spec.get("maxReplicas").and_then(Value::as_i64).unwrap_or(0);
    let mut refuse = |field: &str, number: i64, why: &str| {
        errors.push(FieldError::invalid(path.child(field), number, why.to_owned()));
    };
    if let Some(least) = least.filter(|least| *least < 1) {
        refuse("minReplicas", least, "must be greater than or equal to 1");
    }
    if most < 0 {
        refuse("maxReplicas", most, "must be greater than or equal to 1");
    } else if most == 0 {
        let why = "must be set and greater than 0";
        errors.push(FieldError::required(path.child("maxReplicas"), why));
    }
    if least.is_some_and(|least| most < least) {
        let why = "must be greater than or equal to `minReplicas`";
        errors.push(FieldError::invalid(path.child("maxReplicas"), most, why));
    }
    validate_scale_target(
        spec.get("scaleTargetRef").unwrap_or(&NOTHING),
        &path.child("scaleTargetRef"),
        errors,
    );
    for (metric, at) in list_items(spec, "metrics", &path) {
        self::validate_metric(metric, &at, errors);
    }
    let outside =
        list_items(spec, "metrics", &path).any(|(metric, _)| matches!(get_text(metric, "type"), "Object" | "External"));
    if least == Some(0) && !outside {
        let why = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.push(FieldError::forbidden(path.child("metrics"), why));
    }
    let behavior = spec.get("behavior").unwrap_or(&NOTHING);
    for direction in ["scaleUp", "scaleDown"] {
        if let Some(rules) = behavior.get(direction) {
            scaling_rules(rules, &path.child("behavior").child(direction), errors);
        }
    }
}

/// Checks a reference by kind and name.
fn validate_reference(value: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    for field in ["kind", "name"] {
        if get_text(value, field).is_empty() {
            errors.push(FieldError::required(at.child(field), ""));
        } else {
            validate_name(
                |name| path_segment(name, false),
                get_text(value, field),
                &at.child(field),
                errors,
            );
        }
    }
}

fn validate_scale_target(target: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    validate_reference(target, at, errors);
    let version = get_text(target, "apiVersion");
    let grouped = version.split_once('/').is_some_and(|(group, _)| !group.is_empty());
    let core_kind = version == "v1" && get_text(target, "kind") == "ReplicationController";
    let at = at.child("apiVersion");
    if version.matches('/').count() > 1 {
        let why = format!("unexpected GroupVersion string: {version}");
        errors.push(FieldError::invalid(at, version, why));
    } else if !grouped && !core_kind {
        errors.push(FieldError::invalid(at, version, "apiVersion must specify API group"));
    }
}

/// The sources of metrics: the type and the field of each, in the order of the checks.
const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];

fn validate_metric(metric: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let kind = get_text(metric, "type");
    if kind.is_empty() {
        let why = "must specify a metric source type";
        errors.push(FieldError::required(at.child("type"), why));
    }
    let expected = SOURCES.iter().find(|(name, _)| *name == kind).map(|(_, field)| *field);
    if expected.is_none() {
        let mut known = SOURCES.map(|(name, _)| name);
        known.sort_unstable();
        errors.push(FieldError::not_supported(at.child("type"), kind, &known));
    }
    let present: Vec<&str> = SOURCES
        .iter()
        .map(|(_, field)| *field)
        .filter(|field| metric.get(*field).is_some())
        .collect();
    if let Some(first) = present.first() {
        validate_metric_source(first, metric.get(*first).unwrap_or(&NOTHING), &at.child(first), errors);
    }
    if let Some(expected) = expected.filter(|expected| !present.contains(expected)) {
        let why = "must populate information for the given metric source";
        errors.push(FieldError::required(at.child(expected), why));
    }
    if present.len() > 1 {
        let mut others: Vec<&str> = present.into_iter().filter(|field| Some(*field) != expected).collect();
        others.sort_unstable();
        for field in others {
            let why = "must populate the given metric source only";
            errors.push(FieldError::forbidden(at.child(field), why));
        }
    }
}

fn validate_metric_source(field: &str, source: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    match field {
        "object" => validate_reference(
            source.get("describedObject").unwrap_or(&NOTHING),
            &at.child("describedObject"),
            errors,
        ),
        "resource" | "containerResource" if get_text(source, "name").is_empty() => {
            errors.push(FieldError::required(at.child("name"), "must specify a resource name"));
        }
        _ => {}
    }
    if field == "containerResource" && get_text(source, "container").is_empty() {
        errors.push(FieldError::required(at.child("container"), "must specify a container"));
    }
    if matches!(field, "object" | "external" | "pods") {
        let name = source
            .pointer("/metric/name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let at = at.child("metric").child("name");
        if name.is_empty() {
            errors.push(FieldError::required(at, "must specify a metric name"));
        } else {
            validate_name(|name| path_segment(name, false), name, &at, errors);
        }
    }
    let target = source.get("target").unwrap_or(&NOTHING);
    let at = at.child("target");
    self::validate_metric_target(target, &at, errors);
    let has = |field: &str| target.get(field).is_some();
    let required = |field: &str, why: &str| Some(FieldError::required(at.child(field), why.to_owned()));
    let forbidden = |field: &str, why: &str| Some(FieldError::forbidden(at.child(field), why.to_owned()));
    errors.extend(match field {
        "object" if !has("value") && !has("averageValue") => {
            required("averageValue", "must set either a target value or averageValue")
        }
        "external" if !has("value") && !has("averageValue") => required(
            "averageValue",
            "must set either a target value for metric or a per-pod target",
        ),
        "external" if has("value") && has("averageValue") => forbidden(
            "value",
            "may not set both a target value for metric and a per-pod target",
        ),
        "pods" if !is_positive(target.get("averageValue")) => {
            required("averageValue", "must specify a positive target averageValue")
        }
        "resource" | "containerResource" => match (has("averageUtilization"), has("averageValue")) {
            (false, false) => required(
                "averageUtilization",
                "must set either a target raw value or a target utilization",
            ),
            (true, true) => forbidden(
                "averageValue",
                "may not set both a target raw value and a target utilization",
            ),
            _ => None,
        },
        _ => None,
    });
}

fn is_positive(quantity: Option<&Value>) -> bool {
    let parsed = quantity.and_then(Value::as_str).map(Quantity::parse);
    matches!(parsed, Some(Ok(amount)) if !amount.is_negative() && amount.canonical() != "0")
}

fn validate_metric_target(target: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let kind = get_text(target, "type");
    if kind.is_empty() {
        errors.push(FieldError::required(
            at.child("type"),
            "must specify a metric target type",
        ));
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        let why = "must be either Utilization, Value, or AverageValue";
        errors.push(FieldError::invalid(at.child("type"), kind, why));
    }
    for field in ["value", "averageValue"] {
        if target.get(field).is_some() && !is_positive(target.get(field)) {
            errors.push(FieldError::invalid(
                at.child(field),
                get_text(target, field),
                "must be positive",
            ));
        }
    }
    let share = target.get("averageUtilization").and_then(Value::as_i64);
    if let Some(share) = share.filter(|share| *share < 1) {
        errors.push(FieldError::invalid(
            at.child("averageUtilization"),
            share,
            "must be greater than 0",
        ));
    }
}

/// Checks that a number is positive and not too large.
fn validate_bounds(value: &Value, field: &str, most: Option<i64>, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let number = value.get(field).and_then(Value::as_i64).unwrap_or_default();
    if number <= 0 {
        errors.push(FieldError::invalid(
            at.child(field),
            number,
            "must be greater than zero",
        ));
    }
    if let Some(most) = most.filter(|most| number > *most) {
        let why = format!("must be less than or equal to {most}");
        errors.push(FieldError::invalid(at.child(field), number, why));
    }
}

fn scaling_rules(rules: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(window) = rules.get("stabilizationWindowSeconds").and_then(Value::as_i64) {
        let at = at.child("stabilizationWindowSeconds");
        if window < 0 {
            errors.push(FieldError::invalid(at, window, "must be greater than or equal to zero"));
        } else if window > LONGEST_WINDOW {
            let why = format!("must be less than or equal to {LONGEST_WINDOW}");
            errors.push(FieldError::invalid(at, window, why));
        }
    }
    one_of(rules, "selectPolicy", &["Disabled", "Max", "Min"], false, at, errors);
    // Version 2 has defaults. The annotation of version 1 has none.
    if is_empty_field(rules, "policies") {
        let why = "must specify at least one Policy";
        errors.push(FieldError::required(at.child("policies"), why));
    }
    for (policy, at) in list_items(rules, "policies", at) {
        let kind = get_text(policy, "type");
        if !matches!(kind, "Percent" | "Pods") {
            errors.push(FieldError::not_supported(at.child("type"), kind, &["Percent", "Pods"]));
        }
        validate_bounds(policy, "value", None, &at, errors);
        validate_bounds(policy, "periodSeconds", Some(LONGEST_PERIOD), &at, errors);
    }
    let tolerance = get_text(rules, "tolerance");
    if Quantity::parse(tolerance).is_ok_and(|amount| amount.is_negative()) {
        let why = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(at.child("tolerance"), tolerance, why));
    }
}
