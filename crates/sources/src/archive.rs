//! From a commit in a pack to an archive: the walk over its trees, and the bytes.
//!
//! Owns what an artifact holds: regular files and symbolic links, sorted by path. Blobs go from the pack into the archive one at a time; there
//! is no working tree. Submodules are left out, as Flux does without `recurseSubmodules`.

use std::io::{self, Write};
use std::rc::Rc;

use crate::account::Growing;
use crate::archive_writer::{ArchiveWriter, WriteError, Written};
use crate::budget::{OverBudget, Room};
use crate::git::object::{self, Mode};
use crate::git::oid::{Algorithm, Oid};
use crate::git::pack::{ObjectKind, Pack, PackError};
use crate::ignore::{IGNORE_FILE, Ignore};
use crate::limits::{Limits, describe_bytes};
use crate::tree::check_path;

/// Bytes of all ignore files of a commit.
const IGNORE_BYTES: usize = 256 << 10;

/// Why a commit can't be made into an archive.
#[derive(Debug)]
pub(crate) enum ArchiveError {
    Pack(PackError),
    /// The path and what is wrong with it.
    InvalidTree(String),
    TooLarge {
        what: &'static str,
        limit: String,
    },
    /// There is no room for its files, or for their list.
    OverBudget(OverBudget),
    /// The archive could not be written.
    Write(io::Error),
}

impl From<PackError> for ArchiveError {
    fn from(error: PackError) -> Self {
        Self::Pack(error)
    }
}

impl From<WriteError> for ArchiveError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Invalid(problem) => Self::InvalidTree(problem),
            WriteError::TooLarge { what, limit } => Self::TooLarge { what, limit },
            WriteError::OverBudget(refused) => Self::OverBudget(refused),
            WriteError::Io(error) => Self::Write(error),
        }
    }
}

type Walked = (Vec<Found>, Vec<(String, String)>);

struct Found {
    path: String,
    mode: Mode,
    oid: Oid,
    excluded: bool,
}

/// Writes the archive of a tree.
pub(crate) fn write_archive(
    pack: &mut Pack<'_>,
    tree: Oid,
    ignore: Option<&str>,
    limits: &Limits,
    (trees, memory): (&Room, &mut Growing),
    out: impl Write,
) -> Result<Written, ArchiveError> {
    let (mut files, ignores) = walk(pack, tree, limits, memory)?;
    let ignore = Ignore::new(&ignores, ignore);
    for file in &mut files {
        pack.check()?;
        let excluded = ignore.excludes(&file.path);
        file.excluded = excluded.ok_or_else(|| {
            ArchiveError::InvalidTree("its ignore files take too much work for so many files".to_owned())
        })?;
    }
    files.retain(|file| !file.excluded);
    files.sort_by(|a, b| a.path.cmp(&b.path));

    let mut archive = ArchiveWriter::new(out, limits, trees);
    for file in &files {
        let content = blob(pack, file)?;
        if file.mode == Mode::Link {
            archive.add_link(&file.path, &content)?;
        } else {
            let is_executable = file.mode == Mode::Executable;
            archive.add_file(&file.path, is_executable, (content.len() as u64, content.as_slice()))?;
        }
    }
    Ok(archive.finish()?)
}

/// Lists all files and links, and the content of all ignore files with their folders.
fn walk(pack: &mut Pack<'_>, root: Oid, limits: &Limits, memory: &mut Growing) -> Result<Walked, ArchiveError> {
    let algorithm: Algorithm = root.algorithm();
    let mut files = Vec::new();
    let mut ignores = Vec::new();
    let mut visited = 0_u32;
    let mut ignore_bytes = 0;
    let mut folders = vec![(String::new(), root)];
    while let Some((folder, oid)) = folders.pop() {
        let missing = || ArchiveError::InvalidTree(format!("the server did not send folder {folder:?} ({oid})"));
        let content = pack.read(&oid, ObjectKind::Tree)?.ok_or_else(missing)?;
        let entries = object::read_tree(&content, algorithm)
            .ok_or_else(|| ArchiveError::InvalidTree(format!("folder {folder:?} ({oid}) is malformed")))?;
        for entry in entries {
            // Folders count too: trees that share folders could hold more of them than memory.
            visited = visited.saturating_add(1);
            if visited > limits.files {
                return Err(ArchiveError::TooLarge {
                    what: "files",
                    limit: limits.files.to_string(),
                });
            }
            let name = std::str::from_utf8(entry.name).map_err(|_| {
                let name = String::from_utf8_lossy(entry.name);
                ArchiveError::InvalidTree(format!("the name {name:?} in folder {folder:?} is not UTF-8"))
            })?;
            let path = if folder.is_empty() {
                name.to_owned()
            } else {
                format!("{folder}/{name}")
            };
            if name.contains('/') {
                return Err(ArchiveError::InvalidTree(format!(
                    "the name {name:?} in folder {folder:?} has a slash"
                )));
            }
            // Trees that share folders make many long paths out of few bytes.
            let bytes = path.len() + 2 * size_of::<Found>();
            memory.add(bytes as u64).map_err(ArchiveError::OverBudget)?;
            check_path(&path, limits)
                .map_err(|problem| ArchiveError::InvalidTree(format!("the path {path:?} {problem}")))?;
            match entry.mode {
                Mode::Tree => folders.push((path, entry.oid)),
                Mode::Submodule => {}
                mode => {
                    let file = Found {
                        path,
                        mode,
                        oid: entry.oid,
                        excluded: false,
                    };
                    if name == IGNORE_FILE {
                        let content = ignore_file(pack, &file)?;
                        ignore_bytes += content.len();
                        if ignore_bytes > IGNORE_BYTES {
                            return Err(ArchiveError::TooLarge {
                                what: "bytes of all ignore files",
                                limit: describe_bytes(IGNORE_BYTES as u64),
                            });
                        }
                        ignores.push((folder.clone(), content));
                    }
                    files.push(file);
                }
            }
        }
    }
    // Patterns of an inner folder come after, and so win over, those of the folders around it.
    ignores.sort();
    Ok((files, ignores))
}

fn ignore_file(pack: &mut Pack<'_>, file: &Found) -> Result<String, ArchiveError> {
    let invalid = |problem: &str| ArchiveError::InvalidTree(format!("{:?} {problem}", file.path));
    if file.mode == Mode::Link {
        return Err(invalid("is a symbolic link; ignore files must be regular files"));
    }
    let content = blob(pack, file)?;
    if content.len() > 64 << 10 {
        return Err(invalid("is larger than 64 KiB"));
    }
    String::from_utf8(content.to_vec()).map_err(|_| invalid("is not UTF-8 text"))
}

fn blob(pack: &mut Pack<'_>, file: &Found) -> Result<Rc<Vec<u8>>, ArchiveError> {
    pack.read(&file.oid, ObjectKind::Blob)?.ok_or_else(|| {
        ArchiveError::InvalidTree(format!(
            "the server did not send the content of {:?} ({})",
            file.path, file.oid
        ))
    })
}
