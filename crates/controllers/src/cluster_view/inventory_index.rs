//! The Kustomizations that name an object in their inventories, by their last statuses. The index follows their changes, so that a query about one
//! object reads no Kustomization. An inventory can be forged: tenancy decides whose an object is.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use tenure_api::inventory::ResourceRef;
use tenure_api::{Kustomization, ObjectId};

use crate::cluster_view::key::Key;

/// An index of inventories: finds the Kustomizations that name an object in their status.
#[derive(Debug, Default)]
pub(crate) struct InventoryIndex {
    state: Mutex<State>,
}

/// The Kustomizations that name each object, and the last seen version of each Kustomization.
#[derive(Debug, Default)]
struct State {
    by_object: HashMap<Box<str>, Vec<Arc<Key>>>,
    seen: HashMap<Arc<Key>, Arc<Kustomization>>,
}

impl InventoryIndex {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates a changed or deleted Kustomization. `now` is called under the lock, so that of two changes the later one stays.
    pub(crate) fn refresh(&self, key: &Key, now: impl FnOnce() -> Option<Arc<Kustomization>>) {
        let mut state = self.lock();
        let new = now();
        let (key, old) = match state.seen.remove_entry(key) {
            Some((key, old)) => (key, Some(old)),
            None => (Arc::new(key.clone()), None),
        };
        let (before, after) = (list_entries(old.as_deref()), list_entries(new.as_deref()));
        // An inventory mostly grows at its end, or does not change.
        let same = before
            .iter()
            .zip(after)
            .take_while(|(before, after)| before.id == after.id)
            .count();
        for entry in before.iter().skip(same) {
            state.remove(&entry.id, &key);
        }
        for entry in after.iter().skip(same) {
            let keys = state.by_object.entry(entry.id.as_str().into()).or_default();
            if !keys.contains(&key) {
                keys.push(Arc::clone(&key));
            }
        }
        if let Some(new) = new {
            state.seen.insert(key, new);
        }
    }

    /// Checks whether a Kustomization names an object.
    pub(crate) fn names(&self, key: &Key, id: &ObjectId) -> bool {
        let state = self.lock();
        let keys = state.by_object.get(id.to_string().as_str());
        keys.is_some_and(|keys| keys.iter().any(|found| **found == *key))
    }

    /// Returns the Kustomizations that name an object.
    pub(crate) fn naming(&self, id: &ObjectId) -> Vec<Arc<Key>> {
        self.lock()
            .by_object
            .get(id.to_string().as_str())
            .cloned()
            .unwrap_or_default()
    }

    /// Returns the objects among `ids` that a Kustomization other than `key` names.
    pub(crate) fn named_by_others(&self, key: &Key, ids: &BTreeSet<ObjectId>) -> BTreeSet<ObjectId> {
        let state = self.lock();
        let is_named = |id: &&ObjectId| {
            let keys = state.by_object.get(id.to_string().as_str());
            keys.is_some_and(|keys| keys.iter().any(|found| **found != *key))
        };
        ids.iter().filter(is_named).cloned().collect()
    }
}

impl State {
    fn remove(&mut self, id: &str, key: &Arc<Key>) {
        let Some(keys) = self.by_object.get_mut(id) else { return };
        keys.retain(|found| found != key);
        if keys.is_empty() {
            self.by_object.remove(id);
        }
    }
}

fn list_entries(kustomization: Option<&Kustomization>) -> &[ResourceRef] {
    let status = kustomization.and_then(|kustomization| kustomization.status.as_ref());
    let inventory = status.and_then(|status| status.inventory.as_ref());
    inventory
        .map(|inventory| inventory.entries.as_slice())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use tenure_api::{Kustomization, ObjectId};

    use super::InventoryIndex;
    use crate::cluster_view::key::Key;
    use crate::reconcile_loop::reconciled::Reconciled as _;

    fn key(name: &str) -> Key {
        Key::new(tenure_api::Kustomization::KIND, "team", name)
    }

    fn set(inventories: &InventoryIndex, name: &str, objects: Option<&[&str]>) {
        let kustomization = objects.map(|objects| {
            let entries: Vec<_> = objects
                .iter()
                .map(|object| json!({ "id": format!("team_{object}__ConfigMap"), "v": "v1" }))
                .collect();
            let object = json!({
                "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
                "metadata": { "name": name, "namespace": "team" },
                "spec": { "interval": "1m", "prune": true, "sourceRef": { "kind": "GitRepository", "name": "x" } },
                "status": { "inventory": { "entries": entries } },
            });
            Arc::new(serde_json::from_value::<Kustomization>(object).unwrap())
        });
        inventories.refresh(&key(name), || kustomization);
    }

    #[test]
    fn the_index_follows_every_change() {
        let inventories = InventoryIndex::default();
        let id = |name: &str| -> ObjectId { format!("team_{name}__ConfigMap").parse().unwrap() };
        let names = |name: &str| -> Vec<String> {
            let mut names: Vec<String> = inventories
                .naming(&id(name))
                .iter()
                .map(|key| key.name.clone())
                .collect();
            names.sort();
            names
        };
        set(&inventories, "one", Some(&["a", "b", "b"]));
        set(&inventories, "two", Some(&["b", "c"]));
        assert_eq!(
            (names("a"), names("b")),
            (vec!["one".to_owned()], vec!["one".to_owned(), "two".to_owned()])
        );
        assert!(inventories.names(&key("one"), &id("a")) && !inventories.names(&key("two"), &id("a")));
        let asked = [id("a"), id("c")].into_iter().collect();
        assert_eq!(
            inventories.named_by_others(&key("one"), &asked),
            [id("c")].into_iter().collect()
        );
        set(&inventories, "one", Some(&["a", "c"]));
        assert_eq!(
            (names("b"), names("c")),
            (vec!["two".to_owned()], vec!["one".to_owned(), "two".to_owned()])
        );
        set(&inventories, "two", None);
        set(&inventories, "one", Some(&[]));
        assert!(inventories.lock().by_object.is_empty());
        set(&inventories, "one", None);
        assert!(inventories.lock().seen.is_empty());
    }
}
