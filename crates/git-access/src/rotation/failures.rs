//! Failures of steps, and the waits after them. The host and the cluster fail independently: a success of one is no sign that the other has recovered.

use std::time::Duration;

use jiff::Timestamp;
use tenure_api::access::request::LedgerTrouble;

use super::schedule::{self, add_duration, record_time};
use super::state_machine::{Next, StateMachine};

/// Reasons of failures in the cluster, not at the host.
pub(super) const MISSING_RIGHTS: &str = "MissingRights";
pub(super) const CLUSTER_UNREACHABLE: &str = "ClusterUnreachable";
/// The reason while the host and the cluster both fail.
pub(super) const HOST_AND_CLUSTER: &str = "HostAndClusterFail";

/// The side that doesn't do what the plan asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailingSide {
    Cluster,
    Host,
    Both,
}

impl FailingSide {
    fn of_reason(reason: &str) -> Self {
        match reason {
            MISSING_RIGHTS | CLUSTER_UNREACHABLE => Self::Cluster,
            HOST_AND_CLUSTER => Self::Both,
            _ => Self::Host,
        }
    }
}

impl StateMachine<'_> {
    /// Returns the side of the recorded failure, if any.
    pub(super) fn find_failing_side(&self) -> Option<FailingSide> {
        let trouble = self.ledger.trouble.as_ref()?;
        Some(FailingSide::of_reason(&trouble.reason))
    }

    /// Returns the end of the wait after a failure.
    pub(super) fn find_wait(&self) -> Option<Timestamp> {
        let until = self.ledger.retry_at.as_ref().map(|at| at.0);
        until.filter(|at| self.now < *at)
    }

    /// Records a failure, and postpones the next attempt.
    pub(super) fn record_failure(&mut self, reason: &str, message: String) -> Next {
        self.ledger.failures = self.ledger.failures.saturating_add(1);
        let at = schedule::find_retry_time(self.now, self.ledger.failures);
        self.record_failure_until(reason, message, at)
    }

    /// Records a failure with a known end. While the other side waits after a failure of its own, both wait for the later end.
    pub(super) fn record_failure_until(&mut self, reason: &str, message: String, at: Timestamp) -> Next {
        let side = FailingSide::of_reason(reason);
        let other = self.find_failing_side().filter(|other| *other != side);
        let earlier = self
            .find_wait()
            .and_then(|until| Some((until, other.and(self.ledger.trouble.clone())?)));
        let at = add_duration(at, Duration::from_secs(1));
        let (reason, message, at) = match earlier {
            // The message names both failures already.
            Some((until, trouble)) if trouble.reason == HOST_AND_CLUSTER => {
                (trouble.reason, trouble.message, at.max(until))
            }
            Some((until, trouble)) => {
                let both = format!("{}; {message}", trouble.message);
                (HOST_AND_CLUSTER.to_owned(), both, at.max(until))
            }
            None => (reason.to_owned(), message, at),
        };
        self.ledger.retry_at = Some(record_time(at));
        self.ledger.trouble = Some(LedgerTrouble { reason, message });
        Next::Record
    }

    /// Clears a recorded failure.
    pub(super) fn clear_failure(&mut self) {
        self.ledger.failures = 0;
        self.ledger.retry_at = None;
        self.ledger.trouble = None;
    }

    /// Clears a recorded failure of this side, or of both. A failure of the other side alone stays.
    pub(super) fn clear_failure_of(&mut self, side: FailingSide) {
        if self
            .find_failing_side()
            .is_some_and(|failing| failing == side || failing == FailingSide::Both)
        {
            self.clear_failure();
        }
    }
}
