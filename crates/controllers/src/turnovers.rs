//! What the Kustomizations of a namespace tell each other: what each gains and drops with a revision.
//! Lost with the process, and told anew by the next one. Judges nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tenure_planner::kustomization::Turnover;

use crate::key::Key;

/// What was told.
#[derive(Debug, Default)]
pub(crate) struct TurnoverBoard {
    told: Mutex<HashMap<Key, Arc<Turnover>>>,
}

impl TurnoverBoard {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Arc<Turnover>>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what a Kustomization tells; whether that is news.
    pub(crate) fn tell(&self, key: &Key, turnover: Turnover) -> bool {
        let mut told = self.lock();
        if told.get(key).is_some_and(|before| **before == turnover) {
            return false;
        }
        told.insert(key.clone(), Arc::new(turnover));
        true
    }

    /// What a Kustomization told last.
    pub(crate) fn of(&self, key: &Key) -> Option<Arc<Turnover>> {
        self.lock().get(key).cloned()
    }

    /// A Kustomization is gone: it tells nothing any more.
    pub(crate) fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }
}
