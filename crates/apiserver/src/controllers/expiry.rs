//! Expiry of Events: an Event is deleted an hour after its last write, as with etcd's leases. This module reads no
//! clock: the caller passes the time, and learns when to call again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::object_name::{ObjectName, get_text};

/// How long an Event is kept after it was last written.
pub(crate) const KEPT: SignedDuration = SignedDuration::from_hours(1);

/// An expired Event. It is deleted if it still has this resourceVersion.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ExpiredEvent {
    /// The time of the expiry.
    pub(crate) at: Timestamp,
    /// The Event.
    pub(crate) event: ObjectName,
    /// The resourceVersion of its last write.
    pub(crate) resource_version: String,
}

/// The stored Events, ordered by the time of their expiry.
#[derive(Debug, Default)]
pub(crate) struct Expiry {
    due: BinaryHeap<Reverse<ExpiredEvent>>,
}

impl Expiry {
    /// Adds an Event that was written at `written`.
    pub(crate) fn insert(&mut self, event: ObjectName, object: &Value, written: Timestamp) {
        let at = written.checked_add(KEPT).unwrap_or(Timestamp::MAX);
        let resource_version = get_text(object, "/metadata/resourceVersion").to_owned();
        self.due.push(Reverse(ExpiredEvent {
            at,
            event,
            resource_version,
        }));
    }

    /// Returns the time when the next Event expires.
    #[must_use]
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.due.peek().map(|Reverse(due)| due.at)
    }

    /// Removes and returns the Events that have expired at `now`.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Vec<ExpiredEvent> {
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

/// Returns when an Event was last written, by its own fields: for Events that exist at the start.
#[must_use]
pub(crate) fn last_event_time(event: &Value) -> Timestamp {
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
