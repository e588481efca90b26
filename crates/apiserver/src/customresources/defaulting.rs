//! Defaults of structural schemas, and nulls where none may be.

use serde_json::{Map, Value};

use super::structural::{Additional, Node};

/// Fills in the defaults below an object's root. A null in a field that can't be null counts as absent.
pub(super) fn default_object(root: &Node, object: &mut Map<String, Value>) {
    // The object's own metadata is not the schema's business.
    let metadata = object.remove_entry("metadata");
    fields(root, object);
    object.extend(metadata);
}

fn fields(node: &Node, object: &mut Map<String, Value>) {
    for (name, property) in &node.properties {
        let null = object.get(name).is_some_and(Value::is_null);
        if null && !property.nullable {
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
        if !inner.nullable {
            match &inner.default {
                Some(default) => {
                    for value in object.values_mut().filter(|value| value.is_null()) {
                        *value = default.clone();
                    }
                }
                None => object.retain(|_, value| !value.is_null()),
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
        Value::Object(object) => fields(node, object),
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
