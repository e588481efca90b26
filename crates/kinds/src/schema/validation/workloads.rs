//! What makes pods out of a template: Deployments, ReplicaSets, StatefulSets, DaemonSets and ReplicationControllers;
//! templates and revisions on their own; and disruption budgets.

use serde_json::{Map, Value, json};

use super::metadata::label_selector;
use super::pods::{self, ExtraVolumes};
use super::{empty, immutable, internal, items, names, non_negative, one_of, storage, text};
use crate::schema::{FieldError, FieldErrorKind, FieldPath, Shown};

static NOTHING: Value = Value::Null;

/// Checks such an object; `old` is what it replaces.
pub(crate) fn object(kind: &str, value: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = value.get("spec").unwrap_or(&NOTHING);
    let path = FieldPath::new("spec");
    let before = old.map(|old| old.get("spec").unwrap_or(&NOTHING));
    match kind {
        "Deployment" => deployment(spec, &path, errors),
        "ReplicaSet" => {
            numbers(spec, &["replicas", "minReadySeconds"], &path, errors);
            let no_claims = ExtraVolumes::new();
            selected_template(spec, "deployment", "ReplicaSet", &no_claims, &path, errors);
        }
        "StatefulSet" => stateful_set(spec, before, &path, errors),
        "DaemonSet" => {
            if let Some(before) = before {
                fixed_selector(spec, before, &path, errors);
            }
            daemon_set(spec, &path, errors);
        }
        "ReplicationController" => replication_controller(spec, &path, errors),
        "PodTemplate" => {
            let template = value.get("template").unwrap_or(&NOTHING);
            pods::template(template, &ExtraVolumes::new(), &FieldPath::new("template"), errors);
        }
        "ControllerRevision" => revision(value, old, errors),
        _ => {}
    }
    if let ("Deployment" | "ReplicaSet", Some(before)) = (kind, before) {
        fixed_selector(spec, before, &path, errors);
    }
}

pub(crate) fn numbers(value: &Value, fields: &[&str], path: &FieldPath, errors: &mut Vec<FieldError>) {
    for field in fields {
        non_negative(value, field, path, errors);
    }
}

/// A strategy as the real server shows it; `parts` are the fields of its rolling update with what they are by default.
fn shown(strategy: &Value, parts: &[(&str, &str, Value)]) -> Shown {
    let kind = strategy.get("type").unwrap_or(&NOTHING);
    let rolling = strategy
        .get("rollingUpdate")
        .map_or_else(|| "null".to_owned(), |rolling| shown_update(rolling, parts).to_string());
    Shown::Verbatim(format!("{{\"Type\":{kind},\"RollingUpdate\":{rolling}}}"))
}

fn shown_update(rolling: &Value, parts: &[(&str, &str, Value)]) -> Shown {
    let parts: Vec<(&str, &Value)> = parts
        .iter()
        .map(|(go, field, default)| (*go, rolling.get(*field).unwrap_or(default)))
        .collect();
    internal(&parts)
}

fn in_numbers() -> [(&'static str, &'static str, Value); 2] {
    [
        ("MaxUnavailable", "maxUnavailable", json!(0)),
        ("MaxSurge", "maxSurge", json!(0)),
    ]
}

fn of_ordinals() -> [(&'static str, &'static str, Value); 2] {
    [
        ("Partition", "partition", json!(0)),
        ("MaxUnavailable", "maxUnavailable", Value::Null),
    ]
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
            shown(strategy, &in_numbers()),
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

/// Whether a number or share of pods is none.
fn is_none(value: &Value, field: &str) -> bool {
    match value.get(field) {
        None => true,
        Some(Value::String(percent)) => percent
            .strip_suffix('%')
            .and_then(|digits| digits.parse::<u64>().ok())
            .is_none_or(|share| share == 0),
        Some(number) => number.as_i64() == Some(0),
    }
}

fn rolling_update(value: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for field in ["maxUnavailable", "maxSurge"] {
        int_or_percent(value, field, path, errors);
    }
    if is_none(value, "maxUnavailable") && is_none(value, "maxSurge") {
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
    let at_selector = path.child("selector");
    let template = spec.get("template").unwrap_or(&NOTHING);
    match spec.get("selector") {
        None => {
            errors.push(FieldError::required(at_selector, ""));
            // No selector selects nothing.
            mismatch(template, &at, errors);
        }
        Some(selector) => {
            let before = errors.len();
            label_selector(selector, &at_selector, errors);
            let unsound = errors.len() > before;
            empty_selector(selector, word, &at_selector, errors);
            if unsound {
                let detail = if word == "statefulset" {
                    ""
                } else {
                    "invalid label selector"
                };
                errors.push(FieldError::invalid(at_selector, shown_selector(selector), detail));
                if word == "statefulset" {
                    lasting(template, owner, &at, errors);
                }
                return;
            }
            if !selects(selector, template.pointer("/metadata/labels").unwrap_or(&NOTHING)) {
                mismatch(template, &at, errors);
            }
        }
    }
    pods::template(template, extra, &at, errors);
    if word == "statefulset" {
        // Looked at a second time, as by the real server.
        pods::template_metadata(template, &at, errors);
    }
    lasting(template, owner, &at, errors);
}

fn empty_selector(selector: &Value, word: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if empty(selector, "matchLabels") && empty(selector, "matchExpressions") {
        let detail = format!("empty selector is invalid for {word}");
        errors.push(FieldError::invalid(at, shown_selector(selector), detail));
    }
}

/// A selector as the real server shows it: labels first.
fn shown_selector(selector: &Value) -> Shown {
    let parts = ["matchLabels", "matchExpressions"].into_iter();
    let parts: Vec<(&str, &Value)> = parts
        .filter(|part| !empty(selector, part))
        .filter_map(|part| Some((part, selector.get(part)?)))
        .collect();
    internal(&parts)
}

/// A selector cannot change.
fn fixed_selector(spec: &Value, before: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if spec.get("selector") != before.get("selector") {
        let shown = spec.get("selector").map_or(Shown::Json(Value::Null), shown_selector);
        errors.push(FieldError::invalid(path.child("selector"), shown, "field is immutable"));
    }
}

/// Pods of such owners run until they are told otherwise.
fn lasting(template: &Value, owner: &str, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let inner = template.get("spec").unwrap_or(&NOTHING);
    let at = at.child("spec");
    if text(inner, "restartPolicy") != "Always" {
        errors.push(FieldError::not_supported(
            at.child("restartPolicy"),
            text(inner, "restartPolicy"),
            &["Always"],
        ));
    }
    if inner.get("activeDeadlineSeconds").is_some() {
        let detail = format!("activeDeadlineSeconds in {owner} is not Supported");
        errors.push(FieldError::forbidden(at.child("activeDeadlineSeconds"), detail));
    }
}

pub(crate) fn mismatch(template: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let labels = template.pointer("/metadata/labels").cloned().unwrap_or_default();
    let at = at.child("metadata").child("labels");
    errors.push(FieldError::invalid(
        at,
        labels,
        "`selector` does not match template `labels`",
    ));
}

/// Whether labels have all of these.
fn have(labels: &Value, wanted: Option<&Map<String, Value>>) -> bool {
    let mut wanted = wanted.into_iter().flatten();
    wanted.all(|(key, value)| labels.get(key).and_then(Value::as_str) == value.as_str())
}

/// Whether a label selector selects labels.
pub(crate) fn selects(selector: &Value, labels: &Value) -> bool {
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    have(labels, selector.get("matchLabels").and_then(Value::as_object))
        && items(selector, "matchExpressions", &FieldPath::default()).all(|(expression, at)| {
            let found = label(text(expression, "key"));
            let listed = items(expression, "values", &at).any(|(value, _)| value.as_str() == found);
            match text(expression, "operator") {
                "In" => found.is_some() && listed,
                "NotIn" => found.is_none() || !listed,
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                _ => false,
            }
        })
}

fn stateful_set(spec: &Value, before: Option<&Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
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
    let rolling = strategy.get("rollingUpdate");
    let inner = at.child("rollingUpdate");
    match (text(strategy, "type"), rolling) {
        ("OnDelete", Some(rolling)) => {
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            errors.push(FieldError::invalid(
                inner,
                shown_update(rolling, &of_ordinals()),
                detail,
            ));
        }
        ("RollingUpdate", Some(rolling)) => non_negative(rolling, "partition", &inner, errors),
        ("OnDelete" | "RollingUpdate", None) => {}
        _ => errors.push(FieldError::invalid(
            at,
            shown(strategy, &of_ordinals()),
            "must be 'RollingUpdate' or 'OnDelete'",
        )),
    }
    if let Some(policy) = spec.get("persistentVolumeClaimRetentionPolicy") {
        let at = path.child("persistentVolumeClaimRetentionPolicy");
        for field in ["whenDeleted", "whenScaled"] {
            let supported = ["Retain", "Delete"];
            let found = text(policy, field);
            if !supported.contains(&found) {
                errors.push(FieldError::not_supported(at.child(field), found, &supported));
            }
        }
    }
    let mut extra = ExtraVolumes::new();
    for (claim, at) in items(spec, "volumeClaimTemplates", path) {
        // What cannot change may stay as it was once stored.
        if before.is_none() {
            storage::claim(claim, &at, errors);
        }
        let name = claim.pointer("/metadata/name").and_then(Value::as_str);
        extra.insert(name.unwrap_or_default().to_owned());
    }
    numbers(spec, &["replicas", "minReadySeconds"], path, errors);
    if let Some(ordinals) = spec.get("ordinals") {
        non_negative(ordinals, "start", &path.child("ordinals"), errors);
    }
    let service = text(spec, "serviceName");
    if !service.is_empty() && before.is_none() {
        for complaint in names::label(service) {
            errors.push(FieldError::invalid(path.child("serviceName"), service, complaint));
        }
    }
    // The names of the pods are the set's to choose.
    let mut spec = spec.clone();
    if let Some(inner) = spec.pointer_mut("/template/spec").and_then(Value::as_object_mut) {
        inner.remove("subdomain");
        inner.remove("hostname");
    }
    selected_template(&spec, "statefulset", "StatefulSet", &extra, path, errors);
    if before.is_some_and(|before| identity(&spec) != identity(before)) {
        let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
        errors.push(FieldError::forbidden(path, detail));
    }
}

/// What of a StatefulSet cannot change.
fn identity(spec: &Value) -> Map<String, Value> {
    let changeable = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let mut spec = spec.as_object().cloned().unwrap_or_default();
    spec.retain(|field, _| !changeable.contains(&field.as_str()));
    spec
}

fn daemon_set(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let template = spec.get("template").unwrap_or(&NOTHING);
    let at = path.child("template");
    let at_selector = path.child("selector");
    let before = errors.len();
    let labels = template.pointer("/metadata/labels").unwrap_or(&NOTHING);
    let selector = spec.get("selector");
    if let Some(selector) = selector {
        label_selector(selector, &at_selector, errors);
    }
    if errors.len() == before && !selector.is_some_and(|selector| selects(selector, labels)) {
        mismatch(template, &at, errors);
    }
    if let Some(selector) = selector {
        empty_selector(selector, "daemonset", &at_selector, errors);
    }
    pods::template(template, &ExtraVolumes::new(), &at, errors);
    lasting(template, "DaemonSet", &at, errors);
    non_negative(spec, "minReadySeconds", path, errors);
    let strategy = spec.get("updateStrategy").unwrap_or(&NOTHING);
    let at = path.child("updateStrategy");
    match text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" => match strategy.get("rollingUpdate") {
            None => errors.push(FieldError::required(at.child("rollingUpdate"), "")),
            Some(rolling) => daemon_update(rolling, &at.child("rollingUpdate"), errors),
        },
        _ => errors.push(FieldError::not_supported(
            at,
            shown(strategy, &in_numbers()),
            &["RollingUpdate", "OnDelete"],
        )),
    }
    non_negative(spec, "revisionHistoryLimit", path, errors);
}

/// A node runs the old pod and the new one side by side, or none of them for a while.
fn daemon_update(rolling: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let fields = ["maxUnavailable", "maxSurge"];
    for field in fields {
        int_or_percent(rolling, field, at, errors);
    }
    for field in fields {
        at_most_all(rolling, field, at, errors);
    }
    match fields.map(|field| is_none(rolling, field)) {
        [false, false] => {
            let shown = rolling.get("maxSurge").cloned().unwrap_or_default();
            let detail = "may not be set when maxUnavailable is non-zero";
            errors.push(FieldError::invalid(at.child("maxSurge"), shown, detail));
        }
        [true, true] => {
            let detail = "cannot be 0 when maxSurge is 0";
            errors.push(FieldError::required(at.child("maxUnavailable"), detail));
        }
        _ => {}
    }
}

fn replication_controller(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    non_negative(spec, "minReadySeconds", path, errors);
    if empty(spec, "selector") {
        errors.push(FieldError::required(path.child("selector"), ""));
    }
    if spec.get("replicas").is_none() {
        errors.push(FieldError::required(path.child("replicas"), ""));
    }
    non_negative(spec, "replicas", path, errors);
    let at = path.child("template");
    let Some(template) = spec.get("template") else {
        errors.push(FieldError::required(at, ""));
        return;
    };
    let labels = template.pointer("/metadata/labels").unwrap_or(&NOTHING);
    if !have(labels, spec.get("selector").and_then(Value::as_object)) {
        mismatch(template, &at, errors);
    }
    pods::template(template, &ExtraVolumes::new(), &at, errors);
    lasting(template, "ReplicationController", &at, errors);
}

fn revision(value: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let root = FieldPath::default();
    non_negative(value, "revision", &root, errors);
    if let Some(old) = old {
        immutable(value, old, "data", &root, errors);
        return;
    }
    let detail = match value.get("data") {
        None | Some(Value::Null) => "data is mandatory",
        Some(Value::Object(_)) => return,
        Some(_) => "data must be a valid JSON object",
    };
    errors.push(FieldError::required("data", detail));
}

/// Checks a disruption budget.
pub(crate) fn disruption_budget(value: &Value, errors: &mut Vec<FieldError>) {
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
