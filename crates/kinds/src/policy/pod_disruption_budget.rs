//! The kind PodDisruptionBudget.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::core_group::pod::owners::{int_or_percent, validate_percentage};
use crate::kind::{Generation, Kind};
use crate::schema::validation::conditions::validate_conditions;
use crate::schema::validation::metadata::label_selector;
use crate::schema::validation::names::NameRule;
use crate::schema::validation::{non_negative, one_of, show_go_struct};
use crate::schema::{FieldError, FieldErrorKind, FieldPath};
use crate::table::cells;

/// PodDisruptionBudgets.
pub(super) static POD_DISRUPTION_BUDGET: Kind = Kind {
    names: NameRule::PathSegment,
    needs_resource_version: true,
    generation: Generation::Counted,
    initial_status: Some(
        || json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}),
    ),
    metadata_comes_last: true,
    validate,
    validate_status: |value, _, errors| validate_status(value, errors),
    cells: show,
    ..Kind::new("policy", "PodDisruptionBudget", "poddisruptionbudgets")
};

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let part = |pointer: &str| Value::from(cells::int_or_string(object, pointer).unwrap_or_else(|| "N/A".to_owned()));
    vec![
        cells::name_cell(object),
        part("/spec/minAvailable"),
        part("/spec/maxUnavailable"),
        cells::get_number(object, "/status/disruptionsAllowed").into(),
        cells::format_age(object, now),
    ]
}

static NOTHING: Value = Value::Null;

/// Checks a disruption budget.
fn validate(value: &Value, errors: &mut Vec<FieldError>) {
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
        let shown = show_go_struct(&[
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
        validate_percentage(spec, field, &path, errors);
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

/// Checks the Pod counts of a budget, and its conditions.
fn validate_status(value: &Value, errors: &mut Vec<FieldError>) {
    let status = value.get("status").unwrap_or(&NOTHING);
    let path = FieldPath::new("status");
    validate_conditions(status, &path, errors);
    for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        non_negative(status, field, &path, errors);
    }
}
