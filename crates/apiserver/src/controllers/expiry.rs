//! Owns the end of Events: an hour after their last write they go, as where etcd's leases end them. Refuses to look
//! at a clock: it is told the time, and tells when it wants to be asked again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::object_name::{ObjectName, text};

/// How long an Event is kept after it was last written.
pub(crate) const KEPT: SignedDuration = SignedDuration::from_hours(1);

/// An Event that is due: it goes if it still has this resourceVersion.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Due {
    /// When.
    pub(crate) at: Timestamp,
    /// Which.
    pub(crate) event: ObjectName,
    /// As of which write.
    pub(crate) resource_version: String,
}

/// The Events by the time at which they end.
#[derive(Debug, Default)]
pub(crate) struct Expiry {
    due: BinaryHeap<Reverse<Due>>,
}

impl Expiry {
    /// Takes in an Event that was written at `written`.
    pub(crate) fn insert(&mut self, event: ObjectName, object: &Value, written: Timestamp) {
        let at = written.checked_add(KEPT).unwrap_or(Timestamp::MAX);
        let resource_version = text(object, "/metadata/resourceVersion").to_owned();
        self.due.push(Reverse(Due {
            at,
            event,
            resource_version,
        }));
    }

    /// When the next Event is due.
    #[must_use]
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.due.peek().map(|Reverse(due)| due.at)
    }

    /// Takes out what is due at `now`.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Vec<Due> {
        let mut due = Vec::new();
        while let Some(Reverse(next)) = self.due.peek() {
            if next.at > now {
                break;
            }
            if let Some(Reverse(next)) = self.due.pop() {
                due.push(next);
            }
        }
        due
    }
}

/// When an Event was last written, as far as it says so itself: for those that are there at a start.
#[must_use]
pub(crate) fn last_written(event: &Value) -> Timestamp {
    [
        "/series/lastObservedTime",
        "/lastTimestamp",
        "/eventTime",
        "/metadata/creationTimestamp",
    ]
    .into_iter()
    .filter_map(|pointer| event.pointer(pointer).and_then(Value::as_str))
    .filter_map(|time| time.parse::<Timestamp>().ok())
    .max()
    .unwrap_or(Timestamp::UNIX_EPOCH)
}
