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
    fn look(&self) -> (Progress, Arc<TenancyFacts>, Progress);

    /// Waits for a possible change of these.
    fn changed(&self) -> BoxFuture<'_, ()>;

    /// Begins to work on an estate.
    fn begin(&self, estate: &ShardUnit);

    /// Ends the running work of an estate, and drops its state. Returns when nothing is left.
    fn leave<'a>(&'a self, estate: &'a ShardUnit) -> BoxFuture<'a, ()>;

    /// Reports that no instance reconciles these keys.
    fn report_unserved<'a>(&'a self, keys: &'a [String]) -> BoxFuture<'a, ()>;
}

/// Keeps an instance to its part until the future is dropped.
pub(crate) async fn keep(grounds: Arc<dyn ShardWork>, board: Arc<ShardPeers>) {
    let mut holdings = OwnedParts::new(board.instance.clone());
    let mut unserved = Unserved::default();
    let mut said = String::new();
    let (tell_left, mut left) = mpsc::unbounded_channel::<ShardUnit>();
    let mut leaving = tokio::task::JoinSet::new();
    loop {
        let (known, realm, changed) = grounds.look();
        let ShardAssignment { own, keys } = assign_shard(&TenancyIndex::new(realm), &board.instance);
        for estate in holdings.take_own(&own, changed, known) {
            tracing::info!(%estate, "another instance reconciles it now");
            let (grounds, tell_left) = (Arc::clone(&grounds), tell_left.clone());
            leaving.spawn(async move {
                grounds.leave(&estate).await;
                // The receiver lives as long as the task.
                let _told = tell_left.send(estate);
            });
        }
        board.set_released(holdings.release_record());
        // After the time was recorded: a leader that leads by now is among them.
        let wait = match board.look().await {
            Ok(peers) => {
                for estate in holdings.take_ready(&peers) {
                    tracing::debug!(%estate, "this instance reconciles it now");
                    grounds.begin(&estate);
                }
                if board.instance == Instance::Main {
                    unserved.report(grounds.as_ref(), &keys, &peers).await;
                }
                holdings.describe_wait(&peers)
            }
            Err(error) => Some(format!("the Leases of the other instances can't be read: {error}")),
        };
        let wait = wait.unwrap_or_default();
        if wait != said {
            if !wait.is_empty() {
                tracing::warn!("{wait}");
            }
            said = wait;
        }
        let pause = if holdings.has_waiting_parts() { LOOKS.0 } else { LOOKS.1 };
        tokio::select! {
            Some(estate) = left.recv() => {
                holdings.take_left(&estate);
                while let Ok(estate) = left.try_recv() {
                    holdings.take_left(&estate);
                }
            }
            () = grounds.changed() => {}
            () = tokio::time::sleep(pause) => {}
        }
        while leaving.try_join_next().is_some() {}
    }
}

/// Keys that no instance reconciles, and since when.
#[derive(Default)]
struct Unserved {
    keys: Vec<String>,
    since: Option<Instant>,
    is_told: bool,
}

impl Unserved {
    async fn report(&mut self, grounds: &dyn ShardWork, keys: &BTreeSet<String>, peers: &[Peer]) {
        let now = list_unserved(keys, peers);
        if now != self.keys {
            (self.keys, self.since, self.is_told) = (now, Some(Instant::now()), false);
        }
        let is_late = self.since.is_some_and(|since| since.elapsed() >= UNSERVED);
        if is_late && !self.is_told && !self.keys.is_empty() {
            self.is_told = true;
            tracing::warn!(keys = ?self.keys, "no instance reconciles the objects of these shards");
            grounds.report_unserved(&self.keys).await;
        }
    }
}
