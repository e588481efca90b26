//! A consistent copy of a store as one stream of bytes, and the way back into an empty folder. Owns the format: it
//! ends with a SHA-256 of all before it, so a copy that was cut or changed is refused before anything of it is used.
//!
//! A copy may carry files beside the objects (keys and certificates); what they are is the caller's business. It
//! carries no history: who watched the old store has to list anew, and is told so (see [`restore`]).

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::lock::DirectoryLock;
use crate::{Entry, JournalError, OpenError, RedbJournal, Snapshot};

/// What every copy begins with; the number is the format's.
const MAGIC: &[u8; 16] = b"tenure-backup 1\n";
/// How far revisions jump in a restored store. Writes that were acknowledged after the copy was made had revisions
/// behind the copy's; none of them may be given out a second time for something else.
const REVISION_GAP: u64 = 1_000_000_000;
/// Bytes that are gathered before they are handed on.
const PIECE: usize = 64 * 1024;
/// No key or value is longer; a length beyond it is damage, not a reason to ask for that much memory.
const LONGEST: u64 = 1 << 30;

const END: u8 = 0;
const OBJECT: u8 = 1;
const FILE: u8 = 2;

/// Why a copy could not be made or used.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// Reading or writing failed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// It is no copy, or not a whole one.
    #[error("this is no usable backup: {0}")]
    Damaged(String),
    /// The folder to restore into has something in it.
    #[error("{0} is not empty; a backup is restored into a folder of its own")]
    NotEmpty(std::path::PathBuf),
    /// The folder could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The restored store could not be written.
    #[error("the restored store could not be written: {0}")]
    Journal(#[from] JournalError),
}

/// One part of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// An object: key and value.
    Object(Arc<str>, Entry),
    /// A file that goes with the objects: its path below the data folder, and its content.
    File(String, Bytes),
}

/// Writes a copy part by part, as pieces of bytes.
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
        encoder.put(MAGIC);
        encoder.put(&revision.to_le_bytes());
        encoder
    }

    /// Adds a part.
    pub fn add(&mut self, part: &Part) {
        match part {
            Part::Object(key, entry) => self.object(key, entry),
            Part::File(path, content) => {
                self.put(&[FILE]);
                self.sized(path.as_bytes());
                self.sized(content);
                self.count += 1;
            }
        }
    }

    fn object(&mut self, key: &str, entry: &Entry) {
        self.put(&[OBJECT]);
        self.sized(key.as_bytes());
        self.put(&entry.revision.to_le_bytes());
        self.sized(&entry.bytes);
        self.count += 1;
    }

    fn put(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
        self.out.extend_from_slice(bytes);
    }

    fn sized(&mut self, bytes: &[u8]) {
        self.put(&(bytes.len() as u64).to_le_bytes());
        self.put(bytes);
    }

    /// What there is to hand on, once it is enough to be worth it.
    pub fn piece(&mut self) -> Option<Bytes> {
        (self.out.len() >= PIECE)
            .then(|| Bytes::from(std::mem::replace(&mut self.out, Vec::with_capacity(PIECE + 4096))))
    }

    /// Ends the copy; gives what is left of it.
    #[must_use]
    pub fn finish(mut self) -> Bytes {
        self.put(&[END]);
        let count = self.count;
        self.put(&count.to_le_bytes());
        let digest = self.digest.clone().finalize();
        self.out.extend_from_slice(&digest);
        Bytes::from(self.out)
    }
}

/// A copy of a snapshot as pieces of bytes, made as they are asked for: the store goes on meanwhile.
#[derive(Debug)]
pub struct Pieces {
    snapshot: Snapshot,
    after: Option<Arc<str>>,
    encoder: Option<Encoder>,
}

impl Pieces {
    /// A copy of `snapshot`.
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
            encoder.object(key, entry);
            if let Some(piece) = encoder.piece() {
                self.after = Some(key.clone());
                return Some(piece);
            }
        }
        self.encoder.take().map(Encoder::finish)
    }
}

/// Reads a copy part by part. What it gave may be relied on only once it has given `None`: the checksum comes last.
#[derive(Debug)]
pub struct Decoder<R> {
    input: R,
    digest: Sha256,
    revision: u64,
    count: u64,
    ended: bool,
}

impl<R: Read> Decoder<R> {
    /// Reads the beginning.
    ///
    /// # Errors
    /// [`BackupError::Damaged`] when it is none of ours.
    pub fn new(input: R) -> Result<Self, BackupError> {
        let mut decoder = Self {
            input,
            digest: Sha256::new(),
            revision: 0,
            count: 0,
            ended: false,
        };
        let mut magic = [0; MAGIC.len()];
        decoder.take(&mut magic)?;
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
        decoder.revision = decoder.number()?;
        Ok(decoder)
    }

    /// The revision that the copy was made at.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The next part; `None` at the end of a whole and unchanged copy.
    ///
    /// # Errors
    /// [`BackupError::Damaged`] when it is cut or changed, which may show only at the end.
    pub fn next_part(&mut self) -> Result<Option<Part>, BackupError> {
        if self.ended {
            return Ok(None);
        }
        let mut tag = [0];
        self.take(&mut tag)?;
        match tag {
            [OBJECT] => {
                let key = self.text()?;
                let revision = self.number()?;
                let bytes = self.sized()?;
                if revision > self.revision {
                    return Err(BackupError::Damaged(format!("{key:?} is newer than the copy")));
                }
                self.count += 1;
                Ok(Some(Part::Object(Arc::from(key), Entry { revision, bytes })))
            }
            [FILE] => {
                let path = self.text()?;
                let content = self.sized()?;
                self.count += 1;
                Ok(Some(Part::File(path, content)))
            }
            [END] => {
                let count = self.count;
                if self.number()? != count {
                    return Err(BackupError::Damaged("parts of it are missing".to_owned()));
                }
                let expected = self.digest.clone().finalize();
                let mut found = [0; 32];
                self.take(&mut found)?;
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

    fn take(&mut self, into: &mut [u8]) -> Result<(), BackupError> {
        self.input.read_exact(into).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => BackupError::Damaged("its end is missing".to_owned()),
            _ => BackupError::Io(error),
        })?;
        self.digest.update(&*into);
        Ok(())
    }

    fn number(&mut self) -> Result<u64, BackupError> {
        let mut bytes = [0; 8];
        self.take(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn sized(&mut self) -> Result<Bytes, BackupError> {
        let length = self.number()?;
        if length > LONGEST {
            return Err(BackupError::Damaged(format!("a part claims to have {length} bytes")));
        }
        // The claim is believed only as far as bytes come.
        let mut bytes = Vec::new();
        let read = (&mut self.input).take(length).read_to_end(&mut bytes)?;
        if read as u64 != length {
            return Err(BackupError::Damaged("its end is missing".to_owned()));
        }
        self.digest.update(&bytes);
        Ok(Bytes::from(bytes))
    }

    fn text(&mut self) -> Result<String, BackupError> {
        let bytes = self.sized()?;
        String::from_utf8(bytes.to_vec()).map_err(|_| BackupError::Damaged("a name in it is no text".to_owned()))
    }
}

/// What is in a whole and unchanged copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// The revision that it was made at.
    pub revision: u64,
    /// Objects in it.
    pub objects: u64,
    /// Files in it.
    pub files: u64,
}

/// Reads a copy to its end and checks it.
///
/// # Errors
/// [`BackupError`] when it is none, not whole, or changed.
pub fn verify(input: impl Read) -> Result<Summary, BackupError> {
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

/// Makes a store in the folder `directory`, which must be empty or not there, from a copy; `file` is given each file of the
/// copy. Nothing is acknowledged by this store that the old one gave out: its revisions begin far behind the copy's,
/// and everything up to there counts as forgotten, so who watched the old store is told to list anew.
///
/// When it fails, the folder is not to be used: the files that came before the fault are in it.
///
/// # Errors
/// [`BackupError`] when the folder is in use, the copy is damaged, or something can't be written.
pub fn restore(
    input: impl Read,
    directory: &Path,
    mut file: impl FnMut(&str, &[u8]) -> std::io::Result<()>,
) -> Result<Summary, BackupError> {
    if std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(BackupError::NotEmpty(directory.to_owned()));
    }
    let _lock = DirectoryLock::acquire(directory)?;
    let path = directory.join(crate::store::FILE_NAME);
    crate::store::keep_private(&path)?;
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
/// When `out` fails.
pub fn write(snapshot: &Snapshot, files: &[(String, Bytes)], mut out: impl Write) -> std::io::Result<()> {
    let mut encoder = Encoder::new(snapshot.revision());
    for (path, content) in files {
        encoder.add(&Part::File(path.clone(), content.clone()));
    }
    for (key, entry) in snapshot.range("", None) {
        encoder.object(key, entry);
        if let Some(piece) = encoder.piece() {
            out.write_all(&piece)?;
        }
    }
    out.write_all(&encoder.finish())
}
