//! Deployments and their like, and disruption budgets.

use serde_json::Value;

use super::metadata::label_selector;
use super::pods::{self, ExtraVolumes};
use super::{empty, immutable, internal, items, names, non_negative, one_of, storage, text};
use crate::schema::{FieldError, FieldErrorKind, FieldPath};

static NOTHING: Value = Value::Null;

/// Checks a kind of `apps`.
pub(super) fn object(kind: &str, value: &Value, errors: &mut Vec<FieldError>) {
    let spec = value.get("spec").unwrap_or(&NOTHING);
    let path = FieldPath::new("spec");
    match kind {
        "Deployment" => deployment(spec, &path, errors),
        "ReplicaSet" => {
            numbers(spec, &["replicas", "minReadySeconds"], &path, errors);
            selected_template(spec, "deployment", "ReplicaSet", &ExtraVolumes::new(), &path, errors);
        }
        "StatefulSet" => stateful_set(spec, &path, errors),
        "DaemonSet" => daemon_set(spec, &path, errors),
        _ => {}
    }
}

/// A strategy as the real server shows it.
fn shown(strategy: &Value) -> Value {
    let rolling = strategy.get("rollingUpdate").unwrap_or(&NOTHING);
    internal(&[
        ("Type", strategy.get("type").unwrap_or(&NOTHING)),
        ("RollingUpdate", rolling),
    ])
}

pub(super) fn numbers(value: &Value, fields: &[&str], path: &FieldPath, errors: &mut Vec<FieldError>) {
    for field in fields {
        non_negative(value, field, path, errors);
    }
}

fn deployment(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    non_negative(spec, "replicas", path, errors);
    selected_template(spec, "deployment", "ReplicaSet", &ExtraVolumes::new(), path, errors);
    let strategy = spec.get("strategy").unwrap_or(&NOTHING);
    let at = path.child("strategy");
    match text(strategy, "type") {
        "Recreate" => {
            if strategy.get("rollingUpdate").is_some() {
                let detail = "may not be specified when strategy `type` is 'Recreate'";
                errors.push(FieldError::forbidden(at.child("rollingUpdate"), detail));
            }
        }
        "RollingUpdate" => rolling_update(
            strategy.get("rollingUpdate").unwrap_or(&NOTHING),
            &at.child("rollingUpdate"),
            errors,
        ),
        _ => errors.push(FieldError::not_supported(
            &at,
            shown(strategy),
            &["Recreate", "RollingUpdate"],
        )),
    }
    numbers(
        spec,
        &["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"],
        path,
        errors,
    );
    let number = |field: &str| spec.get(field).and_then(Value::as_i64).unwrap_or(0);
    if spec.get("progressDeadlineSeconds").is_some() && number("progressDeadlineSeconds") <= number("minReadySeconds") {
        let deadline = number("progressDeadlineSeconds");
        errors.push(FieldError::invalid(
            path.child("progressDeadlineSeconds"),
            deadline,
            "must be greater than minReadySeconds",
        ));
    }
}

fn rolling_update(value: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for field in ["maxUnavailable", "maxSurge"] {
        int_or_percent(value, field, path, errors);
    }
    let zero = |field: &str| match value.get(field) {
        None => true,
        Some(Value::String(percent)) => percent.trim_end_matches('%').parse() == Ok(0),
        Some(number) => number.as_i64() == Some(0),
    };
    if zero("maxUnavailable") && zero("maxSurge") {
        let shown = value.get("maxUnavailable").cloned().unwrap_or(Value::from(0));
        errors.push(FieldError::invalid(
            path.child("maxUnavailable"),
            shown,
            "may not be 0 when `maxSurge` is 0",
        ));
    }
    at_most_all(value, "maxUnavailable", path, errors);
}

fn int_or_percent(value: &Value, field: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    match value.get(field) {
        Some(Value::String(percent)) => {
            let digits = percent.strip_suffix('%').filter(|digits| !digits.is_empty());
            if !digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit())) {
                let detail = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
                errors.push(FieldError::invalid(path.child(field), percent.as_str(), detail));
            }
        }
        _ => non_negative(value, field, path, errors),
    }
}

fn at_most_all(value: &Value, field: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(Value::String(percent)) = value.get(field)
        && percent
            .strip_suffix('%')
            .and_then(|digits| digits.parse::<i64>().ok())
            .is_some_and(|number| number > 100)
    {
        errors.push(FieldError::invalid(
            path.child(field),
            percent.as_str(),
            "must not be greater than 100%",
        ));
    }
}

/// The selector, and a template whose labels it must match.
fn selected_template(
    spec: &Value,
    word: &str,
    owner: &str,
    extra: &ExtraVolumes,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let at = path.child("template");
    let template = spec.get("template").unwrap_or(&NOTHING);
    match spec.get("selector") {
        None => {
            if word != "daemonset" {
                errors.push(FieldError::required(path.child("selector"), ""));
            }
            // No selector selects nothing.
            mismatch(template, &at, errors);
        }
        Some(selector) => {
            let before = errors.len();
            label_selector(selector, &path.child("selector"), errors);
            if empty(selector, "matchLabels") && empty(selector, "matchExpressions") {
                let detail = format!("empty selector is invalid for {word}");
                errors.push(FieldError::invalid(path.child("selector"), selector.clone(), detail));
            } else if errors.len() > before {
                errors.push(FieldError::invalid(
                    path.child("selector"),
                    selector.clone(),
                    "invalid label selector",
                ));
                return;
            } else if !selects(selector, template.pointer("/metadata/labels").unwrap_or(&NOTHING)) {
                mismatch(template, &at, errors);
            }
        }
    }
    pods::template(template, extra, &at, errors);
    let inner = template.get("spec").unwrap_or(&NOTHING);
    if text(inner, "restartPolicy") != "Always" {
        errors.push(FieldError::not_supported(
            at.child("spec").child("restartPolicy"),
            text(inner, "restartPolicy"),
            &["Always"],
        ));
    }
    if inner.get("activeDeadlineSeconds").is_some() {
        let detail = format!("activeDeadlineSeconds in {owner} is not Supported");
        errors.push(FieldError::forbidden(
            at.child("spec").child("activeDeadlineSeconds"),
            detail,
        ));
    }
}

pub(super) fn mismatch(template: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let labels = template.pointer("/metadata/labels").cloned().unwrap_or_default();
    let at = at.child("metadata").child("labels");
    errors.push(FieldError::invalid(
        at,
        labels,
        "`selector` does not match template `labels`",
    ));
}

/// Whether a label selector selects labels.
pub(super) fn selects(selector: &Value, labels: &Value) -> bool {
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    let exact = selector
        .get("matchLabels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let exact = exact.into_iter().all(|(key, value)| label(key) == value.as_str());
    exact
        && selector
            .get("matchExpressions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .all(|expression| {
                let found = label(text(expression, "key"));
                let listed = expression
                    .get("values")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                    .any(|value| value.as_str() == found);
                match text(expression, "operator") {
                    "In" => found.is_some() && listed,
                    "NotIn" => found.is_none() || !listed,
                    "Exists" => found.is_some(),
                    "DoesNotExist" => found.is_none(),
                    _ => false,
                }
            })
}

fn stateful_set(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let management = text(spec, "podManagementPolicy");
    if !matches!(management, "OrderedReady" | "Parallel") {
        errors.push(FieldError::invalid(
            path.child("podManagementPolicy"),
            management,
            "must be 'OrderedReady' or 'Parallel'",
        ));
    }
    let strategy = spec.get("updateStrategy").unwrap_or(&NOTHING);
    let at = path.child("updateStrategy");
    match text(strategy, "type") {
        "OnDelete" => {
            if let Some(rolling) = strategy.get("rollingUpdate") {
                let detail = "only allowed for updateStrategy 'RollingUpdate'";
                errors.push(FieldError::invalid(at.child("rollingUpdate"), rolling.clone(), detail));
            }
        }
        "RollingUpdate" => {
            if let Some(rolling) = strategy.get("rollingUpdate") {
                non_negative(rolling, "partition", &at.child("rollingUpdate"), errors);
            }
        }
        _ => errors.push(FieldError::invalid(
            &at,
            shown(strategy),
            "must be 'RollingUpdate' or 'OnDelete'",
        )),
    }
    let mut extra = ExtraVolumes::new();
    for (claim, at) in items(spec, "volumeClaimTemplates", path) {
        storage::claim(claim, &at, errors);
        extra.insert(
            claim
                .pointer("/metadata/name")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
        );
    }
    numbers(spec, &["replicas", "minReadySeconds"], path, errors);
    let service = text(spec, "serviceName");
    if !service.is_empty() {
        for complaint in names::label(service) {
            errors.push(FieldError::invalid(path.child("serviceName"), service, complaint));
        }
    }
    selected_template(spec, "statefulset", "StatefulSet", &extra, path, errors);
    non_negative(spec, "revisionHistoryLimit", path, errors);
}

fn daemon_set(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    selected_template(spec, "daemonset", "DaemonSet", &ExtraVolumes::new(), path, errors);
    non_negative(spec, "minReadySeconds", path, errors);
    let strategy = spec.get("updateStrategy").unwrap_or(&NOTHING);
    match text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            if let Some(rolling) = strategy.get("rollingUpdate") {
                let at = path.child("updateStrategy").child("rollingUpdate");
                for field in ["maxUnavailable", "maxSurge"] {
                    int_or_percent(rolling, field, &at, errors);
                    at_most_all(rolling, field, &at, errors);
                }
            }
        }
        _ => {
            let at = path.child("updateStrategy");
            errors.push(FieldError::not_supported(
                at,
                shown(strategy),
                &["RollingUpdate", "OnDelete"],
            ));
        }
    }
    non_negative(spec, "revisionHistoryLimit", path, errors);
}

/// What may not change: selectors, and a StatefulSet's identity.
pub(super) fn update(kind: &str, value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let path = FieldPath::new("spec");
    let spec = value.get("spec").unwrap_or(&NOTHING);
    let before = old.get("spec").unwrap_or(&NOTHING);
    match kind {
        "Deployment" | "ReplicaSet" | "DaemonSet" => immutable(spec, before, "selector", &path, errors),
        "StatefulSet" => {
            let changeable = [
                "replicas",
                "ordinals",
                "template",
                "updateStrategy",
                "revisionHistoryLimit",
                "persistentVolumeClaimRetentionPolicy",
                "minReadySeconds",
            ];
            let fixed = |spec: &Value| {
                let mut spec = spec.as_object().cloned().unwrap_or_default();
                spec.retain(|field, _| !changeable.contains(&field.as_str()));
                spec
            };
            if fixed(spec) != fixed(before) {
                let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
                errors.push(FieldError::forbidden(&path, detail));
            }
        }
        _ => {}
    }
}

/// Checks a disruption budget.
pub(super) fn disruption_budget(value: &Value, errors: &mut Vec<FieldError>) {
    let spec = value.get("spec").unwrap_or(&NOTHING);
    let path = FieldPath::new("spec");
    if spec.get("minAvailable").is_some() && spec.get("maxUnavailable").is_some() {
        let fields = [
            "minAvailable",
            "selector",
            "maxUnavailable",
            "unhealthyPodEvictionPolicy",
        ];
        let [least, selector, most, policy] = fields.map(|field| spec.get(field).unwrap_or(&NOTHING));
        let shown = internal(&[
            ("MinAvailable", least),
            ("Selector", selector),
            ("MaxUnavailable", most),
            ("UnhealthyPodEvictionPolicy", policy),
        ]);
        let detail = "minAvailable and maxUnavailable cannot be both set";
        errors.push(FieldError::new(FieldErrorKind::Invalid, &path, shown, detail));
    }
    for field in ["minAvailable", "maxUnavailable"] {
        int_or_percent(spec, field, &path, errors);
        at_most_all(spec, field, &path, errors);
    }
    if let Some(selector) = spec.get("selector") {
        label_selector(selector, &path.child("selector"), errors);
    }
    one_of(
        spec,
        "unhealthyPodEvictionPolicy",
        &["AlwaysAllow", "IfHealthyBudget"],
        false,
        &path,
        errors,
    );
}
