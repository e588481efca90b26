//! The archive of a chart: default values from files, another version, and the package itself. The same files always give the same bytes.

use std::io::Write;

use bytes::Bytes;

use super::archive::{ChartFile, ChartTree, FILE_BYTES};
use super::error::ChartError;
use super::metadata::{CHART_FILE, Metadata, VALUES_FILE};
use crate::archive_writer::{ArchiveWriter, WriteError, Written};
use crate::budget::BudgetLimits;
use crate::limits::{Limits, describe_bytes};
use crate::yaml_merge::merge_maps;

/// Finds the file of an entry of `spec.valuesFiles`.
pub(super) trait FindValues {
    /// Returns the content of the file; `None` if it does not exist.
    fn find_values(&self, files: &ChartTree, path: &str) -> Option<Bytes>;
}

/// Replaces the default values of a chart by those of files, a later one over an earlier one. Returns the files that exist.
///
/// # Errors
/// A [`ChartError::ValuesFiles`] that names the missing or unreadable file.
pub(super) fn replace_values(
    files: &mut ChartTree,
    wanted: &[String],
    ignore_missing: bool,
    finder: &impl FindValues,
) -> Result<Vec<String>, ChartError> {
    let (mut texts, mut used) = (Vec::new(), Vec::new());
    for path in wanted {
        match finder.find_values(files, path) {
            Some(text) => {
                texts.push((path.as_str(), text));
                used.push(path.clone());
            }
            None if ignore_missing => {}
            None => {
                return Err(ChartError::ValuesFiles(format!(
                    "no values file found at path '{path}'"
                )));
            }
        }
    }
    let merged = merge_maps(texts.iter().map(|(path, text)| (*path, text.as_ref())));
    let merged = merged.map_err(ChartError::ValuesFiles)?;
    if merged.len() as u64 > FILE_BYTES {
        let limit = describe_bytes(FILE_BYTES);
        return Err(ChartError::ValuesFiles(format!(
            "the merged values are larger than {limit}"
        )));
    }
    if !files.contains_key(VALUES_FILE) {
        return Err(ChartError::ValuesFiles(format!(
            "failed to locate values file: {VALUES_FILE}"
        )));
    }
    let file = ChartFile {
        content: merged.into(),
        is_executable: false,
    };
    files.insert(VALUES_FILE.to_owned(), file);
    Ok(used)
}

/// Writes a chart as an archive, with a version.
///
/// # Errors
/// A [`WriteError`] of the archive.
pub(super) fn write_package<W: Write>(
    files: &ChartTree,
    metadata: &Metadata,
    version: &str,
    (out, limits, trees): (W, &Limits, &BudgetLimits),
) -> Result<Written, WriteError> {
    let mut archive = ArchiveWriter::new(out, limits, trees);
    let name = &metadata.name;
    // Readers expect the metadata first.
    let rewritten = (metadata.version != version).then(|| metadata.write(name, version));
    if let Some(file) = files.get(CHART_FILE) {
        let content = rewritten.as_deref().unwrap_or(&file.content);
        let path = format!("{name}/{CHART_FILE}");
        archive.add_file(&path, false, (content.len() as u64, content))?;
    }
    for (path, file) in files.iter().filter(|(path, _)| *path != CHART_FILE) {
        let content = (file.content.len() as u64, file.content.as_ref());
        archive.add_file(&format!("{name}/{path}"), file.is_executable, content)?;
    }
    archive.finish()
}
