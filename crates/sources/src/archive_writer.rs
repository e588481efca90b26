//! Writes the archive of an artifact.
//!
//! An archive has regular files and symbolic links with fixed modes, no owner and no time. So the same content in the same order gives the same bytes and one digest.
//! Content that would be too large to unpack is refused.

use std::io::{self, Read, Write};

use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

use crate::budget::{BudgetLimits, OverBudget};
use crate::limits::{Limits, describe_bytes};

/// The digest and the sizes of an archive that was written.
#[derive(Debug)]
pub(crate) struct Written {
    /// `sha256:…` of the bytes.
    pub(crate) digest: String,
    /// The size in bytes.
    pub(crate) size: u64,
    /// The size in bytes after unpacking.
    pub(crate) unpacked: u64,
}

/// Why an entry of an artifact's archive can't be written.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// The path and what is wrong with it.
    Invalid(String),
    TooLarge {
        what: &'static str,
        limit: String,
    },
    /// A budget has no capacity for the files.
    OverBudget(OverBudget),
    /// The archive could not be written.
    Io(io::Error),
}

/// Writes the gzipped tar archive of an artifact, entry by entry, within the limits.
pub(crate) struct ArchiveWriter<'a, W: Write> {
    archive: Builder<GzEncoder<Hashed<W>>>,
    limits: &'a Limits,
    trees: &'a BudgetLimits,
    unpacked: u64,
}

impl<'a, W: Write> ArchiveWriter<'a, W> {
    /// Creates a writer. The files have to fit into `trees`, the limit of their later place in memory.
    pub(crate) fn new(out: W, limits: &'a Limits, trees: &'a BudgetLimits) -> Self {
        let hashed = Hashed {
            inner: out,
            hash: Sha256::new(),
            size: 0,
        };
        // A fixed system byte and no name or time make the gzip header the same on every machine.
        let gzip = GzBuilder::new()
            .mtime(0)
            .operating_system(255)
            .write(hashed, Compression::new(6));
        Self {
            archive: Builder::new(gzip),
            limits,
            trees,
            unpacked: 0,
        }
    }

    /// Writes a file into the archive.
    pub(crate) fn add_file(
        &mut self,
        path: &str,
        is_executable: bool,
        (size, content): (u64, impl Read),
    ) -> Result<(), WriteError> {
        self.count_file(path, size)?;
        let mut header = make_header();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(if is_executable { 0o700 } else { 0o600 });
        header.set_size(size);
        self.archive
            .append_data(&mut header, path, content)
            .map_err(WriteError::Io)
    }

    /// Writes a symbolic link into the archive.
    pub(crate) fn add_link(&mut self, path: &str, target: &[u8]) -> Result<(), WriteError> {
        self.count_file(path, target.len() as u64)?;
        let invalid = |problem: &str| WriteError::Invalid(format!("the link {path:?} {problem}"));
        if target.len() > self.limits.path_bytes {
            return Err(invalid("has too long a target"));
        }
        if target.is_empty() || target.contains(&0) || std::str::from_utf8(target).is_err() {
            return Err(invalid("has a target that is not UTF-8 text"));
        }
        let mut header = make_header();
        header.set_entry_type(EntryType::Symlink);
        header.set_mode(0o777);
        header.set_size(0);
        // Verbatim: the tar crate's own functions would normalize the target.
        if header.set_link_name_literal(target).is_err() {
            let mut long = make_header();
            long.set_mode(0o644);
            long.set_entry_type(EntryType::GNULongLink);
            long.set_size(target.len() as u64 + 1);
            long.set_path("././@LongLink").map_err(WriteError::Io)?;
            long.set_cksum();
            let target = [target, &[0]].concat();
            self.archive.append(&long, target.as_slice()).map_err(WriteError::Io)?;
        }
        self.archive
            .append_data(&mut header, path, io::empty())
            .map_err(WriteError::Io)
    }

    /// Writes the end of the archive, and returns its digest and sizes.
    pub(crate) fn finish(self) -> Result<Written, WriteError> {
        let unpacked = self.unpacked;
        let gzip = self.archive.into_inner().map_err(WriteError::Io)?;
        let mut hashed = gzip.finish().map_err(WriteError::Io)?;
        hashed.inner.flush().map_err(WriteError::Io)?;
        Ok(Written {
            digest: format!("sha256:{}", hex::encode(hashed.hash.finalize())),
            size: hashed.size,
            unpacked,
        })
    }

    /// Counts the unpacked size of a file, and refuses the file if the total exceeds a limit.
    fn count_file(&mut self, path: &str, content: u64) -> Result<(), WriteError> {
        self.unpacked = self.unpacked.saturating_add(packed_size(path, content));
        self.trees.check(self.unpacked).map_err(WriteError::OverBudget)?;
        if self.unpacked > self.limits.unpacked_bytes {
            return Err(WriteError::TooLarge {
                what: "unpacked bytes",
                limit: describe_bytes(self.limits.unpacked_bytes),
            });
        }
        Ok(())
    }
}

/// Returns the bytes of a file in the archive, with its header. The same file, read from the archive, takes at most this much memory with its path.
fn packed_size(path: &str, content: u64) -> u64 {
    const BLOCK: u64 = 512;
    // A path or target that is too long for the header has blocks of its own.
    let long = if path.len() < 100 {
        0
    } else {
        path.len() as u64 + 2 * BLOCK
    };
    content
        .div_ceil(BLOCK)
        .saturating_mul(BLOCK)
        .saturating_add(BLOCK + long)
}

fn make_header() -> Header {
    let mut header = Header::new_gnu();
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

/// A writer that hashes and counts the bytes that it passes on.
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
