//! Lanes of several namespaces that may request administrators' tokens, by namespace. The keepers of lanes' rights write it; it reports nothing.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use tenure_planner::rights::SharedMinting;
use tokio::sync::Notify;

/// The lanes of several namespaces that may request an administrator's token, by the namespace in which they may.
#[derive(Debug, Default)]
pub(crate) struct SharedMintingTable {
    found: Mutex<BTreeMap<String, SharedMinting>>,
    changed: Notify,
}

impl SharedMintingTable {
    /// Stores the finding of a namespace; `None` removes it.
    pub(crate) fn store_finding(&self, namespace: &str, minting: Option<&SharedMinting>) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if found.get(namespace) == minting {
            return;
        }
        match minting {
            Some(minting) => found.insert(namespace.to_owned(), minting.clone()),
            None => found.remove(namespace),
        };
        drop(found);
        self.changed.notify_one();
    }

    /// Returns all findings, in the order of the namespaces' names.
    pub(crate) fn list(&self) -> Vec<SharedMinting> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.values().cloned().collect()
    }

    /// Waits for a change.
    pub(crate) async fn wait(&self) {
        self.changed.notified().await;
    }
}
