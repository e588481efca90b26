//! Following changes: a cursor into the shared history, without a queue of its own per watcher.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{Event, Store};

/// How many events a cursor takes out of the shared history at once.
const BATCH: usize = 256;
/// And how many bytes of values: what it has taken stays in memory, though the history has forgotten it.
const BATCH_BYTES: usize = 64 * 1024;

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
    pub fn position(&mut self) -> u64 {
        if self.pending.is_empty() {
            // A watcher is not woken for what doesn't concern it. If it fell off the history, `next` says so.
            let _fell_off = self.look();
        }
        match self.pending.front() {
            Some(event) => event.revision.saturating_sub(1),
            None => self.position,
        }
    }

    fn look(&mut self) -> Result<(), Compacted> {
        let (position, events) = self
            .store
            .events_within(&self.prefix, self.position, BATCH, BATCH_BYTES)?;
        self.position = position;
        self.pending.extend(events);
        Ok(())
    }

    /// A change that was taken out of the history together with one before it. It is nobody else's business whether there are
    /// more.
    pub fn taken(&mut self) -> Option<Arc<Event>> {
        self.pending.pop_front()
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
            if let Err(compacted) = self.look() {
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

/// Who waits for changes under which prefix: a change wakes those whom it concerns, and nobody else.
#[derive(Debug, Default)]
pub(crate) struct Interest {
    waiting: Mutex<HashMap<Arc<str>, watch::Sender<u64>>>,
}

impl Interest {
    /// Says when something under `prefix` changed.
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

    /// Wakes who is concerned by a change of one of `keys`, or everybody.
    pub(crate) fn announce(&self, revision: u64, keys: &[Arc<str>], everybody: bool) {
        for (prefix, sender) in &*self.waiting.lock() {
            if everybody || keys.iter().any(|key| key.starts_with(&**prefix)) {
                sender.send_replace(revision);
            }
        }
    }

    /// The store closes: nobody is to wait any more.
    pub(crate) fn close(&self) {
        self.waiting.lock().clear();
    }
}
