//! Writes an archive again with contents in place of pointers.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use flate2::read::MultiGzDecoder;

use crate::archive::ArchiveError;
use crate::archive_writer::{ArchiveWriter, Written};
use crate::budget::BudgetLimits;
use crate::git::pack::PackError;
use crate::limits::Limits;
use crate::tar_reader::{TarError, TarKind, TarReader};

/// The place of a file's content from Git LFS: a part of a received file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    /// `None` for an empty content.
    pub(crate) file: Option<&'a File>,
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

/// Copies an archive. Each file that `contents` names gets the content there, and keeps its place and its mode.
pub(crate) fn replace_pointers(
    archive: &File,
    contents: &BTreeMap<&str, Place<'_>>,
    (limits, trees): (&Limits, &BudgetLimits),
    out: impl Write,
    cancelled: &AtomicBool,
) -> Result<Written, ArchiveError> {
    let failed = |error: TarError| {
        ArchiveError::Write(match error {
            TarError::Invalid(problem) => io::Error::other(problem),
            TarError::Io(error) => error,
        })
    };
    let mut archive = archive;
    archive.rewind().map_err(ArchiveError::Write)?;
    let mut entries = TarReader::new(MultiGzDecoder::new(archive));
    let mut target = ArchiveWriter::new(out, limits, trees);
    while let Some(entry) = entries.next().map_err(failed)? {
        if cancelled.load(Ordering::Relaxed) {
            return Err(PackError::Cancelled.into());
        }
        match entry.kind {
            TarKind::File { size, is_executable } => match contents.get(entry.path.as_str()) {
                Some(place) => {
                    let content = place.open().map_err(ArchiveError::Write)?;
                    target.add_file(&entry.path, is_executable, (place.size, content))?;
                }
                None => target.add_file(&entry.path, is_executable, (size, &mut entries))?,
            },
            TarKind::Link(link) => target.add_link(&entry.path, &link)?,
            TarKind::Folder => {}
        }
    }
    Ok(target.finish()?)
}

impl Place<'_> {
    /// The place of an empty content.
    pub(crate) const EMPTY: Self = Self {
        file: None,
        offset: 0,
        size: 0,
    };

    fn open(&self) -> io::Result<Box<dyn Read + '_>> {
        let Some(mut file) = self.file else {
            return Ok(Box::new(io::empty()));
        };
        file.seek(SeekFrom::Start(self.offset))?;
        Ok(Box::new(file.take(self.size)))
    }
}
