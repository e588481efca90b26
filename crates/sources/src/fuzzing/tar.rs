//! Any bytes as a tar archive. The crate tar reads as GNU tar does, and must read each accepted archive in the same way.

use std::io::Read as _;

use tar::{Archive, EntryType, Header};

use crate::tar_reader::{TarKind, TarReader, read_records};

/// Bytes of a block.
const BLOCK: usize = 512;

/// An entry, for comparison.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    path: String,
    /// A file with its mark, a folder, or a link with its target.
    kind: Kind,
    content: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    File(bool),
    Folder,
    Link(Vec<u8>),
}

/// Makes the checksums right, since hardly any change keeps them so.
pub(crate) fn repair_checksums(bytes: &mut [u8]) {
    let mut at = 0;
    while let Some(block) = bytes.get_mut(at..at + BLOCK) {
        if block.iter().all(|byte| *byte == 0) {
            return;
        }
        let mut header = Header::new_old();
        header.as_mut_bytes().copy_from_slice(block);
        header.set_cksum();
        block.copy_from_slice(header.as_bytes());
        let Ok(size) = header.entry_size() else { return };
        let Some(next) = usize::try_from(size)
            .ok()
            .and_then(|size| size.checked_next_multiple_of(BLOCK))
        else {
            return;
        };
        let Some(next) = next.checked_add(at + BLOCK) else {
            return;
        };
        at = next;
    }
}

/// The first byte selects whether checksums are repaired.
pub fn check(bytes: &[u8]) {
    let Some((first, bytes)) = bytes.split_first() else {
        return;
    };
    let mut bytes = bytes.to_vec();
    if first & 1 == 0 {
        repair_checksums(&mut bytes);
    }
    let Some(own) = read_own(&bytes) else { return };
    let others = read_with_tar(&bytes);
    if has_lines_in_records(&bytes) {
        // The crate tar ends a record at the first line feed, other readers after its length.
        return;
    }
    assert_eq!(
        Ok(own),
        others.map_err(|error| error.to_string()),
        "another reader reads another archive"
    );
}

/// Checks whether a record of PAX has a line feed in its value.
pub(crate) fn has_lines_in_records(bytes: &[u8]) -> bool {
    let mut at = 0;
    while let Some(block) = bytes.get(at..at + BLOCK) {
        let mut header = Header::new_old();
        header.as_mut_bytes().copy_from_slice(block);
        let size = header.entry_size().ok().and_then(|size| usize::try_from(size).ok());
        let Some(end) = size.and_then(|size| size.checked_add(at + BLOCK)) else {
            return false;
        };
        if header.entry_type() == EntryType::XHeader {
            let records = bytes.get(at + BLOCK..end).and_then(|text| read_records(text).ok());
            if records.is_some_and(|records| records.iter().any(|(_, value)| value.contains(&b'\n'))) {
                return true;
            }
        }
        let Some(next) = end.checked_next_multiple_of(BLOCK) else {
            return false;
        };
        at = next;
    }
    false
}

fn read_own(bytes: &[u8]) -> Option<Vec<Seen>> {
    let mut reader = TarReader::new(bytes);
    let mut seen = Vec::new();
    while let Some(entry) = reader.next().ok()? {
        let mut content = Vec::new();
        let kind = match entry.kind {
            TarKind::File { size, is_executable } => {
                reader.read_to_end(&mut content).ok()?;
                assert_eq!(content.len() as u64, size);
                Kind::File(is_executable)
            }
            TarKind::Folder => Kind::Folder,
            TarKind::Link(target) => Kind::Link(target),
        };
        seen.push(Seen {
            path: entry.path,
            kind,
            content,
        });
    }
    Some(seen)
}

fn read_with_tar(bytes: &[u8]) -> std::io::Result<Vec<Seen>> {
    let mut archive = Archive::new(bytes);
    let mut seen = Vec::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        if kind == EntryType::XGlobalHeader {
            continue;
        }
        let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let mut path = path.as_str();
        while let Some(inner) = path.strip_prefix("./") {
            path = inner;
        }
        let path = if kind == EntryType::Directory {
            path.strip_suffix('/').unwrap_or(path)
        } else {
            path
        };
        let path = path.to_owned();
        let link = entry
            .link_name_bytes()
            .map(|link| link.into_owned())
            .unwrap_or_default();
        let is_executable = entry.header().mode().unwrap_or_default() & 0o111 != 0;
        let mut content = Vec::new();
        entry.read_to_end(&mut content)?;
        seen.push(Seen {
            path,
            kind: match kind {
                EntryType::Directory => Kind::Folder,
                EntryType::Symlink => Kind::Link(link),
                _ => Kind::File(is_executable),
            },
            content,
        });
    }
    Ok(seen)
}

/// Appends an entry.
fn write_entry(header: &mut Header, kind: EntryType, content: &[u8]) -> Vec<u8> {
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(content.len() as u64);
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    bytes
}

/// Returns the archives of the first inputs: all forms of names and kinds of entries.
pub(crate) fn make_archives() -> Vec<Vec<u8>> {
    let named = |mut header: Header, path: &str| {
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header
    };
    let (old, gnu, ustar) = (Header::new_old(), Header::new_gnu(), Header::new_ustar());
    let file = |path: &str, content: &[u8]| write_entry(&mut named(ustar.clone(), path), EntryType::Regular, content);
    let mut link = named(gnu.clone(), "./d/link");
    link.set_link_name_literal("../a").unwrap();
    let end = vec![0; 2 * BLOCK];
    let long = format!("{}\0", "d/".repeat(80));
    vec![
        [
            file("a", b"text"),
            write_entry(&mut link, EntryType::Symlink, b""),
            end.clone(),
        ]
        .concat(),
        [
            write_entry(&mut named(old, "d/"), EntryType::Directory, b""),
            file("d/b", b""),
            end.clone(),
        ]
        .concat(),
        [
            write_entry(
                &mut named(gnu.clone(), "././@LongLink"),
                EntryType::GNULongName,
                long.as_bytes(),
            ),
            file("x", b"1"),
            write_entry(
                &mut named(gnu.clone(), "././@LongLink"),
                EntryType::GNULongLink,
                b"target\0",
            ),
            write_entry(&mut named(gnu.clone(), "l"), EntryType::Symlink, b""),
            end.clone(),
        ]
        .concat(),
        [
            write_entry(
                &mut named(ustar.clone(), "pax"),
                EntryType::XHeader,
                b"12 path=abc\n9 size=2\n",
            ),
            file("short", b"22"),
            write_entry(
                &mut named(ustar.clone(), "pax"),
                EntryType::XGlobalHeader,
                b"11 comment=\n",
            ),
            file("more", &[7; 600]),
            end,
        ]
        .concat(),
        // Names and a size that two readers may take from different records.
        [
            write_entry(
                &mut named(gnu.clone(), "././@LongLink"),
                EntryType::GNULongName,
                b"one\0",
            ),
            write_entry(&mut named(ustar.clone(), "pax"), EntryType::XHeader, b"12 path=two\n"),
            file("x", b"1"),
            vec![0; BLOCK],
        ]
        .concat(),
    ]
}

/// Returns the first inputs.
pub fn seeds() -> Vec<Vec<u8>> {
    make_archives()
        .into_iter()
        .map(|archive| [vec![0], archive].concat())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutated_archives_are_read_as_by_other_readers() {
        super::super::check_around(&seeds(), check);
    }
}
