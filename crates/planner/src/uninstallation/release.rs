//! The fields that are removed from a remaining object: finalizers that would keep it for ever, owner references that would delete it, and facts for policies.

use serde_json::{Value, json};
use tenure_admission_rules::policy::FACTS_PREFIX;
use tenure_api::ObjectView;
use tenure_api::metadata::{FLUX_FINALIZER, LANE_FINALIZER, TENURE_FINALIZER, WEBHOOK_LABELS};

use super::deletions::DeletedKinds;
use super::{Action, ObservedObject, Step, name_object};

/// The removal of fields from one object, collected for a single patch, so that no reader sees only a part of it.
pub(super) struct FieldRemoval<'a> {
    object: &'a Value,
    metadata: serde_json::Map<String, Value>,
    suspended: bool,
    says: Vec<&'static str>,
}

impl<'a> FieldRemoval<'a> {
    pub(super) fn new(object: &'a Value) -> Self {
        Self {
            object,
            metadata: serde_json::Map::new(),
            suspended: false,
            says: Vec::new(),
        }
    }

    /// Removes the entries of a metadata list for which `goes` returns true. `says`: the description of the removal.
    fn remove_entries(&mut self, field: &str, says: &'static str, goes: impl Fn(&Value) -> bool) {
        let entries = self
            .object
            .pointer("/metadata")
            .and_then(|metadata| metadata.get(field));
        let entries = entries.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let left: Vec<Value> = entries.iter().filter(|entry| !goes(entry)).cloned().collect();
        if left.len() < entries.len() {
            self.metadata.insert(field.to_owned(), Value::Array(left));
            self.says.push(says);
        }
    }

    /// Removes Flux's finalizer, which Tenure's controllers share.
    pub(super) fn remove_flux_finalizer(&mut self) {
        self.remove_entries("finalizers", "without the controllers' finalizer", |finalizer| {
            finalizer.as_str() == Some(FLUX_FINALIZER)
        });
    }

    pub(super) fn remove_own_finalizer(&mut self) {
        self.remove_entries("finalizers", "without the controllers' finalizer", |finalizer| {
            finalizer.as_str() == Some(TENURE_FINALIZER)
        });
    }

    pub(super) fn remove_lane_finalizer(&mut self) {
        self.remove_entries("finalizers", "without its lane's finalizer", |finalizer| {
            finalizer.as_str() == Some(LANE_FINALIZER)
        });
    }

    /// Removes the owner references to deleted kinds: the garbage collector would delete the object with its owner.
    pub(super) fn remove_owners(&mut self, going: &DeletedKinds) {
        self.remove_entries("ownerReferences", "without its owner", |owner| going.has_owner(owner));
    }

    /// Removes the controllers' facts on a namespace, for policies and for the selectors of webhooks.
    pub(super) fn remove_facts(&mut self) {
        let is_fact = |key: &str| key.starts_with(FACTS_PREFIX);
        let is_mark = |key: &str| WEBHOOK_LABELS.contains(&key);
        let facts = self.list_keys("/metadata/annotations", is_fact);
        let marks = self.list_keys("/metadata/labels", is_mark);
        if !facts.is_empty() || !marks.is_empty() {
            for (field, gone) in [("annotations", facts), ("labels", marks)] {
                if !gone.is_empty() {
                    self.metadata.insert(field.to_owned(), Value::Object(gone));
                }
            }
            self.says.push("without the facts for policies");
        }
    }

    /// Lists the selected keys of a map, each with a null value for its removal.
    fn list_keys(&self, path: &str, is_meant: impl Fn(&str) -> bool) -> serde_json::Map<String, Value> {
        let all = self.object.pointer(path).and_then(Value::as_object);
        let meant = all.into_iter().flatten().filter(|(key, _)| is_meant(key));
        meant.map(|(key, _)| (key.clone(), Value::Null)).collect()
    }

    pub(super) fn suspend_object(&mut self) {
        if !ObjectView::new(self.object).is_true("/spec/suspend") {
            self.suspended = true;
            self.says.push("suspended");
        }
    }

    /// Returns the patch with all removals. Returns nothing if there is nothing to remove.
    pub(super) fn into_step(mut self, seen: &ObservedObject) -> Option<Step> {
        if self.says.is_empty() {
            return None;
        }
        let object = ObjectView::new(self.object);
        for (field, path) in [
            ("uid", "/metadata/uid"),
            ("resourceVersion", "/metadata/resourceVersion"),
        ] {
            self.metadata.insert(field.to_owned(), json!(object.read_text(path)));
        }
        let mut patch = json!({ "metadata": self.metadata });
        if self.suspended
            && let Some(patch) = patch.as_object_mut()
        {
            patch.insert("spec".to_owned(), json!({"suspend": true}));
        }
        Some(Step {
            path: seen.path.clone(),
            says: format!("{}: {}", name_object(self.object), self.says.join(", ")),
            action: Action::Patch(patch),
        })
    }
}
