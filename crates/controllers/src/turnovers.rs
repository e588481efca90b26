//! What the Kustomizations of one source tell each other: what each gains and drops with a revision; and who wants to hear of whom.
//! Lost with the process, and told anew by the next one. Judges nothing.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use tenure_planner::kustomization::Turnover;

use crate::key::Key;

/// What was told, and who listens.
#[derive(Debug, Default)]
pub(crate) struct Turnovers {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    told: HashMap<Key, Arc<Turnover>>,
    /// By whom they listen to.
    listeners: HashMap<Key, HashSet<Key>>,
    listening: HashMap<Key, BTreeSet<Key>>,
}

impl Turnovers {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what a Kustomization tells; whether that is news.
    pub(crate) fn tell(&self, key: &Key, turnover: Turnover) -> bool {
        let mut state = self.lock();
        if state.told.get(key).is_some_and(|told| **told == turnover) {
            return false;
        }
        state.told.insert(key.clone(), Arc::new(turnover));
        true
    }

    /// What a Kustomization told last.
    pub(crate) fn of(&self, key: &Key) -> Option<Arc<Turnover>> {
        self.lock().told.get(key).cloned()
    }

    /// Sets whom a Kustomization listens to.
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

    /// Who listens to a Kustomization.
    pub(crate) fn listeners(&self, key: &Key) -> Vec<Key> {
        self.lock().listeners.get(key).into_iter().flatten().cloned().collect()
    }

    /// A Kustomization is gone: it tells nothing and hears nothing any more.
    pub(crate) fn forget(&self, key: &Key) {
        self.listen(key, BTreeSet::new());
        self.lock().told.remove(key);
    }
}
