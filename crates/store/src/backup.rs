//! A consistent copy of a store as one stream of bytes, and its restore into an empty folder. The copy ends with a
//! SHA-256 of all bytes before it, so a cut or changed copy is refused before any of it is used.
//!
//! A copy may contain files beside the objects (keys and certificates), which the caller chooses. It contains no
//! history: clients that watched the old store have to list again, and get the error for that (see [`restore_backup`]).

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::lock::DirectoryLock;
use crate::{Entry, JournalError, OpenError, RedbJournal, Snapshot};

/// The first bytes of every copy; the number is the format's.
const MAGIC: &[u8; 16] = b"tenure-backup 1\n";
/// Step of the revisions in a restored store. Writes that were acknowledged after the copy had revisions beyond the
/// copy's, and none of them may be given out a second time.
const REVISION_GAP: u64 = 1_000_000_000;
/// Bytes of one piece, at least.
const PIECE: usize = 64 * 1024;
/// Longest key or value. A greater length is damage, and must not cause an allocation of that size.
const LONGEST: u64 = 1 << 30;

const END: u8 = 0;
const OBJECT: u8 = 1;
const FILE: u8 = 2;

/// The reason why a backup could not be made or used.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// Reading or writing failed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The stream is not a copy, or is incomplete.
    #[error("this is no usable backup: {0}")]
    Damaged(String),
    /// The folder to restore into is not empty.
    #[error("{0} is not empty; a backup is restored into a folder of its own")]
    NotEmpty(std::path::PathBuf),
    /// The folder could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The restored store could not be written.
    #[error("the restored store could not be written: {0}")]
    Journal(#[from] JournalError),
}

/// A part of a backup: an object or a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// An object: key and value.
    Object(Arc<str>, Entry),
    /// A file beside the objects: its path below the data folder, and its content.
    File(String, Bytes),
}

/// Encodes a backup part by part, into pieces of about 64 KiB.
#[derive(Debug)]
pub struct Encoder {
    digest: Sha256,
    count: u64,
    out: Vec<u8>,
}

impl Encoder {
    /// Begins a copy of a store at `revision`.
    #[must_use]
    pub fn new(revision: u64) -> Self {
        let mut encoder = Self {
            digest: Sha256::new(),
            count: 0,
            out: Vec::with_capacity(PIECE + 4096),
        };
        encoder.write_bytes(MAGIC);
        encoder.write_bytes(&revision.to_le_bytes());
        encoder
    }

    /// Encodes one part.
    pub fn add(&mut self, part: &Part) {
        match part {
            Part::Object(key, entry) => self.write_object(key, entry),
            Part::File(path, content) => {
                self.write_bytes(&[FILE]);
                self.write_sized(path.as_bytes());
                self.write_sized(content);
                self.count += 1;
            }
        }
    }

    fn write_object(&mut self, key: &str, entry: &Entry) {
        self.write_bytes(&[OBJECT]);
        self.write_sized(key.as_bytes());
        self.write_bytes(&entry.revision.to_le_bytes());
        self.write_sized(&entry.bytes);
        self.count += 1;
    }

    fn write_bytes(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
        self.out.extend_from_slice(bytes);
    }

    fn write_sized(&mut self, bytes: &[u8]) {
        self.write_bytes(&(bytes.len() as u64).to_le_bytes());
        self.write_bytes(bytes);
    }

    /// Returns the encoded bytes, if they are at least 64 KiB.
    pub fn take_piece(&mut self) -> Option<Bytes> {
        (self.out.len() >= PIECE)
            .then(|| Bytes::from(std::mem::replace(&mut self.out, Vec::with_capacity(PIECE + 4096))))
    }

    /// Ends the backup with the checksum. Returns the bytes that no piece had yet.
    #[must_use]
    pub fn finish(mut self) -> Bytes {
        self.write_bytes(&[END]);
        let count = self.count;
        self.write_bytes(&count.to_le_bytes());
        let digest = self.digest.clone().finalize();
        self.out.extend_from_slice(&digest);
        Bytes::from(self.out)
    }
}

/// A backup of a snapshot as an iterator over pieces of bytes. Each piece is encoded on demand, while the store
/// continues.
#[derive(Debug)]
pub struct Pieces {
    snapshot: Snapshot,
    after: Option<Arc<str>>,
    encoder: Option<Encoder>,
}

impl Pieces {
    /// Begins a copy of `snapshot`.
    #[must_use]
    pub fn new(snapshot: Snapshot) -> Self {
        Self {
            encoder: Some(Encoder::new(snapshot.revision())),
            snapshot,
            after: None,
        }
    }
}

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let encoder = self.encoder.as_mut()?;
        let from = self.after.clone();
        for (key, entry) in self.snapshot.range("", from.as_deref()) {
            if from.as_ref() == Some(key) {
                continue;
            }
            encoder.write_object(key, entry);
            if let Some(piece) = encoder.take_piece() {
                self.after = Some(key.clone());
                return Some(piece);
            }
        }
        self.encoder.take().map(Encoder::finish)
    }
}

/// Decodes a backup part by part. The parts are valid only once [`Decoder::next_part`] has returned `None`, because the
/// checksum comes last.
#[derive(Debug)]
pub struct Decoder<R> {
    input: R,
    digest: Sha256,
    revision: u64,
    count: u64,
    ended: bool,
}

impl<R: Read> Decoder<R> {
    /// Reads the beginning of a backup: the format and the revision.
    ///
    /// # Errors
    /// [`BackupError::Damaged`] if the stream is not a copy.
    pub fn new(input: R) -> Result<Self, BackupError> {
        let mut decoder = Self {
            input,
            digest: Sha256::new(),
            revision: 0,
            count: 0,
            ended: false,
        };
        let mut magic = [0; MAGIC.len()];
        decoder.read_exact(&mut magic)?;
        if &magic != MAGIC {
            let known = magic.starts_with(b"tenure-backup ");
            return Err(BackupError::Damaged(
                if known {
                    "it was written by a program of another version"
                } else {
                    "it doesn't begin as one"
                }
                .to_owned(),
            ));
        }
        decoder.revision = decoder.read_number()?;
        Ok(decoder)
    }

    /// Returns the revision of the copy.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the next part; `None` at the end of a complete and unchanged copy.
    ///
    /// # Errors
    /// [`BackupError::Damaged`] if the copy is cut or changed, which may show only at the end.
    pub fn next_part(&mut self) -> Result<Option<Part>, BackupError> {
        if self.ended {
            return Ok(None);
        }
        let mut tag = [0];
        self.read_exact(&mut tag)?;
        match tag {
            [OBJECT] => {
                let key = self.read_text()?;
                let revision = self.read_number()?;
                let bytes = self.read_sized()?;
                if revision > self.revision {
                    return Err(BackupError::Damaged(format!("{key:?} is newer than the copy")));
                }
                self.count += 1;
                Ok(Some(Part::Object(Arc::from(key), Entry { revision, bytes })))
            }
            [FILE] => {
                let path = self.read_text()?;
                let content = self.read_sized()?;
                self.count += 1;
                Ok(Some(Part::File(path, content)))
            }
            [END] => {
                let count = self.count;
                if self.read_number()? != count {
                    return Err(BackupError::Damaged("parts of it are missing".to_owned()));
                }
                let expected = self.digest.clone().finalize();
                let mut found = [0; 32];
                self.read_exact(&mut found)?;
                if found != expected.as_slice() {
                    return Err(BackupError::Damaged("its checksum doesn't match".to_owned()));
                }
                if self.input.read(&mut [0])? != 0 {
                    return Err(BackupError::Damaged("something follows its end".to_owned()));
                }
                self.ended = true;
                Ok(None)
            }
            [other] => Err(BackupError::Damaged(format!(
                "it has a part of the unknown kind {other}"
            ))),
        }
    }

    fn read_exact(&mut self, into: &mut [u8]) -> Result<(), BackupError> {
        self.input.read_exact(into).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => BackupError::Damaged("its end is missing".to_owned()),
            _ => BackupError::Io(error),
        })?;
        self.digest.update(&*into);
        Ok(())
    }

    fn read_number(&mut self) -> Result<u64, BackupError> {
        let mut bytes = [0; 8];
        self.read_exact(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn read_sized(&mut self) -> Result<Bytes, BackupError> {
        let length = self.read_number()?;
        if length > LONGEST {
            return Err(BackupError::Damaged(format!("a part claims to have {length} bytes")));
        }
        // Memory is allocated only for bytes that arrive, whatever length is claimed.
        let mut bytes = Vec::new();
        let read = (&mut self.input).take(length).read_to_end(&mut bytes)?;
        if read as u64 != length {
            return Err(BackupError::Damaged("its end is missing".to_owned()));
        }
        self.digest.update(&bytes);
        Ok(Bytes::from(bytes))
    }

    fn read_text(&mut self) -> Result<String, BackupError> {
        let bytes = self.read_sized()?;
        String::from_utf8(bytes.to_vec()).map_err(|_| BackupError::Damaged("a name in it is no text".to_owned()))
    }
}

/// The revision of a verified backup, and its numbers of objects and files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// The revision of the backup.
    pub revision: u64,
    /// The number of objects.
    pub objects: u64,
    /// The number of files.
    pub files: u64,
}

/// Reads a backup to its end, and checks that it is complete and unchanged.
///
/// # Errors
/// [`BackupError`] if it is not a copy, incomplete, or changed.
pub fn verify_backup(input: impl Read) -> Result<Summary, BackupError> {
    let mut decoder = Decoder::new(input)?;
    let mut summary = Summary {
        revision: decoder.revision(),
        objects: 0,
        files: 0,
    };
    while let Some(part) = decoder.next_part()? {
        match part {
            Part::Object(..) => summary.objects += 1,
            Part::File(..) => summary.files += 1,
        }
    }
    Ok(summary)
}

/// Creates a store from a copy in the folder `directory`, which must be empty or missing; `file` gets each file of
/// the copy. The store gives out no revision of the old store again: its revisions begin far beyond the copy's. All
/// earlier revisions count as dropped, so clients that watched the old store have to list again.
///
/// After a failure, the folder must not be used: it contains the files before the fault.
///
/// # Errors
/// [`BackupError`] if the folder is in use, the copy is damaged, or a write fails.
pub fn restore_backup(
    input: impl Read,
    directory: &Path,
    mut file: impl FnMut(&str, &[u8]) -> std::io::Result<()>,
) -> Result<Summary, BackupError> {
    if std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(BackupError::NotEmpty(directory.to_owned()));
    }
    let _lock = DirectoryLock::acquire(directory)?;
    let path = directory.join(crate::store::FILE_NAME);
    crate::store::make_file_private(&path)?;
    let mut decoder = Decoder::new(input)?;
    let mut summary = Summary {
        revision: decoder.revision(),
        objects: 0,
        files: 0,
    };
    let objects = std::iter::from_fn(|| {
        loop {
            match decoder.next_part() {
                Ok(Some(Part::Object(key, entry))) => {
                    summary.objects += 1;
                    return Some(Ok((key, entry)));
                }
                Ok(Some(Part::File(path, content))) => {
                    summary.files += 1;
                    if let Err(error) = file(&path, &content) {
                        return Some(Err(BackupError::Io(error)));
                    }
                }
                Ok(None) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    });
    let revision = summary.revision.saturating_add(REVISION_GAP);
    RedbJournal::open(&path)?.fill(revision, objects)?;
    Ok(summary)
}

/// Writes a copy of a snapshot, with files.
///
/// # Errors
/// If `out` fails.
pub fn write(snapshot: &Snapshot, files: &[(String, Bytes)], mut out: impl Write) -> std::io::Result<()> {
    let mut encoder = Encoder::new(snapshot.revision());
    for (path, content) in files {
        encoder.add(&Part::File(path.clone(), content.clone()));
    }
    for (key, entry) in snapshot.range("", None) {
        encoder.write_object(key, entry);
        if let Some(piece) = encoder.take_piece() {
            out.write_all(&piece)?;
        }
    }
    out.write_all(&encoder.finish())
}
