//! The defaults that built-in kinds share: defaults of the recorded types, and helpers for other defaults.
//!
//! Two passes set defaults on an object in its types' form. [`fill_declared_defaults`] walks the types and adds defaults that depend on one struct (a
//! container's pull policy). Each kind's own `defaults` adds those that depend on a whole kind (a Job's completions). Values that a running
//! cluster assigns (cluster IPs, node ports) are not defaults and are elsewhere.

mod types;

use serde_json::{Map, Value};

use super::definition::{Definition, Shape};
use super::quantity::Quantity;

/// Fills in the defaults of a struct and everything below it.
pub(crate) fn fill_declared_defaults(definition: &Definition, value: &mut Value) {
    let Value::Object(object) = value else { return };
    types::fill_defaults(&definition.name, object);
    for (name, field) in &definition.fields {
        match object.get_mut(&**name) {
            Some(present) => {
                if field.go_type.ends_with("ResourceList") {
                    round_up(present);
                }
                fill_below(&field.shape, present);
            }
            None => {
                if let Some(default) = &field.default {
                    object.insert(String::from(&**name), default.clone());
                } else if matches!(field.shape, Shape::Struct(_)) && !field.pointer && !field.omit_zero {
                    // A struct that always exists gets its own defaults even if the request omits it.
                    let mut inner = Value::Object(Map::new());
                    fill_below(&field.shape, &mut inner);
                    object.insert(String::from(&**name), inner);
                }
            }
        }
    }
}

fn fill_below(shape: &Shape, value: &mut Value) {
    match (shape, value) {
        (Shape::Struct(reference), value @ Value::Object(_)) => {
            if let Some(definition) = reference.get() {
                fill_declared_defaults(definition, value);
            }
        }
        (Shape::List(item), Value::Array(items)) if item.definition().is_some() => {
            items.iter_mut().for_each(|value| fill_below(item, value));
        }
        (Shape::Map(item), Value::Object(entries)) if item.definition().is_some() => {
            entries.values_mut().for_each(|value| fill_below(item, value));
        }
        _ => {}
    }
}

/// Rounds amounts up to whole thousandths, as in resource lists.
fn round_up(list: &mut Value) {
    for value in list.as_object_mut().into_iter().flat_map(Map::values_mut) {
        if let Some(Ok(quantity)) = value.as_str().map(Quantity::parse) {
            *value = Value::from(quantity.round_up_to_milli().canonical());
        }
    }
}

/// Sets a field that is absent or empty.
pub(crate) fn set(object: &mut Map<String, Value>, field: &str, value: impl Into<Value>) {
    if object
        .get(field)
        .is_none_or(|present| present.is_null() || present.as_str() == Some(""))
    {
        object.insert(field.to_owned(), value.into());
    }
}

/// Returns the object in a field, made if absent.
pub(crate) fn object_at<'a>(object: &'a mut Map<String, Value>, field: &str) -> Option<&'a mut Map<String, Value>> {
    object
        .entry(field)
        .or_insert_with(|| Value::Object(Map::new()))
        .as_object_mut()
}

pub(crate) fn get_text<'a>(object: &'a Map<String, Value>, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn is_empty(object: &Map<String, Value>, field: &str) -> bool {
    match object.get(field) {
        None | Some(Value::Null) => true,
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(map)) => map.is_empty(),
        Some(_) => false,
    }
}

/// Fills in a spec, made if absent.
pub(crate) fn with_spec(object: &mut Map<String, Value>, fill: impl FnOnce(&mut Map<String, Value>)) {
    if let Some(spec) = object_at(object, "spec") {
        fill(spec);
    }
}

/// Writes null where nothing is; and for an empty list, if the object is about to be stored.
pub(crate) fn null_unless_set(object: &mut Value, field: &str, stored: bool) {
    if let Some(map) = object.as_object_mut() {
        let value = map.entry(field).or_insert(Value::Null);
        if stored && value.as_array().is_some_and(Vec::is_empty) {
            *value = Value::Null;
        }
    }
}
