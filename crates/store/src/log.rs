//! One file of the log that stands before the tables: frames of changes, one after the other, each durable by one write
//! and one sync. Owns the layout, and the answer to what an unreadable end means. Refuses to know what is in the tables.
//!
//! A frame begins at a block's start, so that no write touches a block in which something acknowledged is. The space is
//! filled with zeros before, so that a write changes no size; and a frame's filling is no zero. Disks write sectors as a
//! whole: a frame that was not written to its end has a sector of zeros, and nobody was told of it. A frame that doesn't
//! match its checksum and has none is damaged, and so is one that others follow.
//!
//! The first block says how long the file is. It says so only once it is true, and before a frame is in the part that it
//! speaks of: a crash never leaves a file that is shorter than that, so such a file was cut by somebody else.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::{EventKind, JournalError, Record};

const MAGIC: [u8; 8] = *b"tenurlog";
/// What the first block begins with.
const HEAD_MAGIC: [u8; 8] = *b"tenurseg";
/// Where frames may begin: what a file system writes at once.
pub(crate) const BLOCK: usize = 4096;
/// Where the first frame begins.
const FIRST: u64 = BLOCK as u64;
/// What a disk writes as a whole, or not.
const SECTOR: usize = 512;
/// Magic, identity, length of the body, first and last revision, checksum of the body, checksum of all that.
const HEADER: usize = 64;
/// Fills a frame's last block.
const FILLING: u8 = 0xff;
/// How long a file of the log is at first: enough for a store that is hardly written to.
pub(crate) const SHORTEST: u64 = 256 << 10;
/// How much longer a file gets at a time when it has to, where there is space.
const STEP: u64 = 1 << 20;

/// A file that frames are appended to.
#[derive(Debug)]
pub(crate) struct Segment {
    path: PathBuf,
    file: File,
    identity: u64,
    /// Where the next frame begins.
    position: u64,
    /// How far the file reaches; from the position on it holds zeros.
    length: u64,
    /// How far an append that failed may have written.
    attempted: u64,
}

impl Segment {
    /// An empty one of `length` bytes, in the place of whatever was there. The folder has still to be synced.
    pub(crate) fn create(path: &Path, identity: u64, length: u64) -> Result<Self, JournalError> {
        Self::make(path, identity, length, |segment, length| {
            segment.zeros(0, length)?;
            Ok(segment.file.sync_all()?)
        })
    }

    /// The same with space that is only set aside: cheap to make, and a little slower to write to.
    pub(crate) fn set_aside(path: &Path, identity: u64, length: u64) -> Result<Self, JournalError> {
        Self::make(path, identity, length, |segment, length| {
            allocate(&segment.file, 0, length)?;
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
        // Under its name there is never one that is not whole.
        let unfinished = path.with_extension("new");
        crate::store::keep_private(&unfinished)?;
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

    /// Makes it empty, and `length` bytes long; where there is no space for that, as long as it is.
    pub(crate) fn clear(&mut self, length: u64) -> Result<(), JournalError> {
        let length = length.max(FIRST);
        if self.length > length {
            self.shorten(length)?;
        }
        self.zeros(FIRST, self.position.max(self.attempted).min(self.length))?;
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

    /// Says first that it is shorter, and then makes it so.
    fn shorten(&mut self, length: u64) -> Result<(), JournalError> {
        self.write_head(length)?;
        self.file.sync_data()?;
        self.file.set_len(length)?;
        self.file.sync_all()?;
        self.length = length;
        Ok(())
    }

    /// Makes it longer, and then says so; that is on disk with whatever is synced next.
    fn extend(&mut self, length: u64) -> Result<(), JournalError> {
        let grown = self.zeros(self.length, length).and_then(|()| Ok(self.file.sync_all()?));
        if let Err(error) = grown {
            // What little space there was is given back.
            let _kept = self.file.set_len(self.length);
            return Err(error);
        }
        self.write_head(length)?;
        self.length = length;
        Ok(())
    }

    fn zeros(&self, from: u64, to: u64) -> Result<(), JournalError> {
        Ok(write_zeros(&self.file, from, to)?)
    }

    /// Bytes that fit in without making the file longer.
    pub(crate) fn room(&self) -> u64 {
        self.length.saturating_sub(self.position)
    }

    /// Bytes of frames in it.
    pub(crate) fn used(&self) -> u64 {
        self.position - FIRST
    }

    /// Sees to it that `needed` bytes fit in without making the file longer.
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

    /// Makes a frame durable. After an error it may be there or not; [`Segment::take_back`] settles that.
    pub(crate) fn append(&mut self, frame: &[u8]) -> Result<(), JournalError> {
        let end = self.position + frame.len() as u64;
        self.attempted = end;
        self.make_room(frame.len() as u64)?;
        self.file.write_all_at(frame, self.position)?;
        self.file.sync_data()?;
        self.position = end;
        Ok(())
    }

    /// After a failed append: from here on nothing is in the file. It needs no space for that.
    ///
    /// What could not be synced is never synced once more: the system may have forgotten it by then and say that all is
    /// well. It is written anew, or no longer there.
    pub(crate) fn take_back(&mut self) -> Result<(), JournalError> {
        let written = self.attempted.min(self.length);
        let overwritten = self
            .write_head(self.length)
            .and_then(|()| self.zeros(self.position, written))
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

/// Makes a file longer, with space on the disk for all of it, which reads as zeros.
pub(crate) fn allocate(file: &File, from: u64, to: u64) -> std::io::Result<()> {
    match fs4::fs_std::FileExt::allocate(file, to) {
        // Not every file system can; then it is written.
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
    let sum: [u8; 8] = digest(&out);
    out.extend_from_slice(&sum);
    out
}

/// Identity and length, as the first block says them.
fn parse_head(bytes: &[u8]) -> Option<(u64, u64)> {
    let (fields, sum) = bytes.get(..32)?.split_last_chunk::<8>()?;
    let rest = fields.strip_prefix(&HEAD_MAGIC)?;
    if digest::<8>(fields) != *sum {
        return None;
    }
    let (identity, length) = rest.split_first_chunk::<8>()?;
    Some((
        u64::from_le_bytes(*identity),
        u64::from_le_bytes(*length.first_chunk()?),
    ))
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

/// What a file of the log must be to be believed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected {
    /// Whose it is.
    pub(crate) identity: Option<u64>,
    /// Up to this revision everything is in the tables already, and what became of it here is of no interest.
    pub(crate) known: u64,
    /// Whether it says how long it is; those of older programs don't.
    pub(crate) headed: bool,
}

/// The frames in the file at `path`; `None` if there is no file.
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
    // A later frame was written after those before it had been acknowledged.
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

/// Whether the sector at `at` was never written.
fn is_unwritten(bytes: &[u8], at: usize) -> bool {
    bytes.iter().skip(at).take(SECTOR).all(|byte| *byte == 0)
}

/// Whether a sector of what stands between `start` and `end` was never written. A file of an older program grows by a frame,
/// so that it may end within one.
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
