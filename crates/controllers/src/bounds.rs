//! How much of the machine one lane can hold: turns, and how many things at the same time. Work of one lane never waits for another's.

use std::sync::Arc;

use tenure_cluster::{SharedTurns, WorkTurns};
use tokio::sync::Semaphore;

/// The bounds of one lane.
#[derive(Debug)]
pub(crate) struct LaneBounds {
    /// What its bytes are charged to.
    pub(crate) name: String,
    /// Reconciliations at the same time that apply to other clusters: who waits for a slow one keeps nothing here waiting.
    pub(crate) elsewhere: Arc<Semaphore>,
    /// Reconciliations at the same time.
    pub(crate) work: Arc<Semaphore>,
    /// Of these, reconciliations of Kustomizations that a commit changed nothing for: they never keep those waiting that it did.
    pub(crate) unhurried: Arc<Semaphore>,
    /// Fetches at the same time.
    pub(crate) fetches: Arc<Semaphore>,
    /// Requests to Receivers at the same time; each reads a Secret, and asks others to reconcile.
    pub(crate) deliveries: Arc<Semaphore>,
    /// Requests at the same time by which others are told of events.
    pub(crate) letters: Arc<Semaphore>,
    /// Renderings at the same time. One holds its permit until its thread really ends, which it does soon after nobody waits for it.
    pub(crate) renderings: Arc<Semaphore>,
    /// For what is large: one thing at a time.
    pub(crate) turns: WorkTurns,
}

impl LaneBounds {
    /// So many reconciliations at the same time; what is large is worked on in turns that all lanes share.
    pub(crate) fn new(name: &str, width: usize, turns: &SharedTurns) -> Self {
        let width = width.max(1);
        Self {
            name: name.to_owned(),
            elsewhere: Arc::new(Semaphore::new(width.div_ceil(2))),
            work: Arc::new(Semaphore::new(width)),
            unhurried: Arc::new(Semaphore::new((width / 4).max(1))),
            fetches: Arc::new(Semaphore::new(width.div_ceil(2))),
            deliveries: Arc::new(Semaphore::new(4)),
            letters: Arc::new(Semaphore::new(8)),
            renderings: Arc::new(Semaphore::new(2)),
            turns: turns.of_lane(),
        }
    }

    /// Whether nothing that works within them is under way.
    pub(crate) fn are_idle(&self) -> bool {
        let parts = [
            &self.work,
            &self.elsewhere,
            &self.unhurried,
            &self.fetches,
            &self.deliveries,
            &self.letters,
            &self.renderings,
        ];
        let is_unused = parts.into_iter().all(|part| Arc::strong_count(part) == 1);
        is_unused && self.turns.is_idle()
    }
}
