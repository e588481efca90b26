//! The rest of a value without some fields, and those fields alone.

use serde_json::{Map, Value};

use super::{Shape, elements::element_of, find_shape, type_at};
use crate::path::PathElement;
use crate::schema::{ListRelation, Schema, Type, TypeRef};
use crate::set::{FieldSet, Node};

pub(super) fn remove(schema: &Schema, type_ref: TypeRef, value: &Value, fields: &FieldSet) -> Value {
    remove_fields(schema, schema.get(type_ref), value, fields)
}

/// Returns the part of a value that is not in `fields`; null if nothing remains. If `fields` contains a part of an atomic value, the whole
/// value is removed.
fn remove_fields(schema: &Schema, built: &Type, value: &Value, fields: &FieldSet) -> Value {
    match (find_shape(built, value).0, value) {
        (Shape::Scalar(_) | Shape::Nothing, value) => value.clone(),
        (Shape::List(list), Value::Array(items)) if list.relation != ListRelation::Atomic => {
            let mut left = Vec::with_capacity(items.len());
            for item in items {
                match element_of(schema, list, item)
                    .ok()
                    .and_then(|element| fields.node(&element))
                {
                    Some(node) if node.member => {}
                    Some(node) => left.push(remove_fields(schema, schema.get(list.element), item, &node.children)),
                    None => left.push(item.clone()),
                }
            }
            if left.is_empty() {
                Value::Null
            } else {
                Value::Array(left)
            }
        }
        (Shape::Map(map), Value::Object(present)) if !map.atomic => {
            let mut left = Map::new();
            for (name, item) in present {
                match fields.node(&PathElement::field(name)) {
                    Some(node) if node.member => {}
                    Some(node) => {
                        left.insert(
                            name.clone(),
                            remove_fields(schema, type_at(schema, map, name), item, &node.children),
                        );
                    }
                    None => {
                        left.insert(name.clone(), item.clone());
                    }
                }
            }
            if left.is_empty() {
                Value::Null
            } else {
                Value::Object(left)
            }
        }
        _ => Value::Null,
    }
}

pub(super) fn extract_fields(
    schema: &Schema,
    type_ref: TypeRef,
    value: &Value,
    fields: &FieldSet,
    with_keys: bool,
) -> Value {
    extract_below(schema, schema.get(type_ref), value, fields, with_keys)
}

fn extract_below(schema: &Schema, built: &Type, value: &Value, fields: &FieldSet, with_keys: bool) -> Value {
    match (find_shape(built, value).0, value) {
        (Shape::List(list), Value::Array(items)) if list.relation != ListRelation::Atomic => {
            let mut kept = Vec::new();
            for item in items {
                let Ok(element) = element_of(schema, list, item) else {
                    continue;
                };
                let Some(node) = fields.node(&element) else {
                    continue;
                };
                let mut part = extract_child(schema, schema.get(list.element), item, node, with_keys);
                if let (true, PathElement::Key(key), Value::Object(part), Value::Object(item)) =
                    (with_keys, &element, &mut part, item)
                {
                    for field in key.iter() {
                        if let Some(value) = item.get(&*field.name) {
                            part.insert(field.name.to_string(), value.clone());
                        }
                    }
                }
                kept.push(part);
            }
            Value::Array(kept)
        }
        (Shape::Map(map), Value::Object(present)) if !map.atomic => {
            let kept = present.iter().filter_map(|(name, item)| {
                let node = fields.node(&PathElement::field(name))?;
                Some((
                    name.clone(),
                    extract_child(schema, type_at(schema, map, name), item, node, with_keys),
                ))
            });
            Value::Object(kept.collect())
        }
        (_, value) => value.clone(),
    }
}

/// Returns the part of a child that a node stands for. A manager that owns a granular list or map, but nothing in it, owns its existence.
fn extract_child(schema: &Schema, built: &Type, value: &Value, node: &Node, with_keys: bool) -> Value {
    extract_below(schema, built, value, &node.children, with_keys)
}
