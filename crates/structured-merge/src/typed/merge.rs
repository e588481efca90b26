//! Merges a configuration into a live value.

use serde_json::{Map, Value};

use super::{Shape, find_shape, list_order, type_at};
use crate::json;
use crate::schema::{ListRelation, Schema, Type, TypeRef};

/// The result of a merge. `Same` avoids a copy of the live value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// The live value is unchanged.
    Same,
    /// The merged value.
    Changed(Value),
}

pub(super) fn merge(schema: &Schema, type_ref: TypeRef, live: &Value, config: &Value) -> Outcome {
    merge_values(schema, schema.get(type_ref), live, config)
}

/// Merges two existing values. If only one exists, callers take that one as the result.
pub(super) fn merge_values(schema: &Schema, built: &Type, live: &Value, config: &Value) -> Outcome {
    match find_shape(built, config).0 {
        Shape::Map(map) if !map.atomic => {
            let live_fields = live.as_object().filter(|fields| !fields.is_empty());
            match (live_fields, config.as_object()) {
                (Some(_), None) if config.is_null() => Outcome::Same,
                (Some(live_fields), Some(config_fields)) => merge_fields(schema, map, live_fields, config_fields),
                _ => merge_leaves(live, config),
            }
        }
        Shape::List(list) if list.relation != ListRelation::Atomic => {
            let live_items = live.as_array().filter(|items| !items.is_empty());
            match (live_items, config.as_array()) {
                (Some(_), None) if config.is_null() => Outcome::Same,
                (Some(live_items), Some(config_items)) => {
                    list_order::merge_items(schema, list, live_items, config_items)
                }
                _ => merge_leaves(live, config),
            }
        }
        _ => merge_leaves(live, config),
    }
}

fn merge_leaves(live: &Value, config: &Value) -> Outcome {
    if json::equal_values(live, config) {
        Outcome::Same
    } else {
        Outcome::Changed(config.clone())
    }
}

fn merge_fields(
    schema: &Schema,
    map: &crate::schema::MapType,
    live: &Map<String, Value>,
    config: &Map<String, Value>,
) -> Outcome {
    let mut changes = Vec::new();
    for (name, value) in config {
        match live.get(name) {
            None => changes.push((name, value.clone())),
            Some(live_value) => {
                if let Outcome::Changed(merged) = merge_values(schema, type_at(schema, map, name), live_value, value) {
                    changes.push((name, merged));
                }
            }
        }
    }
    if changes.is_empty() {
        return Outcome::Same;
    }
    let mut merged = live.clone();
    for (name, value) in changes {
        merged.insert(name.clone(), value);
    }
    Outcome::Changed(Value::Object(merged))
}
