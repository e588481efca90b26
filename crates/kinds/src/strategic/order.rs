//! The order of merged lists: `$setElementOrder`, and the order without it.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};
use tenure_checkpoint::checkpoint;

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
            let doomed: HashSet<Value> = doomed.into_iter().collect();
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
        let listed = Positions::from_items(&order, key);
        for item in given.iter().flatten() {
            if item.get(super::DIRECTIVE).is_none() && listed.of_item(item, key).is_none() {
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
        let arranged = arrange_items(merged, &order, &before.unwrap_or_default(), key);
        original.insert(name.to_owned(), Value::Array(arranged));
    }
    Ok(())
}

/// Returns the identity of an item: the value of the merge key, or the whole item.
pub(super) fn item_identity<'a>(item: &'a Value, key: Option<&str>) -> Option<&'a Value> {
    match key {
        Some(key) => item.get(key),
        None => Some(item),
    }
}

/// The positions of a list's items; of equal items, the first.
pub(super) struct Positions(HashMap<Value, usize>);

impl Positions {
    pub(super) fn from_items(items: &[Value], key: Option<&str>) -> Self {
        let mut positions = Self(HashMap::with_capacity(items.len()));
        for (position, item) in items.iter().enumerate() {
            checkpoint();
            if let Some(identity) = item_identity(item, key) {
                positions.add(identity.clone(), position);
            }
        }
        positions
    }

    pub(super) fn add(&mut self, identity: Value, position: usize) {
        self.0.entry(identity).or_insert(position);
    }

    pub(super) fn find(&self, identity: &Value) -> Option<usize> {
        self.0.get(identity).copied()
    }

    fn of_item(&self, item: &Value, key: Option<&str>) -> Option<usize> {
        self.find(item_identity(item, key)?)
    }
}

/// Puts items in order: those of `patch_order` in that order, the others in the server's, and both interleaved so that
/// neighbours on the server stay neighbours where possible.
pub(super) fn arrange_items(
    items: Vec<Value>,
    patch_order: &[Value],
    server_order: &[Value],
    key: Option<&str>,
) -> Vec<Value> {
    let (in_patch, on_server) = (
        Positions::from_items(patch_order, key),
        Positions::from_items(server_order, key),
    );
    let mut patched = Vec::new();
    let mut others = Vec::new();
    for item in items {
        let place = on_server.of_item(&item, key);
        match in_patch.of_item(&item, key) {
            Some(position) => patched.push((position, place, item)),
            None => others.push((place, item)),
        }
    }
    patched.sort_by_key(|(position, ..)| *position);
    others.sort_by_key(|(place, _)| *place);
    let mut arranged = Vec::with_capacity(patched.len() + others.len());
    let mut patched = patched.into_iter().peekable();
    let mut others = others.into_iter().peekable();
    loop {
        let other_first = match (others.peek(), patched.peek()) {
            (None, None) => return arranged,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some((Some(other), _)), Some((_, Some(patch), _))) => other < patch,
            _ => false,
        };
        arranged.extend(if other_first {
            others.next().map(|(_, item)| item)
        } else {
            patched.next().map(|(.., item)| item)
        });
    }
}
