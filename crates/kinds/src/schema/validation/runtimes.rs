//! RuntimeClasses: what runs a pod's containers, what that needs beside them, and where it is found.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{internal, metadata, names, pods, text};
use crate::schema::{FieldError, FieldErrorKind, FieldPath};

static NOTHING: Value = Value::Null;

/// Checks a RuntimeClass.
pub(crate) fn runtime_class(value: &Value, errors: &mut Vec<FieldError>) {
    let handler = text(value, "handler");
    if handler.is_empty() {
        errors.push(FieldError::required("handler", ""));
    } else {
        super::named(names::label, handler, &FieldPath::new("handler"), errors);
    }
    if let Some(fixed) = value.pointer("/overhead/podFixed") {
        pods::overhead(&json!({"overhead": fixed}), &FieldPath::default(), errors);
    }
    let scheduling = value.get("scheduling").unwrap_or(&NOTHING);
    let at = FieldPath::new("scheduling");
    if let Some(Value::Object(selector)) = scheduling.get("nodeSelector") {
        metadata::labels(selector, &at.child("nodeSelector"), errors);
    }
    pods::tolerations(scheduling, &at, errors);
    let mut seen = BTreeSet::new();
    for (toleration, at) in super::items(scheduling, "tolerations", &at) {
        let [key, operator, taint, effect] =
            ["key", "operator", "value", "effect"].map(|field| text(toleration, field));
        if !seen.insert((key, operator, taint, effect)) {
            let seconds = toleration.get("tolerationSeconds").unwrap_or(&NOTHING);
            let shown = internal(&[
                ("Key", &json!(key)),
                ("Operator", &json!(operator)),
                ("Value", &json!(taint)),
                ("Effect", &json!(effect)),
                ("TolerationSeconds", seconds),
            ]);
            errors.push(FieldError::new(FieldErrorKind::Duplicate, at, shown, ""));
        }
    }
}

/// A class stays with what runs it.
pub(crate) fn runtime_class_update(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    super::immutable(value, old, "handler", &FieldPath::default(), errors);
}
