//! From a commit in a pack to an archive: the walk over its trees, and the bytes.
//!
//! Owns what an artifact holds: regular files and symbolic links, sorted by path, with fixed modes, no owner and no time,
//! so that equal content gives equal bytes and one digest. Blobs go from the pack into the archive one at a time; there
//! is no working tree. Submodules are left out, as Flux does without `recurseSubmodules`.

use std::io::{self, Write};
use std::rc::Rc;

use flate2::{Compression, GzBuilder};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

use crate::account::Growing;
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

/// A written archive.
#[derive(Debug)]
pub(crate) struct Written {
    /// `sha256:…` of the bytes.
    pub(crate) digest: String,
    /// How many bytes.
    pub(crate) size: u64,
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

    let hashed = Hashed {
        inner: out,
        hash: Sha256::new(),
        size: 0,
    };
    // A fixed system byte and no name or time: the header of the compression is the same everywhere.
    let gzip = GzBuilder::new()
        .mtime(0)
        .operating_system(255)
        .write(hashed, Compression::new(6));
    let mut archive = Builder::new(gzip);
    let mut unpacked = 0_u64;
    for file in &files {
        let content = blob(pack, file)?;
        unpacked = unpacked.saturating_add(packed_size(file, content.len()));
        trees.check(unpacked).map_err(ArchiveError::OverBudget)?;
        if unpacked > limits.unpacked_bytes {
            return Err(ArchiveError::TooLarge {
                what: "unpacked bytes",
                limit: describe_bytes(limits.unpacked_bytes),
            });
        }
        append(&mut archive, file, &content, limits)?;
    }
    let gzip = archive.into_inner().map_err(ArchiveError::Write)?;
    let mut hashed = gzip.finish().map_err(ArchiveError::Write)?;
    hashed.inner.flush().map_err(ArchiveError::Write)?;
    Ok(Written {
        digest: format!("sha256:{}", hex::encode(hashed.hash.finalize())),
        size: hashed.size,
    })
}

/// Bytes of a file in the archive, with its header: no less than it takes in memory, with its path, when it is read from there.
fn packed_size(file: &Found, content: usize) -> u64 {
    const BLOCK: usize = 512;
    // A path or target that the header is too short for has blocks of its own.
    let long = if file.path.len() < 100 {
        0
    } else {
        file.path.len() + 2 * BLOCK
    };
    (content.next_multiple_of(BLOCK) + BLOCK + long) as u64
}

fn append<W: Write>(
    archive: &mut Builder<W>,
    file: &Found,
    content: &[u8],
    limits: &Limits,
) -> Result<(), ArchiveError> {
    let mut header = Header::new_gnu();
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    if file.mode == Mode::Link {
        let invalid = |problem: &str| ArchiveError::InvalidTree(format!("the link {:?} {problem}", file.path));
        if content.len() > limits.path_bytes {
            return Err(invalid("has too long a target"));
        }
        if content.is_empty() || content.contains(&0) || std::str::from_utf8(content).is_err() {
            return Err(invalid("has a target that is not UTF-8 text"));
        }
        header.set_entry_type(EntryType::Symlink);
        header.set_mode(0o777);
        header.set_size(0);
        // Verbatim: the archive's own functions would tidy the target up.
        if header.set_link_name_literal(content).is_err() {
            let mut long = Header::new_gnu();
            long.set_uid(0);
            long.set_gid(0);
            long.set_mtime(0);
            long.set_mode(0o644);
            long.set_entry_type(EntryType::GNULongLink);
            long.set_size(content.len() as u64 + 1);
            long.set_path("././@LongLink").map_err(ArchiveError::Write)?;
            long.set_cksum();
            let target = [content, &[0]].concat();
            archive.append(&long, target.as_slice()).map_err(ArchiveError::Write)?;
        }
        return archive
            .append_data(&mut header, &file.path, io::empty())
            .map_err(ArchiveError::Write);
    }
    header.set_entry_type(EntryType::Regular);
    header.set_mode(if file.mode == Mode::Executable { 0o700 } else { 0o600 });
    header.set_size(content.len() as u64);
    archive
        .append_data(&mut header, &file.path, content)
        .map_err(ArchiveError::Write)
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

/// Hashes and counts what is written.
struct Hashed<W> {
    inner: W,
    hash: Sha256,
    size: u64,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(bytes.get(..written).unwrap_or_default());
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
