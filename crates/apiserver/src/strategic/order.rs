//! The order of merged lists: `$setElementOrder`, and what holds without it.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::{DELETE_FROM, SET_ORDER, StrategicError, lists};
use crate::schema::Definition;

/// Merges every list that has a `$setElementOrder` and takes both the list and the directive out of the patch.
pub(super) fn merge_ordered(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    definition: Option<&Definition>,
) -> Result<(), StrategicError> {
    let directives: Vec<String> = patch.keys().filter(|key| key.starts_with(SET_ORDER)).cloned().collect();
    for directive in directives {
        let Some(order) = patch.remove(&directive) else {
            continue;
        };
        let Value::Array(order) = order else {
            return Err(StrategicError::NotAList { directive });
        };
        let name = directive.strip_prefix(SET_ORDER).unwrap_or_default();
        let field = definition.and_then(|definition| definition.fields.get(name));
        let key = field
            .and_then(|field| field.patch_merge_key.as_deref())
            .filter(|_| order.iter().any(Value::is_object));
        if let Some(Value::Array(doomed)) = patch.remove(&format!("{DELETE_FROM}{name}"))
            && let Some(Value::Array(items)) = original.get_mut(name)
        {
            items.retain(|item| !doomed.contains(item));
        }
        let given = match patch.remove(name) {
            Some(Value::Array(items)) => Some(items),
            Some(Value::Null) => {
                original.remove(name);
                continue;
            }
            _ => None,
        };
        for item in given.iter().flatten() {
            let listed = item.get(super::DIRECTIVE).is_some() || order.iter().any(|known| same(known, item, key));
            if !listed {
                return Err(StrategicError::OrderMismatch { field: name.to_owned() });
            }
        }
        let before = match original.remove(name) {
            Some(Value::Array(items)) => Some(items),
            Some(other) => {
                original.insert(name.to_owned(), other);
                continue;
            }
            None => None,
        };
        let merged = match (before.clone(), given) {
            (None, None) => continue,
            (Some(before), None) => before,
            (before, Some(given)) => {
                let merge = |before| match field {
                    Some(field) => lists::merge_field(name, before, given.clone(), Some(field)),
                    None => lists::merge(name, before, given.clone(), key, None),
                };
                merge(before.unwrap_or_default())?
            }
        };
        let arranged = arrange(merged, &order, &before.unwrap_or_default(), key);
        original.insert(name.to_owned(), Value::Array(arranged));
    }
    Ok(())
}

/// Whether two items are the same one: by the merge key, or by value.
pub(super) fn same(left: &Value, right: &Value, key: Option<&str>) -> bool {
    match key {
        Some(key) => left.get(key).is_some() && left.get(key) == right.get(key),
        None => left == right,
    }
}

/// Puts items in order: those of `patch_order` in that order, the others in the server's, and both interleaved so that
/// neighbours on the server stay neighbours where possible.
pub(super) fn arrange(
    items: Vec<Value>,
    patch_order: &[Value],
    server_order: &[Value],
    key: Option<&str>,
) -> Vec<Value> {
    let index = |order: &[Value], item: &Value| order.iter().position(|known| same(known, item, key));
    let (mut patched, mut others): (Vec<Value>, Vec<Value>) =
        items.into_iter().partition(|item| index(patch_order, item).is_some());
    let by = |order: &[Value], left: &Value, right: &Value| match (index(order, left), index(order, right)) {
        (Some(left), Some(right)) => left.cmp(&right),
        _ => Ordering::Equal,
    };
    patched.sort_by(|left, right| by(patch_order, left, right));
    others.sort_by(|left, right| by(server_order, left, right));
    let mut arranged = Vec::with_capacity(patched.len() + others.len());
    let mut patched = patched.into_iter().peekable();
    let mut others = others.into_iter().peekable();
    loop {
        let other_first = match (others.peek(), patched.peek()) {
            (None, None) => return arranged,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(other), Some(patch)) => match (index(server_order, other), index(server_order, patch)) {
                (Some(other), Some(patch)) => other < patch,
                _ => false,
            },
        };
        arranged.extend(if other_first { others.next() } else { patched.next() });
    }
}
