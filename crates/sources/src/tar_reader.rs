//! Reads tar archives of others piece by piece.
//!
//! An entry is a file, a folder or a symbolic link, with a name in ustar's, GNU's or PAX's form. Everything that tar readers interpret differently is refused (a size
//! or a name that is declared twice or for all entries, links with content, sparse files). So are hard links and devices, and names that are longer than any path. No content is held in memory.

use std::io::{self, Read};

use tar::{EntryType, Header};

/// A block of an archive.
const BLOCK: usize = 512;
/// The longest headers of one entry, in bytes.
const HEADER_BYTES: u64 = 64 << 10;

/// Why a tar archive can't be read.
#[derive(Debug)]
pub(crate) enum TarError {
    /// The problem of the archive.
    Invalid(String),
    /// The archive could not be read from its source.
    Io(io::Error),
}

impl From<io::Error> for TarError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return Self::Invalid("it is cut off".to_owned());
        }
        Self::Io(error)
    }
}

/// An entry of an archive.
#[derive(Debug)]
pub(crate) struct TarEntry {
    /// The path without `./` in front and `/` at the end; otherwise as written, and not checked.
    pub(crate) path: String,
    /// Whether the written path is UTF-8. If not, [`Self::path`] has the replacement character in it.
    pub(crate) is_text: bool,
    pub(crate) kind: TarKind,
}

/// The kind of an entry.
#[derive(Debug)]
pub(crate) enum TarKind {
    File {
        size: u64,
        is_executable: bool,
    },
    Folder,
    /// The target of the link, as written.
    Link(Vec<u8>),
}

/// Reads the entries of a tar archive one after the other.
pub(crate) struct TarReader<R> {
    inner: R,
    /// Bytes of the entry's content that were not read yet, and of the padding of its last block.
    content: u64,
    filling: u64,
}

/// Records before an entry that extend its header.
#[derive(Default)]
struct Extensions {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    /// Whether one of the records was a header of PAX, and whether there was any record.
    has_pax: bool,
    is_there: bool,
}

/// Sets a value that may be declared once. Readers differ about which of two counts.
fn set_once<T>(place: &mut Option<T>, value: T, what: &str) -> Result<(), TarError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(TarError::Invalid(format!("an entry has two {what}"))),
    }
}

impl<R: Read> TarReader<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self {
            inner,
            content: 0,
            filling: 0,
        }
    }

    /// Returns the inner reader.
    pub(crate) fn inner(&self) -> &R {
        &self.inner
    }

    /// Reads the next entry, and skips unread content of the previous one. Refuses a path that is not UTF-8.
    pub(crate) fn next(&mut self) -> Result<Option<TarEntry>, TarError> {
        let entry = self.next_of_any_name()?;
        if entry.as_ref().is_some_and(|entry| !entry.is_text) {
            return Err(TarError::Invalid("a path is not UTF-8".to_owned()));
        }
        Ok(entry)
    }

    /// Reads the next entry; its path may be any bytes.
    pub(crate) fn next_of_any_name(&mut self) -> Result<Option<TarEntry>, TarError> {
        let invalid = |problem: &str| TarError::Invalid(problem.to_owned());
        let mut extensions = Extensions::default();
        let mut headers = 0_u64;
        loop {
            self.skip_content()?;
            let mut header = Header::new_old();
            self.inner.read_exact(header.as_mut_bytes())?;
            if header.as_bytes().iter().all(|byte| *byte == 0) {
                if extensions.is_there {
                    return Err(invalid("it ends after a header of an entry that is missing"));
                }
                return Ok(None);
            }
            if !is_sum_right(&header) {
                return Err(invalid("it is no tar archive, or damaged"));
            }
            let size = header.entry_size().map_err(|_| invalid("an entry has no size"))?;
            self.content = size;
            let whole = size.checked_next_multiple_of(BLOCK as u64);
            let whole = whole.ok_or_else(|| invalid("an entry is larger than any archive"))?;
            self.filling = whole.saturating_sub(size);
            let kind = header.entry_type();
            if matches!(
                kind,
                EntryType::GNULongName | EntryType::GNULongLink | EntryType::XHeader | EntryType::XGlobalHeader
            ) {
                if header.as_ustar().is_none() && header.as_gnu().is_none() {
                    return Err(invalid("an entry has a header in a form older than such headers"));
                }
                headers = headers.saturating_add(size).saturating_add(BLOCK as u64);
                if headers > HEADER_BYTES {
                    return Err(invalid("an entry has headers of more than 64 KiB"));
                }
                let mut text = Vec::new();
                self.read_to_end(&mut text)?;
                self.read_extension(&mut extensions, kind, text)?;
                continue;
            }
            return self.make_entry(&header, extensions).map(Some);
        }
    }

    /// Reads the content of a record that extends the header of the next entry.
    fn read_extension(&self, extensions: &mut Extensions, kind: EntryType, text: Vec<u8>) -> Result<(), TarError> {
        let invalid = |problem: &str| TarError::Invalid(problem.to_owned());
        let is_global = kind == EntryType::XGlobalHeader;
        extensions.is_there |= !is_global;
        match kind {
            EntryType::GNULongName => return set_once(&mut extensions.path, read_long_name(text)?, "names"),
            EntryType::GNULongLink => return set_once(&mut extensions.link, read_long_name(text)?, "targets"),
            EntryType::XHeader if std::mem::replace(&mut extensions.has_pax, true) => {
                return Err(invalid("an entry has two headers of PAX"));
            }
            _ => {}
        }
        for (key, value) in read_records(&text)? {
            match key {
                // In practice a global header has a comment.
                b"path" | b"linkpath" | b"size" if is_global => {
                    return Err(invalid("a name or a size is declared for all entries"));
                }
                b"path" => set_once(&mut extensions.path, value.to_vec(), "names")?,
                b"linkpath" => set_once(&mut extensions.link, value.to_vec(), "targets")?,
                b"size" => {
                    let size = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                    let size = size.ok_or_else(|| invalid("an entry has a size that is no number"))?;
                    set_once(&mut extensions.size, size, "sizes")?;
                }
                key if key.starts_with(b"GNU.sparse.") => return Err(invalid("an entry is a sparse file")),
                _ => {}
            }
        }
        Ok(())
    }

    fn make_entry(&self, header: &Header, extensions: Extensions) -> Result<TarEntry, TarError> {
        let path = extensions.path.unwrap_or_else(|| header.path_bytes().into_owned());
        let is_text = std::str::from_utf8(&path).is_ok();
        let path = String::from_utf8_lossy(&path);
        let invalid = |problem: &str| TarError::Invalid(format!("{path:?} {problem}"));
        if extensions.size.is_some_and(|size| size != self.content) {
            return Err(invalid("has two sizes"));
        }
        let kind = match header.entry_type() {
            EntryType::Regular => TarKind::File {
                size: self.content,
                is_executable: header.mode().unwrap_or_default() & 0o111 != 0,
            },
            EntryType::Directory if self.content == 0 => TarKind::Folder,
            EntryType::Symlink if self.content == 0 => {
                let link = extensions
                    .link
                    .or_else(|| header.link_name_bytes().map(std::borrow::Cow::into_owned));
                TarKind::Link(link.unwrap_or_default())
            }
            EntryType::Directory | EntryType::Symlink => return Err(invalid("is no file and has content")),
            other => return Err(invalid(&format!("is neither a file nor a link but {other:?}"))),
        };
        let mut rest = path.as_ref();
        while let Some(inner) = rest.strip_prefix("./") {
            rest = inner;
        }
        if matches!(kind, TarKind::Folder) {
            rest = rest.strip_suffix('/').unwrap_or(rest);
        }
        Ok(TarEntry {
            path: rest.to_owned(),
            is_text,
            kind,
        })
    }

    /// Skips the unread content of the current entry, and its padding.
    fn skip_content(&mut self) -> Result<(), TarError> {
        let left = self.content.saturating_add(self.filling);
        let skipped = io::copy(&mut self.inner.by_ref().take(left), &mut io::sink())?;
        if skipped != left {
            return Err(TarError::Invalid("it is cut off".to_owned()));
        }
        (self.content, self.filling) = (0, 0);
        Ok(())
    }
}

impl<R: Read> Read for TarReader<R> {
    /// Reads the content of the entry.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.content == 0 {
            return Ok(0);
        }
        let read = self.inner.by_ref().take(self.content).read(buffer)?;
        if read == 0 && !buffer.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.content -= read as u64;
        Ok(read)
    }
}

/// Checks whether the checksum in a header is right.
fn is_sum_right(header: &Header) -> bool {
    let bytes = header.as_bytes();
    // The checksum field itself counts as spaces.
    let sum: u32 = bytes
        .iter()
        .enumerate()
        .map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u32::from(*byte) })
        .sum();
    header.cksum().is_ok_and(|stored| stored == sum)
}

/// Reads a name in GNU's form: all bytes up to the zero at the end.
fn read_long_name(mut text: Vec<u8>) -> Result<Vec<u8>, TarError> {
    text.pop_if(|last| *last == 0);
    if text.contains(&0) {
        return Err(TarError::Invalid("a name has a zero byte in it".to_owned()));
    }
    Ok(text)
}

/// The key and the value of a record in a PAX header.
pub(crate) type Record<'t> = (&'t [u8], &'t [u8]);

/// Reads the records of PAX: `<length> <key>=<value>\n`.
pub(crate) fn read_records(text: &[u8]) -> Result<Vec<Record<'_>>, TarError> {
    let invalid = || TarError::Invalid("an entry has a header that can't be read".to_owned());
    let mut records = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let space = rest.iter().position(|byte| *byte == b' ').ok_or_else(invalid)?;
        let length = rest.get(..space).and_then(|digits| std::str::from_utf8(digits).ok());
        let length: usize = length.and_then(|digits| digits.parse().ok()).ok_or_else(invalid)?;
        let record = rest
            .get(space + 1..length)
            .and_then(|record| record.strip_suffix(b"\n"));
        let record = record.ok_or_else(invalid)?;
        let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(invalid)?;
        let (key, value) = record.split_at(equals);
        records.push((key, value.get(1..).unwrap_or_default()));
        rest = rest.get(length..).unwrap_or_default();
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, kind: EntryType, content: &[u8]) -> Vec<u8> {
        let mut header = Header::new_ustar();
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        header.set_cksum();
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
        bytes
    }

    fn list(parts: &[Vec<u8>]) -> Result<Vec<String>, String> {
        let archive = [parts.concat(), vec![0; 1024]].concat();
        read(&archive)
    }

    fn read(archive: &[u8]) -> Result<Vec<String>, String> {
        let mut reader = TarReader::new(archive);
        let mut found = Vec::new();
        loop {
            let entry = match reader.next() {
                Ok(Some(entry)) => entry,
                Ok(None) => return Ok(found),
                Err(TarError::Invalid(problem)) => return Err(problem),
                Err(TarError::Io(error)) => return Err(error.to_string()),
            };
            let mut content = String::new();
            reader.read_to_string(&mut content).map_err(|error| error.to_string())?;
            found.push(format!("{} {:?} {content}", entry.path, entry.kind));
        }
    }

    #[test]
    fn names_come_in_three_forms() {
        let long = "a/".repeat(100) + "b";
        let record = format!("path={long}\n");
        let record = format!("{} {record}", record.len() + 4);
        let found = list(&[
            entry("./", EntryType::Directory, b""),
            entry("./x/", EntryType::Directory, b""),
            entry("./x/a", EntryType::Regular, b"one"),
            entry("longname", EntryType::GNULongName, format!("{long}\0").as_bytes()),
            entry("a", EntryType::Regular, b"two"),
            entry("comment", EntryType::XGlobalHeader, b"16 comment=abcd\n"),
            entry("pax", EntryType::XHeader, record.as_bytes()),
            entry("a", EntryType::Regular, b"three"),
        ]);
        assert_eq!(
            found.unwrap(),
            [
                " Folder ".to_owned(),
                "x Folder ".to_owned(),
                "x/a File { size: 3, is_executable: false } one".to_owned(),
                format!("{long} File {{ size: 3, is_executable: false }} two"),
                format!("{long} File {{ size: 5, is_executable: false }} three"),
            ]
        );
    }

    /// Found beside the crate tar: each of these archives had other names, other content or an end elsewhere for other readers.
    #[test]
    fn duplicate_names_and_sizes_are_refused() {
        let long = |name: &[u8]| entry("././@LongLink", EntryType::GNULongName, name);
        let pax = |records: &[u8]| entry("pax", EntryType::XHeader, records);
        let file = || entry("a", EntryType::Regular, b"two");
        let mut oldest = Header::new_old();
        oldest.set_entry_type(EntryType::GNULongName);
        oldest.set_size(0);
        oldest.set_cksum();
        let cases = [
            (vec![long(b"one\0"), pax(b"12 path=two\n"), file()], "two names"),
            (vec![pax(b"12 path=two\n"), long(b"one\0"), file()], "two names"),
            (vec![long(b"one\0"), long(b"two\0"), file()], "two names"),
            (vec![pax(b"12 path=one\n12 path=two\n"), file()], "two names"),
            (vec![pax(b"12 path=one\n"), pax(b"11 mtime=1\n"), file()], "two headers"),
            (vec![pax(b"9 size=3\n9 size=3\n"), file()], "two sizes"),
            (
                vec![entry("g", EntryType::XGlobalHeader, b"12 path=two\n"), file()],
                "for all entries",
            ),
            (
                vec![entry("g", EntryType::XGlobalHeader, b"9 size=1\n"), file()],
                "for all entries",
            ),
            (vec![long(b"one\0more\0"), file()], "zero byte"),
            (vec![oldest.as_bytes().to_vec(), file()], "older than"),
            (vec![file(), long(b"one\0")], "ends after a header"),
            (vec![file(), pax(b"12 path=one\n")], "ends after a header"),
        ];
        for (parts, problem) in cases {
            let error = list(&parts).unwrap_err();
            assert!(error.contains(problem), "{problem}: {error}");
        }
    }

    /// The next multiple of a block is no number of 64 bits.
    #[test]
    fn sizes_have_a_bound() {
        for size in [u64::MAX, u64::MAX - 510, 1 << 63] {
            for kind in [EntryType::Regular, EntryType::XHeader, EntryType::XGlobalHeader] {
                let mut header = Header::new_gnu();
                header.set_entry_type(kind);
                header.set_size(size);
                header.set_cksum();
                let archive = [header.as_bytes().as_slice(), &[0; 1024]].concat();
                assert!(read(&archive).is_err(), "{size} {kind:?}");
            }
        }
    }

    #[test]
    fn ambiguous_archives_are_refused() {
        let comment = format!("600 comment={}\n", "1".repeat(587));
        for (parts, problem) in [
            (
                vec![
                    entry("pax", EntryType::XHeader, b"9 size=1\n"),
                    entry("a", EntryType::Regular, b"two"),
                ],
                "two sizes",
            ),
            (
                vec![
                    entry("pax", EntryType::XHeader, b"22 GNU.sparse.major=1\n"),
                    entry("a", EntryType::Regular, b""),
                ],
                "sparse",
            ),
            (
                vec![
                    entry("pax", EntryType::XHeader, b"99 path=x\n"),
                    entry("a", EntryType::Regular, b""),
                ],
                "can't be read",
            ),
            (vec![entry("a", EntryType::Symlink, b"x")], "is no file and has content"),
            (vec![entry("a", EntryType::Link, b"")], "neither a file nor a link"),
            (vec![entry("a", EntryType::Char, b"")], "neither a file nor a link"),
            (vec![entry("a", EntryType::Fifo, b"")], "neither a file nor a link"),
            (
                vec![entry("l", EntryType::GNULongName, &vec![b'a'; 70_000])],
                "more than 64 KiB",
            ),
            (
                vec![entry("l", EntryType::XGlobalHeader, comment.as_bytes()); 100],
                "more than 64 KiB",
            ),
        ] {
            let error = list(&parts).unwrap_err();
            assert!(error.contains(problem), "{error}");
        }
        let whole = entry("a", EntryType::Regular, b"x");
        assert_eq!(read(&whole).unwrap_err(), "it is cut off", "without an end");
        assert_eq!(read(&whole[..513]).unwrap_err(), "it is cut off");
        assert_eq!(read(&whole[..512]).unwrap_err(), "unexpected end of file");
        let mut damaged = [whole, vec![0; 1024]].concat();
        damaged[0] = b'b';
        assert!(read(&damaged).unwrap_err().contains("damaged"));
    }
}
