//! Events in their own group. They are the core group's Events with other field names, and are stored in the core group's form.

use serde_json::Value;

use crate::core_group::event::{self, validate_namespace, validate_reporter, validate_required};
use crate::kind::Kind;
use crate::schema::FieldError;
use crate::schema::validation::get_text;

/// Events of the group `events.k8s.io`.
pub(super) static EVENT: Kind = Kind {
    stored_as: Some(("", "events")),
    stored_version: Some("v1"),
    convert: Some(event::convert),
    selectable_fields: &[
        "regarding.kind",
        "regarding.namespace",
        "regarding.name",
        "regarding.uid",
        "regarding.apiVersion",
        "regarding.resourceVersion",
        "regarding.fieldPath",
        "reason",
        "reportingController",
        "type",
    ],
    is_created_by_update: true,
    validate_create: validate,
    cells: event::show,
    ..Kind::new("events.k8s.io", "Event", "events")
};

/// Checks an Event of `events.k8s.io`. Errors use the older names of renamed fields.
fn validate(value: &Value, errors: &mut Vec<FieldError>) {
    validate_required(value, &["eventTime"], errors);
    validate_namespace(value, "regarding", errors);
    validate_reporter(value, "reportingController", errors);
    validate_required(value, &["reportingInstance", "action", "reason"], errors);
    let mut refuse = |field: &str, why: &str| errors.push(FieldError::invalid(field, "", why.to_owned()));
    for (field, name, most) in [
        ("reportingInstance", "reportingIntance", 128),
        ("action", "action", 128),
        ("reason", "reason", 128),
        ("note", "message", 1024),
    ] {
        if get_text(value, field).len() > most {
            refuse(name, &format!("can have at most {most} characters"));
        }
    }
    let kind = get_text(value, "type");
    if !matches!(kind, "Normal" | "Warning") {
        refuse("type", &format!("has invalid value: {kind}"));
    }
    if let Some(series) = value.get("series") {
        if series.get("count").and_then(Value::as_i64).unwrap_or_default() < 2 {
            refuse("series.count", "should be at least 2");
        }
        if get_text(series, "lastObservedTime").is_empty() {
            refuse("series.lastObservedTime", "needs to be set");
        }
    }
    for (field, name) in [
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
    ] {
        if !get_text(value, field).is_empty() {
            refuse(name, "needs to be unset");
        }
    }
    if value.get("deprecatedCount").and_then(Value::as_i64).unwrap_or_default() != 0 {
        refuse("count", "needs to be unset");
    }
    let source = value.get("deprecatedSource");
    if source
        .and_then(Value::as_object)
        .is_some_and(|source| !source.is_empty())
    {
        refuse("source", "needs to be unset");
    }
}
