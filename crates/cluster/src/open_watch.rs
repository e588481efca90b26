//! A watch as a ServiceAccount, for as long as somebody keeps its handle.
//! Refuses to share a watch between accounts: what one tenant may see never passes through another's.

use std::time::Duration;

use tokio::task::JoinHandle;

use crate::discovery::Resource;
use crate::error::ClusterError;
use crate::identities::{ClientPool, LaneAccess};
use crate::watch::{WatchEvent, watch};
use tenure_tenancy::{LaneAccount, ServiceAccount};

/// How soon a token is asked for again: when the ServiceAccount does not exist, and otherwise.
const PAUSES: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(2));

/// What is watched, and as whom.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchKey {
    /// Who watches.
    pub account: ServiceAccount,
    /// The lane that asks for the account's tokens.
    pub lane: LaneAccount,
    /// The resource.
    pub resource: Resource,
    /// The namespace; all of them when absent.
    pub namespace: Option<String>,
    /// Label selector.
    pub labels: Option<String>,
}

/// A watch that is open. It is closed when this is dropped.
#[derive(Debug)]
pub struct OpenWatch {
    task: JoinHandle<()>,
}

impl OpenWatch {
    /// Opens a watch; `sink` is called with everything that it sees and must return quickly. Must be called inside a tokio runtime.
    ///
    /// It reads what is long in the lane's turns.
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
