//! Reads a pack file: entry headers and inflated data. The file is never mapped or read as a whole.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use flate2::{Decompress, FlushDecompress, Status};

use super::oid::{Algorithm, Oid};

/// The kind of a pack's entry: a complete object, or a delta to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    Commit,
    Tree,
    Blob,
    Tag,
    /// A delta to the entry at this offset.
    OffsetDelta(u64),
    /// A delta to the object of this id.
    ReferenceDelta(Oid),
}

/// Why the bytes of a pack file can't be read.
#[derive(Debug)]
pub(crate) enum ScanError {
    Io(io::Error),
    Malformed(&'static str),
}

impl From<io::Error> for ScanError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The error for an object whose inflated length differs from the declared one.
const WRONG: ScanError = ScanError::Malformed("an object is not as long as it says");
/// Bytes that are inflated at a time.
const PIECE: usize = 8 << 10;

/// A reader of a pack file at any position.
pub(crate) struct Scanner<'a> {
    file: &'a File,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    position: u64,
    inflate: &'a mut Decompress,
}

impl<'a> Scanner<'a> {
    /// Creates a scanner at this position. It borrows the inflater, because creating one is expensive.
    pub(crate) fn at_position(file: &'a File, position: u64, buffer_size: usize, inflate: &'a mut Decompress) -> Self {
        Self {
            file,
            buffer: vec![0; buffer_size],
            start: 0,
            end: 0,
            position,
            inflate,
        }
    }

    /// Returns the position of the next byte in the file.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Returns the buffered bytes, after filling an empty buffer from the file.
    fn fill(&mut self) -> Result<&[u8], ScanError> {
        if self.start == self.end {
            self.end = self.file.read_at(&mut self.buffer, self.position)?;
            self.start = 0;
        }
        self.buffer
            .get(self.start..self.end)
            .ok_or(ScanError::Malformed("it is cut off"))
    }

    fn consume(&mut self, count: usize) {
        self.start += count;
        self.position += count as u64;
    }

    fn read_byte(&mut self) -> Result<u8, ScanError> {
        let byte = *self.fill()?.first().ok_or(ScanError::Malformed("it is cut off"))?;
        self.consume(1);
        Ok(byte)
    }

    /// Reads a fixed number of bytes.
    pub(crate) fn read_bytes<const N: usize>(&mut self) -> Result<[u8; N], ScanError> {
        let mut bytes = [0; N];
        for byte in &mut bytes {
            *byte = self.read_byte()?;
        }
        Ok(bytes)
    }

    /// Reads an entry's header: its kind and inflated size.
    pub(crate) fn read_header(&mut self, algorithm: Algorithm) -> Result<(EntryKind, u64), ScanError> {
        let start = self.position;
        let mut byte = self.read_byte()?;
        let kind = (byte >> 4) & 7;
        let mut size = u64::from(byte & 0x0f);
        let mut shift = 4_u32;
        while byte & 0x80 != 0 {
            byte = self.read_byte()?;
            if shift > 56 {
                return Err(ScanError::Malformed("an object has an endless size"));
            }
            size |= u64::from(byte & 0x7f) << shift;
            shift += 7;
        }
        let kind = match kind {
            1 => EntryKind::Commit,
            2 => EntryKind::Tree,
            3 => EntryKind::Blob,
            4 => EntryKind::Tag,
            6 => {
                let mut byte = self.read_byte()?;
                let mut back = u64::from(byte & 0x7f);
                while byte & 0x80 != 0 {
                    byte = self.read_byte()?;
                    back = back
                        .checked_add(1)
                        .and_then(|back| back.checked_mul(128))
                        .ok_or(ScanError::Malformed("a delta has an endless offset"))?
                        | u64::from(byte & 0x7f);
                }
                let base = start.checked_sub(back).filter(|_| back > 0);
                EntryKind::OffsetDelta(base.ok_or(ScanError::Malformed("a delta's base lies before the pack"))?)
            }
            7 => {
                let mut bytes = Vec::with_capacity(algorithm.length());
                for _ in 0..algorithm.length() {
                    bytes.push(self.read_byte()?);
                }
                EntryKind::ReferenceDelta(Oid::from_bytes(&bytes).ok_or(ScanError::Malformed("a delta has no base"))?)
            }
            _ => return Err(ScanError::Malformed("an entry is of an unknown kind")),
        };
        Ok((kind, size))
    }

    /// Inflates an entry that must give exactly this many bytes. The caller has checked the size against its limits.
    pub(crate) fn inflate(&mut self, size: u64) -> Result<Vec<u8>, ScanError> {
        let mut out = Vec::with_capacity(usize::try_from(size).map_err(|_| WRONG)?);
        self.inflate_pieces(size, |piece| out.extend_from_slice(piece))?;
        Ok(out)
    }

    /// Inflates an entry that must give exactly this many bytes, and passes them on piece by piece.
    pub(crate) fn inflate_pieces(&mut self, size: u64, mut take: impl FnMut(&[u8])) -> Result<(), ScanError> {
        let mut piece = [0_u8; PIECE];
        let mut left = size;
        self.inflate.reset(true);
        loop {
            let position = self.position;
            if self.fill()?.is_empty() {
                return Err(ScanError::Malformed("it is cut off"));
            }
            let (before_in, before_out) = (self.inflate.total_in(), self.inflate.total_out());
            let input = self.buffer.get(self.start..self.end).unwrap_or_default();
            // At least one byte of space, even at the end: an extra byte would be an error, and an empty object needs space to end.
            let room = usize::try_from(left).unwrap_or(PIECE).clamp(1, PIECE);
            let out = piece.get_mut(..room).unwrap_or_default();
            let status = self
                .inflate
                .decompress(input, out, FlushDecompress::None)
                .map_err(|_| ScanError::Malformed("an object can't be inflated"))?;
            let consumed = usize::try_from(self.inflate.total_in() - before_in).map_err(|_| WRONG)?;
            let produced = self.inflate.total_out() - before_out;
            self.consume(consumed);
            left = left.checked_sub(produced).ok_or(WRONG)?;
            take(
                piece
                    .get(..usize::try_from(produced).map_err(|_| WRONG)?)
                    .unwrap_or_default(),
            );
            match status {
                Status::StreamEnd if left == 0 => return Ok(()),
                Status::StreamEnd => return Err(WRONG),
                _ if produced == 0 && self.position == position => {
                    return Err(ScanError::Malformed("an object can't be inflated"));
                }
                _ => {}
            }
        }
    }
}
