//! One file of the log in front of the tables: frames of changes, one after the other. Each frame becomes durable by
//! one write and one sync. This module defines the layout, and the meaning of an unreadable end.
//!
//! A frame begins at a block's start, so that no write touches a block with acknowledged data. The space is filled
//! with zeros first, so that a write does not change the file's size, and the filling of a frame is not zero. Disks
//! write sectors as a whole: a partly written frame has a sector of zeros, and its writes were never acknowledged. A
//! frame with a wrong checksum and no such sector is damaged, and so is a partly written frame that others follow.
//!
//! The first block has the file's length. It is written after the file has that length, and before a frame is in the
//! new part. So a crash never leaves a shorter file, and such a file was cut by another program.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::{EventKind, JournalError, Record};

const MAGIC: [u8; 8] = *b"tenurlog";
/// The first bytes of the first block.
const HEAD_MAGIC: [u8; 8] = *b"tenurseg";
/// Frames begin at multiples of this size, which a file system writes at once.
pub(crate) const BLOCK: usize = 4096;
/// Position of the first frame.
const FIRST: u64 = BLOCK as u64;
/// Size that a disk writes completely or not at all.
const SECTOR: usize = 512;
/// Magic, identity, length of the body, first and last revision, checksum of the body, checksum of the header.
const HEADER: usize = 64;
/// Fills a frame's last block.
const FILLING: u8 = 0xff;
/// First length of a file of the log: enough for a store with few writes.
pub(crate) const SHORTEST: u64 = 256 << 10;
/// Bytes by which a full file grows at once, if the disk has space.
const STEP: u64 = 1 << 20;

/// An open file of the log, to which frames are appended.
#[derive(Debug)]
pub(crate) struct Segment {
    path: PathBuf,
    file: File,
    identity: u64,
    /// Position of the next frame.
    position: u64,
    /// Length of the file; the bytes after the position are zeros.
    length: u64,
    /// The end up to which a failed append may have written.
    attempted: u64,
}

impl Segment {
    /// Creates an empty file of `length` bytes in place of any previous one. The caller still has to sync the folder.
    pub(crate) fn create(path: &Path, identity: u64, length: u64) -> Result<Self, JournalError> {
        Self::make(path, identity, length, |segment, length| {
            segment.zero_range(0, length)?;
            Ok(segment.file.sync_all()?)
        })
    }

    /// Creates a file as [`Segment::create`] does. Its space is allocated and not written: that is faster, and later
    /// writes are a little slower.
    pub(crate) fn set_aside(path: &Path, identity: u64, length: u64) -> Result<Self, JournalError> {
        Self::make(path, identity, length, |segment, length| {
            allocate_zeros(&segment.file, 0, length)?;
            Ok(segment.file.sync_all()?)
        })
    }

    fn make(
        path: &Path,
        identity: u64,
        length: u64,
        fill: impl FnOnce(&Self, u64) -> Result<(), JournalError>,
    ) -> Result<Self, JournalError> {
        let length = length.max(FIRST);
        // A crash must not leave a partial file under the final name, so the file is renamed once it is complete.
        let unfinished = path.with_extension("new");
        crate::store::make_file_private(&unfinished)?;
        let file = File::options().read(true).write(true).open(&unfinished)?;
        file.set_len(0)?;
        let segment = Self {
            path: path.to_path_buf(),
            file,
            identity,
            position: FIRST,
            length,
            attempted: FIRST,
        };
        let made = fill(&segment, length)
            .and_then(|()| segment.write_head(length))
            .and_then(|()| Ok(segment.file.sync_data()?))
            .and_then(|()| Ok(std::fs::rename(&unfinished, path)?));
        if let Err(error) = made {
            let _as_it_was = std::fs::remove_file(&unfinished);
            return Err(error);
        }
        Ok(segment)
    }

    /// Empties the file and sets its length to `length` bytes. If there is no space for that, the length stays.
    pub(crate) fn clear(&mut self, length: u64) -> Result<(), JournalError> {
        let length = length.max(FIRST);
        if self.length > length {
            self.shorten(length)?;
        }
        self.zero_range(FIRST, self.position.max(self.attempted).min(self.length))?;
        if self.length < length {
            match self.extend(length) {
                Err(JournalError::Full(_)) => {}
                extended => extended?,
            }
        }
        self.file.sync_data()?;
        (self.position, self.attempted) = (FIRST, FIRST);
        Ok(())
    }

    fn write_head(&self, length: u64) -> Result<(), JournalError> {
        Ok(self.file.write_all_at(&encode_head(self.identity, length), 0)?)
    }

    /// Writes the shorter length first, and then truncates.
    fn shorten(&mut self, length: u64) -> Result<(), JournalError> {
        self.write_head(length)?;
        self.file.sync_data()?;
        self.file.set_len(length)?;
        self.file.sync_all()?;
        self.length = length;
        Ok(())
    }

    /// Extends the file first, and then writes the longer length, which becomes durable with the next sync.
    fn extend(&mut self, length: u64) -> Result<(), JournalError> {
        let grown = self
            .zero_range(self.length, length)
            .and_then(|()| Ok(self.file.sync_all()?));
        if let Err(error) = grown {
            // The file gets its previous length, which frees the space that was written before the error.
            let _kept = self.file.set_len(self.length);
            return Err(error);
        }
        self.write_head(length)?;
        self.length = length;
        Ok(())
    }

    fn zero_range(&self, from: u64, to: u64) -> Result<(), JournalError> {
        Ok(write_zeros(&self.file, from, to)?)
    }

    /// Returns the bytes that fit without extending the file.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.length.saturating_sub(self.position)
    }

    /// Returns the bytes of frames in the file.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.position - FIRST
    }

    /// Extends the file if `needed` bytes don't fit.
    pub(crate) fn make_room(&mut self, needed: u64) -> Result<(), JournalError> {
        let end = self.position + needed;
        if end <= self.length {
            return Ok(());
        }
        match self.extend(end.max(self.length + STEP)) {
            Err(JournalError::Full(_)) => self.extend(end),
            extended => extended,
        }
    }

    /// Appends a frame and makes it durable. After an error the frame may be in the file or not; [`Segment::take_back`]
    /// removes it.
    pub(crate) fn append(&mut self, frame: &[u8]) -> Result<(), JournalError> {
        let end = self.position + frame.len() as u64;
        self.attempted = end;
        self.make_room(frame.len() as u64)?;
        self.file.write_all_at(frame, self.position)?;
        self.file.sync_data()?;
        self.position = end;
        Ok(())
    }

    /// Removes a frame after a failed append, and anything after it. This needs no disk space.
    ///
    /// Data whose sync failed is never synced again: the system may have dropped the data, and report success. The data
    /// is written again, or removed.
    pub(crate) fn take_back(&mut self) -> Result<(), JournalError> {
        let written = self.attempted.min(self.length);
        let overwritten = self
            .write_head(self.length)
            .and_then(|()| self.zero_range(self.position, written))
            .and_then(|()| Ok(self.file.set_len(self.length)?))
            .and_then(|()| Ok(self.file.sync_all()?));
        if overwritten.is_err() {
            self.shorten(self.position)?;
        }
        self.attempted = self.position;
        Ok(())
    }

    /// Removes the file.
    pub(crate) fn remove(self) -> Result<(), JournalError> {
        Ok(std::fs::remove_file(&self.path)?)
    }
}

/// Allocates disk space for the bytes of a file from `from` to `to`. The new bytes read as zeros.
pub(crate) fn allocate_zeros(file: &File, from: u64, to: u64) -> std::io::Result<()> {
    match fs4::fs_std::FileExt::allocate(file, to) {
        // A file system without allocation gets written zeros instead.
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => write_zeros(file, from, to),
        allocated => allocated,
    }
}

fn write_zeros(file: &File, from: u64, to: u64) -> std::io::Result<()> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    let mut at = from;
    while at < to {
        let count = usize::try_from(to - at).map_or(ZEROS.len(), |left| left.min(ZEROS.len()));
        file.write_all_at(ZEROS.get(..count).unwrap_or(&ZEROS), at)?;
        at += count as u64;
    }
    Ok(())
}

fn encode_head(identity: u64, length: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(32);
    out.extend_from_slice(&HEAD_MAGIC);
    out.extend_from_slice(&identity.to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
    let sum: [u8; 8] = short_digest(&out);
    out.extend_from_slice(&sum);
    out
}

/// Returns identity and length from the first block.
fn parse_head(bytes: &[u8]) -> Option<(u64, u64)> {
    let (fields, sum) = bytes.get(..32)?.split_last_chunk::<8>()?;
    let rest = fields.strip_prefix(&HEAD_MAGIC)?;
    if short_digest::<8>(fields) != *sum {
        return None;
    }
    let (identity, length) = rest.split_first_chunk::<8>()?;
    Some((
        u64::from_le_bytes(*identity),
        u64::from_le_bytes(*length.first_chunk()?),
    ))
}

/// The records that one append wrote together.
#[derive(Debug)]
pub(crate) struct Frame {
    /// The revision of the first record.
    pub(crate) first: u64,
    pub(crate) records: Vec<Record>,
}

/// Encodes `records` as a frame in the log of the store `identity`.
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
            body: short_digest(body),
        };
        header.copy_from_slice(&fields.encode());
    }
    out.resize(out.len().next_multiple_of(BLOCK), FILLING);
    out
}

fn short_digest<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let whole = Sha256::digest(bytes);
    whole.first_chunk().copied().unwrap_or([0; N])
}

/// The fixed-size beginning of a frame, with its own checksum.
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
        let sum: [u8; 8] = short_digest(&out);
        out.extend_from_slice(&sum);
        out.first_chunk().copied().unwrap_or([0; HEADER])
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (fields, sum) = bytes.get(..HEADER)?.split_last_chunk::<8>()?;
        let rest = fields.strip_prefix(&MAGIC)?;
        if short_digest::<8>(fields) != *sum {
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

    /// Returns the end of a frame that begins at `start`, without its filling.
    fn find_end(&self, start: usize) -> Option<usize> {
        start
            .checked_add(HEADER)?
            .checked_add(usize::try_from(self.length).ok()?)
    }
}

/// The properties that a reader expects of each file of the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected {
    /// The store's identity.
    pub(crate) identity: Option<u64>,
    /// The tables have all changes up to this revision, so frames up to there may be damaged.
    pub(crate) known: u64,
    /// Whether the first block has the length of the file. Programs before format 3 did not write the length.
    pub(crate) headed: bool,
}

/// Returns the frames in the file at `path`; `None` if the file is missing.
pub(crate) fn read(path: &Path, expected: Expected) -> Result<Option<Vec<Frame>>, JournalError> {
    let Expected { identity, known, .. } = expected;
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let damaged = |what: &str| Err(JournalError::Damaged(format!("its log {name} {what}")));
    let other = "is another store's; move it away if it is not wanted";
    let first = match parse_head(&bytes) {
        Some((owner, _)) if identity.is_some_and(|identity| identity != owner) => return damaged(other),
        Some((_, length)) if (bytes.len() as u64) < length => {
            return damaged(&format!(
                "was cut short: {} of its {length} bytes are there, and a crash takes none away; put the whole file back if you have it",
                bytes.len()
            ));
        }
        Some(_) => BLOCK,
        None if expected.headed && bytes.len() < BLOCK => {
            return damaged(&format!(
                "was cut short: {} bytes of it are there, and a crash takes none away; put the whole file back if you have it",
                bytes.len()
            ));
        }
        None if expected.headed => return damaged("has an unreadable beginning"),
        None => 0,
    };
    let mut frames = Vec::new();
    let (mut at, mut seen) = (first, known);
    let mut behind = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let Some(header) = Header::parse(rest) else {
            if is_unwritten(rest, 0) {
                break;
            }
            return damaged("has an unreadable part");
        };
        if identity.is_some_and(|identity| identity != header.identity) || identity.is_none() {
            return damaged(other);
        }
        let end = header.find_end(at).unwrap_or(usize::MAX);
        let body = bytes
            .get(at + HEADER..end)
            .filter(|body| short_digest::<16>(body) == header.body);
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
            None if is_torn(&bytes, at, end, first > 0) => {
                behind = 1;
                break;
            }
            None => {
                return damaged(&format!("does not match its checksum at revision {}", header.first));
            }
        }
        at = end.checked_next_multiple_of(BLOCK).unwrap_or(usize::MAX);
    }
    // A later frame was written after all earlier ones had been acknowledged.
    let behind = bytes.chunks(BLOCK).skip(at / BLOCK + behind);
    if let Some(lost) = behind
        .filter_map(Header::parse)
        .filter(|header| identity == Some(header.identity))
        .find(|header| header.last > seen)
    {
        return damaged(&format!("has revision {} and lacks what was before it", lost.first));
    }
    Ok(Some(frames))
}

/// Checks whether the sector at `at` was never written.
fn is_unwritten(bytes: &[u8], at: usize) -> bool {
    bytes.iter().skip(at).take(SECTOR).all(|byte| *byte == 0)
}

/// Checks whether a sector between `start` and `end` was never written. A file of an older program grows by a frame,
/// so it may end within one.
fn is_torn(bytes: &[u8], start: usize, end: usize, headed: bool) -> bool {
    if end > bytes.len() {
        return !headed;
    }
    (start..end).step_by(SECTOR).any(|sector| is_unwritten(bytes, sector))
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
