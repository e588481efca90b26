//! Who wants to hear when another object changes, wherever that lives: names only, so that lanes can wake each other and see nothing of
//! each other. Judges nothing.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use crate::key::Key;

/// Who listens to whom.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By whom they listen to.
    listeners: HashMap<Key, HashSet<Key>>,
    listening: HashMap<Key, BTreeSet<Key>>,
}

impl Listeners {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets whom an object listens to.
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

    /// Who listens to an object.
    pub(crate) fn list(&self, key: &Key) -> Vec<Key> {
        self.lock().listeners.get(key).into_iter().flatten().cloned().collect()
    }
}
