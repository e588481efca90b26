//! Validation of Deployments.

use serde_json::Value;

use crate::core_group::pod::owners::{
    fixed_selector, int_or_percent, is_none, list_rolling_update_fields, selected_template, shown_strategy,
    validate_non_negative, validate_percentage,
};
use crate::core_group::pod::validation::ExtraVolumes;
use crate::schema::validation::{get_text, non_negative};
use crate::schema::{FieldError, FieldPath};

static NOTHING: Value = Value::Null;

/// Checks a Deployment.
pub(super) fn validate(value: &Value, errors: &mut Vec<FieldError>) {
    validate_deployment(value.get("spec").unwrap_or(&NOTHING), &FieldPath::new("spec"), errors);
}

/// Checks that the selector stays unchanged.
pub(super) fn validate_update(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (spec, before) = (
        value.get("spec").unwrap_or(&NOTHING),
        old.get("spec").unwrap_or(&NOTHING),
    );
    fixed_selector(spec, before, &FieldPath::new("spec"), errors);
}

fn validate_deployment(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    non_negative(spec, "replicas", path, errors);
    selected_template(spec, "deployment", "ReplicaSet", &ExtraVolumes::new(), path, errors);
    let strategy = spec.get("strategy").unwrap_or(&NOTHING);
    let at = path.child("strategy");
    match get_text(strategy, "type") {
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
            shown_strategy(strategy, &list_rolling_update_fields()),
            &["Recreate", "RollingUpdate"],
        )),
    }
    validate_non_negative(
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
    if is_none(value, "maxUnavailable") && is_none(value, "maxSurge") {
        let shown = value.get("maxUnavailable").cloned().unwrap_or(Value::from(0));
        errors.push(FieldError::invalid(
            path.child("maxUnavailable"),
            shown,
            "may not be 0 when `maxSurge` is 0",
        ));
    }
    validate_percentage(value, "maxUnavailable", path, errors);
}
