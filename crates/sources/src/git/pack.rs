//! The objects of a received pack.
//!
//! Owns the indexing of a pack that nobody vouches for: ids are computed from the content, so what is found under an id is
//! what that id names. Sizes are checked before memory is taken, and deltas before they are applied.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use flate2::Decompress;

use super::delta;
use super::oid::{Algorithm, Oid};
use super::scan::{EntryKind, ScanError, Scanner};
use crate::limits::{Limits, bytes_text};

/// Bytes of bases that wait for their deltas while a pack is indexed, and of recently read objects afterwards.
const LIVE_BYTES: usize = 256 << 20;
const CACHE_BYTES: usize = 16 << 20;
/// Git itself makes no longer chains of deltas.
const LONGEST_CHAIN: usize = 4096;

/// Why a pack can't be used.
#[derive(Debug)]
pub(crate) enum PackError {
    Io(std::io::Error),
    Malformed(String),
    TooLarge {
        what: &'static str,
        limit: String,
    },
    /// The fetch was given up meanwhile.
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

/// The kind of an object.
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

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Where the compressed data starts.
    data: u64,
    size: u64,
    kind: EntryKind,
    /// The entry that a delta is made for, known after indexing.
    base: Option<usize>,
}

/// An indexed pack.
pub(crate) struct Pack<'a> {
    file: &'a File,
    entries: Vec<Entry>,
    objects: HashMap<Oid, (usize, ObjectKind)>,
    limits: &'a Limits,
    cancelled: &'a AtomicBool,
    inflate: Decompress,
    cache: HashMap<usize, Rc<Vec<u8>>>,
    cached: VecDeque<usize>,
    cached_bytes: usize,
}

impl<'a> Pack<'a> {
    /// Indexes a pack file, verifying all of it.
    pub(crate) fn index(
        file: &'a File,
        algorithm: Algorithm,
        limits: &'a Limits,
        cancelled: &'a AtomicBool,
    ) -> Result<Self, PackError> {
        let mut inflate = Decompress::new(true);
        let mut scanner = Scanner::at(file, 0, 64 << 10, &mut inflate);
        let count = match scanner.bytes::<12>()? {
            [b'P', b'A', b'C', b'K', 0, 0, 0, 2 | 3, a, b, c, d] => u32::from_be_bytes([a, b, c, d]),
            _ => return Err(PackError::Malformed("it is no pack".to_owned())),
        };
        if count > limits.objects {
            return Err(PackError::TooLarge {
                what: "objects",
                limit: limits.objects.to_string(),
            });
        }
        let mut entries = Vec::new();
        let mut objects = HashMap::new();
        let mut offsets = HashMap::new();
        let mut total = 0_u64;
        for index in 0..count as usize {
            check(cancelled)?;
            offsets.insert(scanner.position(), index);
            let (kind, size) = scanner.header(algorithm)?;
            check_size(size, &mut total, limits)?;
            let data = scanner.position();
            let content = scanner.inflate(size)?;
            let object = match kind {
                EntryKind::Commit => Some(ObjectKind::Commit),
                EntryKind::Tree => Some(ObjectKind::Tree),
                EntryKind::Blob => Some(ObjectKind::Blob),
                EntryKind::Tag => Some(ObjectKind::Tag),
                EntryKind::OffsetDelta(_) | EntryKind::ReferenceDelta(_) => None,
            };
            if let Some(object) = object {
                objects.insert(id(algorithm, object, &content)?, (index, object));
            }
            entries.push(Entry {
                data,
                size,
                kind,
                base: None,
            });
        }
        let mut pack = Self {
            file,
            entries,
            objects,
            limits,
            cancelled,
            inflate,
            cache: HashMap::new(),
            cached: VecDeque::new(),
            cached_bytes: 0,
        };
        pack.resolve_deltas(algorithm, &offsets, total)?;
        Ok(pack)
    }

    /// Computes the ids of all deltas, each base before what is made from it.
    fn resolve_deltas(
        &mut self,
        algorithm: Algorithm,
        offsets: &HashMap<u64, usize>,
        mut total: u64,
    ) -> Result<(), PackError> {
        let mut by_entry: HashMap<usize, Vec<usize>> = HashMap::new();
        let mut by_id: HashMap<Oid, Vec<usize>> = HashMap::new();
        let mut unresolved = 0_usize;
        for (index, entry) in self.entries.iter().enumerate() {
            match entry.kind {
                EntryKind::OffsetDelta(offset) => {
                    let base = offsets.get(&offset).filter(|base| **base < index);
                    let base = base.ok_or_else(|| PackError::Malformed("a delta has no base".to_owned()))?;
                    by_entry.entry(*base).or_default().push(index);
                    unresolved += 1;
                }
                EntryKind::ReferenceDelta(base) => {
                    by_id.entry(base).or_default().push(index);
                    unresolved += 1;
                }
                _ => {}
            }
        }
        let bases: Vec<(Oid, usize, ObjectKind)> = self
            .objects
            .iter()
            .map(|(oid, (index, kind))| (*oid, *index, *kind))
            .collect();
        let mut live = 0_usize;
        for (oid, index, kind) in bases {
            let mut children = by_entry.remove(&index).unwrap_or_default();
            children.extend(by_id.remove(&oid).unwrap_or_default());
            if children.is_empty() {
                continue;
            }
            let content = Rc::new(self.inflate_entry(index)?);
            live += content.len();
            // A base is kept until the last of its deltas was taken from the stack.
            let mut stack = vec![(Rc::clone(&content), index, children, 1_usize)];
            drop(content);
            while let Some((base, base_index, mut children, depth)) = stack.pop() {
                check(self.cancelled)?;
                let Some(child) = children.pop() else {
                    live = live.saturating_sub(base.len());
                    continue;
                };
                if depth > LONGEST_CHAIN {
                    return Err(PackError::Malformed("a chain of deltas is too long".to_owned()));
                }
                let delta = self.inflate_entry(child)?;
                let (size, instructions) = delta::result_size(base.len(), &delta).ok_or_else(bad_delta)?;
                check_size(size, &mut total, self.limits)?;
                let content = delta::apply(&base, instructions, size).ok_or_else(bad_delta)?;
                let oid = id(algorithm, kind, &content)?;
                self.objects.insert(oid, (child, kind));
                if let Some(entry) = self.entries.get_mut(child) {
                    entry.base = Some(base_index);
                }
                unresolved = unresolved.saturating_sub(1);
                stack.push((base, base_index, children, depth));
                let mut next = by_entry.remove(&child).unwrap_or_default();
                next.extend(by_id.remove(&oid).unwrap_or_default());
                if !next.is_empty() {
                    live += content.len();
                    if live > LIVE_BYTES {
                        return Err(PackError::TooLarge {
                            what: "bytes of objects that others are made from",
                            limit: bytes_text(LIVE_BYTES as u64),
                        });
                    }
                    stack.push((Rc::new(content), child, next, depth + 1));
                }
            }
        }
        if unresolved > 0 {
            return Err(PackError::Malformed("a delta has no base".to_owned()));
        }
        Ok(())
    }

    fn inflate_entry(&mut self, index: usize) -> Result<Vec<u8>, PackError> {
        let entry = self
            .entries
            .get(index)
            .ok_or_else(|| PackError::Malformed("an entry is missing".to_owned()))?;
        let buffer = usize::try_from(entry.size).unwrap_or(usize::MAX).clamp(512, 32 << 10);
        Ok(Scanner::at(self.file, entry.data, buffer, &mut self.inflate).inflate(entry.size)?)
    }

    /// Reads an object; none if the pack has no object of this id and kind.
    pub(crate) fn read(&mut self, oid: &Oid, kind: ObjectKind) -> Result<Option<Rc<Vec<u8>>>, PackError> {
        check(self.cancelled)?;
        let Some((index, found)) = self.objects.get(oid).copied() else {
            return Ok(None);
        };
        if found != kind {
            return Ok(None);
        }
        // From the entry down to what is known or complete, then up again.
        let mut chain = Vec::new();
        let mut at = index;
        let mut content = loop {
            if let Some(content) = self.cache.get(&at) {
                break Rc::clone(content);
            }
            match self.entries.get(at).and_then(|entry| entry.base) {
                Some(base) => {
                    chain.push(at);
                    at = base;
                }
                None => break Rc::new(self.inflate_entry(at)?),
            }
        };
        while let Some(next) = chain.pop() {
            self.remember(at, &content);
            let delta = self.inflate_entry(next)?;
            let (size, instructions) = delta::result_size(content.len(), &delta).ok_or_else(bad_delta)?;
            content = Rc::new(delta::apply(&content, instructions, size).ok_or_else(bad_delta)?);
            at = next;
        }
        Ok(Some(content))
    }

    /// The kind of an object.
    pub(crate) fn kind(&self, oid: &Oid) -> Option<ObjectKind> {
        self.objects.get(oid).map(|(_, kind)| *kind)
    }

    fn remember(&mut self, index: usize, content: &Rc<Vec<u8>>) {
        if content.len() > CACHE_BYTES / 4 || self.cache.contains_key(&index) {
            return;
        }
        self.cached_bytes += content.len();
        self.cache.insert(index, Rc::clone(content));
        self.cached.push_back(index);
        while self.cached_bytes > CACHE_BYTES {
            let Some(oldest) = self.cached.pop_front() else { break };
            if let Some(content) = self.cache.remove(&oldest) {
                self.cached_bytes -= content.len();
            }
        }
    }
}

fn bad_delta() -> PackError {
    PackError::Malformed("a delta can't be applied".to_owned())
}

fn check(cancelled: &AtomicBool) -> Result<(), PackError> {
    if cancelled.load(Ordering::Relaxed) {
        Err(PackError::Cancelled)
    } else {
        Ok(())
    }
}

fn check_size(size: u64, total: &mut u64, limits: &Limits) -> Result<(), PackError> {
    if size > limits.file_bytes {
        return Err(PackError::TooLarge {
            what: "bytes of one file",
            limit: bytes_text(limits.file_bytes),
        });
    }
    *total = total.saturating_add(size);
    if *total > limits.object_bytes {
        return Err(PackError::TooLarge {
            what: "bytes of all objects",
            limit: bytes_text(limits.object_bytes),
        });
    }
    Ok(())
}

fn id(algorithm: Algorithm, kind: ObjectKind, content: &[u8]) -> Result<Oid, PackError> {
    let header = format!("{} {}\0", kind.name(), content.len());
    algorithm
        .hash(&[header.as_bytes(), content])
        .ok_or_else(|| PackError::Malformed("an object is a SHA-1 collision attack".to_owned()))
}
