//! Packs and conversations with every byte changed, and cut off at every position, give an error or a result, and never a panic or a hang.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::allow_attributes,
    reason = "tests may panic"
)]

use std::fs::File;
use std::io::Write as _;
use std::sync::atomic::AtomicBool;

use super::measure::Measure;
use super::object;
use super::oid::{Algorithm, Oid};
use super::pack::{ObjectKind, Pack, PackError};
use super::pktline::PacketReader;
use super::wire::{Advertisement, PackRequest, PackWriter, read_list};
use crate::archive;
use crate::budget::{BudgetLimits, ByteBudget};
use crate::fetch_budgets::GrowingCharge;
use crate::limits::Limits;

/// Made by `git pack-objects`: a tag, a commit, three trees and five blobs, two of which are deltas; once with offsets
/// and once with ids as bases.
const PACKS: [&[u8]; 2] = [
    include_bytes!("../../tests/data/small.pack"),
    include_bytes!("../../tests/data/small-ref.pack"),
];
const TAG: &str = "917716299f8e94786091edab3e2c80ed304dfd30";
const COMMIT: &str = "7e1d6eb317cd867b1961e9db62ff848473dd62a8";

fn limits() -> Limits {
    Limits {
        objects: 100,
        file_bytes: 100_000,
        object_bytes: 1_000_000,
        ..Limits::default()
    }
}

fn make_unlimited_charge() -> GrowingCharge {
    let budget = ByteBudget::new(BudgetLimits::unlimited("bytes"));
    GrowingCharge::new_unused(budget.try_acquire("", 0).unwrap())
}

/// Indexes a pack, follows the tag and writes the archive; returns its digest.
fn unpack(bytes: &[u8], file: &mut File) -> Result<Option<String>, PackError> {
    use std::io::Seek as _;
    file.set_len(0).unwrap();
    file.rewind().unwrap();
    file.write_all(bytes).unwrap();
    let (limits, cancelled) = (limits(), AtomicBool::new(false));
    let measure = Measure::from_pack(file, Algorithm::Sha1, &limits, &cancelled)?;
    let memory = (&measure, measure.needed_bytes());
    let mut pack = Pack::index(file, Algorithm::Sha1, &limits, &cancelled, memory)?;
    let tag = Oid::from_hex(TAG.as_bytes()).unwrap();
    let Some(content) = pack.read(&tag, ObjectKind::Tag)? else {
        return Ok(None);
    };
    let Some(commit) = object::read_tag_target(&content) else {
        return Ok(None);
    };
    assert_eq!(commit.to_string(), COMMIT, "what has this id names this commit");
    let Some(content) = pack.read(&commit, ObjectKind::Commit)? else {
        return Ok(None);
    };
    let Some(commit) = object::read_commit(&content) else {
        return Ok(None);
    };
    let out = tempfile::tempfile().unwrap();
    let memory = (&BudgetLimits::unlimited("files"), &mut make_unlimited_charge());
    let selection = archive::Selection {
        sparse: &[],
        ignoring: Some(None),
        submodules: true,
    };
    let written = archive::write_archive(&mut pack, commit.tree, selection, &limits, memory, None, out);
    Ok(written.ok().map(|made| made.written.digest))
}

#[test]
fn packs() {
    let mut file = tempfile::tempfile().unwrap();
    let digest = unpack(PACKS[0], &mut file).unwrap().unwrap();
    for pack in PACKS {
        assert_eq!(unpack(pack, &mut file).unwrap().as_ref(), Some(&digest));
        for length in 0..pack.len() - 20 {
            assert!(unpack(&pack[..length], &mut file).is_err(), "cut off at {length}");
        }
        for position in 0..pack.len() - 20 {
            for flip in [0x01, 0x10, 0x80, 0xff] {
                let mut bytes = pack.to_vec();
                bytes[position] ^= flip;
                // Ids are computed, so a change can lose objects, but never give other content for an id.
                if let Ok(Some(other)) = unpack(&bytes, &mut file) {
                    assert_eq!(other, digest, "byte {position} changed by {flip:#x}");
                }
            }
        }
    }
}

#[test]
fn packs_whose_deltas_go_in_circles() {
    // Two deltas, each with the other as base, can't be resolved.
    let mut bytes = b"PACK\0\0\0\x02\0\0\0\x01".to_vec();
    bytes.push(0x74);
    bytes.extend_from_slice(&[7; 20]);
    let mut deflate = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    deflate.write_all(&[1, 1, 1, b'x']).unwrap();
    bytes.extend(deflate.finish().unwrap());
    let mut file = tempfile::tempfile().unwrap();
    assert!(matches!(unpack(&bytes, &mut file), Err(PackError::Malformed(_))));
    // Bombs: an entry that inflates to more than its declared size, and an entry with a huge declared size.
    for size in [4_u8, 0xff] {
        let mut bytes = b"PACK\0\0\0\x02\0\0\0\x01".to_vec();
        if size == 4 {
            bytes.push(0x34);
        } else {
            bytes.extend_from_slice(&[0xb0, 0xff, 0xff, 0xff, 0x7f]);
        }
        let mut deflate = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        deflate.write_all(&vec![0; 10_000_000]).unwrap();
        bytes.extend(deflate.finish().unwrap());
        assert!(unpack(&bytes, &mut file).is_err());
    }
}

async fn converse(bytes: &[u8]) -> bool {
    let limits = limits();
    let mut reader = PacketReader::new(bytes);
    let Ok(advertisement) = Advertisement::read(&mut reader, &limits, &mut make_unlimited_charge()).await else {
        return false;
    };
    let references = match &advertisement {
        Advertisement::Zero { references, .. } => Ok(references.clone()),
        Advertisement::Two { .. } => read_list(&mut reader, &limits, &mut make_unlimited_charge()).await,
    };
    let Ok(references) = references else { return false };
    let wants: Vec<Oid> = references.iter().map(|reference| reference.oid).collect();
    let request = PackRequest::new(&advertisement, &wants, true);
    let mut out = Vec::new();
    let mut writer = PackWriter::new(&mut out, &limits);
    request.read(&mut reader, &mut writer).await.is_ok() && out == b"PACK\0\0\0\x02\0\0\0\0more"
}

#[tokio::test]
async fn conversations() {
    let id = "0123456789012345678901234567890123456789";
    let line = |text: &[u8]| [format!("{:04x}", text.len() + 4).as_bytes(), text].concat();
    let text = |text: String| line(text.as_bytes());
    let pack = [
        line(b"\x01PACK\0\0\0\x02\0\0\0\0"),
        line(b"\x02progress"),
        line(b"\x01more"),
        b"0000".to_vec(),
    ]
    .concat();
    let two = [
        line(b"version 2\n"),
        line(b"agent=x\n"),
        line(b"ls-refs=unborn\n"),
        line(b"fetch=shallow filter\n"),
        line(b"object-format=sha1\n"),
        b"0000".to_vec(),
        line(b"unborn HEAD symref-target:refs/heads/main\n"),
        text(format!("{id} refs/heads/main\n")),
        text(format!("{id} refs/tags/v1 peeled:{id}\n")),
        b"0000".to_vec(),
        line(b"shallow-info\n"),
        text(format!("shallow {id}\n")),
        b"0001".to_vec(),
        line(b"packfile\n"),
        pack.clone(),
    ]
    .concat();
    let zero = [
        line(b"# service=git-upload-pack\n"),
        b"0000".to_vec(),
        text(format!(
            "{id} HEAD\0side-band-64k ofs-delta shallow symref=HEAD:refs/heads/main\n"
        )),
        text(format!("{id} refs/heads/main\n")),
        text(format!("{id} refs/tags/v1\n")),
        text(format!("{id} refs/tags/v1^{{}}\n")),
        b"0000".to_vec(),
        text(format!("shallow {id}\n")),
        b"0000".to_vec(),
        line(b"NAK\n"),
        pack,
    ]
    .concat();
    for conversation in [two, zero] {
        assert!(converse(&conversation).await);
        for length in 0..conversation.len() {
            assert!(!converse(&conversation[..length]).await, "cut off at {length}");
        }
        for position in 0..conversation.len() {
            for flip in [0x01, 0x02, 0x10, 0x20, 0x80, 0xff] {
                let mut bytes = conversation.clone();
                bytes[position] ^= flip;
                converse(&bytes).await;
            }
        }
    }
}
