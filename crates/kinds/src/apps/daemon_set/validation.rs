//! Validation of DaemonSets.

use serde_json::Value;

use crate::core_group::pod::owners::{
    empty_selector, fixed_selector, int_or_percent, is_none, list_rolling_update_fields, report_selector_mismatch,
    selects_labels, shown_strategy, validate_endless_template, validate_percentage,
};
use crate::core_group::pod::validation as pods;
use crate::core_group::pod::validation::ExtraVolumes;
use crate::schema::validation::metadata::label_selector;
use crate::schema::validation::{get_text, non_negative};
use crate::schema::{FieldError, FieldPath};

static NOTHING: Value = Value::Null;

/// Checks a DaemonSet.
pub(super) fn validate(value: &Value, errors: &mut Vec<FieldError>) {
    daemon_set(value.get("spec").unwrap_or(&NOTHING), &FieldPath::new("spec"), errors);
}

/// Validates an update of a DaemonSet. The check of the selector comes first.
pub(super) fn validate_update(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (spec, before) = (
        value.get("spec").unwrap_or(&NOTHING),
        old.get("spec").unwrap_or(&NOTHING),
    );
    fixed_selector(spec, before, &FieldPath::new("spec"), errors);
    validate(value, errors);
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
    if errors.len() == before && !selector.is_some_and(|selector| selects_labels(selector, labels)) {
        report_selector_mismatch(template, &at, errors);
    }
    if let Some(selector) = selector {
        empty_selector(selector, "daemonset", &at_selector, errors);
    }
    pods::validate_template(template, &ExtraVolumes::new(), &at, errors);
    validate_endless_template(template, "DaemonSet", &at, errors);
    non_negative(spec, "minReadySeconds", path, errors);
    let strategy = spec.get("updateStrategy").unwrap_or(&NOTHING);
    let at = path.child("updateStrategy");
    match get_text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" => match strategy.get("rollingUpdate") {
            None => errors.push(FieldError::required(at.child("rollingUpdate"), "")),
            Some(rolling) => daemon_update(rolling, &at.child("rollingUpdate"), errors),
        },
        _ => errors.push(FieldError::not_supported(
            at,
            shown_strategy(strategy, &list_rolling_update_fields()),
            &["RollingUpdate", "OnDelete"],
        )),
    }
    non_negative(spec, "revisionHistoryLimit", path, errors);
}

/// Checks a rolling update. A node runs the old and the new Pod together (surge), or no Pod for a while (unavailable).
fn daemon_update(rolling: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let fields = ["maxUnavailable", "maxSurge"];
    for field in fields {
        int_or_percent(rolling, field, at, errors);
    }
    for field in fields {
        validate_percentage(rolling, field, at, errors);
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
