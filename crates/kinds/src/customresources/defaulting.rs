//! Defaults of structural schemas, and the removal of nulls from fields that are not nullable.

use serde_json::{Map, Value};

use super::structural::{Additional, Node};

/// Drops the nulls in fields that can be neither null nor defaulted, as on the way in and out of the store.
pub(super) fn prune_nulls(node: &Node, value: &mut Value) {
    match value {
        Value::Object(object) => {
            let additional = match &node.additional {
                Some(Additional::Schema(inner)) => Some(inner),
                _ => None,
            };
            let inner = |name: &str| node.properties.get(name).or(additional.map(AsRef::as_ref));
            object.retain(|name, value| {
                !value.is_null() || inner(name).is_none_or(|inner| inner.nullable || inner.default.is_some())
            });
            for (name, value) in object.iter_mut() {
                if let Some(inner) = inner(name) {
                    prune_nulls(inner, value);
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = &node.items {
                items.iter_mut().for_each(|item| prune_nulls(inner, item));
            }
        }
        _ => {}
    }
}

/// Rewrites numbers as Go writes them: a float without a fraction becomes an integer.
pub fn plain_numbers(value: &mut Value) {
    match value {
        Value::Object(object) => object.values_mut().for_each(plain_numbers),
        Value::Array(items) => items.iter_mut().for_each(plain_numbers),
        Value::Number(number) => {
            if let Some(float) = number.as_f64().filter(|_| number.is_f64())
                && float.fract() == 0.0
                && float.abs() < 9e18
            {
                #[expect(clippy::cast_possible_truncation, reason = "bounded above, and without a fraction")]
                let integer = float as i64;
                *number = integer.into();
            }
        }
        _ => {}
    }
}

/// Fills in the defaults below an object's root. A null in a field that can't be null and has a default counts as absent.
pub(super) fn default_object(root: &Node, object: &mut Map<String, Value>) {
    // The object's own metadata is not the schema's business.
    let metadata = object.remove_entry("metadata");
    default_fields(root, object);
    object.extend(metadata);
}

fn default_fields(node: &Node, object: &mut Map<String, Value>) {
    for (name, property) in &node.properties {
        let null = object.get(name).is_some_and(Value::is_null);
        if null && !property.nullable && property.default.is_some() {
            object.remove(name);
        }
        if !object.contains_key(name)
            && let Some(default) = &property.default
        {
            object.insert(name.clone(), default.clone());
        }
        if let Some(value) = object.get_mut(name) {
            default(property, value);
        }
    }
    if let Some(Additional::Schema(inner)) = &node.additional {
        if let Some(default) = inner.default.as_ref().filter(|_| !inner.nullable) {
            for value in object.values_mut().filter(|value| value.is_null()) {
                *value = default.clone();
            }
        }
        object
            .iter_mut()
            .filter(|(name, _)| !node.properties.contains_key(*name))
            .for_each(|(_, value)| default(inner, value));
    }
}

fn default(node: &Node, value: &mut Value) {
    match value {
        Value::Object(object) => default_fields(node, object),
        Value::Array(items) => {
            if let Some(inner) = &node.items {
                for item in items {
                    if item.is_null()
                        && !inner.nullable
                        && let Some(default) = &inner.default
                    {
                        *item = default.clone();
                    }
                    default(inner, item);
                }
            }
        }
        _ => {}
    }
}
