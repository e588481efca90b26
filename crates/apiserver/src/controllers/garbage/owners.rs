//! Owns the index of who owns whom: only objects with owner references are in it, so that a hundred thousand without
//! any cost nothing. Refuses to decide: see `garbage`.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use super::super::object_name::ObjectName;

/// One entry of an object's `ownerReferences`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnerReference {
    /// The owner's uid: the one thing that tells it from a later object of the same name.
    pub(crate) uid: String,
    /// The owner's apiVersion.
    pub(crate) api_version: String,
    /// The owner's kind.
    pub(crate) kind: String,
    /// The owner's name.
    pub(crate) name: String,
    /// Whether the owner may not go before this object, in a foreground deletion.
    pub(crate) blocks: bool,
}

/// The owner references of an object.
#[must_use]
pub(crate) fn owners_of(object: &Value) -> Vec<OwnerReference> {
    object
        .pointer("/metadata/ownerReferences")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|reference| {
            let text = |key: &str| {
                reference
                    .get(key)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            };
            OwnerReference {
                uid: text("uid"),
                api_version: text("apiVersion"),
                kind: text("kind"),
                name: text("name"),
                blocks: reference
                    .get("blockOwnerDeletion")
                    .and_then(Value::as_bool)
                    .unwrap_or(false),
            }
        })
        .collect()
}

/// Who owns whom.
#[derive(Debug, Default)]
pub(crate) struct OwnerIndex {
    owners: HashMap<ObjectName, Vec<OwnerReference>>,
    dependents: HashMap<String, BTreeSet<ObjectName>>,
}

impl OwnerIndex {
    /// Takes in an object as it is now; tells whether its owners are new or changed.
    pub(crate) fn insert(&mut self, name: &ObjectName, object: &Value) -> bool {
        let owners = owners_of(object);
        if owners.is_empty() {
            self.remove(name);
            return false;
        }
        if self.owners.get(name) == Some(&owners) {
            return false;
        }
        self.remove(name);
        for owner in &owners {
            self.dependents
                .entry(owner.uid.clone())
                .or_default()
                .insert(name.clone());
        }
        self.owners.insert(name.clone(), owners);
        true
    }

    /// Forgets an object, and returns the owners it had.
    pub(crate) fn remove(&mut self, name: &ObjectName) -> Option<Vec<OwnerReference>> {
        let owners = self.owners.remove(name)?;
        for owner in &owners {
            if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
                dependents.remove(name);
                if dependents.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
        }
        Some(owners)
    }

    /// The objects that name `uid` as an owner.
    pub(crate) fn dependents(&self, uid: &str) -> impl Iterator<Item = &ObjectName> {
        self.dependents.get(uid).into_iter().flatten()
    }

    /// Whether the object is known to have owners.
    #[must_use]
    pub(crate) fn contains(&self, name: &ObjectName) -> bool {
        self.owners.contains_key(name)
    }
}
