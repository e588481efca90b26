//! Merges several archives into one: the files of a repository, and files of other sources beside them.
//!
//! No two files may have the same place. A file is never put over another one, or behind a symbolic link, since a link in an archive has no files below it. Limits and
//! ignore patterns apply to the merged whole. Parts are read twice and never held in memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek as _, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use flate2::read::MultiGzDecoder;

use crate::archive::{ArchiveError, IgnoreFiles};
use crate::archive_writer::{ArchiveWriter, Written};
use crate::budget::BudgetLimits;
use crate::fetch_budgets::GrowingCharge;
use crate::git::pack::PackError;
use crate::git::pointer_list::PointerList;
use crate::ignore::{IGNORE_FILE, Ignore};
use crate::limits::Limits;
use crate::tar_reader::{TarEntry, TarError, TarKind, TarReader};
use crate::tree::check_path;

/// All parts together may be read up to this multiple of an artifact's unpacked size: a small part may be in a large archive.
const READ_FACTOR: u64 = 4;

/// An archive whose files, or a folder of them, are merged into the archive of an artifact.
pub(crate) struct Part {
    /// The name in messages, as `the repository "base"`.
    pub(crate) name: String,
    /// The archive; its content was verified.
    pub(crate) file: File,
    /// The folder or file to take; everything if empty.
    pub(crate) from: String,
    /// The target; the root if empty.
    pub(crate) to: String,
    /// The repository that has the contents of its pointers of Git LFS. `None` for an included artifact: its own source has fetched them.
    pub(crate) repository: Option<usize>,
}

/// The paths of the merged files, each with the index of the part that it comes from, and the ignore files among them.
#[derive(Default)]
struct Places {
    of: BTreeMap<String, usize>,
    ignores: IgnoreFiles,
}

/// Writes the archive of all parts together, and lists the pointers of Git LFS in it.
pub(crate) fn merge_archives(
    parts: &mut [Part],
    ignore: Option<&str>,
    limits: &Limits,
    (trees, memory): (&BudgetLimits, &mut GrowingCharge),
    out: impl Write,
    cancelled: &AtomicBool,
) -> Result<(Written, PointerList), ArchiveError> {
    let mut pointers = PointerList::default();
    let mut places = Places::default();
    let mut left = limits.unpacked_bytes.saturating_mul(READ_FACTOR);
    for index in 0..parts.len() {
        find_places(parts, index, &mut places, limits, (&mut left, memory), cancelled)?;
    }
    places.refuse_overlaps(parts)?;
    let ignore = Ignore::new(&places.ignores.into_sorted(), ignore);
    let mut archive = ArchiveWriter::new(out, limits, trees);
    for part in parts.iter_mut() {
        let (from, to, name) = (part.from.clone(), part.to.clone(), part.name.clone());
        let repository = part.repository;
        let mut entries = part.open_entries(u64::MAX)?;
        while let Some(entry) = next_entry(&mut entries, &name, cancelled)? {
            let Some(path) = move_path(&entry.path, &from, &to) else {
                continue;
            };
            let excluded = ignore.excludes(&path).ok_or_else(|| {
                ArchiveError::InvalidTree("its ignore files take too much work for so many files".to_owned())
            })?;
            match entry.kind {
                _ if excluded => {}
                TarKind::File { size, is_executable } if PointerList::may_contain(size) => {
                    let mut content = Vec::new();
                    entries.read_to_end(&mut content).map_err(ArchiveError::Write)?;
                    if let Some(repository) = repository {
                        pointers.add(&path, repository, &content)?;
                    }
                    archive.add_file(&path, is_executable, (content.len() as u64, content.as_slice()))?;
                }
                TarKind::File { size, is_executable } => {
                    archive.add_file(&path, is_executable, (size, &mut entries))?;
                }
                TarKind::Link(target) => archive.add_link(&path, &target)?,
                TarKind::Folder => {}
            }
        }
    }
    Ok((archive.finish()?, pointers))
}

/// Walks over one part and records the places of its files.
fn find_places(
    parts: &mut [Part],
    index: usize,
    places: &mut Places,
    limits: &Limits,
    (left, memory): (&mut u64, &mut GrowingCharge),
    cancelled: &AtomicBool,
) -> Result<(), ArchiveError> {
    let names: Vec<String> = parts.iter().map(|part| part.name.clone()).collect();
    let Some(part) = parts.get_mut(index) else {
        return Ok(());
    };
    let (from, to, name) = (part.from.clone(), part.to.clone(), part.name.clone());
    let mut entries = part.open_entries(*left)?;
    let mut found = false;
    while let Some(entry) = next_entry(&mut entries, &name, cancelled)? {
        let Some(path) = move_path(&entry.path, &from, &to) else {
            continue;
        };
        let is_file = match entry.kind {
            TarKind::Folder => continue,
            TarKind::File { size, .. } => Some(size),
            TarKind::Link(_) => None,
        };
        found = true;
        if places.of.len() >= limits.files as usize {
            return Err(ArchiveError::TooLarge {
                what: "files",
                limit: limits.files.to_string(),
            });
        }
        memory
            .add_blocking(path.len() as u64 + 128)
            .map_err(ArchiveError::OverBudget)?;
        check_path(&path, limits)
            .map_err(|problem| ArchiveError::Misplaced(format!("the path {path:?} of {name} {problem}")))?;
        if let (Some(size), (folder, IGNORE_FILE)) = (is_file, split_path(&path)) {
            let content = read_ignore_file(&mut entries, size, &path)?;
            places.ignores.add(folder, content)?;
        }
        if let Some(other) = places.of.insert(path.clone(), index) {
            let other = names.get(other).map_or("another", String::as_str);
            return Err(ArchiveError::Misplaced(format!(
                "{path:?} is in {name} and in {other}; choose another path for one of them"
            )));
        }
    }
    if !found && !from.is_empty() {
        return Err(ArchiveError::Misplaced(format!(
            "there is no file at {from:?} in {name}"
        )));
    }
    *left = entries.inner().limit();
    Ok(())
}

impl Places {
    /// Refuses a file or link that has others below it.
    fn refuse_overlaps(&self, parts: &[Part]) -> Result<(), ArchiveError> {
        let name = |index: &usize| parts.get(*index).map_or("another", |part| part.name.as_str());
        for (path, index) in &self.of {
            let below = format!("{path}/");
            let next = self.of.range(below.clone()..).next();
            if let Some((inner, other)) = next
                && inner.starts_with(&below)
            {
                return Err(ArchiveError::Misplaced(format!(
                    "{path:?} of {} is no folder, and {inner:?} of {} would stand in it; choose another path",
                    name(index),
                    name(other)
                )));
            }
        }
        Ok(())
    }
}

/// A reader of the entries in a part's archive.
type Entries<'a> = TarReader<std::io::Take<MultiGzDecoder<&'a File>>>;

impl Part {
    /// Reads the entries from the beginning, at most this many bytes of them.
    fn open_entries(&mut self, bytes: u64) -> Result<Entries<'_>, ArchiveError> {
        self.file.rewind().map_err(ArchiveError::Write)?;
        Ok(TarReader::new(MultiGzDecoder::new(&self.file).take(bytes)))
    }
}

/// Reads the next entry of a part. `name`: the part's name in errors.
fn next_entry(entries: &mut Entries<'_>, name: &str, cancelled: &AtomicBool) -> Result<Option<TarEntry>, ArchiveError> {
    if cancelled.load(Ordering::Relaxed) {
        return Err(PackError::Cancelled.into());
    }
    entries.next().map_err(|error| match error {
        // The archive is cut off at the bound.
        TarError::Invalid(_) if entries.inner().limit() == 0 => ArchiveError::TooLarge {
            what: "bytes that are read for everything that is included",
            limit: "four times what an artifact may unpack to".to_owned(),
        },
        TarError::Invalid(problem) => ArchiveError::Misplaced(format!("{name} can't be read: {problem}")),
        TarError::Io(error) => ArchiveError::Write(error),
    })
}

/// Returns the place of a file; `None` if the file is not selected.
fn move_path(path: &str, from: &str, to: &str) -> Option<String> {
    let inner = if from.is_empty() || path == from {
        if from.is_empty() { path } else { "" }
    } else {
        path.strip_prefix(from)?.strip_prefix('/')?
    };
    Some(match (inner, to) {
        // A single file that goes to the root keeps its name.
        ("", "") => split_path(from).1.to_owned(),
        ("", to) => to.to_owned(),
        (inner, "") => inner.to_owned(),
        (inner, to) => format!("{to}/{inner}"),
    })
}

/// Splits a path into folder and name.
fn split_path(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

fn read_ignore_file(entries: &mut Entries<'_>, size: u64, path: &str) -> Result<String, ArchiveError> {
    IgnoreFiles::check_size(path, size)?;
    let mut content = String::new();
    entries
        .read_to_string(&mut content)
        .map_err(|_| ArchiveError::InvalidTree(format!("{path:?} is not UTF-8 text")))?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::move_path;

    #[test]
    fn included_files_are_moved_to_their_target() {
        let moved = |path, from, to| move_path(path, from, to);
        assert_eq!(moved("a/b", "", "").as_deref(), Some("a/b"));
        assert_eq!(moved("a/b", "", "x/y").as_deref(), Some("x/y/a/b"));
        assert_eq!(moved("a/b", "a", "x").as_deref(), Some("x/b"));
        assert_eq!(moved("ab/c", "a", "x"), None);
        assert_eq!(moved("b/a", "a", "x"), None);
        assert_eq!(moved("a/b", "a/b", "x").as_deref(), Some("x"));
        assert_eq!(moved("a/b", "a/b", "").as_deref(), Some("b"));
        assert_eq!(moved("a", "a", "").as_deref(), Some("a"));
    }
}
