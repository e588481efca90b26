//! Watches: each has a cursor into the shared history, and no queue of its own.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{Event, Store};

/// Events that a cursor takes out of the shared history at once.
const BATCH: usize = 256;
/// Bytes of values that a cursor takes at once: they stay in memory, even after the history has dropped them.
const BATCH_BYTES: usize = 64 * 1024;

/// The error for a read of history that was dropped: not all events after revision `requested` still exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("history up to revision {compacted} is gone, and revision {requested} was asked for")]
pub struct Compacted {
    /// The requested revision.
    pub requested: u64,
    /// The newest dropped revision.
    pub compacted: u64,
}

/// A cursor into the shared history, which returns the changes of the keys under one prefix in order.
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

    /// Returns a revision up to which every event was delivered, or is not under this watcher's prefix.
    #[must_use]
    pub fn position(&mut self) -> u64 {
        if self.pending.is_empty() {
            // A watcher is not woken for events under other prefixes. If it fell behind the history, `next` reports
            // that.
            let _fell_off = self.read_events();
        }
        match self.pending.front() {
            Some(event) => event.revision.saturating_sub(1),
            None => self.position,
        }
    }

    fn read_events(&mut self) -> Result<(), Compacted> {
        let (position, events) = self
            .store
            .events_within(&self.prefix, self.position, BATCH, BATCH_BYTES)?;
        self.position = position;
        self.pending.extend(events);
        Ok(())
    }

    /// Returns a change that was already taken out of the history together with an earlier one. Does not search the
    /// history for further changes.
    pub fn next_pending(&mut self) -> Option<Arc<Event>> {
        self.pending.pop_front()
    }

    /// Waits for the next change. `None` when the store has closed. Cancelling it loses nothing.
    ///
    /// # Errors
    /// [`Compacted`] if this watcher was too slow.
    pub async fn next(&mut self) -> Option<Result<Arc<Event>, Compacted>> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Some(Ok(event));
            }
            self.published.mark_unchanged();
            if let Err(compacted) = self.read_events() {
                return Some(Err(compacted));
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

/// The prefixes that watchers follow, each with a channel to wake its watchers. A change wakes only the watchers of its
/// key's prefixes.
#[derive(Debug, Default)]
pub(crate) struct WatchedPrefixes {
    waiting: Mutex<HashMap<Arc<str>, watch::Sender<u64>>>,
}

impl WatchedPrefixes {
    /// Returns a channel that announces changes under `prefix`.
    pub(crate) fn subscribe(&self, prefix: &Arc<str>, revision: u64) -> watch::Receiver<u64> {
        let mut waiting = self.waiting.lock();
        if let Some(sender) = waiting.get(prefix) {
            return sender.subscribe();
        }
        waiting.retain(|_, sender| sender.receiver_count() > 0);
        let (sender, receiver) = watch::channel(revision);
        waiting.insert(prefix.clone(), sender);
        receiver
    }

    /// Wakes the watchers whose prefix one of the changed `keys` has, or every watcher if `wake_all`.
    pub(crate) fn announce(&self, revision: u64, keys: &[Arc<str>], wake_all: bool) {
        for (prefix, sender) in &*self.waiting.lock() {
            if wake_all || keys.iter().any(|key| key.starts_with(&**prefix)) {
                sender.send_replace(revision);
            }
        }
    }

    /// Ends all waits, as the store closes.
    pub(crate) fn close(&self) {
        self.waiting.lock().clear();
    }
}
