//! What a writer is warned of, as `Warning` headers, and the condition that keeps one warning visible.

use serde_json::Value;

use super::structural::Node;
use super::{formats, names, text, versions};

/// The condition of a definition whose validation rules are stored and not enforced.
pub const UNENFORCED_CONDITION: &str = "ValidationRulesNotEnforced";

/// Warnings about a definition: rules that are not evaluated, formats that nobody knows.
pub fn warnings(definition: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for version in versions(definition) {
        let Some(schema) = version.pointer("/schema/openAPIV3Schema") else {
            continue;
        };
        unknown_formats(schema, &mut found);
        if Node::parse(schema).has_rules {
            found.push(format!(
                "version {}: x-kubernetes-validations are stored but not enforced by this server",
                text(version, "name")
            ));
        }
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

/// Sets or removes the condition about rules.
pub(super) fn note_unenforced_rules(definition: &mut Value, now: &str) {
    let ruled: Vec<String> = versions(definition)
        .filter(|version| {
            version
                .pointer("/schema/openAPIV3Schema")
                .is_some_and(|schema| Node::parse(schema).has_rules)
        })
        .map(|version| text(version, "name").to_owned())
        .collect();
    if ruled.is_empty() {
        if let Some(Value::Array(conditions)) = definition.pointer_mut("/status/conditions") {
            conditions.retain(|one| text(one, "type") != UNENFORCED_CONDITION);
        }
        return;
    }
    let message = format!(
        "x-kubernetes-validations of version {} are stored but not evaluated",
        ruled.join(", ")
    );
    names::set_condition(
        definition,
        UNENFORCED_CONDITION,
        "True",
        "RulesNotEvaluated",
        &message,
        now,
    );
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
