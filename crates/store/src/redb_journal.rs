//! The journal in one redb file: current values, history and numbers, each value with a checksum.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{
    CompactionError, Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, StorageError,
    TableDefinition,
};

use crate::encoding::{decode_object, decode_record, encode_object, encode_record};
use crate::{Entry, EventKind, Journal, JournalError, Loaded, Record};

/// key -> revision, checksum, value.
const OBJECTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("objects");
/// revision -> checksum, kind, lengths, key, value, value before.
const HISTORY: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("history");
/// name -> number.
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");

/// In format 1 the tables had no log in front of them, and no identity. In format 2 the files of the log did not
/// contain their length.
const FORMAT: u64 = 3;
/// The first format whose log files contain their length.
const HEADED_LOG: u64 = 3;
const OLDEST_FORMAT: u64 = 1;
/// Reads use memory, so the page cache only has to hold the pages of a commit.
const CACHE_BYTES: usize = 4 << 20;
/// Bytes of values in one transaction when the disk is full.
const PIECE: usize = 1 << 20;
/// A resourceVersion of "0" has a special meaning in Kubernetes, so an empty store starts at 1.
const FIRST_REVISION: u64 = 1;

/// A [`Journal`] in one redb file: tables for the current values and for the history.
pub struct RedbJournal {
    path: PathBuf,
    database: Option<Database>,
}

impl std::fmt::Debug for RedbJournal {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("RedbJournal")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl RedbJournal {
    /// Opens the file, and creates a missing file.
    ///
    /// # Errors
    /// If the file can't be opened or is not a journal.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        let mut journal = Self {
            path: path.to_path_buf(),
            database: None,
        };
        journal.database()?;
        Ok(journal)
    }

    fn database(&mut self) -> Result<&Database, JournalError> {
        if self.database.is_none() {
            let path = self.path.clone();
            // A damaged file may make the database library panic, which counts as a damaged file.
            let opened = catch_panic(move || {
                let mut builder = Database::builder();
                builder.set_cache_size(CACHE_BYTES);
                builder.create(&path).map_err(open_error)
            })?;
            self.database = Some(opened);
        }
        self.database
            .as_ref()
            .ok_or_else(|| JournalError::Failed("the file is closed".to_owned()))
    }

    /// Closes the file; the next use opens it again.
    pub(crate) fn close(&mut self) {
        self.database = None;
    }

    /// Returns the identity that distinguishes this store from all others.
    pub(crate) fn identity(&mut self) -> Result<Option<u64>, JournalError> {
        let transaction = self.database()?.begin_read().map_err(make_error)?;
        let numbers = transaction.open_table(NUMBERS).map_err(make_error)?;
        let identity = numbers.get("identity").map_err(make_error)?;
        Ok(identity.map(|guard| guard.value()))
    }

    /// Checks whether the store's log files contain their length in the first block: since format 3.
    pub(crate) fn has_headed_log(&mut self) -> Result<bool, JournalError> {
        let transaction = self.database()?.begin_read().map_err(make_error)?;
        let numbers = transaction.open_table(NUMBERS).map_err(make_error)?;
        let format = numbers.get("format").map_err(make_error)?;
        Ok(format.is_some_and(|guard| guard.value() >= HEADED_LOG))
    }

    /// Upgrades a store of an older format. `identity` distinguishes it from all others. After this, older programs
    /// refuse the store.
    pub(crate) fn upgrade_format(&mut self, identity: u64) -> Result<(), JournalError> {
        let mut transaction = self.database()?.begin_write().map_err(make_error)?;
        transaction.set_durability(Durability::Immediate).map_err(make_error)?;
        {
            let mut numbers = transaction.open_table(NUMBERS).map_err(make_error)?;
            numbers.insert("format", FORMAT).map_err(make_error)?;
            numbers.insert("identity", identity).map_err(make_error)?;
        }
        transaction.commit().map_err(make_error)
    }

    /// Writes `records` with as little space as possible, and drops all history for that. Keys that `records` delete
    /// are removed first and not written at all, and so are keys that the later records in `ahead` delete. The rest is
    /// written piece by piece. Watches continue from memory; after a start all clients list again.
    ///
    /// If this ends midway, a replay of the log writes the rest.
    pub(crate) fn append_sparingly(&mut self, records: &[Record], ahead: &[Record]) -> Result<(), JournalError> {
        let database = self.database()?;
        let all = || records.iter().chain(ahead);
        let last: HashMap<&str, EventKind> = all().map(|record| (&*record.key, record.kind)).collect();
        let gone = |key: &str| last.get(key) == Some(&EventKind::Delete);
        let mut transaction = database.begin_write().map_err(make_error)?;
        transaction.set_durability(Durability::Immediate).map_err(make_error)?;
        transaction.delete_table(HISTORY).map_err(make_error)?;
        let known = {
            transaction.open_table(HISTORY).map_err(make_error)?;
            let mut numbers = transaction.open_table(NUMBERS).map_err(make_error)?;
            let known = numbers.get("revision").map_err(make_error)?.map(|guard| guard.value());
            if let Some(last) = all().last() {
                numbers.insert("compacted", last.revision).map_err(make_error)?;
            }
            known.unwrap_or(FIRST_REVISION)
        };
        transaction.commit().map_err(make_error)?;
        let mut transaction = database.begin_write().map_err(make_error)?;
        transaction.set_durability(Durability::Immediate).map_err(make_error)?;
        {
            let mut objects = transaction.open_table(OBJECTS).map_err(make_error)?;
            for key in last.keys().filter(|key| gone(key)) {
                objects.remove(*key).map_err(make_error)?;
            }
        }
        transaction.commit().map_err(make_error)?;
        // The database takes new pages from the end of its file, even pages without allocated disk space. So free
        // pages within the file are returned to the disk first.
        if let Some(database) = &mut self.database {
            database.compact().map_err(compaction_error)?;
        }
        let database = self.database()?;
        let mut left: Vec<&Record> = records.iter().filter(|record| record.revision > known).collect();
        while !left.is_empty() {
            let mut bytes = 0;
            let fit = left.iter().take_while(|record| {
                let first = bytes == 0;
                bytes += record.value.len() + 1;
                first || bytes <= PIECE
            });
            let rest = left.split_off(fit.count());
            Self::write(database, &left, None, gone)?;
            left = rest;
        }
        Ok(())
    }

    fn initialise(database: &Database) -> Result<(), JournalError> {
        let mut transaction = database.begin_write().map_err(make_error)?;
        transaction.set_durability(Durability::Immediate).map_err(make_error)?;
        {
            transaction.open_table(OBJECTS).map_err(make_error)?;
            transaction.open_table(HISTORY).map_err(make_error)?;
            let mut numbers = transaction.open_table(NUMBERS).map_err(make_error)?;
            numbers.insert("format", FORMAT).map_err(make_error)?;
            numbers.insert("identity", new_identity()).map_err(make_error)?;
            numbers.insert("revision", FIRST_REVISION).map_err(make_error)?;
            numbers.insert("compacted", FIRST_REVISION).map_err(make_error)?;
        }
        transaction.commit().map_err(make_error)
    }

    fn read(database: &Database) -> Result<Loaded, JournalError> {
        let transaction = database.begin_read().map_err(make_error)?;
        let numbers = match transaction.open_table(NUMBERS) {
            Ok(numbers) => numbers,
            Err(redb::TableError::TableDoesNotExist(_)) => {
                drop(transaction);
                Self::initialise(database)?;
                return Self::read(database);
            }
            Err(error) => return Err(make_error(error)),
        };
        let number = |name: &str| -> Result<u64, JournalError> {
            let value = numbers.get(name).map_err(make_error)?;
            value
                .map(|guard| guard.value())
                .ok_or_else(|| JournalError::Damaged(format!("the number {name:?} is missing")))
        };
        let found = number("format")?;
        if !(OLDEST_FORMAT..=FORMAT).contains(&found) {
            return Err(JournalError::Format { found, known: FORMAT });
        }
        let mut loaded = Loaded {
            revision: number("revision")?,
            compacted: number("compacted")?,
            ..Loaded::default()
        };
        for item in transaction
            .open_table(OBJECTS)
            .map_err(make_error)?
            .iter()
            .map_err(make_error)?
        {
            let (key, value) = item.map_err(make_error)?;
            let entry = decode_object(key.value(), value.value())?;
            if entry.revision > loaded.revision {
                return Err(JournalError::Damaged(format!(
                    "object {:?} is newer than the newest revision",
                    key.value()
                )));
            }
            loaded.objects.push((Arc::from(key.value()), Arc::new(entry)));
        }
        let history = transaction.open_table(HISTORY).map_err(make_error)?;
        for item in history
            .range(loaded.compacted.saturating_add(1)..)
            .map_err(make_error)?
        {
            let (revision, value) = item.map_err(make_error)?;
            loaded.history.push(decode_record(revision.value(), value.value())?);
        }
        Ok(loaded)
    }

    /// Fills an empty journal with `objects`: all of them or, at the first fault, none. The journal is then at
    /// `revision` and has no earlier history.
    ///
    /// # Errors
    /// The errors of `objects`, or if the file can't be written.
    pub(crate) fn fill<E: From<JournalError>>(
        &mut self,
        revision: u64,
        objects: impl Iterator<Item = Result<(Arc<str>, Entry), E>>,
    ) -> Result<(), E> {
        let database = self.database()?;
        Self::initialise(database)?;
        let mut transaction = database.begin_write().map_err(make_error)?;
        transaction.set_durability(Durability::Immediate).map_err(make_error)?;
        {
            let mut table = transaction.open_table(OBJECTS).map_err(make_error)?;
            for object in objects {
                let (key, entry) = object?;
                table
                    .insert(&*key, encode_object(&key, entry.revision, &entry.bytes).as_slice())
                    .map_err(make_error)?;
            }
            let mut numbers = transaction.open_table(NUMBERS).map_err(make_error)?;
            numbers.insert("revision", revision).map_err(make_error)?;
            numbers.insert("compacted", revision).map_err(make_error)?;
        }
        transaction.commit().map_err(make_error)?;
        Ok(())
    }

    /// Writes the records, except the values of keys for which `gone` returns true.
    fn write(
        database: &Database,
        records: &[&Record],
        compacted: Option<u64>,
        gone: impl Fn(&str) -> bool,
    ) -> Result<(), JournalError> {
        let mut transaction = database.begin_write().map_err(make_error)?;
        transaction.set_durability(Durability::Immediate).map_err(make_error)?;
        {
            let mut objects = transaction.open_table(OBJECTS).map_err(make_error)?;
            let mut history = transaction.open_table(HISTORY).map_err(make_error)?;
            let mut numbers = transaction.open_table(NUMBERS).map_err(make_error)?;
            // The file may have dropped more history than the caller knows. That history must not come back.
            let forgotten = numbers.get("compacted").map_err(make_error)?.map(|guard| guard.value());
            let forgotten = forgotten.unwrap_or(FIRST_REVISION);
            // If a key changed several times, its last change is the current value.
            let mut settled = HashSet::with_capacity(records.len());
            for record in records.iter().rev().filter(|record| settled.insert(&*record.key)) {
                match record.kind {
                    EventKind::Put if gone(&record.key) => {}
                    EventKind::Put => {
                        objects
                            .insert(
                                &*record.key,
                                encode_object(&record.key, record.revision, &record.value).as_slice(),
                            )
                            .map_err(make_error)?;
                    }
                    EventKind::Delete => {
                        objects.remove(&*record.key).map_err(make_error)?;
                    }
                }
            }
            let remembered = forgotten.max(compacted.unwrap_or_default());
            for record in records.iter().filter(|record| record.revision > remembered) {
                history
                    .insert(record.revision, encode_record(record).as_slice())
                    .map_err(make_error)?;
            }
            if let Some(last) = records.last() {
                numbers.insert("revision", last.revision).map_err(make_error)?;
            }
            if let Some(compacted) = compacted {
                let compacted = compacted.max(forgotten);
                history.retain_in(..=compacted, |_, _| false).map_err(make_error)?;
                numbers.insert("compacted", compacted).map_err(make_error)?;
            }
        }
        transaction.commit().map_err(make_error)
    }
}

impl Journal for RedbJournal {
    fn load(&mut self) -> Result<Loaded, JournalError> {
        let database = self.database()?;
        catch_panic(std::panic::AssertUnwindSafe(|| Self::read(database)))
    }

    fn append(&mut self, records: &[Record], compacted: Option<u64>) -> Result<(), JournalError> {
        let database = self.database()?;
        let records: Vec<&Record> = records.iter().collect();
        Self::write(database, &records, compacted, |_| false)
    }

    fn recover(&mut self, revision: u64) -> Result<Vec<Record>, JournalError> {
        // After an I/O error redb refuses everything until the file is opened again.
        self.close();
        let loaded = self.load()?;
        Ok(loaded
            .history
            .into_iter()
            .filter(|record| record.revision > revision)
            .collect())
    }
}

/// Returns a random identity, which no other store has.
pub(crate) fn new_identity() -> u64 {
    use std::hash::BuildHasher as _;
    std::hash::RandomState::new().hash_one("identity")
}

/// Runs `work`. The database library panics on some damaged files, and such a panic becomes [`JournalError::Damaged`].
fn catch_panic<T>(work: impl FnOnce() -> Result<T, JournalError> + std::panic::UnwindSafe) -> Result<T, JournalError> {
    std::panic::catch_unwind(work)
        .unwrap_or_else(|_| Err(JournalError::Damaged("its structure is inconsistent".to_owned())))
}

fn open_error(error: DatabaseError) -> JournalError {
    match error {
        DatabaseError::Storage(error) => storage_error(error),
        DatabaseError::RepairAborted => JournalError::Damaged("it could not be repaired".to_owned()),
        DatabaseError::UpgradeRequired(found) => JournalError::Format {
            found: u64::from(found),
            known: FORMAT,
        },
        other => JournalError::Failed(other.to_string()),
    }
}

fn make_error(error: impl Into<redb::Error>) -> JournalError {
    match error.into() {
        redb::Error::Corrupted(detail) => JournalError::Damaged(detail),
        redb::Error::Io(error) => storage_error(StorageError::Io(error)),
        error @ (redb::Error::TableTypeMismatch { .. } | redb::Error::TableDoesNotExist(_)) => {
            JournalError::Damaged(error.to_string())
        }
        other => JournalError::Failed(other.to_string()),
    }
}

fn compaction_error(error: CompactionError) -> JournalError {
    match error {
        CompactionError::Storage(error) => storage_error(error),
        other => JournalError::Failed(other.to_string()),
    }
}

fn storage_error(error: StorageError) -> JournalError {
    match error {
        StorageError::Corrupted(detail) => JournalError::Damaged(detail),
        StorageError::Io(error) => error.into(),
        other => JournalError::Failed(other.to_string()),
    }
}
