//! What a writer is warned of, as `Warning` headers, and the condition that keeps one warning visible.

use serde_json::Value;

use super::{formats, names, text, versions};

/// The condition of a definition that was stored when validation rules were not enforced yet.
const UNENFORCED_CONDITION: &str = "ValidationRulesNotEnforced";

/// The condition of a definition that asks for a conversion webhook.
pub const UNCALLED_CONDITION: &str = "ConversionWebhookNotCalled";

fn wants_webhook(definition: &Value) -> bool {
    definition.pointer("/spec/conversion/strategy").and_then(Value::as_str) == Some("Webhook")
}

/// Warnings about a definition: a webhook that is not called, formats that nobody knows.
pub fn warnings(definition: &Value) -> Vec<String> {
    let mut found = Vec::new();
    if wants_webhook(definition) {
        found.push("conversion webhooks are not called by this server: versions differ in apiVersion only".to_owned());
    }
    for version in versions(definition) {
        let Some(schema) = version.pointer("/schema/openAPIV3Schema") else {
            continue;
        };
        unknown_formats(schema, &mut found);
    }
    found
}

/// Warnings about a custom object: finalizers without a domain.
pub fn object_warnings(object: &Value) -> Vec<String> {
    let finalizers = object
        .pointer("/metadata/finalizers")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    finalizers
        .filter_map(Value::as_str)
        .filter(|name| !name.contains('/') && !matches!(*name, "orphan" | "foregroundDeletion"))
        .map(|name| {
            // A domain alone is better than nothing.
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

/// Sets or removes the conditions about what a definition asks for and does not get.
pub(super) fn note_what_is_not_done(definition: &mut Value, now: &str) {
    if wants_webhook(definition) {
        let message = "conversion webhooks are not called; objects are converted by changing apiVersion only";
        names::set_condition(
            definition,
            UNCALLED_CONDITION,
            "True",
            "WebhooksNotCalled",
            message,
            now,
        );
    } else {
        drop_condition(definition, UNCALLED_CONDITION);
    }
    drop_condition(definition, UNENFORCED_CONDITION);
}

fn drop_condition(definition: &mut Value, kind: &str) {
    if let Some(Value::Array(conditions)) = definition.pointer_mut("/status/conditions") {
        conditions.retain(|one| text(one, "type") != kind);
    }
}

fn unknown_formats(schema: &Value, found: &mut Vec<String>) {
    let format = text(schema, "format");
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
