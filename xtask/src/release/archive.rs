//! Archives whose bytes follow from their files alone: owner, time and order are fixed, so the same input has the same digest. Pure.

use std::io::Write as _;

use anyhow::{Context, Result};
use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

/// One entry of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// The path, without a slash in front. A folder's path ends with a slash.
    pub(super) path: String,
    /// The rights, as `0o755`.
    pub(super) mode: u32,
    pub(super) content: Vec<u8>,
}

impl Entry {
    pub(super) fn file(path: impl Into<String>, mode: u32, content: impl Into<Vec<u8>>) -> Self {
        Self {
            path: path.into(),
            mode,
            content: content.into(),
        }
    }

    pub(super) fn folder(path: &str) -> Self {
        Self::file(format!("{path}/"), 0o755, [])
    }
}

/// Writes a tar archive. Every entry has this time, in seconds since 1970, and belongs to root.
pub(super) fn pack_entries(entries: &[Entry], time: u64) -> Result<Vec<u8>> {
    let mut builder = Builder::new(Vec::new());
    for entry in entries {
        let mut header = Header::new_ustar();
        header.set_entry_type(match entry.path.ends_with('/') {
            true => EntryType::Directory,
            false => EntryType::Regular,
        });
        header.set_mode(entry.mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(time);
        header.set_size(u64::try_from(entry.content.len())?);
        builder
            .append_data(&mut header, &entry.path, entry.content.as_slice())
            .with_context(|| entry.path.clone())?;
    }
    Ok(builder.into_inner()?)
}

/// Compresses bytes as `gzip --no-name` does: without a name and a time.
pub(super) fn compress_bytes(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder: GzEncoder<Vec<u8>> = GzBuilder::new().write(Vec::new(), Compression::new(6));
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

/// Writes a compressed tar archive.
pub(super) fn pack_compressed(entries: &[Entry], time: u64) -> Result<Vec<u8>> {
    compress_bytes(&pack_entries(entries, time)?)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn the_same_files_give_the_same_bytes() -> Result<()> {
        let entries = [Entry::folder("etc"), Entry::file("etc/program", 0o555, "content")];
        let packed = pack_compressed(&entries, 1_700_000_000)?;
        assert_eq!(packed, pack_compressed(&entries, 1_700_000_000)?);
        assert_ne!(packed, pack_compressed(&entries, 1_700_000_001)?);
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(packed.as_slice()));
        let mut seen = Vec::new();
        for entry in archive.entries()? {
            let mut entry = entry?;
            let mut content = String::new();
            entry.read_to_string(&mut content)?;
            let (path, header) = (entry.path()?.display().to_string(), entry.header());
            seen.push((path, header.mode()?, header.uid()?, header.mtime()?, content));
        }
        let expected = [("etc/", 0o755, ""), ("etc/program", 0o555, "content")];
        let expected =
            expected.map(|(path, mode, content)| (path.to_owned(), mode, 0, 1_700_000_000, content.to_owned()));
        assert_eq!(seen, expected);
        Ok(())
    }
}
