//! The archive of a chart: the check of its entries, and its files. The archive is untrusted: sizes, counts and paths are bounded while it is read.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use flate2::read::MultiGzDecoder;

use super::error::ChartError;
use super::metadata::{CHART_FILE, Metadata, read_dependencies};
use crate::budget::OverBudget;
use crate::fetch_budgets::GrowingCharge;
use crate::limits::describe_bytes;
use crate::tar_reader::{TarError, TarKind, TarReader};
use crate::yaml_merge::read_map;

/// The largest archive of a chart, in bytes (Flux's limit).
pub(super) const ARCHIVE_BYTES: u64 = 10 << 20;
/// The largest file of a chart, in bytes (Helm's limit).
pub(super) const FILE_BYTES: u64 = 5 << 20;
/// The most bytes of all files of a chart (Helm's limit).
pub(super) const UNPACKED_BYTES: u64 = 100 << 20;
/// The most files of a chart.
pub(super) const MOST_FILES: usize = 10_000;
/// Bytes in memory of a file besides its content.
const ENTRY_BYTES: u64 = 256;
/// The longest path.
pub(super) const LONGEST_PATH: usize = 1024;

/// A file of a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChartFile {
    pub(super) content: Bytes,
    pub(super) is_executable: bool,
}

/// The files of a chart by path, without the folder that an archive has around them.
pub(super) type ChartTree = BTreeMap<String, ChartFile>;

/// Checks that an archive is a chart, and returns its metadata. Only the metadata stays in memory.
///
/// # Errors
/// Says what is wrong.
pub(super) fn check_archive(archive: impl Read, cancelled: &AtomicBool) -> Result<Metadata, String> {
    let files = read_entries(archive, cancelled, |path| path == CHART_FILE, |_| Ok(()))?;
    read_metadata(&files)
}

/// Why an archive was not read.
#[derive(Debug)]
pub(super) enum ArchiveError {
    /// It is no chart. The text says why.
    Invalid(String),
    /// The lane has no memory for its files.
    OverBudget(OverBudget),
}

impl ArchiveError {
    /// Converts the error: `wrap` makes the error for an archive that is no chart.
    pub(super) fn explain(self, wrap: impl FnOnce(String) -> ChartError) -> ChartError {
        match self {
            Self::Invalid(problem) => wrap(problem),
            Self::OverBudget(refused) => ChartError::OverBudget(refused),
        }
    }
}

/// Reads all files of an archive. Their bytes are charged before they are read.
///
/// # Errors
/// An [`ArchiveError`].
pub(super) fn read_archive(
    archive: impl Read,
    cancelled: &AtomicBool,
    memory: &mut GrowingCharge,
) -> Result<ChartTree, ArchiveError> {
    let mut refused = None;
    let charge = |bytes: u64| {
        memory.add_blocking(bytes).map_err(|error| {
            refused = Some(error);
            error.to_string()
        })
    };
    let read = read_entries(archive, cancelled, |_| true, charge);
    read.map_err(|problem| refused.map_or(ArchiveError::Invalid(problem), ArchiveError::OverBudget))
}

/// Returns the metadata of a chart.
///
/// # Errors
/// Says what is missing or wrong.
pub(super) fn read_metadata(files: &ChartTree) -> Result<Metadata, String> {
    let file = files
        .get(CHART_FILE)
        .ok_or_else(|| format!("no '{CHART_FILE}' found"))?;
    let mut metadata = Metadata::read(&file.content)?;
    // The form of charts for Helm 2.
    if let Some(file) = files.get("requirements.yaml") {
        let fields = read_map(&file.content).map_err(|problem| format!("requirements.yaml {problem}"))?;
        let listed = read_dependencies(&fields)?;
        if !listed.is_empty() {
            metadata.dependencies = listed;
        }
    }
    for name in ["Chart.lock", "requirements.lock"] {
        if let Some(file) = files.get(name) {
            let fields = read_map(&file.content).map_err(|problem| format!("{name} {problem}"))?;
            lock_versions(&mut metadata, read_dependencies(&fields)?);
        }
    }
    Ok(metadata)
}

/// Takes the versions of a lock file. A lock has no aliases: those of the chart stay.
fn lock_versions(metadata: &mut Metadata, locked: Vec<super::metadata::Dependency>) {
    for dependency in &mut metadata.dependencies {
        let found = locked
            .iter()
            .find(|locked| locked.name == dependency.name && locked.repository == dependency.repository);
        if let Some(found) = found {
            dependency.version.clone_from(&found.version);
        }
    }
}

fn read_entries(
    archive: impl Read,
    cancelled: &AtomicBool,
    is_wanted: impl Fn(&str) -> bool,
    mut charge: impl FnMut(u64) -> Result<(), String>,
) -> Result<ChartTree, String> {
    let mut files = ChartTree::new();
    let (mut count, mut bytes) = (0_usize, 0_u64);
    // Headers and padding come on top of the files.
    let bound = UNPACKED_BYTES + MOST_FILES as u64 * (1536 + 2 * LONGEST_PATH as u64);
    let failed = |error| match error {
        TarError::Invalid(problem) => problem,
        TarError::Io(error) => error.to_string(),
    };
    let mut archive = TarReader::new(MultiGzDecoder::new(archive).take(bound));
    while let Some(entry) = archive.next().map_err(failed)? {
        if cancelled.load(Ordering::Relaxed) {
            return Err("the reading was cancelled".to_owned());
        }
        count += 1;
        if count > MOST_FILES {
            return Err(format!("chart has more than {MOST_FILES} files"));
        }
        if matches!(entry.kind, TarKind::Folder) {
            continue;
        }
        let path = read_path(&entry.path)?;
        let TarKind::File { size, is_executable } = entry.kind else {
            // Helm ignores the target of a link.
            continue;
        };
        if size > FILE_BYTES {
            return Err(format!("{path:?} is larger than {}", describe_bytes(FILE_BYTES)));
        }
        bytes = bytes.saturating_add(size);
        if bytes > UNPACKED_BYTES {
            return Err(format!("chart has more than {}", describe_bytes(UNPACKED_BYTES)));
        }
        if !is_wanted(&path) && !is_metadata(&path) {
            continue;
        }
        charge(size.saturating_add(ENTRY_BYTES))?;
        let mut content = Vec::new();
        archive
            .read_to_end(&mut content)
            .map_err(|error| failed(TarError::from(error)))?;
        let file = ChartFile {
            content: content.into(),
            is_executable,
        };
        if files.insert(path.clone(), file).is_some() {
            return Err(format!("{path:?} is in it twice"));
        }
    }
    Ok(files)
}

/// Checks whether a file describes the chart.
fn is_metadata(path: &str) -> bool {
    matches!(
        path,
        CHART_FILE | "requirements.yaml" | "Chart.lock" | "requirements.lock"
    )
}

/// Checks the path of an entry, and returns it without the folder of the chart. A path must stay in that folder, on any operating system.
fn read_path(written: &str) -> Result<String, String> {
    let path = written.replace('\\', "/");
    if written.len() > LONGEST_PATH || path.contains('\0') {
        return Err("chart has a path that is too long, or no text".to_owned());
    }
    if path.starts_with('/') {
        return Err("chart illegally contains absolute paths".to_owned());
    }
    let outside = || format!("chart illegally contains content outside the base directory: {written:?}");
    let (folder, inner) = path.split_once('/').ok_or_else(outside)?;
    if matches!(folder, "" | "." | "..") || inner.is_empty() {
        return Err(outside());
    }
    if inner.split('/').any(|part| part == "..") {
        return Err("chart illegally references parent directory".to_owned());
    }
    if inner.split('/').any(|part| matches!(part, "" | ".")) {
        return Err(format!("chart has an ambiguous path: {written:?}"));
    }
    let is_drive = |part: &str| part.len() == 2 && part.ends_with(':');
    if inner.split('/').next().is_some_and(is_drive) {
        return Err("chart contains illegally named files".to_owned());
    }
    Ok(inner.to_owned())
}

#[cfg(test)]
mod tests;
