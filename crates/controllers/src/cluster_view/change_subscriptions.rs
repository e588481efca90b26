//! The objects to notify when another object changes, in any lane. Only names are stored, so that lanes can wake each other without seeing each
//! other's objects.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use crate::cluster_view::key::Key;

/// For each object, its listeners: the objects whose reconcilers are woken after a change of it.
#[derive(Debug, Default)]
pub(crate) struct ChangeSubscriptions {
    state: Mutex<State>,
}

/// The subscriptions in both directions.
#[derive(Debug, Default)]
struct State {
    /// The listeners, by the object to which they listen.
    listeners: HashMap<Key, HashSet<Key>>,
    /// The objects to which each listener listens, by the listener.
    listening: HashMap<Key, BTreeSet<Key>>,
}

impl ChangeSubscriptions {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the objects to which an object listens.
    pub(crate) fn listen(&self, key: &Key, to: BTreeSet<Key>) {
        let mut state = self.lock();
        if state.listening.get(key).map_or(to.is_empty(), |before| *before == to) {
            return;
        }
        for before in state.listening.remove(key).unwrap_or_default() {
            if let Some(listeners) = state.listeners.get_mut(&before) {
                listeners.remove(key);
                if listeners.is_empty() {
                    state.listeners.remove(&before);
                }
            }
        }
        for other in &to {
            state.listeners.entry(other.clone()).or_default().insert(key.clone());
        }
        if !to.is_empty() {
            state.listening.insert(key.clone(), to);
        }
    }

    /// Returns the listeners of an object.
    pub(crate) fn list(&self, key: &Key) -> Vec<Key> {
        self.lock().listeners.get(key).into_iter().flatten().cloned().collect()
    }
}
