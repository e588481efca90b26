//! The shared handle of an open store: snapshots, writes and watches.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use imbl::OrdMap;
use parking_lot::RwLock;
use tokio::sync::{oneshot, watch};

use crate::event::Ring;
use crate::lock::DirectoryLock;
use crate::watch::WatchedPrefixes;
use crate::writer::{Health, Request, Writer};
use crate::{
    Compacted, Entry, Event, EventKind, Journal, JournalError, Loaded, LoggedJournal, OpenError, Snapshot, Watcher,
    Write, WriteError,
};

/// The name of the store's file.
pub(crate) const FILE_NAME: &str = "objects.redb";

/// Limits for the history of a store, and for its transactions.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Number of events in the history, for watchers and for reads at an older revision.
    pub history_events: usize,
    /// Bytes of replaced and deleted values that these events keep in memory.
    pub history_bytes: usize,
    /// Number of writes that are committed together at most.
    pub batch: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            history_events: 50_000,
            history_bytes: 32 << 20,
            batch: 512,
        }
    }
}

/// The current snapshot and the recent events, for readers. A commit updates both under one lock.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) snapshot: Snapshot,
    pub(crate) ring: Ring,
}

/// The shared part of all clones of a [`Store`].
#[derive(Debug)]
struct Inner {
    published: Arc<RwLock<Published>>,
    revision: watch::Receiver<u64>,
    /// The latest revision. Many threads read this number at once, so no lock protects it.
    latest: Arc<AtomicU64>,
    watched_prefixes: Arc<WatchedPrefixes>,
    /// Present until the store closes.
    requests: Option<mpsc::Sender<Request>>,
    health: Arc<Health>,
    writer: Option<std::thread::JoinHandle<()>>,
    _lock: Option<DirectoryLock>,
}

impl Drop for Inner {
    /// Closes the store. File and lock are released together, after the writer has answered all requests.
    fn drop(&mut self) {
        self.requests = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

/// An open store. Clones share it; it closes when the last one is dropped.
#[derive(Debug, Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

impl Store {
    /// Opens the store in `directory`, and creates a missing one.
    ///
    /// # Errors
    /// [`OpenError`]: the directory can't be used, is in use by another process, or its file is damaged.
    pub fn open(directory: &Path, limits: Limits) -> Result<Self, OpenError> {
        let lock = DirectoryLock::acquire(directory)?;
        let path = directory.join(FILE_NAME);
        let at = |error: JournalError| match error {
            JournalError::Damaged(detail) => OpenError::Damaged {
                path: path.clone(),
                detail,
            },
            JournalError::Format { found, known } => OpenError::Format {
                path: path.clone(),
                found,
                known,
            },
            JournalError::Full(detail) => OpenError::Full {
                path: path.clone(),
                detail,
            },
            JournalError::Failed(detail) => OpenError::File {
                path: path.clone(),
                detail,
            },
        };
        make_file_private(&path).map_err(|error| OpenError::File {
            path: path.clone(),
            detail: error.to_string(),
        })?;
        let journal = LoggedJournal::open(&path).map_err(at)?;
        Self::start(journal, limits, Some(lock)).map_err(at)
    }

    /// Opens a store on any journal.
    ///
    /// # Errors
    /// If the journal can't be loaded.
    pub fn with_journal(journal: impl Journal, limits: Limits) -> Result<Self, JournalError> {
        Self::start(journal, limits, None)
    }

    fn start(mut journal: impl Journal, limits: Limits, lock: Option<DirectoryLock>) -> Result<Self, JournalError> {
        let published = Arc::new(RwLock::new(build_published(journal.load()?, &limits)));
        let first = published.read().snapshot.revision;
        let (announce, revision) = watch::channel(first);
        let latest = Arc::new(AtomicU64::new(first));
        let (requests, received) = mpsc::channel();
        let watched_prefixes = Arc::new(WatchedPrefixes::default());
        let health = Arc::new(Health::default());
        let machine = Writer::new(
            Box::new(journal),
            published.clone(),
            (latest.clone(), announce),
            watched_prefixes.clone(),
            limits,
            health.clone(),
        );
        let writer = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || machine.run(&received))
            .map_err(|error| JournalError::Failed(format!("cannot start the writer: {error}")))?;
        Ok(Self {
            inner: Arc::new(Inner {
                published,
                revision,
                latest,
                watched_prefixes,
                requests: Some(requests),
                health,
                writer: Some(writer),
                _lock: lock,
            }),
        })
    }

    /// Returns the current state.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.inner.published.read().snapshot.clone()
    }

    /// Returns the revision of the last committed write.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.inner.latest.load(Ordering::Acquire)
    }

    /// Returns the newest revision whose event was dropped.
    #[must_use]
    pub fn compacted_revision(&self) -> u64 {
        self.inner.published.read().ring.compacted_revision()
    }

    /// Checks whether writes are accepted. After a failed write they count as refused, until the writer finds that the
    /// store can be written again.
    ///
    /// # Errors
    /// The error of the last failed write.
    pub fn check_writable(&self) -> Result<(), WriteError> {
        self.inner.health.check_health()
    }

    /// Returns the bytes of values that were replaced or removed since the store was opened. The holder of a snapshot
    /// keeps at most the later increase of this number in memory, beside the history.
    #[must_use]
    pub fn displaced_bytes(&self) -> u64 {
        self.inner.published.read().ring.displaced_bytes()
    }

    /// Returns the state at `revision`; for a future revision, the current state.
    ///
    /// # Errors
    /// [`Compacted`] if the history does not reach back that far.
    pub fn snapshot_at(&self, revision: u64) -> Result<Snapshot, Compacted> {
        let published = self.inner.published.read();
        let mut snapshot = published.snapshot.clone();
        if revision >= snapshot.revision {
            return Ok(snapshot);
        }
        let compacted = published.ring.compacted_revision();
        if revision < compacted {
            return Err(Compacted {
                requested: revision,
                compacted,
            });
        }
        for event in published.ring.events_after(revision).rev() {
            snapshot.undo(event);
        }
        snapshot.revision = revision;
        Ok(snapshot)
    }

    /// Waits until the state contains `revision`. False if the store closes first.
    pub async fn wait_until_reached(&self, revision: u64) -> bool {
        let mut receiver = self.inner.revision.clone();
        receiver.wait_for(|current| *current >= revision).await.is_ok()
    }

    /// Commits one write and returns the stored entry; for a deletion, the last value with its revision. When it
    /// returns, the write is on disk and visible to every later snapshot.
    ///
    /// # Errors
    /// [`WriteError`]; a refused write changes nothing.
    pub async fn write(&self, write: Write) -> Result<Arc<Entry>, WriteError> {
        let (reply, answer) = oneshot::channel();
        let requests = self.inner.requests.as_ref().ok_or(WriteError::Closed)?;
        requests
            .send(Request { write, reply })
            .map_err(|_| WriteError::Closed)?;
        answer.await.map_err(|_| WriteError::Closed)?
    }

    /// Follows the keys under `prefix`, from the change after `revision`.
    ///
    /// # Errors
    /// [`Compacted`] if events after `revision` were already dropped.
    pub fn watch(&self, prefix: impl Into<Arc<str>>, revision: u64) -> Result<Watcher, Compacted> {
        let compacted = self.compacted_revision();
        if revision < compacted {
            return Err(Compacted {
                requested: revision,
                compacted,
            });
        }
        let prefix = prefix.into();
        let published = self.inner.watched_prefixes.subscribe(&prefix, self.revision());
        Ok(Watcher::new(self.clone(), prefix, revision, published))
    }

    /// Returns up to `limit` events under `prefix` after `position`, and the revision that the search reached: for
    /// callers that update derived data at each query.
    ///
    /// # Errors
    /// [`Compacted`] if events after `position` were already dropped.
    pub fn events_after(&self, prefix: &str, position: u64, limit: usize) -> Result<(u64, Vec<Arc<Event>>), Compacted> {
        self.events_within(prefix, position, limit, usize::MAX)
    }

    /// Returns events as [`Self::events_after`] does, and stops at this many `bytes` of values.
    pub(crate) fn events_within(
        &self,
        prefix: &str,
        position: u64,
        limit: usize,
        bytes: usize,
    ) -> Result<(u64, Vec<Arc<Event>>), Compacted> {
        let published = self.inner.published.read();
        let compacted = published.ring.compacted_revision();
        if position < compacted {
            return Err(Compacted {
                requested: position,
                compacted,
            });
        }
        let mut events = Vec::new();
        let (mut reached, mut size) = (position, 0);
        for event in published.ring.events_after(position) {
            if event.key.starts_with(prefix) {
                size += event.size();
                events.push(event.clone());
            }
            reached = event.revision;
            if events.len() == limit || size >= bytes {
                return Ok((reached, events));
            }
        }
        Ok((reached.max(published.snapshot.revision), events))
    }
}

/// Builds the published state from the journal's content. State and history share values.
fn build_published(loaded: Loaded, limits: &Limits) -> Published {
    let objects: OrdMap<Arc<str>, Arc<Entry>> = loaded.objects.into_iter().collect();
    let mut ring = Ring::new(loaded.compacted);
    let mut seen: HashMap<Arc<str>, Arc<Entry>> = HashMap::new();
    for record in loaded.history {
        let entry = match objects.get(&record.key) {
            Some(entry) if entry.revision == record.revision => entry.clone(),
            _ => Arc::new(Entry {
                revision: record.revision,
                bytes: record.value,
            }),
        };
        let previous = record.previous.map(|(revision, bytes)| match seen.get(&record.key) {
            Some(entry) if entry.revision == revision => entry.clone(),
            _ => Arc::new(Entry { revision, bytes }),
        });
        if record.kind == EventKind::Delete {
            seen.remove(&record.key);
        } else {
            seen.insert(record.key.clone(), entry.clone());
        }
        let event = Event {
            revision: record.revision,
            key: record.key,
            kind: record.kind,
            entry,
            previous,
        };
        ring.push(Arc::new(event), limits);
    }
    Published {
        snapshot: Snapshot {
            revision: loaded.revision,
            objects,
        },
        ring,
    }
}

/// Creates a folder, and makes it accessible only to its owner, because `--data` holds all Secrets. A folder with
/// foreign files (a home folder, `/tmp`) stays unchanged, because each of the store's files is private.
pub(crate) fn make_folder_private(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let mode = std::fs::metadata(path)?.permissions().mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let ours = path.join(FILE_NAME).exists() || std::fs::read_dir(path)?.next().is_none();
    if !ours || mode & 0o1000 != 0 {
        tracing::warn!(folder = %path.display(), "the data folder has files of other programs, so its permissions stay as they are; the files of the store are private");
        return Ok(());
    }
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).or_else(|error| {
        // The folder belongs to another user, but the files in it are private.
        tracing::warn!(folder = %path.display(), %error, "the data folder can't be made private");
        Ok(())
    })
}

/// Makes the file accessible only to its owner before it has content: it holds all Secrets.
pub(crate) fn make_file_private(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    }
    Ok(())
}
