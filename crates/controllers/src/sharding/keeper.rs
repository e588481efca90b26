//! Keeps an instance to its part: what has left it is let go of, what has come to it is begun with when all others have let go of it, and what
//! nobody sees to is said. Carries out what `tenure_planner::sharding` decides.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tenure_planner::sharding::{Holdings, Peer, Progress, list_unserved};
use tenure_tenancy::instance::{Domain, survey};
use tenure_tenancy::{Atlas, Estate, Instance, Realm};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::ShardBoard;

/// How often it is looked who else leads, while something is to begin, and otherwise.
const LOOKS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));
/// After so long it is said that nobody sees to a key.
const UNSERVED: Duration = Duration::from_secs(30);

/// What is kept to its part.
pub(crate) trait Grounds: Send + Sync + 'static {
    /// All Tenants and namespaces, with how far they were known before they were looked at, and the last change that may be among them.
    fn look(&self) -> (Progress, Arc<Realm>, Progress);

    /// Waits until something of that may have changed.
    fn changed(&self) -> BoxFuture<'_, ()>;

    /// Works on something from here on.
    fn begin(&self, estate: &Estate);

    /// Ends what is under way of something, and forgets it; returns when nothing is.
    fn leave<'a>(&'a self, estate: &'a Estate) -> BoxFuture<'a, ()>;

    /// Says that nobody sees to these keys.
    fn tell_unserved<'a>(&'a self, keys: &'a [String]) -> BoxFuture<'a, ()>;
}

/// Keeps an instance to its part until it is dropped.
pub(crate) async fn keep(grounds: Arc<dyn Grounds>, board: Arc<ShardBoard>) {
    let mut holdings = Holdings::new(board.instance.clone());
    let mut unserved = Unserved::default();
    let mut said = String::new();
    let (tell_left, mut left) = mpsc::unbounded_channel::<Estate>();
    let mut leaving = tokio::task::JoinSet::new();
    loop {
        let (known, realm, changed) = grounds.look();
        let Domain { own, keys } = survey(&Atlas::new(realm), &board.instance);
        for estate in holdings.take_own(&own, changed, known) {
            tracing::info!(%estate, "another instance sees to it from here on");
            let (grounds, tell_left) = (Arc::clone(&grounds), tell_left.clone());
            leaving.spawn(async move {
                grounds.leave(&estate).await;
                // Who keeps this is there for as long as the task is.
                let _told = tell_left.send(estate);
            });
        }
        board.tell(holdings.let_go());
        // After it was noted since when: who leads by now is among them.
        let wait = match board.look().await {
            Ok(peers) => {
                for estate in holdings.take_ready(&peers) {
                    tracing::debug!(%estate, "this instance sees to it from here on");
                    grounds.begin(&estate);
                }
                if board.instance == Instance::Main {
                    unserved.tell(grounds.as_ref(), &keys, &peers).await;
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
        let pause = if holdings.waits() { LOOKS.0 } else { LOOKS.1 };
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

/// The keys that nobody sees to, and since when.
#[derive(Default)]
struct Unserved {
    keys: Vec<String>,
    since: Option<Instant>,
    is_told: bool,
}

impl Unserved {
    async fn tell(&mut self, grounds: &dyn Grounds, keys: &BTreeSet<String>, peers: &[Peer]) {
        let now = list_unserved(keys, peers);
        if now != self.keys {
            (self.keys, self.since, self.is_told) = (now, Some(Instant::now()), false);
        }
        let is_late = self.since.is_some_and(|since| since.elapsed() >= UNSERVED);
        if is_late && !self.is_told && !self.keys.is_empty() {
            self.is_told = true;
            tracing::warn!(keys = ?self.keys, "no instance sees to what has one of these keys of shards");
            grounds.tell_unserved(&self.keys).await;
        }
    }
}
