//! Shards: this instance of the controllers reconciles a part of all Tenants and namespaces, and other instances reconcile the rest. This module
//! reads the Leases of the other instances, and knows the annotation in its own. `tenure_planner::sharding` decides when work may begin.
//!
//! Watched Leases are not used: two watches have no common order, so the leaders are read again after due work was seen.
//!
//! - `shard_keeper`: limits this instance to its part.
//! - `watch_progress`: how far the watches of Tenants and namespaces have come.

mod shard_keeper;
mod watch_progress;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tenure_api::ObjectView;
use tenure_api::metadata::{LET_GO, PLATFORM_NAMESPACE};
use tenure_cluster::{Client, ClusterError};
use tenure_planner::election::{LeaseRecord, RETRY, WatchedLease};
use tenure_planner::sharding::{OwnedParts, Peer, ReleaseRecord};
use tenure_tenancy::Instance;
use tokio::sync::watch;
use tokio::time::Instant;

pub(crate) use shard_keeper::{ShardWork, maintain_shard};
pub(crate) use watch_progress::WatchProgress;

/// The known state of the other instances, and the state that they see of this one.
#[derive(Debug)]
pub(crate) struct ShardPeers {
    pub(crate) instance: Instance,
    client: Client,
    began: Instant,
    leases: Mutex<HashMap<String, WatchedLease>>,
    /// Up to where this instance has released other instances' parts.
    released_until: watch::Sender<Option<ReleaseRecord>>,
}

impl ShardPeers {
    pub(crate) fn new(instance: Instance, client: Client) -> Arc<Self> {
        Arc::new(Self {
            instance,
            client,
            began: Instant::now(),
            leases: Mutex::default(),
            released_until: watch::channel(None).0,
        })
    }

    /// Returns up to where this instance has released, for the writer of the Lease.
    pub(crate) fn follow(&self) -> watch::Receiver<Option<ReleaseRecord>> {
        self.released_until.subscribe()
    }

    fn set_released(&self, released_until: Option<ReleaseRecord>) {
        self.released_until.send_if_modified(|before| {
            let is_news = *before != released_until;
            *before = released_until;
            is_news
        });
    }

    /// Returns the other instances that lead now, or may lead. An instance whose Lease was not renewed within its duration has stopped.
    async fn list_peers(&self) -> Result<Vec<Peer>, ClusterError> {
        let resource = self.client.resource("coordination.k8s.io/v1", "Lease").await?;
        let leases = self.client.list(&resource, PLATFORM_NAMESPACE).await?;
        let now = self.began.elapsed();
        let mut known = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        let mut peers = Vec::new();
        for lease in &leases {
            let name = ObjectView::new(lease).read_text("/metadata/name");
            if name == self.instance.lease() || Instance::find_key_of_lease(name).is_none() {
                continue;
            }
            let watched = known.entry(name.to_owned()).or_default();
            watched.take_lease(Some(LeaseRecord::read(lease)), now);
            if let Some(holder) = watched.find_holder(now) {
                peers.push(Peer {
                    lease: name.to_owned(),
                    holder: holder.to_owned(),
                    released: read_release_record(lease),
                });
            }
        }
        Ok(peers)
    }

    /// Waits until no other instance reconciles a part of what this instance reconciles.
    pub(crate) async fn wait_until_alone(&self) {
        let mut last_wait = String::new();
        loop {
            let wait = match self.list_peers().await {
                Ok(peers) if peers.is_empty() => return,
                // If shards were never installed, the controllers have no right to list them.
                Err(ClusterError::Forbidden { .. }) => return,
                Ok(peers) => OwnedParts::new(self.instance.clone()).describe_wait(&peers),
                Err(error) => Some(format!("the Leases of shards can't be read: {error}")),
            };
            if let Some(wait) = wait.filter(|wait| *wait != last_wait) {
                tracing::warn!("{wait}");
                last_wait = wait;
            }
            tokio::time::sleep(RETRY).await;
        }
    }
}

fn read_release_record(lease: &Value) -> Option<ReleaseRecord> {
    let annotations = lease.pointer("/metadata/annotations")?;
    annotations.get(LET_GO)?.as_str()?.parse().ok()
}
