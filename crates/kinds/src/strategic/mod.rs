//! Strategic merge patches for built-in kinds, directives included.
//!
//! A patch document is merged into a live object by the kind's merge keys and strategies. A patch that can't be executed exactly is an
//! error (an item without its merge key, an unknown directive). Custom resources have no strategies, and the server answers 415 for them.

mod lists;
mod order;

use std::collections::HashSet;

use serde_json::{Map, Value};
use tenure_checkpoint::checkpoint;

use crate::schema::Definition;

/// A patch that can't be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StrategicError {
    /// The patch is not an object.
    #[error("cannot apply a strategic merge patch that is not an object")]
    NotAnObject,
    /// `$patch` has a value that this place does not know.
    #[error("unknown patch type found: [{0}]")]
    UnknownDirective(String),
    /// An item of a keyed list has no key.
    #[error("map: {item} does not contain declared merge key: {key}")]
    MissingMergeKey {
        /// The item, as Go prints it.
        item: String,
        /// The key.
        key: String,
    },
    /// `$patch: delete` in a list without a merge key.
    #[error("delete patch type with no merge key defined")]
    DeleteWithoutKey,
    /// `$patch: merge` in a list.
    #[error("merging lists cannot yet be specified in the patch")]
    MergeInList,
    /// A list of objects must be merged, but its merge key is unknown.
    #[error("cannot merge lists without merge key for {0}")]
    NoMergeKey(String),
    /// A directive's value has the wrong type.
    #[error("{}", not_a_list(directive))]
    NotAList {
        /// The directive.
        directive: String,
    },
    /// `$retainKeys` does not name a field that the patch sets.
    #[error("invalid patch format of retainKeys")]
    RetainKeysMismatch(String),
    /// `$setElementOrder` lacks an item of the patch.
    #[error("the items of the patch's list {field:?} don't match its $setElementOrder list")]
    OrderMismatch {
        /// The list.
        field: String,
    },
}

impl StrategicError {
    /// Returns whether the form of the patch is the cause. For every other error, Kubernetes reports an internal failure.
    pub fn is_of_form(&self) -> bool {
        matches!(
            self,
            Self::NotAnObject | Self::NotAList { .. } | Self::RetainKeysMismatch(_)
        )
    }
}

fn not_a_list(directive: &str) -> String {
    if directive == RETAIN_KEYS {
        "invalid patch format of retainKeys".to_owned()
    } else {
        format!("{directive} must be a list")
    }
}

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const SET_ORDER: &str = "$setElementOrder/";

/// Merges `patch` into `live`, an object of the kind that `definition` describes.
///
/// # Errors
/// A patch that does not fit the object or the kind; the server answers 400.
pub fn strategic_merge(live: &Value, patch: &Value, definition: &Definition) -> Result<Value, StrategicError> {
    let (Value::Object(live), Value::Object(patch)) = (live, patch) else {
        return Err(StrategicError::NotAnObject);
    };
    Ok(Value::Object(merge_map(live.clone(), patch.clone(), Some(definition))?))
}

/// Merges one object into another.
fn merge_map(
    mut original: Map<String, Value>,
    mut patch: Map<String, Value>,
    definition: Option<&Definition>,
) -> Result<Map<String, Value>, StrategicError> {
    if let Some(directive) = patch.remove(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => Ok(patch),
            Some("delete") => Ok(Map::new()),
            Some("merge") => merge_map(original, patch, definition),
            other => Err(StrategicError::UnknownDirective(
                other.map_or_else(|| directive.to_string(), str::to_owned),
            )),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    order::merge_ordered(&mut original, &mut patch, definition)?;
    for (key, value) in patch {
        checkpoint();
        if let Some(field) = key.strip_prefix(DELETE_FROM) {
            let Value::Array(doomed) = value else {
                return Err(StrategicError::NotAList { directive: key });
            };
            if let Some(Value::Array(items)) = original.get_mut(field) {
                let doomed: HashSet<Value> = doomed.into_iter().collect();
                items.retain(|item| !doomed.contains(item));
            }
            continue;
        }
        if key.starts_with(SET_ORDER) {
            continue;
        }
        if value.is_null() {
            original.remove(&key);
            continue;
        }
        let field = definition.and_then(|definition| definition.fields.get(key.as_str()));
        let replaced = field.is_some_and(|field| field.patch_strategy.replace);
        let merged = match (original.remove(&key), value) {
            (Some(Value::Object(_)), value @ Value::Object(_)) if replaced => value,
            (Some(Value::Object(before)), Value::Object(patch)) => {
                let definition = field.and_then(|field| field.shape.definition()).cloned();
                Value::Object(merge_map(before, patch, definition.as_deref())?)
            }
            (Some(Value::Array(before)), Value::Array(patch)) => {
                Value::Array(lists::merge_field(&key, before, patch, field)?)
            }
            (_, value) => match without_directives(value) {
                Some(value) => value,
                None => continue,
            },
        };
        original.insert(key, merged);
    }
    Ok(original)
}

/// Removes the fields that `$retainKeys` does not name, and the directive.
fn retain_keys(original: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Result<(), StrategicError> {
    let Some(kept) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let Value::Array(kept) = kept else {
        return Err(StrategicError::NotAList {
            directive: RETAIN_KEYS.to_owned(),
        });
    };
    let kept: HashSet<&str> = kept.iter().filter_map(Value::as_str).collect();
    let named = |key: &str| kept.contains(key);
    for (key, value) in patch.iter() {
        if !key.starts_with('$') && !value.is_null() && !named(key) {
            return Err(StrategicError::RetainKeysMismatch(key.clone()));
        }
    }
    original.retain(|key, _| named(key));
    Ok(())
}

/// Returns a new value for a field that the live object lacks. Nulls in it are dropped, and a map with a `$patch` directive is no value.
/// Other directives stay, as fields that the kind does not know.
fn without_directives(value: Value) -> Option<Value> {
    Some(match value {
        Value::Object(map) if map.contains_key(DIRECTIVE) => return None,
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(
                kept.filter_map(|(key, value)| Some((key, without_directives(value)?)))
                    .collect(),
            )
        }
        Value::Array(items) => Value::Array(items.into_iter().filter_map(without_directives).collect()),
        other => other,
    })
}

#[cfg(test)]
mod tests;
