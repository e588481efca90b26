//! Running work by kind: objects that wait for capacity in a lane, objects that have it and since when, and results of attempts.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tenure_planner::Next;

use super::histogram::{Histogram, OF_KINDS, OF_QUEUES};
use super::report::KindGauges;

/// How an attempt ended, in the words of controller-runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// Nothing to do until the next change.
    Success,
    /// The next attempt has a time.
    RequeueAfter,
    /// The object is not in its desired state, or its bookkeeping failed.
    Error,
}

impl Outcome {
    pub(super) const ALL: [Self; 3] = [Self::Success, Self::RequeueAfter, Self::Error];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::RequeueAfter => "requeue_after",
            Self::Error => "error",
        }
    }

    /// Returns the outcome of an attempt that has ended; `None` for a running one. `is_failing` says whether the object is not Ready afterwards.
    pub(crate) fn from_next<E>(next: &Result<Option<Next>, E>, is_failing: impl FnOnce() -> bool) -> Option<Self> {
        match next {
            Ok(Some(Next::Wait(_) | Next::Again | Next::Restart)) => None,
            Err(_) => Some(Self::Error),
            Ok(_) if is_failing() => Some(Self::Error),
            Ok(Some(Next::Done(Some(_)))) => Some(Self::RequeueAfter),
            Ok(Some(Next::Done(None) | Next::Forget) | None) => Some(Self::Success),
        }
    }
}

/// The metrics of one kind: waiting objects, times of waiting and working, and outcomes of attempts.
#[derive(Debug)]
pub(super) struct KindMetrics {
    pub(super) waiting: i64,
    pub(super) queued: Histogram,
    pub(super) worked: Histogram,
    pub(super) attempts: Histogram,
    pub(super) outcomes: BTreeMap<Outcome, u64>,
}

impl KindMetrics {
    fn new() -> Self {
        Self {
            waiting: 0,
            queued: Histogram::new(OF_QUEUES),
            worked: Histogram::new(OF_QUEUES),
            attempts: Histogram::new(OF_KINDS),
            outcomes: BTreeMap::new(),
        }
    }

    pub(super) fn take_attempt(&mut self, took: Duration, outcome: Outcome) {
        self.attempts.observe(took);
        *self.outcomes.entry(outcome).or_default() += 1;
    }

    pub(super) fn take_turn(&mut self, waited: Duration, worked: Duration) {
        self.queued.observe(waited);
        self.worked.observe(worked);
    }

    pub(super) fn count(&self, outcome: Outcome) -> u64 {
        self.outcomes.get(&outcome).copied().unwrap_or_default()
    }
}

/// The metrics of all kinds, and the objects that have capacity now.
#[derive(Debug, Default)]
pub(super) struct WorkTable {
    pub(super) kinds: BTreeMap<&'static str, KindMetrics>,
    /// Objects with capacity, and since when. The capacity of all lanes bounds the number.
    running: BTreeMap<u64, (&'static str, Instant)>,
    next: u64,
    /// The number of attempts that the processes of lanes did not report.
    pub(super) lost: u64,
}

impl WorkTable {
    pub(super) fn kind_metrics(&mut self, kind: &'static str) -> &mut KindMetrics {
        self.kinds.entry(kind).or_insert_with(KindMetrics::new)
    }

    pub(super) fn add_running(&mut self, kind: &'static str, now: Instant) -> u64 {
        self.next = self.next.wrapping_add(1);
        self.running.insert(self.next, (kind, now));
        self.next
    }

    pub(super) fn remove_running(&mut self, number: u64) {
        self.running.remove(&number);
    }

    /// Returns the current gauges by kind.
    pub(super) fn read_gauges(&self, now: Instant) -> BTreeMap<String, KindGauges> {
        let mut gauges: BTreeMap<String, KindGauges> = BTreeMap::new();
        for (kind, metrics) in &self.kinds {
            let waiting = u64::try_from(metrics.waiting).unwrap_or_default();
            gauges.entry((*kind).to_owned()).or_default().waiting = waiting;
        }
        for (kind, since) in self.running.values() {
            let gauges = gauges.entry((*kind).to_owned()).or_default();
            gauges.take_running(now.saturating_duration_since(*since));
        }
        gauges
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn outcome_of_attempt_follows_plan_and_object() {
        let now = Timestamp::UNIX_EPOCH;
        for (next, failing, outcome) in [
            (Ok(Some(Next::Done(Some(now)))), false, Some(Outcome::RequeueAfter)),
            (Ok(Some(Next::Done(Some(now)))), true, Some(Outcome::Error)),
            (Ok(Some(Next::Done(None))), false, Some(Outcome::Success)),
            (Ok(Some(Next::Done(None))), true, Some(Outcome::Error)),
            (Ok(None), false, Some(Outcome::Success)),
            (Ok(Some(Next::Wait(now))), true, None),
            (Err(()), false, Some(Outcome::Error)),
        ] {
            assert_eq!(Outcome::from_next(&next, || failing), outcome, "{next:?} {failing}");
        }
    }
}
