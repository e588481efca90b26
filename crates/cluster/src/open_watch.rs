//! A watch as a ServiceAccount, for the life of its handle.
//!
//! Accounts never share a watch: objects that one tenant may see never pass through another tenant's watch.

use std::time::Duration;

use tokio::task::JoinHandle;

use crate::discovery::Resource;
use crate::error::ClusterError;
use crate::identities::{ClientPool, LaneAccess};
use crate::watch::{WatchEvent, watch};
use tenure_tenancy::{LaneAccount, ServiceAccount};

/// The pauses before the next request for a token: if the ServiceAccount does not exist, and otherwise.
const PAUSES: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(2));

/// The key of a watch: the resource, the account, and its lane.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchKey {
    /// The account that watches.
    pub account: ServiceAccount,
    /// The lane that requests the account's tokens.
    pub lane: LaneAccount,
    /// The resource.
    pub resource: Resource,
    /// The namespace; all namespaces when absent.
    pub namespace: Option<String>,
    /// The label selector.
    pub labels: Option<String>,
}

/// An open watch, which closes when the value is dropped.
#[derive(Debug)]
pub struct OpenWatch {
    task: JoinHandle<()>,
}

impl OpenWatch {
    /// Opens a watch. `sink` gets every event and must return quickly. The function must run inside a tokio runtime.
    ///
    /// The watch parses long texts within the lane's work limit.
    pub fn open(
        clients: ClientPool,
        lane: LaneAccess,
        key: WatchKey,
        mut sink: impl FnMut(WatchEvent) + Send + 'static,
    ) -> Self {
        let task = tokio::spawn(async move {
            let client = loop {
                match clients.for_account(&key.account, &lane).await {
                    Ok(client) => break client,
                    Err(error) => {
                        let missing = matches!(error, ClusterError::IdentityMissing { .. });
                        sink(WatchEvent::Failed(error));
                        tokio::time::sleep(if missing { PAUSES.0 } else { PAUSES.1 }).await;
                    }
                }
            };
            watch(
                &client,
                &key.resource,
                key.namespace.as_deref(),
                key.labels.as_deref(),
                sink,
            )
            .await;
        });
        Self { task }
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}
