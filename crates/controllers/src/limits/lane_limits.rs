//! The limits of one lane: turns, and numbers of concurrent operations. Work of one lane never waits for another's.

use std::sync::Arc;

use tenure_cluster::{LaneWorkLimit, SharedWorkLimit};
use tokio::sync::Semaphore;

/// The limits of one lane.
#[derive(Debug)]
pub(crate) struct LaneLimits {
    /// The name to which its bytes are charged.
    pub(crate) name: String,
    /// Concurrent reconciliations that apply to other clusters. A wait for a slow cluster blocks nothing in this one.
    pub(crate) elsewhere: Arc<Semaphore>,
    /// Concurrent reconciliations.
    pub(crate) work: Arc<Semaphore>,
    /// Concurrent reconciliations, among those of `work`, of Kustomizations that a commit did not change. They never block changed Kustomizations.
    pub(crate) low_priority: Arc<Semaphore>,
    /// Concurrent fetches.
    pub(crate) fetches: Arc<Semaphore>,
    /// Concurrent requests to Receivers. Each reads a Secret, and asks others to reconcile.
    pub(crate) deliveries: Arc<Semaphore>,
    /// Concurrent requests to receivers of events.
    pub(crate) letters: Arc<Semaphore>,
    /// Concurrent renderings. A rendering holds its permit until its thread ends, soon after no caller waits for it.
    pub(crate) renderer: Arc<Semaphore>,
    /// For large data: one operation at a time.
    pub(crate) turns: LaneWorkLimit,
}

impl LaneLimits {
    /// Creates limits with `width` concurrent reconciliations. Large data is processed in turns that all lanes share.
    pub(crate) fn new(name: &str, width: usize, turns: &SharedWorkLimit) -> Self {
        let width = width.max(1);
        Self {
            name: name.to_owned(),
            elsewhere: Arc::new(Semaphore::new(width.div_ceil(2))),
            work: Arc::new(Semaphore::new(width)),
            low_priority: Arc::new(Semaphore::new((width / 4).max(1))),
            fetches: Arc::new(Semaphore::new(width.div_ceil(2))),
            deliveries: Arc::new(Semaphore::new(4)),
            letters: Arc::new(Semaphore::new(8)),
            renderer: Arc::new(Semaphore::new(2)),
            turns: turns.of_lane(),
        }
    }

    /// Checks whether no operation within these limits is running.
    pub(crate) fn are_idle(&self) -> bool {
        let parts = [
            &self.work,
            &self.elsewhere,
            &self.low_priority,
            &self.fetches,
            &self.deliveries,
            &self.letters,
            &self.renderer,
        ];
        let is_unused = parts.into_iter().all(|part| Arc::strong_count(part) == 1);
        is_unused && self.turns.is_idle()
    }
}
