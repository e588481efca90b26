//! Decides which contents are fetched, from which server, and whether they fit. Pure.

use std::collections::BTreeMap;

use super::server::{LfsConfig, LfsServer};
use crate::archive::{LFS_CONFIG_FILE, LfsConfigFile};
use crate::budget::BudgetLimits;
use crate::error::FetchError;
use crate::git::lfs_pointer::Pointer;
use crate::git::pointer_list::{PlacedPointer, PointerList};
use crate::limits::{Limits, describe_bytes};
use crate::pack_transfer::RemoteRepository;

/// Bytes of a pointer in an archive at most, with what an archive adds to round them up.
const POINTER_BYTES: u64 = 1024;
const BLOCK: u64 = 512;

/// A repository whose files are in an archive: the source's own one, or a submodule.
pub(crate) struct Repository {
    /// The place of its files in the archive.
    pub(crate) path: String,
    pub(crate) remote: RemoteRepository,
    pub(crate) lfs_config: LfsConfigFile,
}

/// The Git LFS server of a repository, and the files whose content is fetched from it, each with its pointer.
pub(crate) type WantedContents<'a> = (LfsServer, Vec<(&'a str, Pointer)>);

/// Plans the contents that are fetched from each repository, by its number. `unpacked`: the size of the archive with the pointers.
pub(crate) fn plan_contents<'a>(
    pointers: &'a PointerList,
    repositories: &[Repository],
    (unpacked, trees): (u64, &BudgetLimits),
    limits: &Limits,
) -> Result<BTreeMap<usize, WantedContents<'a>>, FetchError> {
    let mut wanted: BTreeMap<usize, WantedContents<'a>> = BTreeMap::new();
    let mut by_repository: BTreeMap<usize, Vec<&PlacedPointer>> = BTreeMap::new();
    for file in pointers.iter() {
        by_repository.entry(file.repository).or_default().push(file);
    }
    let mut total = unpacked;
    for (index, files) in by_repository {
        let Some(repository) = repositories.get(index) else {
            continue;
        };
        let first = files.first().map(|file| file.path.as_str()).unwrap_or_default();
        let config = read_config(repository).map_err(|error| add_path(first, error))?;
        let mut kept = Vec::new();
        for file in files {
            let inner = file.path.strip_prefix(&repository.path).unwrap_or(&file.path);
            let leaves_out = config.leaves_out(inner.trim_start_matches('/'));
            let leaves_out = leaves_out.ok_or_else(|| {
                let error = invalid_config(repository, "its patterns take too much work for so many files");
                add_path(&file.path, error)
            })?;
            if leaves_out {
                continue;
            }
            let size = file.pointer.size;
            let fail = |what, limit| {
                let error = FetchError::TooLarge {
                    what,
                    limit: describe_bytes(limit),
                    advice: "take less of the repository with spec.sparseCheckout or spec.ignore, or ask an administrator for a larger limit",
                };
                add_path(&file.path, error)
            };
            if size > limits.file_bytes {
                return Err(fail("bytes of one file", limits.file_bytes));
            }
            // A lower bound: the archive itself is counted exactly when it is written.
            total = total
                .saturating_sub(POINTER_BYTES)
                .saturating_add(size.next_multiple_of(BLOCK));
            if total > limits.unpacked_bytes {
                return Err(fail("unpacked bytes", limits.unpacked_bytes));
            }
            let fits = trees.check(total);
            fits.map_err(|refused| add_path(&file.path, refused.into()))?;
            kept.push((file.path.as_str(), file.pointer));
        }
        if let Some((path, _)) = kept.first() {
            let server = config.find_server(&repository.remote.url);
            let server = server.map_err(|error| add_path(path, error))?;
            wanted.insert(index, (server, kept));
        }
    }
    Ok(wanted)
}

fn read_config(repository: &Repository) -> Result<LfsConfig, FetchError> {
    match &repository.lfs_config {
        None => Ok(LfsConfig::default()),
        Some(Err(problem)) => Err(invalid_config(repository, problem)),
        Some(Ok(text)) => LfsConfig::read(text).map_err(|problem| invalid_config(repository, &problem)),
    }
}

fn invalid_config(repository: &Repository, problem: &str) -> FetchError {
    FetchError::HttpApi {
        url: format!("{LFS_CONFIG_FILE} of {}", repository.remote.url),
        problem: problem.to_owned(),
    }
}

/// Adds the file's path to an error, unless it has one.
pub(super) fn add_path(path: &str, error: FetchError) -> FetchError {
    match error {
        error @ FetchError::LfsFile { .. } => error,
        error => FetchError::LfsFile {
            path: path.to_owned(),
            error: Box::new(error),
        },
    }
}
