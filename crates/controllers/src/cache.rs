//! The objects of the reconciled kinds, and the namespaces, as the controller's own watches and writes last saw them.
//! Refuses to go back: an older revision never replaces a newer one, and an object that is gone is not brought back by a late answer.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock};

use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// One kind's objects by namespace and name.
#[derive(Debug)]
pub(crate) struct Cache<K> {
    objects: RwLock<BTreeMap<(String, String), Arc<K>>>,
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self {
            objects: RwLock::new(BTreeMap::new()),
        }
    }
}

impl<K: Resource> Cache<K> {
    /// One object.
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        objects.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// All objects of a namespace.
    pub(crate) fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        let from = Bound::Included((namespace.to_owned(), String::new()));
        objects
            .range((from, Bound::Unbounded))
            .take_while(|((own, _), _)| own == namespace)
            .map(|(_, object)| Arc::clone(object))
            .collect()
    }

    /// All objects.
    pub(crate) fn all(&self) -> Vec<Arc<K>> {
        self.objects
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect()
    }

    /// Takes an object from a watch. Returns what it replaced; nothing is changed when that was newer.
    pub(crate) fn observe(&self, object: K) -> Option<Arc<K>> {
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let key = key(&object);
        let old = objects.get(&key).cloned();
        let newer = old
            .as_ref()
            .is_none_or(|old| uid(old.as_ref()) != uid(&object) || revision(old.as_ref()) < revision(&object));
        if newer {
            objects.insert(key, Arc::new(object));
        }
        old
    }

    /// Takes an object from the answer to a write: only if the same object is still there.
    pub(crate) fn written(&self, object: K) {
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let key = key(&object);
        if let Some(old) = objects.get_mut(&key)
            && uid(old.as_ref()) == uid(&object)
            && revision(old.as_ref()) < revision(&object)
        {
            *old = Arc::new(object);
        }
    }

    /// Forgets an object that a watch found gone.
    pub(crate) fn remove(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        objects.remove(&(namespace.to_owned(), name.to_owned()))
    }
}

fn key<K: Resource>(object: &K) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn uid<K: Resource>(object: &K) -> Option<&str> {
    object.meta().uid.as_deref()
}

/// Revisions are compared as numbers (KEP-5504 makes that part of the API); one that is not a number counts as the oldest.
fn revision<K: Resource>(object: &K) -> u64 {
    number(object.meta().resource_version.as_deref().unwrap_or_default())
}

/// A `resourceVersion` as a number; 0 when it is none.
pub(crate) fn number(resource_version: &str) -> u64 {
    resource_version.parse().unwrap_or(0)
}

/// Reads an object; without its status when that can't be read. Whoever may write a status must not be able to hide an object with
/// it: its controller would go on by the spec that it saw last, and neither suspend nor delete it.
pub(crate) fn read<K: DeserializeOwned>(mut object: Value) -> Option<K> {
    // Nothing reads them, and they are most of an object.
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    let kind = std::any::type_name::<K>();
    let error = match K::deserialize(&object) {
        Ok(read) => return Some(read),
        Err(error) => error,
    };
    let had_status = object
        .as_object_mut()
        .and_then(|object| object.remove("status"))
        .is_some();
    if had_status && let Ok(read) = serde_json::from_value(object) {
        tracing::warn!(%error, kind, "an object's status can't be read: it counts as none, and is written anew");
        return Some(read);
    }
    tracing::warn!(%error, kind, "an object can't be read; it is left alone");
    None
}
