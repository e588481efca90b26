//! Keeps an instance to its part. It releases what has left the part, begins with what has come to it after all others have released it, and reports
//! keys that no instance reconciles. It executes the decisions of `tenure_planner::sharding`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tenure_planner::sharding::{OwnedParts, Peer, Progress, list_unserved};
use tenure_tenancy::instance::{ShardAssignment, assign_shard};
use tenure_tenancy::{Instance, ShardUnit, TenancyFacts, TenancyIndex};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::ShardPeers;

/// The interval between checks of the other leaders: while something waits to begin, and otherwise.
const LOOKS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));
/// The time after which a key that no instance reconciles is reported.
const UNSERVED: Duration = Duration::from_secs(30);

/// The controllers that are limited to a part.
pub(crate) trait ShardWork: Send + Sync + 'static {
    /// Returns all Tenants and namespaces. The first progress is how far they were known before the look, the second is the last change that may be
    /// included.
    fn read_tenancy(&self) -> (Progress, Arc<TenancyFacts>, Progress);

    /// Waits for a possible change of these.
    fn wait_for_change(&self) -> BoxFuture<'_, ()>;

    /// Begins to work on a shard unit.
    fn begin_unit(&self, unit: &ShardUnit);

    /// Ends the running work of a shard unit, and drops its state. Returns when nothing is left.
    fn leave<'a>(&'a self, unit: &'a ShardUnit) -> BoxFuture<'a, ()>;

    /// Writes an event that no instance reconciles the Tenants and namespaces with these values of the label `sharding.fluxcd.io/key`.
    fn report_unserved_parts<'a>(&'a self, keys: &'a [String]) -> BoxFuture<'a, ()>;
}

/// Keeps an instance to its part until the future is dropped.
pub(crate) async fn maintain_shard(work: Arc<dyn ShardWork>, shard_peers: Arc<ShardPeers>) {
    let mut holdings = OwnedParts::new(shard_peers.instance.clone());
    let mut unserved = UnservedKeys::default();
    let mut last_wait = String::new();
    let (left_sender, mut left) = mpsc::unbounded_channel::<ShardUnit>();
    let mut leaving = tokio::task::JoinSet::new();
    loop {
        let (known, tenancy, changed) = work.read_tenancy();
        let ShardAssignment { own, keys } = assign_shard(&TenancyIndex::new(tenancy), &shard_peers.instance);
        for unit in holdings.take_own(&own, changed, known) {
            tracing::info!(shard_unit = %unit, "another instance reconciles it now");
            let (work, left_sender) = (Arc::clone(&work), left_sender.clone());
            leaving.spawn(async move {
                work.leave(&unit).await;
                // The receiver lives as long as this function, which also owns the task, so the message arrives.
                let _sent = left_sender.send(unit);
            });
        }
        shard_peers.set_released(holdings.release_record());
        // The other leaders are read after the release was recorded, so each leader up to then is in this list.
        let wait = match shard_peers.list_peers().await {
            Ok(peers) => {
                for unit in holdings.take_ready(&peers) {
                    tracing::debug!(shard_unit = %unit, "this instance reconciles it now");
                    work.begin_unit(&unit);
                }
                if shard_peers.instance == Instance::Main {
                    unserved.report(work.as_ref(), &keys, &peers).await;
                }
                holdings.describe_wait(&peers)
            }
            Err(error) => Some(format!("the Leases of the other instances can't be read: {error}")),
        };
        let wait = wait.unwrap_or_default();
        if wait != last_wait {
            if !wait.is_empty() {
                tracing::warn!("{wait}");
            }
            last_wait = wait;
        }
        let pause = if holdings.has_waiting_parts() { LOOKS.0 } else { LOOKS.1 };
        tokio::select! {
            Some(unit) = left.recv() => {
                holdings.take_left(&unit);
                while let Ok(unit) = left.try_recv() {
                    holdings.take_left(&unit);
                }
            }
            () = work.wait_for_change() => {}
            () = tokio::time::sleep(pause) => {}
        }
        while leaving.try_join_next().is_some() {}
    }
}

/// The keys that no instance reconciles, since when, and whether this was reported.
#[derive(Default)]
struct UnservedKeys {
    keys: Vec<String>,
    since: Option<Instant>,
    is_reported: bool,
}

impl UnservedKeys {
    async fn report(&mut self, work: &dyn ShardWork, keys: &BTreeSet<String>, peers: &[Peer]) {
        let now = list_unserved(keys, peers);
        if now != self.keys {
            (self.keys, self.since, self.is_reported) = (now, Some(Instant::now()), false);
        }
        let is_late = self.since.is_some_and(|since| since.elapsed() >= UNSERVED);
        if is_late && !self.is_reported && !self.keys.is_empty() {
            self.is_reported = true;
            tracing::warn!(keys = ?self.keys, "no instance reconciles the objects of these shards");
            work.report_unserved_parts(&self.keys).await;
        }
    }
}
