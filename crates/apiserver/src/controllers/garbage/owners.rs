//! Index of owners and dependents. It contains only objects with owner references, so a hundred thousand objects
//! without any cost nothing. Decisions are in `garbage`.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use super::super::object_name::ObjectName;

/// One entry of an object's `ownerReferences`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnerReference {
    /// The owner's UID, which alone distinguishes it from a later object of the same name.
    pub(crate) uid: String,
    /// The owner's apiVersion.
    pub(crate) api_version: String,
    /// The owner's kind.
    pub(crate) kind: String,
    /// The owner's name.
    pub(crate) name: String,
    /// Whether a foreground deletion of the owner waits for this object.
    pub(crate) blocks: bool,
}

/// Returns the owner references of an object.
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

/// The owner references of all objects that have any, and the dependents of each owner's UID.
#[derive(Debug, Default)]
pub(crate) struct OwnerIndex {
    owners: HashMap<ObjectName, Vec<OwnerReference>>,
    dependents: HashMap<String, BTreeSet<ObjectName>>,
}

impl OwnerIndex {
    /// Records an object's current state. Returns whether its owners are new or changed.
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

    /// Removes an object, and returns the owners that it had.
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

    /// Returns the objects that name `uid` as an owner.
    pub(crate) fn dependents(&self, uid: &str) -> impl Iterator<Item = &ObjectName> {
        self.dependents.get(uid).into_iter().flatten()
    }

    /// Returns the UIDs of the owners that the index has of an object.
    pub(crate) fn uids_of<'a>(&'a self, name: &ObjectName) -> impl Iterator<Item = &'a str> {
        self.owners
            .get(name)
            .into_iter()
            .flatten()
            .map(|owner| owner.uid.as_str())
    }

    /// Checks whether the index has owners of the object.
    #[must_use]
    pub(crate) fn contains(&self, name: &ObjectName) -> bool {
        self.owners.contains_key(name)
    }
}
