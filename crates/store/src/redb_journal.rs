//! The journal in one redb file: present values, history and two numbers, each value with a checksum.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use redb::{Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, StorageError, TableDefinition};

use crate::{Entry, EventKind, Journal, JournalError, Loaded, Record};

/// key -> revision, checksum, value.
const OBJECTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("objects");
/// revision -> checksum, kind, lengths, key, value, value before.
const HISTORY: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("history");
/// name -> number.
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");

const FORMAT: u64 = 1;
/// Reads are served from memory, so the page cache only has to hold what a commit touches.
const CACHE_BYTES: usize = 4 << 20;
/// A resourceVersion of "0" means something else to Kubernetes, so an empty store starts at 1.
const FIRST_REVISION: u64 = 1;

/// A journal in a redb file.
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
    /// Opens the file, and creates it if it doesn't exist.
    ///
    /// # Errors
    /// When the file can't be opened or is not a journal.
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
            // A damaged file may lead the database library astray; its panic is a damaged file to us.
            let opened = guarded(move || {
                let mut builder = Database::builder();
                builder.set_cache_size(CACHE_BYTES);
                builder.create(&path).map_err(opening)
            })?;
            self.database = Some(opened);
        }
        self.database
            .as_ref()
            .ok_or_else(|| JournalError::Failed("the file is closed".to_owned()))
    }

    fn initialise(database: &Database) -> Result<(), JournalError> {
        let mut transaction = database.begin_write().map_err(failed)?;
        transaction.set_durability(Durability::Immediate).map_err(failed)?;
        {
            transaction.open_table(OBJECTS).map_err(failed)?;
            transaction.open_table(HISTORY).map_err(failed)?;
            let mut numbers = transaction.open_table(NUMBERS).map_err(failed)?;
            numbers.insert("format", FORMAT).map_err(failed)?;
            numbers.insert("revision", FIRST_REVISION).map_err(failed)?;
            numbers.insert("compacted", FIRST_REVISION).map_err(failed)?;
        }
        transaction.commit().map_err(failed)
    }

    fn read(database: &Database) -> Result<Loaded, JournalError> {
        let transaction = database.begin_read().map_err(failed)?;
        let numbers = match transaction.open_table(NUMBERS) {
            Ok(numbers) => numbers,
            Err(redb::TableError::TableDoesNotExist(_)) => {
                drop(transaction);
                Self::initialise(database)?;
                return Self::read(database);
            }
            Err(error) => return Err(failed(error)),
        };
        let number = |name: &str| -> Result<u64, JournalError> {
            let value = numbers.get(name).map_err(failed)?;
            value
                .map(|guard| guard.value())
                .ok_or_else(|| JournalError::Damaged(format!("the number {name:?} is missing")))
        };
        let found = number("format")?;
        if found != FORMAT {
            return Err(JournalError::Format { found, known: FORMAT });
        }
        let mut loaded = Loaded {
            revision: number("revision")?,
            compacted: number("compacted")?,
            ..Loaded::default()
        };
        for item in transaction
            .open_table(OBJECTS)
            .map_err(failed)?
            .iter()
            .map_err(failed)?
        {
            let (key, value) = item.map_err(failed)?;
            let entry = decode_object(key.value(), value.value())?;
            if entry.revision > loaded.revision {
                return Err(JournalError::Damaged(format!(
                    "object {:?} is newer than the newest revision",
                    key.value()
                )));
            }
            loaded.objects.push((Arc::from(key.value()), Arc::new(entry)));
        }
        let history = transaction.open_table(HISTORY).map_err(failed)?;
        for item in history.range(loaded.compacted.saturating_add(1)..).map_err(failed)? {
            let (revision, value) = item.map_err(failed)?;
            loaded.history.push(decode_record(revision.value(), value.value())?);
        }
        Ok(loaded)
    }

    /// Puts `objects` into an empty journal, all of them or, at the first fault, none. The journal is then at `revision`
    /// and knows of nothing before it.
    ///
    /// # Errors
    /// The objects' own, or when the file can't be written.
    pub(crate) fn fill<E: From<JournalError>>(
        &mut self,
        revision: u64,
        objects: impl Iterator<Item = Result<(Arc<str>, Entry), E>>,
    ) -> Result<(), E> {
        let database = self.database()?;
        Self::initialise(database)?;
        let mut transaction = database.begin_write().map_err(failed)?;
        transaction.set_durability(Durability::Immediate).map_err(failed)?;
        {
            let mut table = transaction.open_table(OBJECTS).map_err(failed)?;
            for object in objects {
                let (key, entry) = object?;
                table
                    .insert(&*key, encode_object(&key, entry.revision, &entry.bytes).as_slice())
                    .map_err(failed)?;
            }
            let mut numbers = transaction.open_table(NUMBERS).map_err(failed)?;
            numbers.insert("revision", revision).map_err(failed)?;
            numbers.insert("compacted", revision).map_err(failed)?;
        }
        transaction.commit().map_err(failed)?;
        Ok(())
    }

    fn write(database: &Database, records: &[Record], compacted: Option<u64>) -> Result<(), JournalError> {
        let mut transaction = database.begin_write().map_err(failed)?;
        transaction.set_durability(Durability::Immediate).map_err(failed)?;
        {
            let mut objects = transaction.open_table(OBJECTS).map_err(failed)?;
            let mut history = transaction.open_table(HISTORY).map_err(failed)?;
            let mut numbers = transaction.open_table(NUMBERS).map_err(failed)?;
            for record in records {
                match record.kind {
                    EventKind::Put => {
                        objects
                            .insert(
                                &*record.key,
                                encode_object(&record.key, record.revision, &record.value).as_slice(),
                            )
                            .map_err(failed)?;
                    }
                    EventKind::Delete => {
                        objects.remove(&*record.key).map_err(failed)?;
                    }
                }
                history
                    .insert(record.revision, encode_record(record).as_slice())
                    .map_err(failed)?;
            }
            if let Some(last) = records.last() {
                numbers.insert("revision", last.revision).map_err(failed)?;
            }
            if let Some(compacted) = compacted {
                history.retain_in(..=compacted, |_, _| false).map_err(failed)?;
                numbers.insert("compacted", compacted).map_err(failed)?;
            }
        }
        transaction.commit().map_err(failed)
    }
}

impl Journal for RedbJournal {
    fn load(&mut self) -> Result<Loaded, JournalError> {
        let database = self.database()?;
        guarded(std::panic::AssertUnwindSafe(|| Self::read(database)))
    }

    fn append(&mut self, records: &[Record], compacted: Option<u64>) -> Result<(), JournalError> {
        let database = self.database()?;
        Self::write(database, records, compacted)
    }

    fn recover(&mut self, revision: u64) -> Result<Vec<Record>, JournalError> {
        // After an I/O error redb refuses everything until the file is opened anew.
        self.database = None;
        let loaded = self.load()?;
        Ok(loaded
            .history
            .into_iter()
            .filter(|record| record.revision > revision)
            .collect())
    }
}

fn guarded<T>(work: impl FnOnce() -> Result<T, JournalError> + std::panic::UnwindSafe) -> Result<T, JournalError> {
    std::panic::catch_unwind(work)
        .unwrap_or_else(|_| Err(JournalError::Damaged("its structure is inconsistent".to_owned())))
}

fn opening(error: DatabaseError) -> JournalError {
    match error {
        DatabaseError::Storage(error) => storage(error),
        DatabaseError::RepairAborted => JournalError::Damaged("it could not be repaired".to_owned()),
        DatabaseError::UpgradeRequired(found) => JournalError::Format {
            found: u64::from(found),
            known: FORMAT,
        },
        other => JournalError::Failed(other.to_string()),
    }
}

fn failed(error: impl Into<redb::Error>) -> JournalError {
    match error.into() {
        redb::Error::Corrupted(detail) => JournalError::Damaged(detail),
        redb::Error::Io(error) => storage(StorageError::Io(error)),
        error @ (redb::Error::TableTypeMismatch { .. } | redb::Error::TableDoesNotExist(_)) => {
            JournalError::Damaged(error.to_string())
        }
        other => JournalError::Failed(other.to_string()),
    }
}

fn storage(error: StorageError) -> JournalError {
    match error {
        StorageError::Corrupted(detail) => JournalError::Damaged(detail),
        StorageError::Io(error) => match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded | std::io::ErrorKind::FileTooLarge => {
                JournalError::Full(error.to_string())
            }
            std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof => {
                JournalError::Damaged(error.to_string())
            }
            _ => JournalError::Failed(error.to_string()),
        },
        other => JournalError::Failed(other.to_string()),
    }
}

/// FNV-1a, 64 bits: finds flipped bits; it is no defence against a forger, who could write the file anyway.
fn checksum(parts: &[&[u8]]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in parts.iter().copied().flatten() {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
}

fn encode_object(key: &str, revision: u64, value: &[u8]) -> Vec<u8> {
    let revision = revision.to_le_bytes();
    let sum = checksum(&[&revision, key.as_bytes(), value]).to_le_bytes();
    let mut out = Vec::with_capacity(16 + value.len());
    out.extend_from_slice(&revision);
    out.extend_from_slice(&sum);
    out.extend_from_slice(value);
    out
}

fn decode_object(key: &str, stored: &[u8]) -> Result<Entry, JournalError> {
    let damaged = || JournalError::Damaged(format!("the object {key:?} does not match its checksum"));
    let (revision, rest) = stored.split_first_chunk::<8>().ok_or_else(damaged)?;
    let (sum, value) = rest.split_first_chunk::<8>().ok_or_else(damaged)?;
    if checksum(&[revision, key.as_bytes(), value]) != u64::from_le_bytes(*sum) {
        return Err(damaged());
    }
    Ok(Entry {
        revision: u64::from_le_bytes(*revision),
        bytes: Bytes::copy_from_slice(value),
    })
}

fn encode_record(record: &Record) -> Vec<u8> {
    let (before, previous) = match &record.previous {
        Some((revision, bytes)) => (*revision, bytes.as_ref()),
        None => (0, &[][..]),
    };
    let mut body = Vec::with_capacity(25 + record.key.len() + record.value.len() + previous.len());
    body.push(u8::from(record.kind == EventKind::Delete));
    body.extend_from_slice(&before.to_le_bytes());
    body.extend_from_slice(&(record.key.len() as u64).to_le_bytes());
    body.extend_from_slice(&(record.value.len() as u64).to_le_bytes());
    body.extend_from_slice(record.key.as_bytes());
    body.extend_from_slice(&record.value);
    body.extend_from_slice(previous);
    let mut out = Vec::with_capacity(8 + body.len());
    out.extend_from_slice(&checksum(&[&record.revision.to_le_bytes(), &body]).to_le_bytes());
    out.extend_from_slice(&body);
    out
}

fn decode_record(revision: u64, stored: &[u8]) -> Result<Record, JournalError> {
    let parse = || -> Option<Record> {
        let (sum, body) = stored.split_first_chunk::<8>()?;
        if checksum(&[&revision.to_le_bytes(), body]) != u64::from_le_bytes(*sum) {
            return None;
        }
        let (kind, rest) = body.split_first()?;
        let (before, rest) = rest.split_first_chunk::<8>()?;
        let (key_length, rest) = rest.split_first_chunk::<8>()?;
        let (value_length, rest) = rest.split_first_chunk::<8>()?;
        let (key, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*key_length)).ok()?)?;
        let (value, previous) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*value_length)).ok()?)?;
        let before = u64::from_le_bytes(*before);
        Some(Record {
            revision,
            key: Arc::from(std::str::from_utf8(key).ok()?),
            kind: if *kind == 0 { EventKind::Put } else { EventKind::Delete },
            value: Bytes::copy_from_slice(value),
            previous: (before != 0).then(|| (before, Bytes::copy_from_slice(previous))),
        })
    };
    parse().ok_or_else(|| {
        JournalError::Damaged(format!(
            "the history of revision {revision} does not match its checksum"
        ))
    })
}
