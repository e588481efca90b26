//! The leader election by a Lease (`coordination.k8s.io/v1`) that decides which of several processes reconciles.
//!
//! The rules say when a process may take a Lease, and when a leader must stop. They are client-go's: times that other processes write are never compared with the own
//! clock. A Lease has ended after it was seen unchanged for the duration that it states, measured on the own clock. The election is no fence. If a leader stands still,
//! it and its successor may both write for a moment, and server-side apply and resourceVersions have to withstand this.

use std::time::Duration;

use jiff::{Timestamp, TimestampRound, Unit};
use serde_json::{Value, json};
use tenure_api::ObjectView;

/// The duration of Tenure's own Lease without a renewal.
pub const LEASE: Duration = Duration::from_secs(15);
/// The time for which a leader tries to renew before it stops, so that it has stopped when the next one begins.
pub const RENEWAL: Duration = Duration::from_secs(10);
/// The time between two looks at a Lease, and between two renewals.
pub const RETRY: Duration = Duration::from_secs(2);

/// The time between two looks of a leader at the Leases of other controllers for the same kinds.
pub const LOOK_AT_OTHERS: Duration = Duration::from_secs(6);

/// The duration of a Lease that doesn't state one.
const UNSTATED: Duration = Duration::from_secs(60);

/// The fields of a Lease that the election reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseRecord {
    /// The holder of the Lease; empty after the Lease was given back.
    pub holder: String,
    /// The duration of the Lease without a renewal.
    pub holds: Duration,
    /// The time of the renewal, as its holder wrote it: only a change of it counts.
    pub renewed: String,
    /// The number of changes of the holder.
    pub transitions: i64,
    /// The resourceVersion of the Lease, with which it is taken or renewed.
    pub version: String,
}

impl LeaseRecord {
    /// Reads a Lease; missing fields have client-go's defaults.
    #[must_use]
    pub fn read(lease: &Value) -> Self {
        let view = ObjectView::new(lease);
        let seconds = view.find_number("/spec/leaseDurationSeconds");
        Self {
            holder: view.read_text("/spec/holderIdentity").to_owned(),
            holds: seconds
                .and_then(|seconds| u64::try_from(seconds).ok())
                .map_or(UNSTATED, Duration::from_secs),
            renewed: view.read_text("/spec/renewTime").to_owned(),
            transitions: view.find_number("/spec/leaseTransitions").unwrap_or_default(),
            version: view.read_text("/metadata/resourceVersion").to_owned(),
        }
    }
}

/// The last read state of a Lease, and the time since which it is unchanged. Times count from any fixed moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchedLease {
    record: Option<LeaseRecord>,
    since: Duration,
}

impl WatchedLease {
    /// Records a read of the Lease. `None` means that the Lease doesn't exist.
    pub fn take_lease(&mut self, record: Option<LeaseRecord>, now: Duration) {
        let same = |new: &LeaseRecord, old: &LeaseRecord| new.holder == old.holder && new.renewed == old.renewed;
        let unchanged = match (&record, &self.record) {
            (Some(new), Some(old)) => same(new, old),
            (None, None) => true,
            _ => false,
        };
        if !unchanged {
            self.since = now;
        }
        self.record = record;
    }

    /// Returns the holder of the Lease. A Lease that was not renewed for its own duration has no holder.
    #[must_use]
    pub fn find_holder(&self, now: Duration) -> Option<&str> {
        let record = self.record.as_ref().filter(|record| !record.holder.is_empty())?;
        (now.saturating_sub(self.since) < record.holds).then_some(record.holder.as_str())
    }
}

/// The next action of a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElectionAction {
    /// No Lease exists: create one.
    Create,
    /// Take or renew the Lease, if it still has this resourceVersion.
    Take {
        /// The resourceVersion.
        version: String,
        /// The value of `leaseTransitions` to write.
        transitions: i64,
        /// Whether the candidate renews its own Lease.
        renewal: bool,
    },
    /// Another process has the Lease.
    Wait {
        /// The holder.
        holder: String,
    },
}

/// Decides the next action of the candidate with this name.
#[must_use]
pub fn decide_action(lease: &WatchedLease, name: &str, now: Duration) -> ElectionAction {
    let Some(record) = &lease.record else {
        return ElectionAction::Create;
    };
    match lease.find_holder(now) {
        Some(holder) if holder != name => ElectionAction::Wait {
            holder: holder.to_owned(),
        },
        // The candidate's own ended Lease is also taken: if another process had taken it, it would have another holder.
        _ => ElectionAction::Take {
            version: record.version.clone(),
            transitions: record.transitions + i64::from(record.holder != name),
            renewal: record.holder == name,
        },
    }
}

/// Checks whether a leader that renewed its Lease at `renewed` for the last time must have stopped.
#[must_use]
pub fn must_stop(renewed: Duration, now: Duration) -> bool {
    now.saturating_sub(renewed) >= RENEWAL
}

/// Writes the spec of the candidate's own Lease.
#[must_use]
pub fn write_spec(name: &str, transitions: i64, now: Timestamp, renewal: bool) -> Value {
    // `renewTime` of a Lease has microseconds.
    let rounded = now.round(TimestampRound::new().smallest(Unit::Microsecond));
    let time = format!("{:.6}", rounded.unwrap_or(now));
    let mut spec = json!({
        "holderIdentity": name,
        "leaseDurationSeconds": LEASE.as_secs(),
        "leaseTransitions": transitions,
        "renewTime": time,
    });
    if !renewal && let Some(spec) = spec.as_object_mut() {
        spec.insert("acquireTime".to_owned(), json!(time));
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn time_at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn record(holder: &str, renewed: &str) -> LeaseRecord {
        LeaseRecord {
            holder: holder.to_owned(),
            holds: time_at(15),
            renewed: renewed.to_owned(),
            transitions: 3,
            version: "7".to_owned(),
        }
    }

    fn make_take(transitions: i64, renewal: bool) -> ElectionAction {
        ElectionAction::Take {
            version: "7".to_owned(),
            transitions,
            renewal,
        }
    }

    #[test]
    fn lease_is_taken_after_full_duration_without_renewal() {
        let mut lease = WatchedLease::default();
        assert_eq!(decide_action(&lease, "a", time_at(0)), ElectionAction::Create);
        let wait = ElectionAction::Wait { holder: "b".to_owned() };
        // The time that the Lease states doesn't count: it is watched for its whole duration.
        lease.take_lease(Some(record("b", "2001-01-01T00:00:00.000000Z")), time_at(100));
        assert_eq!(decide_action(&lease, "a", time_at(100)), wait);
        lease.take_lease(Some(record("b", "2001-01-01T00:00:00.000000Z")), time_at(114));
        assert_eq!(decide_action(&lease, "a", time_at(114)), wait);
        // A renewal restarts the duration, also if its clock is wrong.
        lease.take_lease(Some(record("b", "1999-01-01T00:00:00.000000Z")), time_at(114));
        assert_eq!(decide_action(&lease, "a", time_at(128)), wait);
        assert_eq!(decide_action(&lease, "a", time_at(129)), make_take(4, false));
    }

    #[test]
    fn released_lease_is_free_and_own_lease_is_renewed() {
        let mut lease = WatchedLease::default();
        lease.take_lease(Some(record("", "t")), time_at(5));
        assert_eq!(
            (lease.find_holder(time_at(5)), decide_action(&lease, "a", time_at(5))),
            (None, make_take(4, false))
        );
        lease.take_lease(Some(record("a", "t")), time_at(6));
        assert_eq!(decide_action(&lease, "a", time_at(6)), make_take(3, true));
        assert_eq!(decide_action(&lease, "a", time_at(99)), make_take(3, true));
        lease.take_lease(None, time_at(100));
        assert_eq!(decide_action(&lease, "a", time_at(100)), ElectionAction::Create);
    }

    #[test]
    fn a_leader_stops_before_the_next_one_may_begin() {
        assert!(!must_stop(time_at(5), time_at(14)));
        assert!(must_stop(time_at(5), time_at(15)));
        assert!(RENEWAL < LEASE && RETRY < RENEWAL);
    }

    #[test]
    fn a_lease_is_read_whatever_it_says() {
        let lease = json!({"metadata": {"resourceVersion": "9"}, "spec": {"holderIdentity": "x", "leaseDurationSeconds": 35, "leaseTransitions": 2, "renewTime": "t"}});
        let read = LeaseRecord::read(&lease);
        assert_eq!(
            (
                read.holder.as_str(),
                read.holds,
                read.transitions,
                read.version.as_str()
            ),
            ("x", time_at(35), 2, "9")
        );
        for odd in [
            json!({}),
            json!(null),
            json!({"spec": {"leaseDurationSeconds": -1, "holderIdentity": 4}}),
        ] {
            let read = LeaseRecord::read(&odd);
            assert_eq!((read.holder.as_str(), read.holds), ("", UNSTATED));
        }
    }

    #[test]
    fn acquire_time_is_written_only_for_new_holder() {
        let now = Timestamp::new(1_700_000_000, 123_456_600).unwrap();
        let written = json!("2023-11-14T22:13:20.123457Z");
        let first = write_spec("a", 1, now, false);
        assert_eq!((&first["acquireTime"], &first["renewTime"]), (&written, &written));
        assert!(write_spec("a", 1, now, true).get("acquireTime").is_none());
    }
}
