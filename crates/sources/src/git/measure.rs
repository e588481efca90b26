//! What a received pack would cost, found out before it is paid: one pass that keeps nothing but sums.
//!
//! Owns the estimate; whoever indexes the pack then asks for that much memory at once. It believes what deltas declare about their
//! sizes, which holds because applying a delta that gives anything else fails.

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
/// Bytes of the buffers that are used whatever the pack is.
const BUFFERS: u64 = 256 << 10;
/// Bytes of objects that are kept for reuse where there is room.
const CACHE_BYTES: u64 = 16 << 20;

/// What a pack takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Measure {
    /// How many objects there are.
    pub(crate) objects: u32,
    /// Bytes held to make the one object that takes the most: itself, and its delta and base where it has them.
    pub(crate) largest: u64,
    /// Bytes of all objects.
    pub(crate) total: u64,
}

impl Measure {
    /// Reads a pack once, keeping nothing.
    pub(crate) fn of(
        file: &File,
        algorithm: Algorithm,
        limits: &Limits,
        cancelled: &AtomicBool,
    ) -> Result<Self, PackError> {
        let mut inflate = Decompress::new(true);
        let mut scanner = Scanner::at(file, 0, 64 << 10, &mut inflate);
        let objects = read_header(&mut scanner, limits)?;
        let (mut largest, mut total) = (0_u64, 0_u64);
        for _ in 0..objects {
            check(cancelled)?;
            let (kind, size) = scanner.header(algorithm)?;
            check_size(size, &mut total, limits)?;
            let mut head = Vec::with_capacity(delta::HEAD);
            scanner.pieces(size, |piece| {
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

    /// Bytes that it can't do without.
    pub(crate) fn needed(&self) -> u64 {
        u64::from(self.objects) * ENTRY_BYTES + BUFFERS + self.largest
    }

    /// Bytes that it is fast with, of which no more than `most` are asked for.
    pub(crate) fn wanted(&self, most: u64) -> u64 {
        let needed = self.needed();
        let room = most.saturating_sub(needed);
        needed + self.total.min(CACHE_BYTES).min(room)
    }

    /// Of this many bytes, those in which objects may be kept for reuse.
    pub(crate) fn spare(&self, memory: u64) -> u64 {
        memory.saturating_sub(self.needed())
    }
}
