//! CustomResourceDefinitions and the resources that they define.
//!
//! This module decides whether a definition is valid, accepts its names, and applies its schema to objects: pruning, defaulting,
//! validation, rules, columns, OpenAPI. All functions are pure: definitions and objects in, results out. The registry decides when to call
//! them. This module calls no conversion webhook.

mod compile;
mod conversion_rules;
mod defaulting;
mod definition;
mod field_paths;
mod formats;
mod lists;
mod names;
mod openapi;
mod priority;
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

pub use compile::compile_definition;
pub use defaulting::plain_numbers;
pub use definition::{validate_definition, validate_definition_update};
pub use names::{accept_names, is_established, prepare_create, prepare_update, set_condition, set_terminating};
pub use openapi::openapi_document;
pub use priority::version_priority;
pub use schema::CustomSchema;
pub use schema::read_metadata;
pub use warnings::{list_warnings, object_warnings};

use crate::kind::{Generation, Kind, Objects, OwnersFirst};
use crate::object::ObjectExt;
use crate::table::CustomColumns;

/// The API group of definitions.
pub const GROUP: &str = "apiextensions.k8s.io";
/// Their plural in URLs.
pub const PLURAL: &str = "customresourcedefinitions";

/// The kind value of all custom resources. The content of a definition is in [`crate::kind::CustomKind`].
pub static CUSTOM: Kind = Kind {
    needs_resource_version: true,
    owners_first: OwnersFirst::Always,
    generation: Generation::Counted,
    status_writes_metadata: false,
    warnings: object_warnings,
    ..Kind::new("", "", "")
};

/// Returns the stored definitions.
#[must_use]
pub fn list_definitions(objects: &dyn Objects) -> Vec<Value> {
    objects.list(GROUP, PLURAL, None)
}

/// Writes the server's part of a definition: its status, with the names that are still free.
pub fn complete_definition(definition: &mut Value, live: Option<&Value>, objects: &dyn Objects, now: &str) {
    match live {
        None => prepare_create(definition),
        Some(live) => prepare_update(definition, live),
    }
    let others: Vec<Value> = list_definitions(objects)
        .into_iter()
        .filter(|other| other.name() != definition.name())
        .collect();
    if let Some(accepted) = accept_names(definition, &others, now) {
        *definition = accepted;
    }
}

/// Returns the entry of `spec.versions` with that name.
pub fn find_version<'a>(definition: &'a Value, name: &str) -> Option<&'a Value> {
    list_versions(definition).find(|version| version.get("name").and_then(Value::as_str) == Some(name))
}

/// Returns the entries of `spec.versions`.
pub fn list_versions(definition: &Value) -> impl Iterator<Item = &Value> {
    definition
        .pointer("/spec/versions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

/// Returns the columns of a version's tables.
pub fn make_columns(definition: &Value, version_name: &str) -> CustomColumns {
    CustomColumns::new(
        find_version(definition, version_name).and_then(|version| version.get("additionalPrinterColumns")),
    )
}

fn get_text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests;
