//! Any bytes as a pack. Each object has the id by which it is found, and the memory stays within the measured cost.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::sync::atomic::AtomicBool;

use super::{Meter, read_recorded, unlimited_charge};
use crate::archive::{self, Archived, Selection};
use crate::budget::BudgetLimits;
use crate::git::measure::Measure;
use crate::git::object;
use crate::git::oid::{Algorithm, Hasher, Oid};
use crate::git::pack::{ObjectKind, Pack};
use crate::limits::Limits;
use crate::tree::{Node, Tree, check_path};

/// Bytes of a pass over a pack that are the same for all packs: the buffer, and the state of the decompressor.
const PASS: u64 = 256 << 10;

/// Limits that bound the time of one input.
pub(crate) fn limits() -> Limits {
    Limits {
        objects: 2000,
        object_bytes: 4 << 20,
        delta_bytes: 16 << 20,
        files: 500,
        file_bytes: 256 << 10,
        unpacked_bytes: 1 << 20,
        ..Limits::default()
    }
}

/// The first byte selects the hash. The pack is written into `file`.
pub fn check(bytes: &[u8], file: &mut File, meter: Meter<'_>) {
    let Some((first, bytes)) = bytes.split_first() else {
        return;
    };
    let algorithm = if first & 1 == 0 {
        Algorithm::Sha1
    } else {
        Algorithm::Sha256
    };
    file.set_len(0).unwrap();
    file.rewind().unwrap();
    file.write_all(bytes).unwrap();
    let (limits, cancelled) = (limits(), AtomicBool::new(false));
    let mut measured = None;
    meter(PASS, &mut || {
        measured = Measure::from_pack(file, algorithm, &limits, &cancelled).ok()
    });
    let Some(measure) = measured else { return };
    let mut found: Option<Vec<(Oid, ObjectKind)>> = None;
    for memory in [measure.needed_bytes(), measure.wanted_bytes(u64::MAX)] {
        let mut pack = None;
        meter(memory, &mut || {
            pack = Pack::index(file, algorithm, &limits, &cancelled, (&measure, memory)).ok();
        });
        let Some(mut pack) = pack else { return };
        let objects = pack.list_objects();
        let mut commits = 0..4;
        for (oid, kind) in &objects {
            // The work of reading an object again is bounded, too.
            let Ok(content) = pack.read(oid, *kind) else { return };
            let content = content.unwrap();
            let mut hasher = Hasher::new(algorithm);
            hasher.update(format!("{} {}\0", kind.name(), content.len()).as_bytes());
            hasher.update(&content);
            assert_eq!(hasher.finish(), Some(*oid), "an object has another id than its content");
            match kind {
                ObjectKind::Commit => {
                    if let Some(commit) = object::read_commit(&content).filter(|_| commits.next().is_some()) {
                        write_archive(&mut pack, commit.tree, &limits);
                    }
                }
                ObjectKind::Tree => drop(object::read_tree(&content, algorithm)),
                ObjectKind::Tag => drop(object::read_tag_target(&content)),
                ObjectKind::Blob => {}
            }
        }
        check_cached(&pack, measure.spare_bytes(memory));
        if let Some(found) = &found {
            assert_eq!(*found, objects, "more memory finds other objects");
        }
        found = Some(objects);
    }
}

/// Checks that cached objects count with what the cache itself takes for each.
pub(crate) fn check_cached(pack: &Pack<'_>, spare: u64) {
    assert!(
        pack.count_cached() as u64 * 64 <= spare / 2,
        "objects are cached that don't count"
    );
}

/// Writes the archive of a commit, and reads it back.
fn write_archive(pack: &mut Pack<'_>, tree: Oid, limits: &Limits) {
    let selection = Selection {
        sparse: &[],
        ignoring: Some(None),
        submodules: true,
    };
    let (trees, mut memory) = (BudgetLimits::unlimited("files"), unlimited_charge());
    let mut out = Vec::new();
    let written = archive::write_archive(pack, tree, selection, limits, (&trees, &mut memory), None, &mut out);
    let Ok(Archived { written, .. }) = written else { return };
    check_archive(&out, (&written.digest, written.size), limits);
}

/// Reads back an archive that this crate has written: all paths are safe.
pub(crate) fn check_archive(archive: &[u8], (digest, size): (&str, u64), limits: &Limits) -> Tree {
    assert_eq!(archive.len() as u64, size);
    let unpacked = u32::from_le_bytes(archive[archive.len() - 4..].try_into().unwrap());
    let tree = Tree::from_archive(archive, (digest, u64::from(unpacked)), limits).unwrap();
    for (path, node) in tree.iter() {
        check_path(path, limits).unwrap();
        if let Node::File(content) = node {
            assert!(content.len() as u64 <= limits.file_bytes);
        }
    }
    assert!(tree.size() <= limits.unpacked_bytes);
    tree
}

/// Returns the first inputs: packs of git with both kinds of deltas.
pub fn seeds() -> Vec<Vec<u8>> {
    let packs = ["small.pack", "small-ref.pack"].map(read_recorded);
    packs.map(|pack| [&[0], pack.as_slice()].concat()).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_around_the_first_inputs_keep_their_promises() {
        let file = std::cell::RefCell::new(tempfile::tempfile().unwrap());
        super::super::check_around(&seeds(), |bytes| {
            check(bytes, &mut file.borrow_mut(), &super::super::run);
        });
    }
}
