//! Writes a bucket's objects into an archive, from the previous artifact and from the received objects.
//!
//! An object is not fetched if its mark is the MD5 of its content, as for most objects, and the previous artifact has this content under the same path. An attacker needs
//! write access to the bucket to use two contents with one MD5, and gains nothing. All functions here block, and end when the fetch is cancelled.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use flate2::read::MultiGzDecoder;

use super::error::BucketError;
use super::index::{Content, Index, Object};
use crate::archive_writer::{ArchiveWriter, WriteError, Written};
use crate::artifact::{ArtifactStore, IncomingFile};
use crate::budget::BudgetLimits;
use crate::error::StorageError;
use crate::fetch_budgets;
use crate::ignore::IGNORE_FILE;
use crate::limits::Limits;
use crate::tar_reader::{TarError, TarKind, TarReader};

/// The archive of the source's previous artifact, open for reading.
pub(super) struct PreviousArtifact {
    pub(super) file: File,
    pub(super) digest: String,
}

/// A reader of the entries in the previous artifact's archive.
type Entries<'a> = TarReader<io::Take<MultiGzDecoder<io::BufReader<&'a File>>>>;

impl PreviousArtifact {
    /// Reads the archive from its beginning, at most up to the unpacked size that an artifact may have.
    fn open_entries(&self, limits: &Limits) -> Result<Entries<'_>, BucketError> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(0))
            .map_err(|error| self.archive_error(TarError::Io(error)))?;
        // The archive was written within these bounds; headers and padding come on top.
        let overhead = u64::from(limits.files).saturating_mul(1536 + 2 * limits.path_bytes as u64);
        let bound = limits.unpacked_bytes.saturating_add(overhead);
        let unpacked = MultiGzDecoder::new(io::BufReader::with_capacity(64 << 10, file));
        Ok(TarReader::new(unpacked.take(bound)))
    }

    /// Returns the error for a previous artifact that can't be read.
    fn archive_error(&self, error: TarError) -> BucketError {
        let problem = match error {
            TarError::Invalid(problem) => problem,
            TarError::Io(error) => error.to_string(),
        };
        StorageError::InvalidArchive {
            digest: self.digest.clone(),
            problem,
        }
        .into()
    }

    /// Marks the objects whose content the previous artifact has.
    pub(super) fn mark_kept(
        &self,
        index: &mut Index,
        limits: &Limits,
        cancelled: &AtomicBool,
    ) -> Result<(), BucketError> {
        let mut entries = self.open_entries(limits)?;
        let mut piece = vec![0; 64 << 10];
        while let Some(entry) = entries.next().map_err(|error| self.archive_error(error))? {
            check_cancelled(cancelled)?;
            let (TarKind::File { size, .. }, Some(object)) = (&entry.kind, index.objects.get_mut(&entry.path)) else {
                continue;
            };
            if *size != object.size || !is_md5(&object.mark) {
                continue;
            }
            let mut hash = md5::Context::new();
            loop {
                let length = entries
                    .read(&mut piece)
                    .map_err(|error| self.archive_error(error.into()))?;
                if length == 0 {
                    break;
                }
                hash.consume(piece.get(..length).unwrap_or_default());
            }
            if hex::encode(hash.finalize().0) == object.mark {
                object.content = Content::Kept;
            }
        }
        Ok(())
    }
}

/// Checks whether a mark has the form of an MD5: 32 lower-case hex digits.
fn is_md5(mark: &str) -> bool {
    mark.len() == 32
        && mark
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// The input of an archive: the index of all objects, and the files that hold their contents.
pub(super) struct Parts<'a> {
    pub(super) index: &'a Index,
    /// The file with patterns.
    pub(super) ignore_file: Option<&'a str>,
    pub(super) before: Option<&'a PreviousArtifact>,
    pub(super) received: &'a [IncomingFile],
}

impl Parts<'_> {
    /// Writes the archive: only files, in the order of their paths.
    pub(super) fn write(
        &self,
        (store, limits, trees): (&ArtifactStore, &Limits, &BudgetLimits),
        target: &mut IncomingFile,
        cancelled: &AtomicBool,
    ) -> Result<Written, BucketError> {
        let path = target.path().to_owned();
        let explain = |error: WriteError| match error {
            WriteError::Invalid(problem) => BucketError::InvalidKey {
                key: String::new(),
                problem,
            },
            WriteError::TooLarge { what, limit } => BucketError::TooLarge { what, limit },
            WriteError::OverBudget(refused) => BucketError::OverBudget(refused),
            WriteError::Io(error) => match fetch_budgets::find_refusal(&error) {
                Some(refused) => BucketError::OverBudget(refused),
                None => store.io_error("write", &path, error).into(),
            },
        };
        let mut archive = ArchiveWriter::new(target.writer(store), limits, trees);
        let open = |before| -> Result<_, BucketError> { Ok((before, PreviousArtifact::open_entries(before, limits)?)) };
        let mut before = self.before.map(open).transpose()?;
        let mut ignore_file = self.ignore_file;
        for (key, object) in &self.index.objects {
            check_cancelled(cancelled)?;
            if key.as_str() > IGNORE_FILE
                && let Some(text) = ignore_file.take()
            {
                add_text(&mut archive, text).map_err(explain)?;
            }
            match object.content {
                Content::Kept => {
                    let entries = before.as_mut().ok_or_else(|| missing_error(key))?;
                    advance_to(entries, key, object)?;
                    archive
                        .add_file(key, false, (object.size, &mut entries.1))
                        .map_err(explain)?;
                }
                Content::Received { file, offset } => {
                    let mut from = self.received.get(file).ok_or_else(|| missing_error(key))?.file();
                    from.seek(SeekFrom::Start(offset))
                        .map_err(|error| explain(WriteError::Io(error)))?;
                    let content = from.take(object.size);
                    archive.add_file(key, false, (object.size, content)).map_err(explain)?;
                }
                Content::Upstream => return Err(missing_error(key)),
            }
        }
        if let Some(text) = ignore_file {
            add_text(&mut archive, text).map_err(explain)?;
        }
        archive.finish().map_err(explain)
    }
}

fn add_text<W: Write>(archive: &mut ArchiveWriter<'_, W>, text: &str) -> Result<(), WriteError> {
    archive.add_file(IGNORE_FILE, false, (text.len() as u64, text.as_bytes()))
}

/// Advances to a file of the previous artifact, which has its files in the same order.
fn advance_to(
    (before, entries): &mut (&PreviousArtifact, Entries<'_>),
    key: &str,
    object: &Object,
) -> Result<(), BucketError> {
    while let Some(entry) = entries.next().map_err(|error| before.archive_error(error))? {
        if entry.path == key && matches!(entry.kind, TarKind::File { size, .. } if size == object.size) {
            return Ok(());
        }
    }
    Err(missing_error(key))
}

fn missing_error(key: &str) -> BucketError {
    StorageError::Missing { digest: key.to_owned() }.into()
}

/// Returns an error if the fetch was cancelled.
fn check_cancelled(cancelled: &AtomicBool) -> Result<(), BucketError> {
    if cancelled.load(Ordering::Relaxed) {
        // The fetch was cancelled. This error is visible only if the timeout and the fetch end at the same moment.
        return Err(StorageError::Io {
            action: "write",
            path: "the artifact".to_owned(),
            source: io::ErrorKind::TimedOut.into(),
        }
        .into());
    }
    Ok(())
}
