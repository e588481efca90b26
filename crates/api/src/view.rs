//! An object of any kind, read by paths.
//!
//! Objects of a cluster or a file may have any shape. So no read fails, and a value of another type than the requested one counts as
//! absent. A view never changes an object, and never prints one: it may be a Secret.

use serde_json::{Map, Value};

use crate::ObjectMeta;
use crate::metadata::TENURE_CONTROLLER;

/// A view of an object, or of a part of one. Paths are those of RFC 6901: `/metadata/name`.
#[derive(Clone, Copy)]
pub struct ObjectView<'a>(&'a Value);

/// A condition of an object of any kind. Missing fields are empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatedCondition<'a> {
    /// Its type.
    pub type_: &'a str,
    /// `True`, `False` or `Unknown`.
    pub status: &'a str,
    /// A word that programs may rely on.
    pub reason: &'a str,
    /// A message for people.
    pub message: &'a str,
    /// The time since which it has its status.
    pub last_transition_time: &'a str,
    /// The generation that it was set from.
    pub observed_generation: Option<i64>,
}

impl<'a> ObjectView<'a> {
    /// Returns a view of an object.
    #[must_use]
    pub fn new(object: &'a Value) -> Self {
        Self(object)
    }

    /// Returns the value at a path.
    #[must_use]
    pub fn find(self, path: &str) -> Option<&'a Value> {
        self.0.pointer(path)
    }

    /// Checks whether a path has a value.
    #[must_use]
    pub fn has(self, path: &str) -> bool {
        self.find(path).is_some()
    }

    /// Returns the text at a path.
    #[must_use]
    pub fn find_text(self, path: &str) -> Option<&'a str> {
        self.find(path)?.as_str()
    }

    /// Returns the text at a path, or an empty one.
    #[must_use]
    pub fn read_text(self, path: &str) -> &'a str {
        self.find_text(path).unwrap_or_default()
    }

    /// Returns the whole number at a path.
    #[must_use]
    pub fn find_number(self, path: &str) -> Option<i64> {
        self.find(path)?.as_i64()
    }

    /// Checks whether the value at a path is `true`.
    #[must_use]
    pub fn is_true(self, path: &str) -> bool {
        self.find(path).and_then(Value::as_bool) == Some(true)
    }

    /// Returns the map at a path.
    #[must_use]
    pub fn find_map(self, path: &str) -> Option<&'a Map<String, Value>> {
        self.find(path)?.as_object()
    }

    /// Returns the elements of the list at a JSON pointer. Empty if the value is missing or is no list.
    #[must_use]
    pub fn list(self, path: &str) -> &'a [Value] {
        let list = self.find(path).and_then(Value::as_array);
        list.map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns views of the elements of the list at a JSON pointer.
    pub fn list_views(self, path: &str) -> impl Iterator<Item = Self> + use<'a> {
        self.list(path).iter().map(Self::new)
    }

    /// Returns the texts in the list at a path.
    pub fn list_texts(self, path: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        self.list(path).iter().filter_map(Value::as_str)
    }

    /// Returns the object's metadata, as far as it is readable. Invalid metadata counts as empty.
    #[must_use]
    pub fn read_metadata(self) -> ObjectMeta {
        let metadata = self.0.get("metadata").cloned().unwrap_or(Value::Null);
        serde_json::from_value(metadata).unwrap_or_default()
    }

    /// Checks whether Tenure's controllers wrote fields of the object, as its `managedFields` say. The policy on written fields asks the same.
    #[must_use]
    pub fn is_written_by_tenure(self) -> bool {
        let mut entries = self.list_views("/metadata/managedFields");
        entries.any(|entry| entry.read_text("/manager") == TENURE_CONTROLLER)
    }

    /// Returns a label's value.
    #[must_use]
    pub fn find_label(self, key: &str) -> Option<&'a str> {
        self.find("/metadata/labels")?.get(key)?.as_str()
    }

    /// Returns an annotation's value.
    #[must_use]
    pub fn find_annotation(self, key: &str) -> Option<&'a str> {
        self.find("/metadata/annotations")?.get(key)?.as_str()
    }

    /// Checks whether an annotation has a value, in any letter case.
    #[must_use]
    pub fn has_annotation(self, key: &str, value: &str) -> bool {
        self.find_annotation(key)
            .is_some_and(|found| found.eq_ignore_ascii_case(value))
    }

    /// Checks whether the object is being deleted.
    #[must_use]
    pub fn is_being_deleted(self) -> bool {
        self.has("/metadata/deletionTimestamp")
    }

    /// Returns the conditions of its status, in their order.
    pub fn list_conditions(self) -> impl Iterator<Item = StatedCondition<'a>> + use<'a> {
        self.list_views("/status/conditions").map(|condition| StatedCondition {
            type_: condition.read_text("/type"),
            status: condition.read_text("/status"),
            reason: condition.read_text("/reason"),
            message: condition.read_text("/message"),
            last_transition_time: condition.read_text("/lastTransitionTime"),
            observed_generation: condition.find_number("/observedGeneration"),
        })
    }

    /// Returns the first condition of that type in its status.
    #[must_use]
    pub fn find_condition(self, type_: &str) -> Option<StatedCondition<'a>> {
        self.list_conditions().find(|condition| condition.type_ == type_)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn value_of_another_type_counts_as_absent() {
        let object = json!({
            "metadata": { "name": "a", "labels": { "x/y": "z" }, "annotations": { "k": "Ignore" }, "deletionTimestamp": "t" },
            "spec": { "replicas": 3, "suspend": true, "list": ["a", 1, { "name": "b" }] },
            "status": { "conditions": [{ "type": "Ready", "status": "True", "message": 4, "observedGeneration": 2 }, 5] },
        });
        let view = ObjectView::new(&object);
        assert_eq!((view.read_text("/metadata/name"), view.read_text("/spec")), ("a", ""));
        assert_eq!(
            (view.find_text("/none"), view.find_text("/spec/replicas")),
            (None, None)
        );
        assert_eq!(view.find_number("/spec/replicas"), Some(3));
        assert!(view.is_true("/spec/suspend") && !view.is_true("/spec/replicas"));
        assert_eq!(view.list_texts("/spec/list").collect::<Vec<_>>(), ["a"]);
        assert_eq!(view.list("/spec/replicas").len(), 0);
        assert_eq!((view.find_label("x/y"), view.find_label("x")), (Some("z"), None));
        assert!(view.has_annotation("k", "ignore") && !view.has_annotation("k", "merge"));
        assert!(view.is_being_deleted() && view.has("/spec") && !view.has("/spec/none"));
        let ready = view.find_condition("Ready").unwrap_or_default();
        let stated = (ready.status, ready.reason, ready.message, ready.observed_generation);
        assert_eq!(stated, ("True", "", "", Some(2)));
        assert_eq!(view.list_conditions().count(), 2);
        assert_eq!(view.find_condition("Stalled"), None);
    }
}
