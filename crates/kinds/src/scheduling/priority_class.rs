//! The kind PriorityClass.

use jiff::Timestamp;
use serde_json::Value;

use crate::kind::{Admitted, Generation, Kind, Objects, Plugin, Rule};
use crate::object::ObjectExt as _;
use crate::schema::validation::{one_of, validate_immutable};
use crate::schema::{FieldError, FieldPath, defaults};
use crate::table::cells;

pub(crate) const GROUP: &str = "scheduling.k8s.io";
pub(crate) const PLURAL: &str = "priorityclasses";

/// PriorityClasses.
pub(super) static PRIORITY_CLASS: Kind = Kind {
    generation: Generation::Fixed,
    defaults: |_, object| defaults::set(object, "preemptionPolicy", "PreemptLowerPriority"),
    validate_create: validate,
    validate_update,
    admission: &[Rule {
        validate: validate_default,
        ..Rule::new(Plugin::Priority)
    }],
    cells: show,
    ..Kind::new(GROUP, "PriorityClass", PLURAL)
};

fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    let is_default = object.get("globalDefault") == Some(&Value::Bool(true));
    vec![
        cells::name_cell(object),
        cells::get_number(object, "/value").into(),
        is_default.into(),
        cells::format_age(object, now),
        cells::get_text(object, "/preemptionPolicy").into(),
    ]
}

/// Returns the class of Pods that name none. Of several default classes, it is the one with the lowest value.
pub(crate) fn find_default_class(objects: &dyn Objects) -> Option<Value> {
    objects
        .list(GROUP, PLURAL, None)
        .into_iter()
        .filter(|class| class.get("globalDefault").and_then(Value::as_bool) == Some(true))
        .min_by_key(|class| class.get("value").and_then(Value::as_i64))
}

/// Refuses a second default class.
fn validate_default(admitted: &Admitted<'_>, class: &Value) -> Result<(), String> {
    let is_default = class.get("globalDefault").and_then(Value::as_bool) == Some(true);
    if !admitted.is_whole() || !is_default {
        return Ok(());
    }
    match find_default_class(admitted.request.objects) {
        Some(other) if admitted.old.is_none() || other.name() != class.name() => Err(format!(
            "PriorityClass {} is already marked as default. Only one default can exist",
            other.name()
        )),
        _ => Ok(()),
    }
}

const HIGHEST_PRIORITY: i64 = 1_000_000_000;

/// Checks a PriorityClass.
fn validate(value: &Value, errors: &mut Vec<FieldError>) {
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

/// Checks that the value of a PriorityClass stays unchanged.
fn validate_update(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let number = |value: &Value| value.get("value").and_then(Value::as_i64).unwrap_or_default();
    if number(value) != number(old) {
        errors.push(FieldError::forbidden("value", "may not be changed in an update."));
    }
    validate_immutable(value, old, "preemptionPolicy", &FieldPath::default(), errors);
}
