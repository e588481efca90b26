//! One file of the log that stands before the tables: frames of changes, one after the other, each durable by one write
//! and one sync. Owns the layout, and the answer to what an unreadable end means. Refuses to know what is in the tables.
//!
//! A frame begins at a block's start, so that no write touches a block in which something acknowledged is. The space is
//! filled with zeros before, so that a write changes no size; and a frame's filling is no zero. Disks write sectors as a
//! whole: a frame that was not written to its end has a sector of zeros, and nobody was told of it. A frame that doesn't
//! match its checksum and has none is damaged, and so is one that others follow.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::{EventKind, JournalError, Record};

const MAGIC: [u8; 8] = *b"tenurlog";
/// Where frames may begin: what a file system writes at once.
pub(crate) const BLOCK: usize = 4096;
/// What a disk writes as a whole, or not.
const SECTOR: usize = 512;
/// Magic, identity, length of the body, first and last revision, checksum of the body, checksum of all that.
const HEADER: usize = 64;
/// Fills a frame's last block.
const FILLING: u8 = 0xff;

/// A file that frames are appended to.
#[derive(Debug)]
pub(crate) struct Segment {
    path: PathBuf,
    file: File,
    /// Where the next frame begins.
    position: u64,
    /// How far the file reaches; from the position on it holds zeros.
    length: u64,
}

impl Segment {
    /// An empty one of `length` bytes, in the place of whatever was there.
    pub(crate) fn create(path: &Path, length: u64) -> Result<Self, JournalError> {
        crate::store::keep_private(path)?;
        let file = File::options().read(true).write(true).open(path)?;
        file.set_len(0)?;
        let mut segment = Self {
            path: path.to_path_buf(),
            file,
            position: 0,
            length: 0,
        };
        segment.clear(length)?;
        Ok(segment)
    }

    /// Makes it empty, and `length` bytes long.
    pub(crate) fn clear(&mut self, length: u64) -> Result<(), JournalError> {
        let grows = self.length < length;
        if self.length > length {
            self.file.set_len(length)?;
            self.length = length;
        }
        self.zeros(0, self.position.min(length))?;
        self.zeros(self.length, length)?;
        if grows {
            self.file.sync_all()?;
        } else {
            self.file.sync_data()?;
        }
        (self.position, self.length) = (0, length);
        Ok(())
    }

    fn zeros(&self, from: u64, to: u64) -> Result<(), JournalError> {
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        let mut at = from;
        while at < to {
            let count = usize::try_from(to - at).map_or(ZEROS.len(), |left| left.min(ZEROS.len()));
            self.file.write_all_at(ZEROS.get(..count).unwrap_or(&ZEROS), at)?;
            at += count as u64;
        }
        Ok(())
    }

    /// Bytes that fit in without making the file longer.
    pub(crate) fn room(&self) -> u64 {
        self.length.saturating_sub(self.position)
    }

    /// Bytes of frames in it.
    pub(crate) fn used(&self) -> u64 {
        self.position
    }

    /// Makes a frame durable. After an error it may be there or not; [`Segment::take_back`] settles that.
    pub(crate) fn append(&mut self, frame: &[u8]) -> Result<(), JournalError> {
        self.file.write_all_at(frame, self.position)?;
        self.file.sync_data()?;
        self.position += frame.len() as u64;
        self.length = self.length.max(self.position);
        Ok(())
    }

    /// After a failed append: from here on nothing is in the file. It needs no space for that.
    pub(crate) fn take_back(&mut self) -> Result<(), JournalError> {
        self.file.set_len(self.position)?;
        self.file.sync_all()?;
        self.length = self.position;
        Ok(())
    }

    /// Removes the file.
    pub(crate) fn remove(self) -> Result<(), JournalError> {
        Ok(std::fs::remove_file(&self.path)?)
    }
}

/// Changes that were written together.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) first: u64,
    pub(crate) records: Vec<Record>,
}

/// A frame of `records` in the log of the store `identity`.
pub(crate) fn encode(identity: u64, records: &[Record]) -> Vec<u8> {
    let body: usize = records
        .iter()
        .map(|record| 25 + record.key.len() + record.value.len())
        .sum();
    let mut out = Vec::with_capacity((HEADER + body).next_multiple_of(BLOCK));
    out.resize(HEADER, 0);
    for record in records {
        out.push(u8::from(record.kind == EventKind::Delete));
        out.extend_from_slice(&record.revision.to_le_bytes());
        out.extend_from_slice(&(record.key.len() as u64).to_le_bytes());
        out.extend_from_slice(&(record.value.len() as u64).to_le_bytes());
        out.extend_from_slice(record.key.as_bytes());
        out.extend_from_slice(&record.value);
    }
    let (first, last) = (records.first(), records.last());
    let revision = |record: Option<&Record>| record.map_or(0, |record| record.revision);
    if let Some((header, body)) = out.split_at_mut_checked(HEADER) {
        let fields = Header {
            identity,
            length: body.len() as u64,
            first: revision(first),
            last: revision(last),
            body: digest(body),
        };
        header.copy_from_slice(&fields.encode());
    }
    out.resize(out.len().next_multiple_of(BLOCK), FILLING);
    out
}

fn digest<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let whole = Sha256::digest(bytes);
    whole.first_chunk().copied().unwrap_or([0; N])
}

#[derive(Debug, Clone, Copy)]
struct Header {
    identity: u64,
    length: u64,
    first: u64,
    last: u64,
    body: [u8; 16],
}

impl Header {
    fn encode(&self) -> [u8; HEADER] {
        let mut out = Vec::with_capacity(HEADER);
        out.extend_from_slice(&MAGIC);
        for number in [self.identity, self.length, self.first, self.last] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.body);
        let sum: [u8; 8] = digest(&out);
        out.extend_from_slice(&sum);
        out.first_chunk().copied().unwrap_or([0; HEADER])
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (fields, sum) = bytes.get(..HEADER)?.split_last_chunk::<8>()?;
        let rest = fields.strip_prefix(&MAGIC)?;
        if digest::<8>(fields) != *sum {
            return None;
        }
        let (identity, rest) = rest.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (first, rest) = rest.split_first_chunk()?;
        let (last, rest) = rest.split_first_chunk()?;
        Some(Self {
            identity: u64::from_le_bytes(*identity),
            length: u64::from_le_bytes(*length),
            first: u64::from_le_bytes(*first),
            last: u64::from_le_bytes(*last),
            body: *rest.first_chunk()?,
        })
    }

    /// Where the frame ends, if it begins at `start`, without its filling.
    fn end(&self, start: usize) -> Option<usize> {
        start
            .checked_add(HEADER)?
            .checked_add(usize::try_from(self.length).ok()?)
    }
}

/// The frames in the file at `path`, none if there is no file. Those up to the revision `known` are in the tables
/// already, and what became of them is of no interest.
pub(crate) fn read(path: &Path, identity: Option<u64>, known: u64) -> Result<Vec<Frame>, JournalError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let damaged = |what: &str| Err(JournalError::Damaged(format!("its log {name} {what}")));
    let mut frames = Vec::new();
    let (mut at, mut seen) = (0, known);
    let mut behind = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let Some(header) = Header::parse(rest) else {
            if is_unwritten(rest, 0) {
                break;
            }
            return damaged("has an unreadable part");
        };
        if identity.is_some_and(|identity| identity != header.identity) || identity.is_none() {
            return damaged("is another store's; move it away if it is not wanted");
        }
        let end = header.end(at).unwrap_or(usize::MAX);
        let body = bytes
            .get(at + HEADER..end)
            .filter(|body| digest::<16>(body) == header.body);
        match body.map(|body| parse(body, &header)) {
            Some(Some(records)) => {
                seen = seen.max(header.last);
                frames.push(Frame {
                    first: header.first,
                    records,
                });
            }
            Some(None) => return damaged("has an unreadable part"),
            None if header.last <= known => {}
            None if is_torn(&bytes, at, end) => {
                behind = 1;
                break;
            }
            None => {
                return damaged(&format!("does not match its checksum at revision {}", header.first));
            }
        }
        at = end.checked_next_multiple_of(BLOCK).unwrap_or(usize::MAX);
    }
    // A later frame was written after those before it had been acknowledged.
    let behind = bytes.chunks(BLOCK).skip(at / BLOCK + behind);
    if let Some(lost) = behind
        .filter_map(Header::parse)
        .filter(|header| identity == Some(header.identity))
        .find(|header| header.last > seen)
    {
        return damaged(&format!("has revision {} and lacks what was before it", lost.first));
    }
    Ok(frames)
}

/// Whether the sector at `at` was never written.
fn is_unwritten(bytes: &[u8], at: usize) -> bool {
    bytes.iter().skip(at).take(SECTOR).all(|byte| *byte == 0)
}

/// Whether a sector of what stands between `start` and `end` was never written.
fn is_torn(bytes: &[u8], start: usize, end: usize) -> bool {
    end > bytes.len() || (start..end).step_by(SECTOR).any(|sector| is_unwritten(bytes, sector))
}

fn parse(mut rest: &[u8], header: &Header) -> Option<Vec<Record>> {
    let mut records = Vec::new();
    while let Some((kind, after)) = rest.split_first() {
        let (revision, after) = after.split_first_chunk::<8>()?;
        let (key_length, after) = after.split_first_chunk::<8>()?;
        let (value_length, after) = after.split_first_chunk::<8>()?;
        let (key, after) = after.split_at_checked(usize::try_from(u64::from_le_bytes(*key_length)).ok()?)?;
        let (value, after) = after.split_at_checked(usize::try_from(u64::from_le_bytes(*value_length)).ok()?)?;
        records.push(Record {
            revision: u64::from_le_bytes(*revision),
            key: Arc::from(std::str::from_utf8(key).ok()?),
            kind: if *kind == 0 { EventKind::Put } else { EventKind::Delete },
            value: Bytes::copy_from_slice(value),
            previous: None,
        });
        rest = after;
    }
    let ends = |record: Option<&Record>, revision| record.is_some_and(|record| record.revision == revision);
    (ends(records.first(), header.first) && ends(records.last(), header.last)).then_some(records)
}
