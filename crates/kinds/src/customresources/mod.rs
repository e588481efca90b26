//! CustomResourceDefinitions and the resources that they define.
//!
//! Owns what makes a definition acceptable, which names it gets, and what its schema means for objects: pruning,
//! defaulting, validation, rules, columns, OpenAPI. Pure: definitions and objects in, verdicts out; the registry decides
//! when to ask. Refuses to bring objects from one version into another: that is `conversion`.

mod conversion_rules;
mod defaulting;
mod definition;
mod field_paths;
mod formats;
mod lists;
mod names;
mod openapi;
mod pruning;
mod rule_checks;
mod rules;
mod scaling;
mod schema;
mod schema_rules;
mod structural;
mod structural_rules;
mod value_path;
mod values;
mod warnings;

use serde_json::Value;

pub use defaulting::plain_numbers;
pub use definition::{validate_definition, validate_definition_update};
pub use names::{accept_names, is_established, prepare_create, prepare_update, set_condition, set_terminating};
pub use openapi::openapi_document;
pub use schema::CustomSchema;
pub use schema::read_metadata;
pub use warnings::{object_warnings, warnings};

use crate::table::CustomColumns;

/// The entry of `spec.versions` with that name.
pub fn version<'a>(definition: &'a Value, name: &str) -> Option<&'a Value> {
    versions(definition).find(|version| version.get("name").and_then(Value::as_str) == Some(name))
}

/// All entries of `spec.versions`.
pub fn versions(definition: &Value) -> impl Iterator<Item = &Value> {
    definition
        .pointer("/spec/versions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

/// The columns of a version's tables.
pub fn columns(definition: &Value, version_name: &str) -> CustomColumns {
    CustomColumns::new(version(definition, version_name).and_then(|version| version.get("additionalPrinterColumns")))
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests;
