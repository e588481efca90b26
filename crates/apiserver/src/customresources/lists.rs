//! Lists that are sets or maps: items told apart, duplicates refused, old items found again.

use serde_json::{Map, Value};

use super::structural::{Additional, ListType, Node};
use super::values::child;
use crate::schema::FieldError;

/// Complains about duplicates in sets and maps, at any depth.
pub(super) fn check(node: &Node, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                if let Some(property) = node.properties.get(name) {
                    check(property, value, &child(path, name), errors);
                } else if let Some(Additional::Schema(inner)) = &node.additional {
                    check(inner, value, &child(path, name), errors);
                }
            }
        }
        Value::Array(items) => {
            duplicates(node, items, path, errors);
            if let Some(inner) = &node.items {
                for (index, item) in items.iter().enumerate() {
                    check(inner, item, &format!("{path}[{index}]"), errors);
                }
            }
        }
        _ => {}
    }
}

fn duplicates(node: &Node, items: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    let map = node.list_type == Some(ListType::Map);
    if !map && node.list_type != Some(ListType::Set) {
        return;
    }
    let mut seen: Vec<Value> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let identity = match item {
            Value::Object(_) if map => key(node, item),
            _ if map => {
                let detail = "must be an object for an array of list-type map";
                errors.push(FieldError::invalid(format!("{path}[{index}]"), item.clone(), detail));
                continue;
            }
            _ => item.clone(),
        };
        if seen.contains(&identity) {
            errors.push(FieldError::duplicate(format!("{path}[{index}]"), identity));
        } else {
            seen.push(identity);
        }
    }
}

fn key(node: &Node, item: &Value) -> Value {
    let keys: Map<String, Value> = node
        .list_keys
        .iter()
        .filter_map(|name| Some((name.clone(), item.get(name)?.clone())))
        .collect();
    Value::Object(keys)
}

/// The old item with the same keys.
pub(super) fn correlated<'a>(node: &Node, item: &Value, old: &'a Value) -> Option<&'a Value> {
    if node.list_type != Some(ListType::Map) {
        return None;
    }
    let wanted = key(node, item);
    old.as_array()?.iter().find(|known| key(node, known) == wanted)
}
