//! Reports between the Kustomizations of a namespace: the objects that each gains and drops with a revision. They are lost with the process, and the
//! next process collects them again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tenure_planner::kustomization::ObjectTurnover;

use crate::cluster_view::key::Key;

/// The last report of each Kustomization of a namespace: the objects that it gains and drops with a revision.
#[derive(Debug, Default)]
pub(crate) struct TurnoverReports {
    reports: Mutex<HashMap<Key, Arc<ObjectTurnover>>>,
}

impl TurnoverReports {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Arc<ObjectTurnover>>> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a Kustomization's report. Returns whether it changed.
    pub(crate) fn store(&self, key: &Key, turnover: ObjectTurnover) -> bool {
        let mut reports = self.lock();
        if reports.get(key).is_some_and(|before| **before == turnover) {
            return false;
        }
        reports.insert(key.clone(), Arc::new(turnover));
        true
    }

    /// Returns the last report of a Kustomization.
    pub(crate) fn find_report(&self, key: &Key) -> Option<Arc<ObjectTurnover>> {
        self.lock().get(key).cloned()
    }

    /// Removes the report of a deleted Kustomization.
    pub(crate) fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }
}
