//! The path element of an item in a list that is a set or a map.

use std::sync::Arc;

use serde_json::Value;

use crate::path::{KeyField, PathElement};
use crate::schema::{ListRelation, ListType, Schema};

/// Returns the element of an item, or the error in the item. A missing key field has the schema's default. Without a default, the key omits
/// the field.
pub(super) fn element_of(schema: &Schema, list: &ListType, item: &Value) -> Result<PathElement, String> {
    match &list.relation {
        ListRelation::Atomic => Err("invalid indexing of non-associative list".to_owned()),
        ListRelation::Set => match item {
            Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
            scalar => Ok(PathElement::Value(Arc::new(scalar.clone()))),
        },
        ListRelation::Map { keys } => {
            let fields = match item {
                Value::Object(fields) => fields,
                Value::Null => {
                    return Err("associative list with keys may not have a null element".to_owned());
                }
                _ => {
                    return Err("associative list with keys may not have non-map elements".to_owned());
                }
            };
            let mut key = Vec::with_capacity(keys.len());
            for name in keys {
                let value = match fields.get(&**name) {
                    Some(value) => Some(value),
                    None => match &schema.get(list.element).map {
                        Some(map) => map.field(name).and_then(|field| field.default.as_ref()),
                        None => {
                            return Err(format!(
                                "couldn't find default value for {name}: associative list may not have non-map types"
                            ));
                        }
                    },
                };
                if let Some(value) = value {
                    key.push(KeyField {
                        name: Arc::clone(name),
                        value: value.clone(),
                    });
                }
            }
            if key.is_empty() {
                let names: Vec<String> = keys.iter().map(|name| go_words::quote::quote(name)).collect();
                return Err(format!(
                    "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                    names.join(" ")
                ));
            }
            Ok(PathElement::from_key_fields(key))
        }
    }
}
