//! A medium that refuses writes: clear errors, no lost data, and writes work again when it recovers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tenure_store::{Expect, Journal, JournalError, Limits, Loaded, Record, RedbJournal, Store, WriteError};

use crate::{list_keys, put};

const WORKS: u8 = 0;
/// Nothing is written.
const FULL: u8 = 1;
/// Everything is written, and then the medium reports a failure.
const LIES: u8 = 2;

struct Failing {
    journal: RedbJournal,
    mode: Arc<AtomicU8>,
}

impl Journal for Failing {
    fn load(&mut self) -> Result<Loaded, JournalError> {
        self.journal.load()
    }

    fn append(&mut self, records: &[Record], compacted: Option<u64>) -> Result<(), JournalError> {
        match self.mode.load(Ordering::SeqCst) {
            FULL => Err(JournalError::Full("No space left on device (os error 28)".to_owned())),
            LIES => {
                self.journal.append(records, compacted)?;
                Err(JournalError::Failed("sync failed".to_owned()))
            }
            _ => self.journal.append(records, compacted),
        }
    }

    fn recover(&mut self, revision: u64) -> Result<Vec<Record>, JournalError> {
        if self.mode.load(Ordering::SeqCst) == FULL {
            return Err(JournalError::Full("No space left on device (os error 28)".to_owned()));
        }
        self.journal.recover(revision)
    }
}

fn failing(directory: &tempfile::TempDir) -> (Store, Arc<AtomicU8>) {
    let mode = Arc::new(AtomicU8::new(WORKS));
    let journal = RedbJournal::open(&directory.path().join("objects.redb")).unwrap();
    let store = Store::with_journal(
        Failing {
            journal,
            mode: mode.clone(),
        },
        Limits::default(),
    )
    .unwrap();
    (store, mode)
}

#[tokio::test]
async fn a_full_disk_loses_nothing_and_ends() {
    let directory = tempfile::tempdir().unwrap();
    let (store, mode) = failing(&directory);
    put(&store, "/a", Expect::Absent, "1").await.unwrap();
    mode.store(FULL, Ordering::SeqCst);
    for _ in 0..3 {
        let error = put(&store, "/b", Expect::Absent, "2").await.unwrap_err();
        assert!(matches!(error, WriteError::Full(_)), "{error}");
        assert!(error.to_string().contains("full"), "{error}");
    }
    assert_eq!(list_keys(&store.snapshot(), "/"), ["/a=1@2"]);
    mode.store(WORKS, Ordering::SeqCst);
    assert_eq!(put(&store, "/b", Expect::Absent, "2").await.unwrap().revision, 3);
    drop(store);
    let (store, _) = failing(&directory);
    assert_eq!(list_keys(&store.snapshot(), "/"), ["/a=1@2", "/b=2@3"]);
}

#[tokio::test]
async fn write_that_failed_but_landed_is_visible() {
    let directory = tempfile::tempdir().unwrap();
    let (store, mode) = failing(&directory);
    let mut watcher = store.watch("/", 1).unwrap();
    mode.store(LIES, Ordering::SeqCst);
    assert!(put(&store, "/a", Expect::Absent, "1").await.is_err());
    mode.store(WORKS, Ordering::SeqCst);
    put(&store, "/b", Expect::Absent, "2").await.unwrap();
    assert_eq!(list_keys(&store.snapshot(), "/"), ["/a=1@2", "/b=2@3"]);
    assert_eq!(watcher.next().await.unwrap().unwrap().revision, 2);
    assert_eq!(watcher.next().await.unwrap().unwrap().revision, 3);
}
