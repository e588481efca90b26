//! A pack that is made up from the input, with deltas of both kinds, beside a simple model of it. The pack must be accepted, and have the objects of the model.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::sync::atomic::AtomicBool;

use flate2::Compression;
use flate2::write::ZlibEncoder;

use super::Meter;
use crate::git::measure::Measure;
use crate::git::oid::{Algorithm, Hasher, Oid};
use crate::git::pack::{ObjectKind, Pack};
use crate::limits::Limits;

/// The most entries of one pack.
const ENTRIES: usize = 64;

/// Takes decisions from the input; zeros after its end.
struct Draw<'a>(&'a [u8]);

impl Draw<'_> {
    fn next(&mut self) -> usize {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        usize::from(*first)
    }

    fn pick_below(&mut self, end: usize) -> usize {
        let number = self.next() << 8 | self.next();
        number % end.max(1)
    }
}

/// How an entry stands in the pack.
enum Form {
    Whole,
    /// A delta to an earlier entry, by offset.
    Offset(usize, Vec<u8>),
    /// A delta to an entry anywhere in the pack, by id. `is_early`: it stands before all others.
    Id(usize, Vec<u8>, bool),
}

struct Entry {
    content: Vec<u8>,
    form: Form,
}

/// Writes a number in groups of seven bits, low ones first.
fn write_number(mut number: usize, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Draws the instructions of a delta, and applies them in the simplest way.
fn draw_delta(draw: &mut Draw<'_>, base: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut instructions, mut result) = (Vec::new(), Vec::new());
    for _ in 0..=draw.pick_below(6) {
        if draw.next().is_multiple_of(3) && !base.is_empty() {
            let offset = draw.pick_below(base.len());
            let length = 1 + draw.pick_below((base.len() - offset).min(0xffff));
            // Each of the bytes that are not zero, and some that are.
            let bytes = [
                offset as u8,
                (offset >> 8) as u8,
                (offset >> 16) as u8,
                0,
                length as u8,
                (length >> 8) as u8,
            ];
            let extra = draw.next();
            let mut instruction = 0x80_u8;
            let mut operands = Vec::new();
            for (bit, byte) in bytes.into_iter().enumerate() {
                if byte != 0 || extra >> bit & 1 == 1 {
                    instruction |= 1 << bit;
                    operands.push(byte);
                }
            }
            instructions.push(instruction);
            instructions.extend(operands);
            result.extend_from_slice(&base[offset..offset + length]);
        } else {
            let text: Vec<u8> = (0..=draw.pick_below(126)).map(|at| (at ^ draw.0.len()) as u8).collect();
            instructions.push(text.len() as u8);
            instructions.extend_from_slice(&text);
            result.extend_from_slice(&text);
        }
    }
    let mut delta = Vec::new();
    write_number(base.len(), &mut delta);
    write_number(result.len(), &mut delta);
    delta.extend(instructions);
    (delta, result)
}

fn draw_entries(mut draw: Draw<'_>) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    while entries.len() < ENTRIES && (entries.is_empty() || !draw.0.is_empty()) {
        let kind = draw.next();
        let entry = if entries.is_empty() || kind.is_multiple_of(4) {
            let length = draw.pick_below(3000);
            let step = draw.next();
            Entry {
                content: (0..length).map(|at| (at / (step + 1)) as u8).collect(),
                form: Form::Whole,
            }
        } else {
            let base = draw.pick_below(entries.len());
            let (delta, content) = draw_delta(&mut draw, &entries[base].content);
            let form = match kind % 4 {
                1 => Form::Offset(base, delta),
                2 => Form::Id(base, delta, true),
                _ => Form::Id(base, delta, false),
            };
            Entry { content, form }
        };
        entries.push(entry);
    }
    entries
}

fn compute_oid(algorithm: Algorithm, content: &[u8]) -> Oid {
    let mut hasher = Hasher::new(algorithm);
    hasher.update(format!("blob {}\0", content.len()).as_bytes());
    hasher.update(content);
    hasher.finish().unwrap()
}

fn write_pack(entries: &[Entry], algorithm: Algorithm) -> Vec<u8> {
    let count = u32::try_from(entries.len()).unwrap();
    let mut out = [b"PACK\0\0\0\x02".as_slice(), &count.to_be_bytes()].concat();
    let is_early = |entry: &Entry| matches!(entry.form, Form::Id(_, _, true));
    let (early, late): (Vec<usize>, Vec<usize>) = (0..entries.len()).partition(|at| is_early(&entries[*at]));
    let mut starts = vec![0; entries.len()];
    for at in early.into_iter().chain(late) {
        starts[at] = out.len();
        let entry = &entries[at];
        let (kind, content) = match &entry.form {
            Form::Whole => (3, &entry.content),
            Form::Offset(_, delta) => (6, delta),
            Form::Id(_, delta, _) => (7, delta),
        };
        let mut size = content.len();
        let mut first = kind << 4 | (size & 0x0f) as u8;
        size >>= 4;
        if size > 0 {
            first |= 0x80;
        }
        out.push(first);
        if size > 0 {
            write_number(size, &mut out);
        }
        match &entry.form {
            Form::Whole => {}
            Form::Offset(base, _) => {
                let mut back = starts[at] - starts[*base];
                let mut bytes = vec![(back & 0x7f) as u8];
                back >>= 7;
                while back > 0 {
                    back -= 1;
                    bytes.push((back & 0x7f) as u8 | 0x80);
                    back >>= 7;
                }
                bytes.reverse();
                out.extend(bytes);
            }
            Form::Id(base, _, _) => {
                let oid = compute_oid(algorithm, &entries[*base].content).to_string();
                out.extend(hex::decode(oid).unwrap());
            }
        }
        let mut deflate = ZlibEncoder::new(Vec::new(), Compression::fast());
        deflate.write_all(content).unwrap();
        out.extend(deflate.finish().unwrap());
    }
    out
}

/// The first byte selects the hash, the others the entries.
pub fn check(bytes: &[u8], file: &mut File, meter: Meter<'_>) {
    let Some((first, bytes)) = bytes.split_first() else {
        return;
    };
    let algorithm = if first & 1 == 0 {
        Algorithm::Sha1
    } else {
        Algorithm::Sha256
    };
    let entries = draw_entries(Draw(bytes));
    let pack = write_pack(&entries, algorithm);
    file.set_len(0).unwrap();
    file.rewind().unwrap();
    file.write_all(&pack).unwrap();
    let (limits, cancelled) = (Limits::default(), AtomicBool::new(false));
    let measure = Measure::from_pack(file, algorithm, &limits, &cancelled).unwrap();
    assert_eq!(measure.objects as usize, entries.len());
    for memory in [
        measure.needed_bytes(),
        measure.needed_bytes() + 4000,
        measure.wanted_bytes(u64::MAX),
    ] {
        let mut indexed = None;
        meter(memory, &mut || {
            indexed = Some(Pack::index(file, algorithm, &limits, &cancelled, (&measure, memory)).unwrap());
        });
        let mut indexed = indexed.unwrap();
        let mut expected: Vec<Oid> = entries
            .iter()
            .map(|entry| compute_oid(algorithm, &entry.content))
            .collect();
        expected.sort_unstable();
        let found: Vec<Oid> = indexed.list_objects().into_iter().map(|(oid, _)| oid).collect();
        assert_eq!(found, expected);
        for entry in &entries {
            let content = indexed.read(&compute_oid(algorithm, &entry.content), ObjectKind::Blob);
            assert_eq!(*content.unwrap().unwrap(), entry.content);
        }
        super::pack::check_cached(&indexed, measure.spare_bytes(memory));
    }
}

/// Returns the first inputs: several sequences of bytes.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut state = 1_u64;
    let mut seeds = Vec::new();
    for length in [1, 20, 100, 300, 600] {
        for _ in 0..8 {
            let bytes = (0..length).map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                state.to_be_bytes()[0]
            });
            seeds.push(bytes.collect());
        }
    }
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_up_packs_have_the_objects_of_the_model() {
        let mut file = tempfile::tempfile().unwrap();
        for seed in seeds() {
            check(&seed, &mut file, &super::super::run);
        }
    }
}
