//! The kind RuntimeClass.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::core_group::pod::validation as pods;
use crate::core_group::pod::warnings::find_deprecation;
use crate::kind::Kind;
use crate::schema::validation::{
    get_text, list_items, metadata, names, show_go_struct, validate_immutable, validate_name,
};
use crate::schema::{FieldError, FieldErrorKind, FieldPath};
use crate::table::cells;

/// RuntimeClasses.
pub(super) static RUNTIME_CLASS: Kind = Kind {
    is_created_by_update: true,
    needs_resource_version: true,
    validate,
    validate_update,
    warnings: |object, _| list_warnings(object),
    cells: |object, now| {
        let handler = cells::get_text(object, "/handler");
        vec![cells::name_cell(object), handler.into(), cells::format_age(object, now)]
    },
    ..Kind::new("node.k8s.io", "RuntimeClass", "runtimeclasses")
};

static NOTHING: Value = Value::Null;

/// Checks a RuntimeClass.
fn validate(value: &Value, errors: &mut Vec<FieldError>) {
    let handler = get_text(value, "handler");
    if handler.is_empty() {
        errors.push(FieldError::required("handler", ""));
    } else {
        validate_name(names::find_label_errors, handler, &FieldPath::new("handler"), errors);
    }
    if let Some(fixed) = value.pointer("/overhead/podFixed") {
        pods::validate_overhead(&json!({"overhead": fixed}), &FieldPath::default(), errors);
    }
    let scheduling = value.get("scheduling").unwrap_or(&NOTHING);
    let at = FieldPath::new("scheduling");
    if let Some(Value::Object(selector)) = scheduling.get("nodeSelector") {
        metadata::validate_labels(selector, &at.child("nodeSelector"), errors);
    }
    pods::validate_tolerations(scheduling, &at, errors);
    let mut seen = BTreeSet::new();
    for (toleration, at) in list_items(scheduling, "tolerations", &at) {
        let [key, operator, taint, effect] =
            ["key", "operator", "value", "effect"].map(|field| get_text(toleration, field));
        if !seen.insert((key, operator, taint, effect)) {
            let seconds = toleration.get("tolerationSeconds").unwrap_or(&NOTHING);
            let shown = show_go_struct(&[
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

/// Checks that the handler of a class stays unchanged.
fn validate_update(value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    validate_immutable(value, old, "handler", &FieldPath::default(), errors);
}

/// Labels of nodes by which a RuntimeClass finds its nodes.
fn list_warnings(class: &Value) -> Vec<String> {
    let selector = class.pointer("/scheduling/nodeSelector").and_then(Value::as_object);
    let labels = selector
        .into_iter()
        .flatten()
        .filter_map(|(label, _)| find_deprecation(label));
    labels
        .map(|message| format!("scheduling.nodeSelector: {message}"))
        .collect()
}
