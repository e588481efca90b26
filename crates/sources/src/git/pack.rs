//! The objects of a received pack.
//!
//! The pack is untrusted. Ids are computed from the content, so an id always leads to the content that it names. Sizes are checked before memory is allocated, and deltas
//! before they are applied. The held bytes never exceed the given memory. The produced bytes are counted: a dropped object is produced again when needed, until the count
//! exceeds its limit.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use flate2::Decompress;

use super::delta;
use super::measure::Measure;
use super::oid::{Algorithm, Hasher, Oid};
use super::scan::{EntryKind, ScanError, Scanner};
use crate::limits::{Limits, describe_bytes};

/// The longest chain of deltas; git makes no longer one.
const LONGEST_CHAIN: usize = 4096;
/// Bytes that producing an object counts for, besides its own bytes.
const STEP: u64 = 1 << 10;
/// Bytes that a cached object counts for, besides its own: its places in the tables of the cache.
const CACHED: u64 = 128;
/// The index that stands for no entry.
const NONE: u32 = u32::MAX;

/// Why a received pack can't be indexed, or an object of it can't be read.
#[derive(Debug)]
pub(crate) enum PackError {
    Io(std::io::Error),
    Malformed(String),
    TooLarge {
        what: &'static str,
        limit: String,
    },
    /// The fetch was cancelled.
    Cancelled,
}

impl From<ScanError> for PackError {
    fn from(error: ScanError) -> Self {
        match error {
            ScanError::Io(error) => Self::Io(error),
            ScanError::Malformed(problem) => Self::Malformed(problem.to_owned()),
        }
    }
}

/// The kind of a Git object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectKind {
    Commit,
    Tree,
    Blob,
    Tag,
}

impl ObjectKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Tree => "tree",
            Self::Blob => "blob",
            Self::Tag => "tag",
        }
    }
}

/// The place and the size of an entry in the pack file.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// The offset of the entry, and the distance from there to its compressed data.
    start: u64,
    skip: u8,
    size: u64,
    /// The index of the delta's base, known after indexing.
    base: u32,
}

/// A received pack after indexing: its objects can be read by their ids.
pub(crate) struct Pack<'a> {
    file: &'a File,
    entries: Vec<Entry>,
    /// Sorted by id after all ids are known.
    objects: Vec<(Oid, u32, ObjectKind)>,
    cancelled: &'a AtomicBool,
    inflate: Decompress,
    /// The bytes that may still be produced, and their initial limit.
    work: (u64, u64),
    /// Bytes of objects that may be cached: one half for bases on the stack, the other half for objects that were produced again.
    spare: u64,
    cache: HashMap<u32, Rc<Vec<u8>>>,
    cached: VecDeque<u32>,
    cached_bytes: u64,
}

/// The deltas of a pack, by their bases.
struct Deltas {
    /// Base, weight and entry, sorted: for each base, the delta with the most dependants comes last.
    by_offset: Vec<(u32, u32, u32)>,
    /// Id of the base, and entry, sorted.
    by_id: Vec<(Oid, u32)>,
}

/// An object whose deltas are being applied.
struct Base {
    /// `None` after the content was dropped to free memory.
    content: Option<Rc<Vec<u8>>>,
    index: u32,
    kind: ObjectKind,
    depth: usize,
    by_id: Range<usize>,
    by_offset: Range<usize>,
}

impl<'a> Pack<'a> {
    /// Indexes a pack file and verifies all of it, in at most `memory` bytes. [`Measure`] has found this to be enough.
    pub(crate) fn index(
        file: &'a File,
        algorithm: Algorithm,
        limits: &'a Limits,
        cancelled: &'a AtomicBool,
        (measure, memory): (&Measure, u64),
    ) -> Result<Self, PackError> {
        let mut inflate = Decompress::new(true);
        let mut scanner = Scanner::at_position(file, 0, 64 << 10, &mut inflate);
        let count = read_header(&mut scanner, limits)?.min(measure.objects);
        let mut entries = Vec::with_capacity(count as usize);
        let mut objects = Vec::with_capacity(count as usize);
        let mut by_offset = Vec::new();
        let mut by_id = Vec::new();
        for index in 0..count {
            check(cancelled)?;
            let start = scanner.position();
            let (kind, size) = scanner.read_header(algorithm)?;
            // Measured before, and checked all the same: no size from the file is used without a bound.
            check_size(size, &mut 0, limits)?;
            let skip = u8::try_from(scanner.position() - start)
                .map_err(|_| PackError::Malformed("an entry has an endless header".to_owned()))?;
            entries.push(Entry {
                start,
                skip,
                size,
                base: NONE,
            });
            let object = match kind {
                EntryKind::Commit => ObjectKind::Commit,
                EntryKind::Tree => ObjectKind::Tree,
                EntryKind::Blob => ObjectKind::Blob,
                EntryKind::Tag => ObjectKind::Tag,
                EntryKind::OffsetDelta(offset) => {
                    let base = entries.binary_search_by_key(&offset, |entry: &Entry| entry.start);
                    let base = base.ok().and_then(|base| u32::try_from(base).ok());
                    let base = base.filter(|base| *base < index).ok_or_else(no_base)?;
                    by_offset.push((base, 1_u32, index));
                    scanner.inflate_pieces(size, |_| {})?;
                    continue;
                }
                EntryKind::ReferenceDelta(base) => {
                    by_id.push((base, index));
                    scanner.inflate_pieces(size, |_| {})?;
                    continue;
                }
            };
            let mut hasher = make_object_hasher(algorithm, object, size);
            scanner.inflate_pieces(size, |piece| hasher.update(piece))?;
            objects.push((hasher.finish().ok_or_else(collision_error)?, index, object));
        }
        weigh_deltas(&mut by_offset, entries.len());
        by_offset.sort_unstable();
        by_id.sort_unstable();
        let mut pack = Self {
            file,
            entries,
            objects,
            cancelled,
            inflate,
            work: (limits.delta_bytes, limits.delta_bytes),
            spare: measure.spare_bytes(memory),
            cache: HashMap::new(),
            cached: VecDeque::new(),
            cached_bytes: 0,
        };
        pack.resolve_deltas(algorithm, limits, &Deltas { by_offset, by_id })?;
        pack.objects.sort_unstable_by_key(|(oid, index, _)| (*oid, *index));
        Ok(pack)
    }

    /// Computes the ids of all deltas, each base before the deltas that need it.
    fn resolve_deltas(&mut self, algorithm: Algorithm, limits: &Limits, deltas: &Deltas) -> Result<(), PackError> {
        let mut unresolved = deltas.by_offset.len() + deltas.by_id.len();
        for complete in 0..self.objects.len() {
            let Some((oid, index, kind)) = self.objects.get(complete).copied() else {
                break;
            };
            let base = deltas.find_base(&oid, index, kind, 1);
            if base.is_leaf() {
                continue;
            }
            let mut stack = vec![base];
            // Bytes of the bases on the stack.
            let mut kept = 0_u64;
            while let Some(mut base) = stack.pop() {
                check(self.cancelled)?;
                kept = kept.saturating_sub(base.bytes());
                let Some(child) = deltas.next(&mut base) else { continue };
                if self.entries.get(child as usize).is_none_or(|entry| entry.base != NONE) {
                    // The base is in the pack twice, and this delta was already resolved.
                    kept += base.bytes();
                    stack.push(base);
                    continue;
                }
                if base.depth > LONGEST_CHAIN {
                    return Err(PackError::Malformed("a chain of deltas is too long".to_owned()));
                }
                let content = match base.content.take() {
                    Some(content) => content,
                    None => self.make_object(base.index)?,
                };
                let made = self.apply(&content, child)?;
                check_size(made.len() as u64, &mut 0, limits)?;
                let mut hasher = make_object_hasher(algorithm, base.kind, made.len() as u64);
                hasher.update(&made);
                let oid = hasher.finish().ok_or_else(collision_error)?;
                if let Some(entry) = self.entries.get_mut(child as usize) {
                    entry.base = base.index;
                }
                self.objects.push((oid, child, base.kind));
                unresolved = unresolved.saturating_sub(1);
                let mut next = deltas.find_base(&oid, child, base.kind, base.depth + 1);
                if base.is_leaf() {
                    // This was the last and heaviest delta: its own deltas don't need the content of its base.
                    drop(content);
                } else {
                    base.content = Some(content);
                    kept += base.bytes();
                    stack.push(base);
                }
                if !next.is_leaf() {
                    self.release_bases(&mut stack, &mut kept);
                    next.content = Some(Rc::new(made));
                    kept += next.bytes();
                    stack.push(next);
                }
            }
        }
        if unresolved > 0 {
            return Err(no_base());
        }
        Ok(())
    }

    /// Drops the content of bases until the rest fits, from the bottom of the stack: those are needed last.
    fn release_bases(&self, stack: &mut [Base], kept: &mut u64) {
        for base in stack {
            if *kept <= self.spare / 2 {
                return;
            }
            *kept -= base.bytes().min(*kept);
            base.content = None;
        }
    }

    /// Applies a delta.
    fn apply(&mut self, base: &[u8], child: u32) -> Result<Vec<u8>, PackError> {
        let delta = self.inflate_entry(child)?;
        let (size, instructions) = delta::read_result_size(base.len(), &delta).ok_or_else(make_bad_delta)?;
        self.spend_bytes(size)?;
        delta::apply_delta(base, instructions, size).ok_or_else(make_bad_delta)
    }

    /// Counts bytes before they are produced.
    fn spend_bytes(&mut self, bytes: u64) -> Result<(), PackError> {
        let (left, limit) = self.work;
        let left = left.checked_sub(bytes.saturating_add(STEP));
        self.work.0 = left.ok_or_else(|| PackError::TooLarge {
            what: "bytes made by applying deltas",
            limit: describe_bytes(limit),
        })?;
        Ok(())
    }

    /// Inflates the data of an entry: a complete object, or a delta.
    fn inflate_entry(&mut self, index: u32) -> Result<Vec<u8>, PackError> {
        let entry = self
            .entries
            .get(index as usize)
            .copied()
            .ok_or_else(|| PackError::Malformed("an entry is missing".to_owned()))?;
        self.spend_bytes(entry.size)?;
        let buffer = usize::try_from(entry.size).unwrap_or(usize::MAX).clamp(512, 32 << 10);
        let data = entry.start + u64::from(entry.skip);
        Ok(Scanner::at_position(self.file, data, buffer, &mut self.inflate).inflate(entry.size)?)
    }

    /// Reads an object; `None` if the pack has no object of this id and kind.
    pub(crate) fn read(&mut self, oid: &Oid, kind: ObjectKind) -> Result<Option<Rc<Vec<u8>>>, PackError> {
        match self.find(oid) {
            Some((index, found)) if found == kind => Ok(Some(self.make_object(index)?)),
            _ => Ok(None),
        }
    }

    /// Produces the content of an entry: walks down from the entry to a cached or complete one, then applies the deltas upwards.
    fn make_object(&mut self, index: u32) -> Result<Rc<Vec<u8>>, PackError> {
        check(self.cancelled)?;
        let mut chain = Vec::new();
        let mut at = index;
        let mut content = loop {
            if let Some(content) = self.cache.get(&at) {
                break Rc::clone(content);
            }
            match self.entries.get(at as usize).map(|entry| entry.base) {
                Some(base) if base != NONE => {
                    chain.push(at);
                    at = base;
                }
                _ => break Rc::new(self.inflate_entry(at)?),
            }
        };
        while let Some(next) = chain.pop() {
            check(self.cancelled)?;
            let made = self.apply(&content, next)?;
            self.cache_object(at, content);
            content = Rc::new(made);
            at = next;
        }
        Ok(content)
    }

    /// Lists all objects, sorted by id.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn list_objects(&self) -> Vec<(Oid, ObjectKind)> {
        self.objects.iter().map(|(oid, _, kind)| (*oid, *kind)).collect()
    }

    /// Returns the number of cached objects.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn count_cached(&self) -> usize {
        self.cache.len()
    }

    /// Checks for a cancelled fetch, and returns [`PackError::Cancelled`] then.
    pub(crate) fn check(&self) -> Result<(), PackError> {
        check(self.cancelled)
    }

    /// Returns the kind of an object.
    pub(crate) fn kind(&self, oid: &Oid) -> Option<ObjectKind> {
        self.find(oid).map(|(_, kind)| kind)
    }

    fn find(&self, oid: &Oid) -> Option<(u32, ObjectKind)> {
        let at = self.objects.partition_point(|(other, _, _)| other < oid);
        let (found, index, kind) = self.objects.get(at)?;
        (found == oid).then_some((*index, *kind))
    }

    /// Caches an object, in place of the oldest cached ones.
    fn cache_object(&mut self, index: u32, content: Rc<Vec<u8>>) {
        let bytes = content.len() as u64 + CACHED;
        if bytes > self.spare / 8 || self.cache.contains_key(&index) {
            return;
        }
        self.cached_bytes += bytes;
        self.cache.insert(index, content);
        self.cached.push_back(index);
        while self.cached_bytes > self.spare / 2 {
            let Some(oldest) = self.cached.pop_front() else { break };
            if let Some(content) = self.cache.remove(&oldest) {
                self.cached_bytes -= content.len() as u64 + CACHED;
            }
        }
    }
}

impl Deltas {
    /// Returns an object together with the deltas that it is the base of.
    fn find_base(&self, oid: &Oid, index: u32, kind: ObjectKind, depth: usize) -> Base {
        let by_id = |oid| self.by_id.partition_point(|(base, _)| base < oid);
        let id_end = self.by_id.partition_point(|(base, _)| base <= oid);
        let offset = self.by_offset.partition_point(|(base, _, _)| *base < index);
        let offset_end = self.by_offset.partition_point(|(base, _, _)| *base <= index);
        Base {
            content: None,
            index,
            kind,
            depth,
            by_id: by_id(oid)..id_end,
            by_offset: offset..offset_end,
        }
    }

    /// Returns the next delta of a base, lightest first.
    fn next(&self, base: &mut Base) -> Option<u32> {
        if let Some(at) = base.by_id.next() {
            return self.by_id.get(at).map(|(_, entry)| *entry);
        }
        self.by_offset.get(base.by_offset.next()?).map(|(_, _, entry)| *entry)
    }
}

impl Base {
    fn is_leaf(&self) -> bool {
        self.by_id.is_empty() && self.by_offset.is_empty()
    }

    fn bytes(&self) -> u64 {
        self.content.as_ref().map_or(0, |content| content.len() as u64)
    }
}

/// Computes the weight of each delta: the number of entries that depend on it, itself included.
fn weigh_deltas(by_offset: &mut [(u32, u32, u32)], entries: usize) {
    let mut weights = vec![1_u32; entries];
    // A base stands before its deltas. So, from the end on, each weight is complete when it is added.
    for (base, weight, entry) in by_offset.iter_mut().rev() {
        *weight = weights.get(*entry as usize).copied().unwrap_or(1);
        if let Some(of_base) = weights.get_mut(*base as usize) {
            *of_base = of_base.saturating_add(*weight);
        }
    }
}

/// Reads the header of a pack and returns the number of entries.
pub(super) fn read_header(scanner: &mut Scanner<'_>, limits: &Limits) -> Result<u32, PackError> {
    let count = match scanner.read_bytes::<12>()? {
        [b'P', b'A', b'C', b'K', 0, 0, 0, 2 | 3, a, b, c, d] => u32::from_be_bytes([a, b, c, d]),
        _ => return Err(PackError::Malformed("it is no pack".to_owned())),
    };
    if count > limits.objects {
        return Err(PackError::TooLarge {
            what: "objects",
            limit: limits.objects.to_string(),
        });
    }
    Ok(count)
}

pub(super) fn make_bad_delta() -> PackError {
    PackError::Malformed("a delta can't be applied".to_owned())
}

fn no_base() -> PackError {
    PackError::Malformed("a delta has no base".to_owned())
}

fn collision_error() -> PackError {
    PackError::Malformed("an object is a SHA-1 collision attack".to_owned())
}

/// Returns [`PackError::Cancelled`] if the flag is set.
pub(super) fn check(cancelled: &AtomicBool) -> Result<(), PackError> {
    if cancelled.load(Ordering::Relaxed) {
        Err(PackError::Cancelled)
    } else {
        Ok(())
    }
}

/// Checks the size of one object, adds it to the total, and checks the total.
pub(super) fn check_size(size: u64, total: &mut u64, limits: &Limits) -> Result<(), PackError> {
    if size > limits.file_bytes {
        return Err(PackError::TooLarge {
            what: "bytes of one file",
            limit: describe_bytes(limits.file_bytes),
        });
    }
    *total = total.saturating_add(size);
    if *total > limits.object_bytes {
        return Err(PackError::TooLarge {
            what: "bytes of all objects",
            limit: describe_bytes(limits.object_bytes),
        });
    }
    Ok(())
}

/// Returns a hasher that has read the object header, which precedes the content.
fn make_object_hasher(algorithm: Algorithm, kind: ObjectKind, size: u64) -> Hasher {
    let mut hasher = Hasher::new(algorithm);
    hasher.update(format!("{} {size}\0", kind.name()).as_bytes());
    hasher
}
