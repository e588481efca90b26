//! The durable part of a store as a trait, so that another medium can replace it, for example a failing one in tests.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::{Entry, EventKind};

/// A change in the form in which it is written to the medium.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The revision of the change.
    pub revision: u64,
    /// The key.
    pub key: Arc<str>,
    /// The sort of the change.
    pub kind: EventKind,
    /// The new value, or the last one if the key was removed.
    pub value: Bytes,
    /// The previous value, with its revision.
    pub previous: Option<(u64, Bytes)>,
}

/// The whole content of a journal when a store is opened.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The last revision that was committed.
    pub revision: u64,
    /// History up to and including this revision was dropped.
    pub compacted: u64,
    /// The current values.
    pub objects: Vec<(Arc<str>, Arc<Entry>)>,
    /// The changes after `compacted`, in order.
    pub history: Vec<Record>,
}

impl Loaded {
    /// Adds later changes, and sets the previous value in each.
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

/// The reason why a journal could not be read or written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum JournalError {
    /// The disk has no space left.
    #[error("{0}")]
    Full(String),
    /// The stored content is invalid.
    #[error("{0}")]
    Damaged(String),
    /// The format number on the medium is not the one this program knows.
    #[error("format {found}, and this program reads {known}")]
    Format {
        /// The format on the medium.
        found: u64,
        /// The format of this program.
        known: u64,
    },
    /// Reading or writing failed for another reason.
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

/// A durable medium for the changes of a store, in the order of their revisions. Only the writer thread of a store uses
/// a journal.
pub trait Journal: Send + 'static {
    /// Reads everything. Called once, before anything is appended.
    ///
    /// # Errors
    /// If the medium can't be read or has impossible content.
    fn load(&mut self) -> Result<Loaded, JournalError>;

    /// Makes `records` durable, all or none, and may drop the history up to and including `compacted`. When it
    /// returns, they survive a power cut.
    ///
    /// # Errors
    /// If nothing, or possibly all, was written; [`Journal::recover`] tells which.
    fn append(&mut self, records: &[Record], compacted: Option<u64>) -> Result<(), JournalError>;

    /// Appends records that reduce the stored data. They may use space that is reserved for deletions.
    ///
    /// # Errors
    /// As [`Journal::append`].
    fn append_from_reserve(&mut self, records: &[Record]) -> Result<(), JournalError> {
        self.append(records, None)
    }

    /// Makes the medium usable again after a failed append, and returns its records after `revision`.
    ///
    /// # Errors
    /// If the medium is still not usable.
    fn recover(&mut self, revision: u64) -> Result<Vec<Record>, JournalError>;

    /// Prepares the medium so that an append of ordinary size would succeed. The writer calls this from time to time
    /// after a failed append, if no request for a write arrives.
    ///
    /// # Errors
    /// If such an append would fail.
    fn make_ready(&mut self) -> Result<(), JournalError> {
        Ok(())
    }
}
