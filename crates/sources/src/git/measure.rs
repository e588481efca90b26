//! Measures the cost of a received pack in one pass that stores only sums.
//!
//! The caller acquires this much memory at once before it indexes the pack. The sums trust the sizes that deltas declare: applying a delta with another result fails.

use std::fs::File;
use std::sync::atomic::AtomicBool;

use flate2::Decompress;

use super::delta;
use super::oid::Algorithm;
use super::pack::{PackError, check, check_size, read_header};
use super::scan::{EntryKind, Scanner};
use crate::limits::Limits;

/// Bytes of an object in the tables of an indexed pack.
const ENTRY_BYTES: u64 = 128;
/// Bytes of the buffers, the same for every pack.
const BUFFERS: u64 = 256 << 10;
/// Bytes of objects that may be cached for reuse.
const CACHE_BYTES: u64 = 16 << 20;

/// The memory and work that indexing a received pack takes: its number of objects and their sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Measure {
    /// The number of objects.
    pub(crate) objects: u32,
    /// Bytes that producing the most expensive object takes: itself, and its delta and base if it has them.
    pub(crate) largest: u64,
    /// Bytes of all objects.
    pub(crate) total: u64,
}

impl Measure {
    /// Reads a pack once and measures it.
    pub(crate) fn from_pack(
        file: &File,
        algorithm: Algorithm,
        limits: &Limits,
        cancelled: &AtomicBool,
    ) -> Result<Self, PackError> {
        let mut inflate = Decompress::new(true);
        let mut scanner = Scanner::at_position(file, 0, 64 << 10, &mut inflate);
        let objects = read_header(&mut scanner, limits)?;
        let (mut largest, mut total) = (0_u64, 0_u64);
        for _ in 0..objects {
            check(cancelled)?;
            let (kind, size) = scanner.read_header(algorithm)?;
            check_size(size, &mut total, limits)?;
            let mut head = Vec::with_capacity(delta::HEAD);
            scanner.inflate_pieces(size, |piece| {
                let more = delta::HEAD.saturating_sub(head.len());
                head.extend(piece.iter().take(more));
            })?;
            let held = match kind {
                EntryKind::OffsetDelta(_) | EntryKind::ReferenceDelta(_) => {
                    let (base, result) = delta::read_sizes(&head).ok_or_else(super::pack::make_bad_delta)?;
                    check_size(result, &mut total, limits)?;
                    check_size(base, &mut 0, limits)?;
                    size.saturating_add(base).saturating_add(result)
                }
                _ => size,
            };
            largest = largest.max(held);
        }
        Ok(Self {
            objects,
            largest,
            total,
        })
    }

    /// Returns the bytes that indexing needs.
    pub(crate) fn needed_bytes(&self) -> u64 {
        u64::from(self.objects) * ENTRY_BYTES + BUFFERS + self.largest
    }

    /// Returns the bytes for fast indexing: the needed ones and a cache. `most` limits the cache, and never the needed ones.
    pub(crate) fn wanted_bytes(&self, most: u64) -> u64 {
        let needed = self.needed_bytes();
        let room = most.saturating_sub(needed);
        needed + self.total.min(CACHE_BYTES).min(room)
    }

    /// Returns the part of this memory that may cache objects.
    pub(crate) fn spare_bytes(&self, memory: u64) -> u64 {
        memory.saturating_sub(self.needed_bytes())
    }
}
