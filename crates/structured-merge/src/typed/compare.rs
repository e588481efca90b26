//! The difference of two values.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Comparison, Shape, elements::element_of, find_shape, type_at};
use crate::json;
use crate::path::PathElement;
use crate::schema::{ListRelation, ListType, MapType, Schema, Type, TypeRef, Zero};

pub(super) fn compare_objects(schema: &Schema, type_ref: TypeRef, old: &Value, new: &Value) -> Comparison {
    let mut comparison = Comparison::default();
    compare_values(schema, schema.get(type_ref), Some(old), Some(new), &mut comparison);
    comparison
}

/// The change of a value as a whole, apart from changes inside it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    Removed,
    Modified,
    Added,
}

/// Compares two values, of which one may be missing. `inside` gets the differences below them.
fn compare_values(
    schema: &Schema,
    built: &Type,
    old: Option<&Value>,
    new: Option<&Value>,
    inside: &mut Comparison,
) -> Change {
    let (old_shape, new_shape) = (
        old.map(|value| find_shape(built, value)),
        new.map(|value| find_shape(built, value)),
    );
    match (old_shape, new_shape) {
        (None, None) => Change::None,
        (Some((shape, _)), None) => compare_shaped(schema, shape, old, new, inside).unwrap_or(Change::Removed),
        (None, Some((shape, _))) => compare_shaped(schema, shape, old, new, inside).unwrap_or(Change::Added),
        (Some((_, old_settled)), Some((shape, new_settled))) if old_settled == new_settled => {
            compare_shaped(schema, shape, old, new, inside).unwrap_or(Change::None)
        }
        // A value whose kind has changed is compared as both kinds.
        (Some((old_shape, _)), Some((new_shape, _))) => {
            let as_old = compare_shaped(schema, old_shape, old, new, inside).unwrap_or(Change::None);
            let as_new = compare_shaped(schema, new_shape, old, new, inside).unwrap_or(Change::None);
            if as_new == Change::None { as_old } else { as_new }
        }
    }
}

/// Returns the change of a leaf; `None` if the values aren't leaves, and all changes are in `inside`.
fn compare_shaped(
    schema: &Schema,
    shape: Shape<'_>,
    old: Option<&Value>,
    new: Option<&Value>,
    inside: &mut Comparison,
) -> Option<Change> {
    match shape {
        Shape::Scalar(_) | Shape::Nothing => Some(compare_leaves(old, new)),
        Shape::List(list) => {
            let (old_items, new_items) = (items_of(old), items_of(new));
            if list.relation == ListRelation::Atomic || (old_items.is_empty() && new_items.is_empty()) {
                return Some(compare_leaves(old, new));
            }
            compare_items(schema, list, old_items, new_items, inside);
            None
        }
        Shape::Map(map) => {
            let (old_fields, new_fields) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
            let is_empty = |fields: Option<&Map<String, Value>>| {
                fields.is_none_or(|fields| fields.is_empty() && !map.holds_structs)
            };
            if map.atomic || (is_empty(old_fields) && is_empty(new_fields)) {
                return Some(compare_leaves(old, new));
            }
            compare_fields(schema, map, old_fields, new_fields, inside);
            None
        }
    }
}

fn compare_leaves(old: Option<&Value>, new: Option<&Value>) -> Change {
    match (old, new) {
        (None, None) => Change::None,
        (Some(_), None) => Change::Removed,
        (None, Some(_)) => Change::Added,
        (Some(old), Some(new)) if json::equal_values(old, new) => Change::None,
        (Some(_), Some(_)) => Change::Modified,
    }
}

fn items_of(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Puts a child's differences into its parent's.
fn add_difference(inside: &mut Comparison, element: impl FnOnce() -> PathElement, change: Change, child: Comparison) {
    if change == Change::None && child.is_same() {
        return;
    }
    let element = element();
    match change {
        Change::None => {}
        Change::Removed => inside.removed.insert_element(element.clone()),
        Change::Modified => inside.modified.insert_element(element.clone()),
        Change::Added => inside.added.insert_element(element.clone()),
    }
    inside.removed.extend_below(element.clone(), child.removed);
    inside.modified.extend_below(element.clone(), child.modified);
    inside.added.extend_below(element, child.added);
}

fn compare_fields(
    schema: &Schema,
    map: &MapType,
    old: Option<&Map<String, Value>>,
    new: Option<&Map<String, Value>>,
    inside: &mut Comparison,
) {
    let mut one = |name: &str, old: Option<&Value>, new: Option<&Value>| {
        let mut child = Comparison::default();
        let change = compare_values(schema, type_at(schema, map, name), old, new, &mut child);
        add_difference(
            inside,
            || {
                map.field(name).map_or_else(
                    || PathElement::field(name),
                    |field| PathElement::Field(field.name.clone()),
                )
            },
            change,
            child,
        );
    };
    // Some fields of a struct exist even if the JSON lacks them.
    let zero = |fields: Option<&Map<String, Value>>, name: &str| -> Option<&Value> {
        let known = fields.filter(|_| map.is_struct).and_then(|_| map.field(name))?;
        known.zero.as_ref().map(Zero::value)
    };
    for (name, old_value) in old.into_iter().flatten() {
        one(
            name,
            Some(old_value),
            new.and_then(|new| new.get(name)).or_else(|| zero(new, name)),
        );
    }
    for (name, new_value) in new.into_iter().flatten() {
        if old.is_none_or(|old| !old.contains_key(name)) {
            one(name, zero(old, name), Some(new_value));
        }
    }
    // Fields that neither side spells out matter only if one side is no struct at all.
    if map.holds_structs && (old.is_none() != new.is_none()) {
        for field in map
            .fields
            .iter()
            .filter(|field| matches!(field.zero, Some(Zero::Struct(_))))
        {
            let spelled =
                |fields: Option<&Map<String, Value>>| fields.is_some_and(|fields| fields.contains_key(&*field.name));
            if !spelled(old) && !spelled(new) {
                one(&field.name, zero(old, &field.name), zero(new, &field.name));
            }
        }
    }
}

fn compare_items(schema: &Schema, list: &ListType, old: &[Value], new: &[Value], inside: &mut Comparison) {
    let mut by_element: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for item in old {
        if let Ok(element) = element_of(schema, list, item) {
            by_element.entry(element).or_default().0.push(item);
        }
    }
    for item in new {
        if let Ok(element) = element_of(schema, list, item) {
            by_element.entry(element).or_default().1.push(item);
        }
    }
    let item_type = schema.get(list.element);
    for (element, (olds, news)) in by_element {
        let mut child = Comparison::default();
        let change = match (olds.as_slice(), news.as_slice()) {
            (olds @ ([] | [_]), news @ ([] | [_])) => compare_values(
                schema,
                item_type,
                olds.first().copied(),
                news.first().copied(),
                &mut child,
            ),
            // Items with one key are owned together, so they are compared together.
            (olds @ [_, _, ..], news @ [_, _, ..]) => {
                let same =
                    olds.len() == news.len() && olds.iter().zip(news).all(|(old, new)| json::equal_values(old, new));
                if same { Change::None } else { Change::Modified }
            }
            ([_, _, ..], news) => {
                if let Some(new) = news.first() {
                    // The one remaining item counts as a new item with its own fields.
                    let added = compare_values(schema, item_type, None, Some(new), &mut child);
                    add_difference(inside, || element.clone(), added, std::mem::take(&mut child));
                }
                Change::Removed
            }
            (olds, _) => {
                if let Some(old) = olds.first() {
                    let removed = compare_values(schema, item_type, Some(old), None, &mut child);
                    add_difference(inside, || element.clone(), removed, std::mem::take(&mut child));
                }
                Change::Added
            }
        };
        add_difference(inside, || element, change, child);
    }
}
