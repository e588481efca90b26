//! One change as watchers see it, and the ring of recent changes, which also decides when history is dropped.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::{Entry, Limits};

/// The sort of a change: a put or a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// The key was created or changed.
    Put,
    /// The key was removed.
    Delete,
}

/// A committed change of one key, as watchers get it.
#[derive(Debug, Clone)]
pub struct Event {
    /// The revision of the change.
    pub revision: u64,
    /// The key that changed.
    pub key: Arc<str>,
    /// The sort of the change.
    pub kind: EventKind,
    /// The value after the change; for a deletion the last value, with the revision of the deletion.
    pub entry: Arc<Entry>,
    /// The value before the change, if the key existed.
    pub previous: Option<Arc<Entry>>,
}

impl Event {
    /// Returns the size of the new and the previous value together, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.entry.bytes.len() + self.previous.as_ref().map_or(0, |entry| entry.bytes.len())
    }

    /// Returns the size of the values that stay in memory only because this event is in the history, in bytes.
    fn count_retained_bytes(&self) -> usize {
        let deleted = if self.kind == EventKind::Delete {
            self.entry.bytes.len()
        } else {
            0
        };
        deleted + self.previous.as_ref().map_or(0, |entry| entry.bytes.len()) + 128
    }
}

/// The history in memory: the recent events in order, which all watchers and reads at older revisions share.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    events: VecDeque<Arc<Event>>,
    retained: usize,
    /// The sum of all bytes that events retained since the start, including dropped events.
    displaced: u64,
    /// Events up to and including this revision were dropped.
    compacted: u64,
}

impl Ring {
    pub(crate) fn new(compacted: u64) -> Self {
        Self {
            events: VecDeque::new(),
            retained: 0,
            displaced: 0,
            compacted,
        }
    }

    pub(crate) fn compacted_revision(&self) -> u64 {
        self.compacted
    }

    pub(crate) fn displaced_bytes(&self) -> u64 {
        self.displaced
    }

    pub(crate) fn push(&mut self, event: Arc<Event>, limits: &Limits) {
        self.retained += event.count_retained_bytes();
        self.displaced += event.count_retained_bytes() as u64;
        self.events.push_back(event);
        while self.events.len() > limits.history_events || self.retained > limits.history_bytes {
            let Some(oldest) = self.events.pop_front() else {
                break;
            };
            self.retained = self.retained.saturating_sub(oldest.count_retained_bytes());
            self.compacted = oldest.revision;
        }
    }

    /// Checks whether the ring is filling up, and the last `recent` events are a large part of it. A watcher that has
    /// not read since may soon miss events.
    pub(crate) fn is_running_out(&self, recent: usize, limits: &Limits) -> bool {
        let filling = self.events.len() * 2 >= limits.history_events || self.retained * 2 >= limits.history_bytes;
        filling && recent * 4 >= self.events.len()
    }

    /// Returns the events after `revision`, oldest first.
    ///
    /// Most callers have seen all but the newest few. So the search begins at the end, in steps that double. A search
    /// from the middle would read events that left the processor's cache long ago.
    pub(crate) fn events_after(&self, revision: u64) -> impl DoubleEndedIterator<Item = &Arc<Event>> {
        let count = self.events.len();
        let is_seen = |index: usize| {
            let event = self.events.get(index);
            event.is_some_and(|event| event.revision <= revision)
        };
        let mut step = 1;
        while step < count && !is_seen(count - step) {
            step *= 2;
        }
        let (mut start, mut end) = (count.saturating_sub(step), count);
        while start < end {
            let middle = start + (end - start) / 2;
            if is_seen(middle) {
                start = middle + 1;
            } else {
                end = middle;
            }
        }
        self.events.range(start..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_after_any_revision_are_found() {
        let limits = Limits::default();
        for count in 0..40_u64 {
            let mut ring = Ring::new(0);
            // Every second revision belongs to another key.
            for number in 1..=count {
                let event = Event {
                    revision: number * 2,
                    key: Arc::from("key"),
                    kind: EventKind::Put,
                    entry: Arc::new(Entry {
                        revision: number * 2,
                        bytes: bytes::Bytes::new(),
                    }),
                    previous: None,
                };
                ring.push(Arc::new(event), &limits);
            }
            for revision in 0..=count * 2 + 3 {
                let behind: Vec<u64> = ring.events_after(revision).map(|event| event.revision).collect();
                let wanted: Vec<u64> = (1..=count)
                    .map(|number| number * 2)
                    .filter(|own| *own > revision)
                    .collect();
                assert_eq!(behind, wanted, "{count} events, behind {revision}");
            }
        }
    }
}
