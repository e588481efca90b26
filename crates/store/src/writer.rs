//! The one writer: gathers what is waiting, decides it in order, commits once, publishes, answers.

use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::{mpsc, oneshot, watch};

use crate::store::Published;
use crate::watch::Interest;
use crate::{Entry, Event, EventKind, Journal, JournalError, Limits, Payload, Record, Snapshot, WriteError};

/// What a writer believes to be stored under the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// Nothing.
    Absent,
    /// A value of exactly this revision.
    Revision(u64),
}

/// What to do with the key.
#[derive(Debug, Clone)]
pub enum Change {
    /// Store this value.
    Put(Payload),
    /// Remove the key; watchers get this value as its last one.
    Delete(Payload),
}

/// One write.
#[derive(Debug, Clone)]
pub struct Write {
    /// The key.
    pub key: Arc<str>,
    /// The state in which the write is valid.
    pub expect: Expect,
    /// The change.
    pub change: Change,
}

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) write: Write,
    pub(crate) reply: oneshot::Sender<Result<Arc<Entry>, WriteError>>,
}

type Reply = oneshot::Sender<Result<Arc<Entry>, WriteError>>;

pub(crate) struct Writer {
    journal: Box<dyn Journal>,
    published: Arc<RwLock<Published>>,
    announce: watch::Sender<u64>,
    interest: Arc<Interest>,
    /// Events since every watcher was last woken.
    unannounced: usize,
    limits: Limits,
    /// History up to here is gone from the journal too.
    journal_compacted: u64,
    /// The last append failed; the journal has to be recovered first.
    broken: bool,
}

/// How far memory may be ahead of the journal in forgetting: forgetting costs a scan, so it is done in bulk.
const COMPACT_EVERY: u64 = 4096;

impl Writer {
    pub(crate) fn new(
        journal: Box<dyn Journal>,
        published: Arc<RwLock<Published>>,
        announce: watch::Sender<u64>,
        interest: Arc<Interest>,
        limits: Limits,
    ) -> Self {
        let journal_compacted = published.read().ring.compacted();
        Self {
            journal,
            published,
            announce,
            interest,
            unannounced: 0,
            limits,
            journal_compacted,
            broken: false,
        }
    }

    pub(crate) fn run(mut self, mut requests: mpsc::UnboundedReceiver<Request>) {
        while let Some(first) = requests.blocking_recv() {
            let mut batch = vec![first];
            while batch.len() < self.limits.batch {
                let Ok(next) = requests.try_recv() else { break };
                batch.push(next);
            }
            self.commit(batch);
        }
    }

    fn commit(&mut self, batch: Vec<Request>) {
        if self.broken
            && let Err(error) = self.recover()
        {
            let refused = refusal(&error);
            for request in batch {
                let _ = request.reply.send(Err(refused.clone()));
            }
            return;
        }
        let mut state = self.published.read().snapshot.clone();
        let mut events = Vec::with_capacity(batch.len());
        let mut replies: Vec<(Reply, Arc<Entry>)> = Vec::with_capacity(batch.len());
        for Request { write, reply } in batch {
            // A caller that is gone asked for nothing any more; its write must not happen unseen.
            if reply.is_closed() {
                continue;
            }
            match decide(&state, write) {
                Ok(event) => {
                    state.apply(&event);
                    replies.push((reply, event.entry.clone()));
                    events.push(event);
                }
                Err(error) => {
                    let _ = reply.send(Err(error));
                }
            }
        }
        if events.is_empty() {
            return;
        }
        let records: Vec<Record> = events.iter().map(record).collect();
        let forgotten = self.published.read().ring.compacted();
        let compact = (forgotten > self.journal_compacted + COMPACT_EVERY).then_some(forgotten);
        match self.journal.append(&records, compact) {
            Ok(()) => {
                if let Some(compacted) = compact {
                    self.journal_compacted = compacted;
                }
                self.publish(state, events);
                for (reply, entry) in replies {
                    let _ = reply.send(Ok(entry));
                }
            }
            Err(error) => {
                tracing::error!(%error, "the store could not be written");
                self.broken = true;
                let refused = refusal(&error);
                for (reply, _) in replies {
                    let _ = reply.send(Err(refused.clone()));
                }
            }
        }
    }

    fn publish(&mut self, state: Snapshot, events: Vec<Event>) {
        let revision = state.revision;
        let keys: Vec<Arc<str>> = events.iter().map(|event| event.key.clone()).collect();
        self.unannounced += events.len();
        let everybody = {
            let mut published = self.published.write();
            for event in events {
                published.ring.push(Arc::new(event), &self.limits);
            }
            published.snapshot = state;
            published.ring.is_running_out(self.unannounced, &self.limits)
        };
        if everybody {
            self.unannounced = 0;
        }
        let _ = self.announce.send(revision);
        self.interest.announce(revision, &keys, everybody);
    }

    /// A failed append may have reached the disk all the same: what is there is published, so that memory and disk agree.
    fn recover(&mut self) -> Result<(), JournalError> {
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
    fn drop(&mut self) {
        self.interest.close();
    }
}

fn refusal(error: &JournalError) -> WriteError {
    match error {
        JournalError::Full(detail) => WriteError::Full(detail.clone()),
        other => WriteError::Failed(other.to_string()),
    }
}

fn decide(state: &Snapshot, write: Write) -> Result<Event, WriteError> {
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
    let (kind, payload) = match write.change {
        Change::Put(payload) => (EventKind::Put, payload),
        Change::Delete(payload) => (EventKind::Delete, payload),
    };
    let previous = current.cloned();
    Ok(Event {
        revision,
        key: write.key,
        kind,
        entry: Arc::new(Entry {
            revision,
            bytes: payload.at(revision),
        }),
        previous,
    })
}

fn record(event: &Event) -> Record {
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
