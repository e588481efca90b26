//! Durable, revisioned objects with history and watch, in one file and, while the store is open, a log in front of
//! it.
//!
//! A [`Store`] maps string keys to byte values. Every accepted write gets the next number of one global, never reused
//! sequence, the *revision*. A write is acknowledged only after it is on disk. Readers take [`Snapshot`]s, which are
//! cheap and never change. Watchers follow the [`Event`]s from any revision that is still in the history.
//!
//! The store knows nothing of Kubernetes: it does not parse values, authorize writers, or retry for callers. The one
//! exception is [`Payload`], which lets a value contain its own revision although that is known only at commit.

pub mod backup;
mod encoding;
mod error;
mod event;
mod follower;
mod journal;
mod lock;
mod log;
mod logged_journal;
mod payload;
mod redb_journal;
mod reserve;
mod snapshot;
mod store;
mod watch;
mod writer;

pub use error::{OpenError, WriteError};
pub use event::{Event, EventKind};
pub use journal::{Journal, JournalError, Loaded, Record};
pub use logged_journal::LoggedJournal;
pub use payload::Payload;
pub use redb_journal::RedbJournal;
pub use snapshot::{Entry, Snapshot};
pub use store::{Limits, Store};
pub use watch::{Compacted, Watcher};
pub use writer::{Change, Expect, Write};
