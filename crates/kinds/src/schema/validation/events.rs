//! Events, in both groups: the older one checks little, the newer one what reporters have to say of themselves.

use serde_json::Value;

use super::metadata::qualified_name;
use super::{named, text};
use crate::schema::{FieldError, FieldPath};

/// Checks an Event of the core group.
pub(crate) fn core(value: &Value, errors: &mut Vec<FieldError>) {
    namespace(value, "involvedObject", errors);
    // Who says when it happened speaks the newer language.
    if text(value, "eventTime").is_empty() {
        return;
    }
    reporter(value, "reportingComponent", errors);
    required(value, &["reportingInstance", "action", "reason"], errors);
}

/// Checks an Event of `events.k8s.io`; messages have the older names of what was renamed.
pub(crate) fn reported(value: &Value, errors: &mut Vec<FieldError>) {
    required(value, &["eventTime"], errors);
    namespace(value, "regarding", errors);
    reporter(value, "reportingController", errors);
    required(value, &["reportingInstance", "action", "reason"], errors);
    let mut refuse = |field: &str, why: &str| errors.push(FieldError::invalid(field, "", why.to_owned()));
    for (field, name, most) in [
        ("reportingInstance", "reportingIntance", 128),
        ("action", "action", 128),
        ("reason", "reason", 128),
        ("note", "message", 1024),
    ] {
        if text(value, field).len() > most {
            refuse(name, &format!("can have at most {most} characters"));
        }
    }
    let kind = text(value, "type");
    if !matches!(kind, "Normal" | "Warning") {
        refuse("type", &format!("has invalid value: {kind}"));
    }
    if let Some(series) = value.get("series") {
        if series.get("count").and_then(Value::as_i64).unwrap_or_default() < 2 {
            refuse("series.count", "should be at least 2");
        }
        if text(series, "lastObservedTime").is_empty() {
            refuse("series.lastObservedTime", "needs to be set");
        }
    }
    for (field, name) in [
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
    ] {
        if !text(value, field).is_empty() {
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

fn required(value: &Value, fields: &[&str], errors: &mut Vec<FieldError>) {
    for field in fields {
        if text(value, field).is_empty() {
            errors.push(FieldError::required(*field, ""));
        }
    }
}

fn reporter(value: &Value, field: &str, errors: &mut Vec<FieldError>) {
    required(value, &[field], errors);
    named(qualified_name, text(value, field), &FieldPath::new(field), errors);
}

/// An Event is where the object is that it is about; those about what is in no namespace are in two of them.
fn namespace(value: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let own = value
        .pointer("/metadata/namespace")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let about = value
        .get(field)
        .map(|object| text(object, "namespace"))
        .unwrap_or_default();
    let elsewhere = about.is_empty() && matches!(own, "default" | "kube-system");
    if !own.is_empty() && about != own && !elsewhere {
        let why = "does not match event.namespace";
        errors.push(FieldError::invalid("involvedObject.namespace", about, why));
    }
}
