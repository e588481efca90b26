//! Warnings for the writer of a definition, as `Warning` headers, and obsolete conditions.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{formats, get_text, list_versions};

/// The condition of a definition that was stored when validation rules were not enforced yet.
const UNENFORCED_CONDITION: &str = "ValidationRulesNotEnforced";

/// The condition of a definition that was stored when conversion webhooks were not called yet.
const UNCALLED_CONDITION: &str = "ConversionWebhookNotCalled";

/// Returns warnings about a definition: unknown formats.
pub fn list_warnings(definition: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for version in list_versions(definition) {
        let Some(schema) = version.pointer("/schema/openAPIV3Schema") else {
            continue;
        };
        unknown_formats(schema, &mut found);
    }
    found
}

/// Returns warnings about a custom object: finalizers without a domain.
pub fn object_warnings(object: &Value, live: Option<&Value>) -> Vec<String> {
    let finalizers = |object: &Value| -> BTreeSet<String> {
        let list = object.pointer("/metadata/finalizers").and_then(Value::as_array);
        let names = list.into_iter().flatten().filter_map(Value::as_str);
        names.map(str::to_owned).collect()
    };
    let before = live.map(finalizers).unwrap_or_default();
    finalizers(object)
        .difference(&before)
        .filter(|name| !name.contains('/') && !matches!(name.as_str(), "orphan" | "foregroundDeletion"))
        .map(|name| {
            // A name with a dot already has a domain, and lacks only the path.
            let path = if name.contains('.') {
                " including a path (/)"
            } else {
                ""
            };
            let reason = "to avoid accidental conflicts with other finalizer writers";
            format!("metadata.finalizers: \"{name}\": prefer a domain-qualified finalizer name{path} {reason}")
        })
        .collect()
}

/// Removes the conditions of older server versions about features that they lacked and this version has.
pub(super) fn drop_old_conditions(definition: &mut Value) {
    drop_condition(definition, UNCALLED_CONDITION);
    drop_condition(definition, UNENFORCED_CONDITION);
}

fn drop_condition(definition: &mut Value, kind: &str) {
    if let Some(Value::Array(conditions)) = definition.pointer_mut("/status/conditions") {
        conditions.retain(|one| get_text(one, "type") != kind);
    }
}

fn unknown_formats(schema: &Value, found: &mut Vec<String>) {
    let format = get_text(schema, "format");
    let numeric = ["int32", "int64", "float", "double", "k8s-short-name", "k8s-long-name"];
    let message = format!("unrecognized format \"{format}\"");
    if !format.is_empty()
        && !formats::KNOWN.contains(&format)
        && !numeric.contains(&format)
        && !found.contains(&message)
    {
        found.push(message);
    }
    for property in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        unknown_formats(property.1, found);
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(inner @ Value::Object(_)) = schema.get(inner) {
            unknown_formats(inner, found);
        }
    }
}
