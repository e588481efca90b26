//! The changes that admission makes to the object of an allowed request.

use serde_json::{Map, Value};

/// A change that admission makes to the object of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Sets a label.
    Label {
        /// Key.
        key: &'static str,
        /// Value.
        value: String,
    },
    /// Sets a label or an annotation that a Tenant demands.
    Metadata {
        /// `labels` or `annotations`.
        part: &'static str,
        /// Key.
        key: String,
        /// Value.
        value: String,
    },
    /// Sets a field of the spec.
    SpecField {
        /// Name of the field.
        key: &'static str,
        /// Value.
        value: Value,
    },
}

impl Change {
    /// Makes this change in an object.
    pub fn make(&self, object: &mut Value) {
        match self {
            Self::Label { key, value } => mark(object, "labels", key, value),
            Self::Metadata { part, key, value } => mark(object, part, key, value),
            Self::SpecField { key, value } => {
                if let Some(spec) = enter(object, "spec") {
                    spec.insert((*key).to_owned(), value.clone());
                }
            }
        }
    }
}

/// Sets a label or an annotation of an object.
fn mark(object: &mut Value, part: &str, key: &str, value: &str) {
    let marks = enter(object, "metadata").and_then(|metadata| enter_map(metadata, part));
    if let Some(marks) = marks {
        marks.insert(key.to_owned(), Value::from(value));
    }
}

/// Returns a map of an object, and creates the map if it is missing.
fn enter<'a>(object: &'a mut Value, key: &str) -> Option<&'a mut Map<String, Value>> {
    enter_map(object.as_object_mut()?, key)
}

fn enter_map<'a>(map: &'a mut Map<String, Value>, key: &str) -> Option<&'a mut Map<String, Value>> {
    let inner = map.entry(key).or_insert(Value::Null);
    if !inner.is_object() {
        *inner = Value::Object(Map::new());
    }
    inner.as_object_mut()
}
