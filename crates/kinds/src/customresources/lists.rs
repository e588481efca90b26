//! Lists that are sets or maps: distinction of items, errors for duplicates, and lookup of old items.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};
use tenure_checkpoint::checkpoint;

use super::structural::{Additional, ListType, Node};
use super::value_path::ValuePath;
use crate::schema::FieldError;

/// Reports duplicates in sets and maps, at any depth.
pub(super) fn check(node: &Node, value: &Value, path: &ValuePath<'_>, errors: &mut Vec<FieldError>) {
    if !node.has_correlated_lists {
        return;
    }
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                if let Some(property) = node.properties.get(name) {
                    check(property, value, &path.field(name), errors);
                } else if let Some(Additional::Schema(inner)) = &node.additional {
                    check(inner, value, &path.field(name), errors);
                }
            }
        }
        Value::Array(items) => {
            report_duplicates(node, items, path, errors);
            if let Some(inner) = &node.items {
                for (index, item) in items.iter().enumerate() {
                    check(inner, item, &path.item(index), errors);
                }
            }
        }
        _ => {}
    }
}

fn report_duplicates(node: &Node, items: &[Value], path: &ValuePath<'_>, errors: &mut Vec<FieldError>) {
    let map = node.list_type == Some(ListType::Map);
    if !map && node.list_type != Some(ListType::Set) {
        return;
    }
    let mut seen: HashSet<Value> = HashSet::new();
    for (index, item) in items.iter().enumerate() {
        checkpoint();
        let identity = match item {
            Value::Object(_) if map => item_key(node, item),
            _ if map => {
                let detail = "must be an object for an array of list-type map";
                errors.push(FieldError::invalid(path.item(index), item.clone(), detail));
                continue;
            }
            _ => item.clone(),
        };
        if let Some(twice) = seen.replace(identity) {
            errors.push(FieldError::duplicate(path.item(index), twice));
        }
    }
}

fn item_key(node: &Node, item: &Value) -> Value {
    let keys: Map<String, Value> = node
        .list_keys
        .iter()
        .filter_map(|name| Some((name.clone(), item.get(name)?.clone())))
        .collect();
    Value::Object(keys)
}

/// The items of an old list by their keys, if the list has keys. Of items with equal keys, the first one counts.
pub(super) struct Correlated<'a>(HashMap<Value, &'a Value>);

impl<'a> Correlated<'a> {
    pub(super) fn from_items(node: &Node, old: Option<&'a Value>) -> Self {
        let mut by_key = HashMap::new();
        if node.list_type == Some(ListType::Map) {
            for item in old.and_then(Value::as_array).into_iter().flatten() {
                checkpoint();
                by_key.entry(item_key(node, item)).or_insert(item);
            }
        }
        Self(by_key)
    }

    /// Returns the old item with equal keys.
    pub(super) fn find(&self, node: &Node, item: &Value) -> Option<&'a Value> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&item_key(node, item)).copied()
    }
}
