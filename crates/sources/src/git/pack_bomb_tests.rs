//! Packs that are small to send and expensive to read: held bytes and produced bytes stay within the bounds.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::allow_attributes,
    reason = "tests may panic"
)]

use std::fs::File;
use std::io::Write as _;
use std::sync::atomic::AtomicBool;

use super::measure::Measure;
use super::oid::{Algorithm, Hasher, Oid};
use super::pack::{ObjectKind, Pack, PackError};
use crate::limits::Limits;

/// Writes a pack.
struct Writer {
    bytes: Vec<u8>,
    count: u32,
}

impl Writer {
    fn new() -> Self {
        Self {
            bytes: vec![0; 12],
            count: 0,
        }
    }

    fn entry(&mut self, kind: u8, base: &[u8], content: &[u8]) -> usize {
        let start = self.bytes.len();
        let mut size = content.len();
        let mut byte = (kind << 4) | u8::try_from(size & 0x0f).unwrap();
        size >>= 4;
        while size > 0 {
            self.bytes.push(byte | 0x80);
            byte = u8::try_from(size & 0x7f).unwrap();
            size >>= 7;
        }
        self.bytes.push(byte);
        self.bytes.extend_from_slice(base);
        let mut deflate = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        deflate.write_all(content).unwrap();
        self.bytes.extend(deflate.finish().unwrap());
        self.count += 1;
        start
    }

    fn blob(&mut self, content: &[u8]) -> usize {
        self.entry(3, &[], content)
    }

    /// Appends a delta that copies the whole base and adds a text.
    fn delta(&mut self, base: usize, base_length: usize, more: &str) -> usize {
        let mut back = self.bytes.len() - base;
        let mut offset = vec![u8::try_from(back & 0x7f).unwrap()];
        back >>= 7;
        while back > 0 {
            back -= 1;
            offset.insert(0, 0x80 | u8::try_from(back & 0x7f).unwrap());
            back >>= 7;
        }
        self.entry(6, &offset, &delta(base_length, more))
    }

    fn finish(mut self) -> File {
        self.bytes[..8].copy_from_slice(b"PACK\0\0\0\x02");
        self.bytes[8..12].copy_from_slice(&self.count.to_be_bytes());
        self.bytes.extend_from_slice(&[0; 20]);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&self.bytes).unwrap();
        file
    }
}

fn varint(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 0x7f {
        bytes.push(0x80 | u8::try_from(number & 0x7f).unwrap());
        number >>= 7;
    }
    bytes.push(u8::try_from(number).unwrap());
    bytes
}

fn delta(base_length: usize, more: &str) -> Vec<u8> {
    let mut delta = varint(base_length);
    delta.extend(varint(base_length + more.len()));
    let length = u32::try_from(base_length).unwrap().to_le_bytes();
    delta.extend_from_slice(&[0b1111_0000, length[0], length[1], length[2]]);
    delta.push(u8::try_from(more.len()).unwrap());
    delta.extend_from_slice(more.as_bytes());
    delta
}

fn id(content: &[u8]) -> Oid {
    let mut hasher = Hasher::new(Algorithm::Sha1);
    hasher.update(format!("blob {}\0", content.len()).as_bytes());
    hasher.update(content);
    hasher.finish().unwrap()
}

/// Makes a pack of a few kilobytes with a long chain: each object is the previous one plus a letter.
fn chain(length: usize) -> (File, Vec<Oid>) {
    let mut pack = Writer::new();
    let mut content = vec![b'.'; 10_000];
    let mut at = pack.blob(&content);
    let mut ids = vec![id(&content)];
    for _ in 0..length {
        at = pack.delta(at, content.len(), "x");
        content.push(b'x');
        ids.push(id(&content));
    }
    (pack.finish(), ids)
}

fn index<'a>(file: &'a File, limits: &'a Limits, cancelled: &'a AtomicBool, spare: u64) -> Result<Pack<'a>, PackError> {
    let measure = Measure::from_pack(file, Algorithm::Sha1, limits, cancelled)?;
    let memory = measure.needed_bytes() + spare;
    Pack::index(file, Algorithm::Sha1, limits, cancelled, (&measure, memory))
}

static GOES_ON: AtomicBool = AtomicBool::new(false);

#[test]
fn delta_chain_is_indexed_with_two_objects_in_memory() {
    let (file, ids) = chain(400);
    let measure = Measure::from_pack(&file, Algorithm::Sha1, &Limits::default(), &GOES_ON).unwrap();
    assert_eq!(measure.objects, 401);
    // The last delta, its base, and its result.
    assert!((20_800..21_000).contains(&measure.largest), "{measure:?}");
    assert!(
        measure.total > 4_000_000 && measure.needed_bytes() < 400_000,
        "{measure:?}"
    );
    let limits = Limits {
        // A little more than producing each object once.
        delta_bytes: 401 * (10_400 + 3_000),
        ..Limits::default()
    };
    let cancelled = AtomicBool::new(false);
    let mut pack = index(&file, &limits, &cancelled, 0).unwrap();
    let last = pack.read(&ids[400], ObjectKind::Blob);
    assert!(
        matches!(
            last,
            Err(PackError::TooLarge {
                what: "bytes made by applying deltas",
                ..
            })
        ),
        "making it all again is more than is allowed"
    );
}

#[test]
fn repeated_reads_of_deep_objects_are_bounded() {
    let (file, ids) = chain(400);
    let limits = Limits {
        delta_bytes: 64 << 20,
        ..Limits::default()
    };
    let cancelled = AtomicBool::new(false);
    let mut pack = index(&file, &limits, &cancelled, 0).unwrap();
    let reads = (0..10_000)
        .take_while(|_| pack.read(&ids[400], ObjectKind::Blob).is_ok())
        .count();
    assert!((5..20).contains(&reads), "{reads}");
    // With memory to cache the objects, a commit with all of them as files costs little more than producing each once.
    let mut pack = index(&file, &limits, &cancelled, 16 << 20).unwrap();
    for id in &ids {
        assert!(pack.read(id, ObjectKind::Blob).unwrap().is_some());
    }
}

/// All objects of a bush of deltas are found, even without memory to cache any of them.
#[test]
fn branching_deltas_are_found_with_any_cache_size() {
    let mut pack = Writer::new();
    let content = vec![b'.'; 5_000];
    let root = pack.blob(&content);
    // The same object a second time: its deltas are resolved once.
    pack.blob(&content);
    let mut ids = vec![id(&content)];
    let mut level = vec![(root, content)];
    for depth in 0..4 {
        let mut next = Vec::new();
        for (at, content) in &level {
            for n in 0..4 {
                let more = format!("{depth}{n}");
                let made = [content.as_slice(), more.as_bytes()].concat();
                ids.push(id(&made));
                next.push((pack.delta(*at, content.len(), &more), made));
            }
        }
        level = next;
    }
    let (_, leaf) = level.last().unwrap();
    let made = [leaf.as_slice(), b"by id"].concat();
    let mut base = id(leaf).to_string();
    let base: Vec<u8> = (0..20)
        .map(|_| u8::from_str_radix(&base.drain(..2).collect::<String>(), 16).unwrap())
        .collect();
    pack.entry(7, &base, &delta(leaf.len(), "by id"));
    ids.push(id(&made));
    let file = pack.finish();
    let (limits, cancelled) = (Limits::default(), AtomicBool::new(false));
    for spare in [0, 12_000, 1 << 20] {
        let mut pack = index(&file, &limits, &cancelled, spare).unwrap();
        for oid in &ids {
            let content = pack.read(oid, ObjectKind::Blob).unwrap().unwrap();
            assert_eq!(id(&content), *oid);
        }
    }
}

#[test]
fn declared_delta_sizes_are_bounded_before_use() {
    let limits = Limits {
        file_bytes: 20_000,
        object_bytes: 1_000_000,
        ..Limits::default()
    };
    // One short delta that declares a result, or a base, larger than a file may be; and many deltas whose sum is too large.
    for (base, made, count, what) in [
        (10_000, 1 << 40, 1, "bytes of one file"),
        (1 << 40, 10_000, 1, "bytes of one file"),
        (10_000, 20_000, 60, "bytes of all objects"),
    ] {
        let mut pack = Writer::new();
        let at = pack.blob(&[b'.'; 10_000]);
        for _ in 0..count {
            let offset = u8::try_from((pack.bytes.len() - at) & 0x7f).unwrap();
            let content = [varint(base), varint(made)].concat();
            pack.entry(6, &[offset], &content);
        }
        let file = pack.finish();
        let refused = Measure::from_pack(&file, Algorithm::Sha1, &limits, &GOES_ON).unwrap_err();
        assert!(
            matches!(refused, PackError::TooLarge { what: w, .. } if w == what),
            "{refused:?}"
        );
    }
}

#[test]
fn cancelled_fetch_ends_at_the_next_object() {
    let (file, ids) = chain(10);
    let (limits, cancelled) = (Limits::default(), AtomicBool::new(true));
    let refused = Measure::from_pack(&file, Algorithm::Sha1, &limits, &cancelled).unwrap_err();
    assert!(matches!(refused, PackError::Cancelled));
    let measure = Measure::from_pack(&file, Algorithm::Sha1, &limits, &GOES_ON).unwrap();
    let refused = Pack::index(&file, Algorithm::Sha1, &limits, &cancelled, (&measure, 1 << 20));
    assert!(matches!(refused, Err(PackError::Cancelled)));
    cancelled.store(false, std::sync::atomic::Ordering::Relaxed);
    let mut pack = Pack::index(&file, Algorithm::Sha1, &limits, &cancelled, (&measure, 1 << 20)).unwrap();
    cancelled.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(matches!(
        pack.read(&ids[0], ObjectKind::Blob),
        Err(PackError::Cancelled)
    ));
}
