//! The fields of a value.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Shape, elements::element_of, find_shape, type_at};
use crate::path::PathElement;
use crate::schema::{ListRelation, ListType, MapType, Schema, Type, TypeRef};
use crate::set::{FieldSet, Node};

pub(super) fn field_set(schema: &Schema, type_ref: TypeRef, value: &Value) -> FieldSet {
    collect_value(schema, schema.get(type_ref), value).1
}

/// Returns whether the value itself is a leaf, and the members below it.
fn collect_value(schema: &Schema, built: &Type, value: &Value) -> (bool, FieldSet) {
    match find_shape(built, value).0 {
        Shape::Scalar(_) => (true, FieldSet::new()),
        Shape::List(list) if list.relation == ListRelation::Atomic => (true, FieldSet::new()),
        Shape::Map(map) if map.atomic => (true, FieldSet::new()),
        Shape::List(list) => (
            false,
            value
                .as_array()
                .map_or_else(FieldSet::new, |items| collect_items(schema, list, items)),
        ),
        Shape::Map(map) => (
            false,
            value
                .as_object()
                .map_or_else(FieldSet::new, |fields| collect_fields(schema, map, fields)),
        ),
        Shape::Nothing => (false, FieldSet::new()),
    }
}

fn collect_fields(schema: &Schema, map: &MapType, fields: &serde_json::Map<String, Value>) -> FieldSet {
    let mut nodes = Vec::with_capacity(fields.len());
    for (name, value) in fields {
        let (is_leaf, children) = collect_value(schema, type_at(schema, map, name), value);
        let is_hollow = match value {
            Value::Null => true,
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        };
        let declared = map.field(name);
        // A struct's field exists by the schema. A map's key exists only because a writer added it.
        let member = is_leaf || is_hollow || declared.is_none();
        if member || !children.is_empty() {
            let element = match declared {
                Some(field) => PathElement::Field(field.name.clone()),
                None => PathElement::field(name),
            };
            nodes.push(Node {
                element,
                member,
                children,
            });
        }
    }
    FieldSet { nodes }
}

fn collect_items(schema: &Schema, list: &ListType, items: &[Value]) -> FieldSet {
    let mut by_element: BTreeMap<PathElement, Vec<&Value>> = BTreeMap::new();
    for item in items {
        if let Ok(element) = element_of(schema, list, item) {
            by_element.entry(element).or_default().push(item);
        }
    }
    let nodes = by_element
        .into_iter()
        .map(|(element, items)| {
            // Of several items with one key, a manager can only own all of them together.
            let children = match items.as_slice() {
                [only] => collect_value(schema, schema.get(list.element), only).1,
                _ => FieldSet::new(),
            };
            Node {
                element,
                member: true,
                children,
            }
        })
        .collect();
    FieldSet { nodes }
}
