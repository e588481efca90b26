//! The name of a stored object for controllers, and its parsing from a store's key. Keys of other entries are
//! refused.

use serde_json::Value;

use crate::keys;

/// The identity of an object: its API group and plural, namespace (`None` for cluster-scoped objects) and name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ObjectName {
    /// API group; empty for the core group.
    pub(crate) group: String,
    /// The plural resource.
    pub(crate) plural: String,
    /// The namespace.
    pub(crate) namespace: Option<String>,
    /// The name.
    pub(crate) name: String,
}

impl ObjectName {
    /// Returns the name of a namespaced object.
    #[must_use]
    pub(crate) fn in_namespace(group: &str, plural: &str, namespace: &str, name: &str) -> Self {
        Self {
            group: group.to_owned(),
            plural: plural.to_owned(),
            namespace: Some(namespace.to_owned()),
            name: name.to_owned(),
        }
    }

    /// Returns the name of a cluster-scoped object.
    #[must_use]
    pub(crate) fn cluster(group: &str, plural: &str, name: &str) -> Self {
        Self {
            group: group.to_owned(),
            plural: plural.to_owned(),
            namespace: None,
            name: name.to_owned(),
        }
    }

    /// Returns the object stored under `key`.
    #[must_use]
    pub(crate) fn from_key(key: &str) -> Option<Self> {
        let parts = keys::read(key)?;
        Some(Self {
            group: parts.group.to_owned(),
            plural: parts.plural.to_owned(),
            namespace: parts.namespace.map(str::to_owned),
            name: parts.name.to_owned(),
        })
    }

    /// Checks whether the object is of this resource.
    #[must_use]
    pub(crate) fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }
}

/// Returns the text at a JSON pointer, or an empty one.
pub(super) fn get_text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Checks whether the object is being deleted.
pub(super) fn is_deleting(object: &Value) -> bool {
    object
        .pointer("/metadata/deletionTimestamp")
        .is_some_and(|time| !time.is_null())
}

/// Returns the object's finalizers.
pub(super) fn list_finalizers(object: &Value) -> impl Iterator<Item = &str> {
    object
        .pointer("/metadata/finalizers")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

/// Removes a finalizer. Returns whether the object had it.
pub(super) fn remove_finalizer(object: &mut Value, finalizer: &str) -> bool {
    let Some(list) = object.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut) else {
        return false;
    };
    let before = list.len();
    list.retain(|held| held.as_str() != Some(finalizer));
    list.len() < before
}
