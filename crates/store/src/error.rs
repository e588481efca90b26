//! Errors of opening and writing a store, with the texts for an operator.

use std::path::PathBuf;
use std::sync::Arc;

use crate::Entry;

/// The reason why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The data directory could not be created or read.
    #[error("cannot use the data directory {path}: {source}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The data directory is open in another process.
    #[error("the data directory {path} is in use by {holder}; stop that process first, or choose another directory")]
    Locked {
        /// The directory.
        path: PathBuf,
        /// `process 123`, or `another process` if its number could not be read.
        holder: String,
    },
    /// The file exists and is not a readable store.
    #[error(
        "the store file {path} is damaged ({detail}); nothing was changed in it. Restore it from a backup, or move it away to start with an empty store"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The fault in the file.
        detail: String,
    },
    /// The file was written by a version of this program with another format.
    #[error(
        "the store file {path} has format {found}, and this program reads format {known}; use the program version that wrote it"
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// The format in the file.
        found: u64,
        /// The format that this program knows.
        known: u64,
    },
    /// The disk has no space for the writes of a start.
    #[error(
        "the disk under the store file {path} is full ({detail}): make some space there and start again; nothing is lost"
    )]
    Full {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        detail: String,
    },
    /// The file could not be read or written.
    #[error("cannot open the store file {path}: {detail}")]
    File {
        /// The file.
        path: PathBuf,
        /// The fault.
        detail: String,
    },
}

/// The reason why a write was not accepted. A refused write is visible to no reader.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    /// The key is not in the state that the writer expected.
    #[error("the object changed since it was read")]
    Conflict {
        /// The entry that is stored under the key now.
        current: Option<Arc<Entry>>,
    },
    /// The disk is full. Writes work again as soon as the disk has space.
    #[error("the disk under the data directory is full: {0}")]
    Full(String),
    /// The file could not be written for another reason.
    #[error("the store could not be written: {0}")]
    Failed(String),
    /// The store is closing.
    #[error("the store is closed")]
    Closed,
}
