//! Merges lists: by merge key, as sets of scalars, or as a whole.

use std::collections::HashSet;

use serde_json::{Map, Value};
use tenure_checkpoint::checkpoint;

use super::order::{self, Positions, item_identity};
use super::{DIRECTIVE, StrategicError, merge_map};
use crate::schema::{Definition, Field};

/// Merges a patch's list into a field's list by the field's strategy.
pub(super) fn merge_field(
    name: &str,
    original: Vec<Value>,
    patch: Vec<Value>,
    field: Option<&Field>,
) -> Result<Vec<Value>, StrategicError> {
    if !field.is_some_and(|field| field.patch_strategy.merge) {
        // The list is replaced as a whole. A directive in it is an unknown field, and is treated as such.
        return Ok(patch);
    }
    let key = field.and_then(|field| field.patch_merge_key.as_deref());
    let definition = field.and_then(|field| field.shape.definition()).cloned();
    merge(name, original, patch, key, definition.as_deref())
}

/// Merges two lists; the order is the patch's for its items, the live object's for the others.
pub(super) fn merge(
    name: &str,
    original: Vec<Value>,
    patch: Vec<Value>,
    key: Option<&str>,
    definition: Option<&Definition>,
) -> Result<Vec<Value>, StrategicError> {
    let scalars = original.iter().chain(&patch).all(|item| !item.is_object());
    if scalars {
        let mut known: HashSet<&Value> = original.iter().collect();
        let added = patch.iter().filter(|item| known.insert(item)).cloned();
        let merged = original.iter().cloned().chain(added).collect();
        return Ok(order::arrange_items(merged, &patch, &original, None));
    }
    let Some(key) = key else {
        return Err(StrategicError::NoMergeKey(name.to_owned()));
    };
    let server_order = original.clone();
    let (mut merged, patch) = apply_directives(original, patch, key)?;
    let patch_order = patch.clone();
    // The position of the item with a key; of several such items, the first.
    let mut places = Positions::from_items(&merged, Some(key));
    for item in patch {
        checkpoint();
        let Value::Object(item) = item else { continue };
        let Some(value) = item.get(key).cloned() else {
            return Err(StrategicError::MissingMergeKey {
                item: go_words::value::print(&Value::Object(item)),
                key: key.to_owned(),
            });
        };
        match places.find(&value).and_then(|position| merged.get_mut(position)) {
            Some(known) => {
                let before = match std::mem::take(known) {
                    Value::Object(before) => before,
                    _ => Map::new(),
                };
                *known = Value::Object(merge_map(before, item, definition)?);
            }
            None => {
                places.add(value, merged.len());
                merged.push(Value::Object(item));
            }
        }
    }
    Ok(order::arrange_items(merged, &patch_order, &server_order, Some(key)))
}

/// Executes the `$patch` items of a list, and returns the rest of both lists.
fn apply_directives(
    original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), StrategicError> {
    let mut merged = original;
    let mut plain = Vec::new();
    let mut replace = false;
    let mut doomed: HashSet<Value> = HashSet::new();
    for item in patch {
        let Some(directive) = item.get(DIRECTIVE) else {
            plain.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                if item.get(key).is_none() {
                    return Err(StrategicError::DeleteWithoutKey);
                }
                doomed.extend(item_identity(&item, Some(key)).cloned());
            }
            Some("replace") => replace = true,
            Some("merge") => return Err(StrategicError::MergeInList),
            other => {
                return Err(StrategicError::UnknownDirective(
                    other.map_or_else(|| directive.to_string(), str::to_owned),
                ));
            }
        }
    }
    if replace {
        merged = Vec::new();
    }
    merged.retain(|known| item_identity(known, Some(key)).is_none_or(|key| !doomed.contains(key)));
    Ok((merged, plain))
}
