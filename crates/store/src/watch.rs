//! Following changes: a cursor into the shared history, without a queue of its own per watcher.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::watch;

use crate::{Event, Store};

/// How many events a cursor takes out of the shared history at once.
const BATCH: usize = 256;

/// The watcher fell off the history: the events behind its revision are forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("history up to revision {compacted} is gone, and revision {requested} was asked for")]
pub struct Compacted {
    /// What was asked for.
    pub requested: u64,
    /// The newest forgotten revision.
    pub compacted: u64,
}

/// Follows the changes of the keys under one prefix.
#[derive(Debug)]
pub struct Watcher {
    store: Store,
    prefix: Arc<str>,
    position: u64,
    pending: VecDeque<Arc<Event>>,
    published: watch::Receiver<u64>,
}

impl Watcher {
    pub(crate) fn new(store: Store, prefix: Arc<str>, position: u64, published: watch::Receiver<u64>) -> Self {
        Self {
            store,
            prefix,
            position,
            pending: VecDeque::new(),
            published,
        }
    }

    /// Everything up to this revision has been delivered or does not concern this watcher.
    #[must_use]
    pub fn position(&self) -> u64 {
        match self.pending.front() {
            Some(event) => event.revision.saturating_sub(1),
            None => self.position,
        }
    }

    /// Waits for the next change. `None` when the store has closed. Cancelling it loses nothing.
    ///
    /// # Errors
    /// [`Compacted`] when this watcher was too slow.
    pub async fn next(&mut self) -> Option<Result<Arc<Event>, Compacted>> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Some(Ok(event));
            }
            self.published.mark_unchanged();
            match self.store.events_after(&self.prefix, self.position, BATCH) {
                Ok((position, events)) => {
                    self.position = position;
                    self.pending.extend(events);
                }
                Err(compacted) => return Some(Err(compacted)),
            }
            if self.pending.is_empty()
                && self.position >= *self.published.borrow()
                && self.published.changed().await.is_err()
            {
                return None;
            }
        }
    }
}
