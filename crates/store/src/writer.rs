//! The only writer: it gathers the waiting requests, decides them in order, commits once, publishes and answers.
//! While the medium refuses, this module decides when to try again, and which writes are still accepted. The writer
//! runs until the store closes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use tokio::sync::{oneshot, watch};

use crate::store::Published;
use crate::watch::WatchedPrefixes;
use crate::{Entry, Event, EventKind, Journal, JournalError, Limits, Payload, Record, Snapshot, WriteError};

/// The state of the key for which a write is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// The key is missing.
    Absent,
    /// The key has a value of exactly this revision.
    Revision(u64),
}

/// The change that a write makes to its key.
#[derive(Debug, Clone)]
pub enum Change {
    /// Store this value.
    Put(Payload),
    /// Remove the key; watchers get this value as its last one.
    Delete(Payload),
}

/// A write of one key, and the state in which it is valid.
#[derive(Debug, Clone)]
pub struct Write {
    /// The key.
    pub key: Arc<str>,
    /// The state that the key must have, or the write is refused.
    pub expect: Expect,
    /// The change.
    pub change: Change,
    /// Whether a put is a step of a deletion, such as the deletion mark. On a full disk such a put may use the
    /// reserved space, as deletions may, if it is hardly longer than the value that it replaces.
    pub frees: bool,
}

impl Write {
    /// Checks whether the write may use the space that is reserved for deletions, given the stored entry.
    fn may_use_reserve(&self, current: Option<&Arc<Entry>>) -> bool {
        match &self.change {
            Change::Delete(_) => true,
            Change::Put(payload) => {
                let before = current.map_or(0, |entry| entry.bytes.len());
                self.frees && payload.with_revision(0).len() <= before + LONGEST_MARK
            }
        }
    }
}

/// By how much a step of a deletion may be longer than the replaced value.
const LONGEST_MARK: usize = 1024;

/// A write that waits for the writer, with the channel for its result.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) write: Write,
    pub(crate) reply: oneshot::Sender<Result<Arc<Entry>, WriteError>>,
}

/// The state of the writer thread: the journal, and the published state for readers.
pub(crate) struct Writer {
    journal: Box<dyn Journal>,
    published: Arc<RwLock<Published>>,
    latest: Arc<AtomicU64>,
    announce: watch::Sender<u64>,
    watched_prefixes: Arc<WatchedPrefixes>,
    /// Events since all watchers were last woken.
    unannounced: usize,
    limits: Limits,
    /// The journal has dropped its history up to this revision. The history in memory may be shorter.
    journal_compacted: u64,
    /// The last append failed; the journal has to be recovered first.
    broken: bool,
    /// Set after a failed append, until one succeeds or the journal reports that it would.
    failure: Option<WriteFailure>,
    health: Arc<Health>,
}

/// The last failed append, while the store can't be written.
#[derive(Debug)]
struct WriteFailure {
    /// The time of the last attempt.
    tried: Instant,
}

/// The error with which writes fail now, for readiness checks; `None` while the store can be written.
#[derive(Debug, Default)]
pub(crate) struct Health(RwLock<Option<WriteError>>);

impl Health {
    pub(crate) fn check_health(&self) -> Result<(), WriteError> {
        self.0.read().clone().map_or(Ok(()), Err)
    }

    fn set(&self, refusal: Option<WriteError>) {
        *self.0.write() = refusal;
    }
}

/// Number of revisions that the journal keeps beyond the history in memory. Dropping history costs a scan, so the
/// journal drops many revisions at once.
const COMPACT_EVERY: u64 = 4096;
/// Shortest time between a failed append and the next attempt for ordinary writes, however many requests wait.
const PAUSE: Duration = Duration::from_millis(100);
/// Interval at which the writer checks whether a store with a failed append can be written again.
const LOOK: Duration = Duration::from_secs(1);

impl Writer {
    pub(crate) fn new(
        journal: Box<dyn Journal>,
        published: Arc<RwLock<Published>>,
        (latest, announce): (Arc<AtomicU64>, watch::Sender<u64>),
        watched_prefixes: Arc<WatchedPrefixes>,
        limits: Limits,
        health: Arc<Health>,
    ) -> Self {
        let journal_compacted = published.read().ring.compacted_revision();
        Self {
            journal,
            published,
            latest,
            announce,
            watched_prefixes,
            unannounced: 0,
            limits,
            journal_compacted,
            broken: false,
            failure: None,
            health,
        }
    }

    pub(crate) fn run(mut self, requests: &Receiver<Request>) {
        loop {
            let first = match &self.failure {
                None => requests.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(failure) => {
                    let left = LOOK.saturating_sub(failure.tried.elapsed());
                    if left.is_zero() {
                        // The check is due, even if deletions arrive all the time.
                        Err(RecvTimeoutError::Timeout)
                    } else {
                        requests.recv_timeout(left)
                    }
                }
            };
            match first {
                Ok(first) => {
                    let mut batch = vec![first];
                    while batch.len() < self.limits.batch {
                        let Ok(next) = requests.try_recv() else { break };
                        batch.push(next);
                    }
                    self.write_batch(batch);
                }
                Err(RecvTimeoutError::Timeout) => self.try_recovery(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Tries to recover the journal after a failed append, without a request.
    fn try_recovery(&mut self) {
        match self.recover().and_then(|()| self.journal.make_ready()) {
            Ok(()) => self.record_recovery(),
            Err(error) => self.record_failure(&error),
        }
    }

    fn write_batch(&mut self, batch: Vec<Request>) {
        let mut batch = batch;
        if let Some(WriteFailure { tried }) = self.failure {
            let others = self.write_from_reserve(batch);
            if others.is_empty() {
                return;
            }
            std::thread::sleep(PAUSE.saturating_sub(tried.elapsed()));
            if let Err(error) = self.recover() {
                self.record_failure(&error);
                return refuse_requests(others, &error);
            }
            batch = others;
        }
        match self.commit(batch, false) {
            Ok(0) => {}
            Ok(_) => self.record_recovery(),
            Err((error, refused)) => {
                self.record_failure(&error);
                let others = match error {
                    JournalError::Full(_) => self.write_from_reserve(refused),
                    _ => refused,
                };
                refuse_requests(others, &error);
            }
        }
    }

    /// Writes the requests that may use the reserved space, and returns the others.
    fn write_from_reserve(&mut self, batch: Vec<Request>) -> Vec<Request> {
        let state = self.published.read().snapshot.clone();
        let (frees, others): (Vec<Request>, Vec<Request>) = batch
            .into_iter()
            .partition(|request| request.write.may_use_reserve(state.get(&request.write.key)));
        if !frees.is_empty() {
            match self.recover() {
                Err(error) => refuse_requests(frees, &error),
                Ok(()) => {
                    if let Err((error, refused)) = self.commit(frees, true) {
                        refuse_requests(refused, &error);
                    }
                }
            }
        }
        others
    }

    fn record_recovery(&mut self) {
        if self.failure.take().is_some() {
            self.health.set(None);
            tracing::warn!("the store can be written again");
        }
    }

    fn record_failure(&mut self, error: &JournalError) {
        let tried = Instant::now();
        if self.failure.replace(WriteFailure { tried }).is_none() {
            tracing::error!(%error, "the store can't be written");
        }
        self.health.set(Some(make_write_error(error)));
    }

    /// Decides and writes a batch. Returns the number of writes, or the error with the requests of the batch.
    fn commit(&mut self, batch: Vec<Request>, from_reserve: bool) -> Result<usize, (JournalError, Vec<Request>)> {
        let mut state = self.published.read().snapshot.clone();
        let mut events = Vec::with_capacity(batch.len());
        let mut accepted = Vec::with_capacity(batch.len());
        for request in batch {
            // The caller stopped waiting for the result, so its write is skipped.
            if request.reply.is_closed() {
                continue;
            }
            match decide_write(&state, &request.write) {
                Ok(event) => {
                    state.apply(&event);
                    events.push(event);
                    accepted.push(request);
                }
                Err(error) => {
                    let _ = request.reply.send(Err(error));
                }
            }
        }
        if events.is_empty() {
            return Ok(0);
        }
        let records: Vec<Record> = events.iter().map(make_record).collect();
        let forgotten = self.published.read().ring.compacted_revision();
        let compact = (forgotten > self.journal_compacted + COMPACT_EVERY).then_some(forgotten);
        let written = if from_reserve {
            self.journal.append_from_reserve(&records)
        } else {
            self.journal.append(&records, compact)
        };
        if let Err(error) = written {
            self.broken = true;
            return Err((error, accepted));
        }
        if let Some(compacted) = compact.filter(|_| !from_reserve) {
            self.journal_compacted = compacted;
        }
        let entries: Vec<Arc<Entry>> = events.iter().map(|event| event.entry.clone()).collect();
        self.publish(state, events);
        for (request, entry) in accepted.into_iter().zip(entries) {
            let _ = request.reply.send(Ok(entry));
        }
        Ok(records.len())
    }

    fn publish(&mut self, state: Snapshot, events: Vec<Event>) {
        let revision = state.revision;
        let keys: Vec<Arc<str>> = events.iter().map(|event| event.key.clone()).collect();
        self.unannounced += events.len();
        let wake_all = {
            let mut published = self.published.write();
            for event in events {
                published.ring.push(Arc::new(event), &self.limits);
            }
            published.snapshot = state;
            published.ring.is_running_out(self.unannounced, &self.limits)
        };
        if wake_all {
            self.unannounced = 0;
        }
        // Woken readers must find the new revision here.
        self.latest.store(revision, Ordering::Release);
        let _ = self.announce.send(revision);
        self.watched_prefixes.announce(revision, &keys, wake_all);
    }

    /// Recovers after a failed append, which may have reached the disk. The records on the disk are published, so
    /// that memory and disk agree.
    fn recover(&mut self) -> Result<(), JournalError> {
        if !self.broken {
            return Ok(());
        }
        let mut state = self.published.read().snapshot.clone();
        let records = self.journal.recover(state.revision)?;
        let mut events = Vec::with_capacity(records.len());
        for record in records {
            let event = Event {
                revision: record.revision,
                kind: record.kind,
                entry: Arc::new(Entry {
                    revision: record.revision,
                    bytes: record.value,
                }),
                previous: state.get(&record.key).cloned(),
                key: record.key,
            };
            state.apply(&event);
            events.push(event);
        }
        self.broken = false;
        if !events.is_empty() {
            self.publish(state, events);
        }
        Ok(())
    }
}

impl Drop for Writer {
    /// Marks the store as closed, however the writer ends: no write is accepted any more.
    fn drop(&mut self) {
        self.health.set(Some(WriteError::Closed));
        self.watched_prefixes.close();
    }
}

fn refuse_requests(requests: Vec<Request>, error: &JournalError) {
    let refused = make_write_error(error);
    for request in requests {
        let _ = request.reply.send(Err(refused.clone()));
    }
}

fn make_write_error(error: &JournalError) -> WriteError {
    match error {
        JournalError::Full(detail) => WriteError::Full(detail.clone()),
        other => WriteError::Failed(other.to_string()),
    }
}

fn decide_write(state: &Snapshot, write: &Write) -> Result<Event, WriteError> {
    let current = state.get(&write.key);
    let as_expected = match (write.expect, current) {
        (Expect::Absent, None) => true,
        (Expect::Revision(revision), Some(entry)) => entry.revision == revision,
        _ => false,
    };
    if !as_expected {
        return Err(WriteError::Conflict {
            current: current.cloned(),
        });
    }
    let revision = state.revision + 1;
    let (kind, payload) = match &write.change {
        Change::Put(payload) => (EventKind::Put, payload),
        Change::Delete(payload) => (EventKind::Delete, payload),
    };
    let previous = current.cloned();
    Ok(Event {
        revision,
        key: write.key.clone(),
        kind,
        entry: Arc::new(Entry {
            revision,
            bytes: payload.with_revision(revision),
        }),
        previous,
    })
}

fn make_record(event: &Event) -> Record {
    Record {
        revision: event.revision,
        key: event.key.clone(),
        kind: event.kind,
        value: event.entry.bytes.clone(),
        previous: event
            .previous
            .as_ref()
            .map(|entry| (entry.revision, entry.bytes.clone())),
    }
}
