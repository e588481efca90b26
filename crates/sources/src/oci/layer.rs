//! Turns a layer into an archive of the store. The layer is read twice and never held in memory.
//!
//! Regular files and symbolic links become files of the artifact, by the rules for trees from Git, except ignored ones. The first pass reads all names, to apply the
//! ignore files and to refuse duplicate paths. The second pass copies the selected files. The unpacked length is bounded, whatever the layer declares.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek as _, SeekFrom, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use flate2::read::MultiGzDecoder;

use crate::archive_writer::{ArchiveWriter, WriteError, Written};
use crate::budget::{BudgetLimits, OverBudget};
use crate::fetch_budgets::{self, GrowingCharge};
use crate::ignore::{IGNORE_FILE, Ignore};
use crate::limits::{Limits, describe_bytes};
use crate::tar_reader::{TarEntry, TarError, TarKind, TarReader};
use crate::tree::check_path;

/// Bytes of one ignore file, and of all ignore files of a layer.
const IGNORE_FILE_BYTES: u64 = 64 << 10;
const IGNORE_BYTES: usize = 256 << 10;

/// Why a layer can't be made into an archive.
#[derive(Debug)]
pub(super) enum LayerError {
    /// The problem of the layer.
    Invalid(String),
    TooLarge {
        what: &'static str,
        limit: String,
    },
    OverBudget(OverBudget),
    /// The received layer could not be read, or the archive not be written.
    Io(std::io::Error),
    /// The fetch was cancelled.
    Cancelled,
}

impl From<TarError> for LayerError {
    fn from(error: TarError) -> Self {
        match error {
            TarError::Invalid(problem) => Self::Invalid(format!("its layer can't be unpacked: {problem}")),
            TarError::Io(error) => match error.kind() {
                std::io::ErrorKind::FileTooLarge => Self::TooLarge {
                    what: "bytes that its layer unpacks to",
                    limit: "the limit for so many files".to_owned(),
                },
                // The decompressor reports unreadable data with these kinds.
                std::io::ErrorKind::InvalidInput | std::io::ErrorKind::InvalidData => {
                    Self::Invalid("its layer is no tar archive that is compressed with gzip".to_owned())
                }
                _ => Self::Io(error),
            },
        }
    }
}

impl From<WriteError> for LayerError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Invalid(problem) => Self::Invalid(problem),
            WriteError::TooLarge { what, limit } => Self::TooLarge { what, limit },
            WriteError::OverBudget(refused) => Self::OverBudget(refused),
            // The error of a copy shows whether the reader or the writer failed.
            WriteError::Io(error) => match fetch_budgets::find_refusal(&error) {
                Some(refused) => Self::OverBudget(refused),
                None => TarError::from(error).into(),
            },
        }
    }
}

/// A received layer of an artifact, with the ignore patterns and the bounds for unpacking it.
pub(super) struct Layer<'a> {
    pub(super) file: &'a File,
    pub(super) ignore: Option<&'a str>,
    pub(super) limits: &'a Limits,
    pub(super) trees: &'a BudgetLimits,
    pub(super) cancelled: &'a AtomicBool,
}

impl Layer<'_> {
    /// Writes the layer's files that become part of the artifact into an archive.
    pub(super) fn write_archive(&self, memory: &mut GrowingCharge, out: impl Write) -> Result<Written, LayerError> {
        let kept = self.list_kept(memory)?;
        let mut archive = ArchiveWriter::new(out, self.limits, self.trees);
        let mut layer = self.open()?;
        let mut kept = kept.into_iter();
        while let Some(entry) = layer.next_of_any_name()? {
            self.check_cancelled()?;
            if self.is_left_out(&entry) || kept.next() != Some(true) {
                continue;
            }
            match entry.kind {
                TarKind::File { size, is_executable } => {
                    archive.add_file(&entry.path, is_executable, (size, &mut layer))?;
                }
                TarKind::Link(target) => archive.add_link(&entry.path, &target)?,
                TarKind::Folder => {}
            }
        }
        Ok(archive.finish()?)
    }

    /// Returns for each file and link, in order, whether it becomes part of the artifact.
    fn list_kept(&self, memory: &mut GrowingCharge) -> Result<Vec<bool>, LayerError> {
        let mut paths: Vec<String> = Vec::new();
        // Reasons to refuse files. They count only for files that no pattern excludes.
        let mut problems: BTreeMap<usize, LayerError> = BTreeMap::new();
        let mut ignores: Vec<(String, String)> = Vec::new();
        let mut ignore_bytes = 0_usize;
        let mut layer = self.open()?;
        while let Some(entry) = layer.next_of_any_name()? {
            self.check_cancelled()?;
            if self.is_left_out(&entry) {
                continue;
            }
            let mut problem = self.find_problem(&entry);
            let path = entry.path;
            if paths.len() >= self.limits.files as usize {
                return Err(LayerError::TooLarge {
                    what: "files",
                    limit: self.limits.files.to_string(),
                });
            }
            // The path is charged twice: for the list in the layer's order, and for the sorted list.
            let bytes = path.len() + 4 * size_of::<String>();
            memory.add_blocking(bytes as u64).map_err(LayerError::OverBudget)?;
            let (folder, name) = path.rsplit_once('/').unwrap_or(("", &path));
            if name == IGNORE_FILE && problem.is_none() {
                match read_ignore_file(&path, &entry.kind, &mut layer)? {
                    Ok(text) => {
                        ignore_bytes += text.len();
                        if ignore_bytes > IGNORE_BYTES {
                            return Err(LayerError::TooLarge {
                                what: "bytes of all ignore files",
                                limit: describe_bytes(IGNORE_BYTES as u64),
                            });
                        }
                        ignores.push((folder.to_owned(), text));
                    }
                    Err(refused) => problem = Some(refused),
                }
            }
            if let Some(problem) = problem {
                problems.insert(paths.len(), problem);
            }
            paths.push(path);
        }
        let mut sorted: Vec<&str> = paths.iter().map(String::as_str).collect();
        sorted.sort_unstable();
        let mut neighbours = sorted.iter().zip(sorted.iter().skip(1));
        if let Some((path, _)) = neighbours.find(|(one, two)| one == two) {
            return Err(LayerError::Invalid(format!("{path:?} is in its layer twice")));
        }
        // Unpacking would write through a link if the link had files below it.
        let mut folders = sorted
            .iter()
            .flat_map(|path| path.match_indices('/').filter_map(|(end, _)| path.get(..end)));
        if let Some(path) = folders.find(|folder| sorted.binary_search(folder).is_ok()) {
            return Err(LayerError::Invalid(format!("{path:?} is both a file and a folder")));
        }
        // Patterns of an inner folder come after, and win over, patterns of outer folders.
        ignores.sort();
        let ignore = Ignore::new(&ignores, self.ignore);
        let kept = paths.iter().enumerate().map(|(index, path)| {
            self.check_cancelled()?;
            let Some(excluded) = ignore.excludes(path) else {
                let problem = "its ignore files take too much work for so many files".to_owned();
                return Err(LayerError::Invalid(problem));
            };
            match problems.remove(&index).filter(|_| !excluded) {
                Some(problem) => Err(problem),
                None => Ok(!excluded),
            }
        });
        kept.collect()
    }

    /// Returns the reason why the artifact can't have a file.
    fn find_problem(&self, entry: &TarEntry) -> Option<LayerError> {
        let TarEntry { path, is_text, kind } = entry;
        if !is_text {
            return Some(LayerError::Invalid(format!("the path {path:?} is not UTF-8")));
        }
        if let Err(problem) = check_path(path, self.limits) {
            return Some(LayerError::Invalid(format!("the path {path:?} {problem}")));
        }
        let size = match kind {
            TarKind::File { size, .. } => *size,
            TarKind::Link(_) | TarKind::Folder => 0,
        };
        (size > self.limits.file_bytes).then(|| LayerError::TooLarge {
            what: "bytes of one file",
            limit: describe_bytes(self.limits.file_bytes),
        })
    }

    /// Checks whether an entry is always left out: a folder, which follows from its files, or a file of git itself.
    fn is_left_out(&self, entry: &TarEntry) -> bool {
        matches!(entry.kind, TarKind::Folder) || entry.path.split('/').any(|part| part.eq_ignore_ascii_case(".git"))
    }

    fn open(&self) -> Result<TarReader<impl Read>, LayerError> {
        let mut file = self.file;
        file.seek(SeekFrom::Start(0)).map_err(LayerError::Io)?;
        // Headers and padding come on top of the files: a kilobyte and a half for each, and long names.
        let overhead = u64::from(self.limits.files).saturating_mul(1536 + 2 * self.limits.path_bytes as u64);
        let bound = self.limits.unpacked_bytes.saturating_add(overhead);
        let unpacked = Bounded {
            inner: MultiGzDecoder::new(BufReader::with_capacity(64 << 10, file)),
            left: bound,
        };
        Ok(TarReader::new(unpacked))
    }

    fn check_cancelled(&self) -> Result<(), LayerError> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(LayerError::Cancelled);
        }
        Ok(())
    }
}

/// Reads the patterns of an ignore file. The inner error says why it has none.
fn read_ignore_file(
    path: &str,
    kind: &TarKind,
    layer: &mut impl Read,
) -> Result<Result<String, LayerError>, LayerError> {
    let invalid = |problem: &str| Err(LayerError::Invalid(format!("{path:?} {problem}")));
    match kind {
        TarKind::File { size, .. } if *size <= IGNORE_FILE_BYTES => {}
        TarKind::File { .. } => return Ok(invalid("is larger than 64 KiB")),
        _ => return Ok(invalid("is a symbolic link; ignore files must be regular files")),
    }
    let mut text = Vec::new();
    layer.read_to_end(&mut text).map_err(TarError::from)?;
    Ok(String::from_utf8(text).or_else(|_| invalid("is not UTF-8 text")))
}

/// A reader that fails at its bound. A plain end would look like the end of the archive.
struct Bounded<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.left = self
            .left
            .checked_sub(read as u64)
            .ok_or(std::io::ErrorKind::FileTooLarge)?;
        Ok(read)
    }
}
