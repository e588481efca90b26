//! The durable half of a store as a trait, so that another medium, or a failing one in tests, can stand in.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::{Entry, EventKind};

/// One change as it is written to the medium.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The revision of the change.
    pub revision: u64,
    /// The key.
    pub key: Arc<str>,
    /// What happened to it.
    pub kind: EventKind,
    /// The new value, or the last one if the key was removed.
    pub value: Bytes,
    /// The value before, with its revision.
    pub previous: Option<(u64, Bytes)>,
}

/// Everything that a journal holds.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The last revision that was committed.
    pub revision: u64,
    /// History up to and including this revision is gone.
    pub compacted: u64,
    /// The present values.
    pub objects: Vec<(Arc<str>, Arc<Entry>)>,
    /// The changes behind `compacted`, in order.
    pub history: Vec<Record>,
}

impl Loaded {
    /// Adds changes that come after all of it, and tells each what it changed.
    pub(crate) fn extend(&mut self, records: &mut [Record]) {
        let mut objects: HashMap<Arc<str>, Arc<Entry>> = std::mem::take(&mut self.objects).into_iter().collect();
        for record in records {
            let entry = Arc::new(Entry {
                revision: record.revision,
                bytes: record.value.clone(),
            });
            let previous = match record.kind {
                EventKind::Put => objects.insert(record.key.clone(), entry),
                EventKind::Delete => objects.remove(&record.key),
            };
            record.previous = previous.map(|entry| (entry.revision, entry.bytes.clone()));
            self.revision = record.revision;
            if record.revision > self.compacted {
                self.history.push(record.clone());
            }
        }
        self.objects = objects.into_iter().collect();
    }
}

/// Why the medium refused.
#[derive(Debug, Clone, thiserror::Error)]
pub enum JournalError {
    /// There is no space left.
    #[error("{0}")]
    Full(String),
    /// What is on the medium can't be right.
    #[error("{0}")]
    Damaged(String),
    /// The format number on the medium is not the one this program knows.
    #[error("format {found}, and this program reads {known}")]
    Format {
        /// On the medium.
        found: u64,
        /// Known here.
        known: u64,
    },
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

impl From<std::io::Error> for JournalError {
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind;
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                Self::Full(error.to_string())
            }
            ErrorKind::InvalidData | ErrorKind::UnexpectedEof => Self::Damaged(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}

/// A medium that keeps records in order. It has one user, the writer of a store.
pub trait Journal: Send + 'static {
    /// Reads everything. Called once, before anything is appended.
    ///
    /// # Errors
    /// When the medium can't be read or holds something impossible.
    fn load(&mut self) -> Result<Loaded, JournalError>;

    /// Makes `records` durable, all or none, and may forget the history up to and including `compacted`.
    /// When it returns, they survive a power cut.
    ///
    /// # Errors
    /// When nothing, or possibly all, was written; [`Journal::recover`] tells which.
    fn append(&mut self, records: &[Record], compacted: Option<u64>) -> Result<(), JournalError>;

    /// The same for records that lead to there being less: it may use space that is kept for them.
    ///
    /// # Errors
    /// As [`Journal::append`].
    fn append_from_reserve(&mut self, records: &[Record]) -> Result<(), JournalError> {
        self.append(records, None)
    }

    /// Makes the medium usable again after a failed append, and returns the records behind `revision` that it holds.
    ///
    /// # Errors
    /// When the medium is still not usable.
    fn recover(&mut self, revision: u64) -> Result<Vec<Record>, JournalError>;

    /// Sees to it that an append of ordinary size would succeed. Called from time to time after one that failed, when nobody
    /// asks for another.
    ///
    /// # Errors
    /// When it would not.
    fn make_ready(&mut self) -> Result<(), JournalError> {
        Ok(())
    }
}
