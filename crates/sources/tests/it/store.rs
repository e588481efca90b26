//! The folder of artifacts: stored files and their verification.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};
use tenure_sources::{ArtifactStore, Limits, SourceKey, StorageError};

use crate::bed::{Bed, make_unlimited_budget, source};

#[tokio::test]
async fn the_current_artifact_and_the_one_before_are_kept() {
    let bed = Bed::new().await;
    let mut digests = Vec::new();
    for n in 0..4 {
        bed.repository.commit([("a", n.to_string())], "next").await.unwrap();
        let (artifact, _) = bed.get(json!({"branch": "main"})).await;
        digests.push(artifact.facts.digest);
    }
    let kept = bed.archives();
    assert_eq!(kept.len(), 2);
    assert!(bed.store.contains(&source(), &digests[3]) && bed.store.contains(&source(), &digests[2]));
    for (namespace, name, uid) in [("other", "app", "1"), ("team", "other", "1"), ("team", "app", "2")] {
        let other = SourceKey::new("GitRepository", namespace, name, uid).unwrap();
        assert!(
            !bed.store.contains(&other, &digests[3]),
            "another source's artifact is not there"
        );
        assert!(matches!(
            bed.store.load(&other, &digests[3], &Limits::default()),
            Err(StorageError::Missing { .. })
        ));
    }
    bed.store.remove(&source()).unwrap();
    bed.store.remove(&source()).unwrap();
    assert!(!bed.store.contains(&source(), &digests[3]));
}

#[tokio::test]
async fn a_changed_archive_is_refused_and_fetched_again() {
    let bed = Bed::new().await;
    bed.repository.commit([("a", "1")], "first").await.unwrap();
    let request = bed.request(json!({"branch": "main"}));
    let (artifact, _) = bed.get_request(&request).await;
    let path = bed.archives().remove(0);
    let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"x").unwrap();
    let error = bed
        .store
        .load(&source(), &artifact.facts.digest, &Limits::default())
        .unwrap_err();
    assert!(matches!(error, StorageError::DigestMismatch { .. }), "{error}");
    let (mut again, _) = bed.get_request(&request).await;
    bed.load(&again);
    // Everything is equal except the time.
    assert_ne!(again.stored_at, artifact.stored_at);
    again.stored_at = artifact.stored_at;
    assert_eq!(again, artifact);
}

#[test]
fn a_digest_is_no_path() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = ArtifactStore::open(folder.path(), make_unlimited_budget()).unwrap();
    let long = format!("sha256:{}", "a".repeat(64));
    for bad in [
        "",
        "sha256:",
        "sha256:../../x",
        "sha1:abc",
        &long.to_uppercase(),
        &long[..70],
        &format!("{long}/../x"),
    ] {
        assert!(!store.contains(&source(), bad));
        let error = store.load(&source(), bad, &Limits::default()).unwrap_err();
        assert!(matches!(error, StorageError::InvalidName { .. }), "{bad}: {error}");
    }
}

#[test]
fn leftovers_of_interrupted_fetches_are_removed() {
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::create_dir_all(folder.path().join(".incoming")).unwrap();
    std::fs::write(folder.path().join(".incoming/1-1"), "x").unwrap();
    ArtifactStore::open(folder.path(), make_unlimited_budget()).unwrap();
    assert_eq!(std::fs::read_dir(folder.path().join(".incoming")).unwrap().count(), 0);
}

/// Stores these bytes as the source's archive and loads them.
fn load(bytes: &[u8], limits: &Limits) -> Result<tenure_sources::Tree, StorageError> {
    let folder = tempfile::TempDir::new().unwrap();
    let store = ArtifactStore::open(folder.path(), make_unlimited_budget()).unwrap();
    let hex = Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<String>();
    let place = folder.path().join("gitrepository/team/app/1");
    std::fs::create_dir_all(&place).unwrap();
    std::fs::write(place.join(format!("{hex}.tar.gz")), bytes).unwrap();
    store.load(&source(), &format!("sha256:{hex}"), limits)
}

fn make_archive(entries: &[(&[u8], EntryType, &[u8])]) -> Vec<u8> {
    let mut builder = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, kind, content) in entries {
        let mut header = Header::new_gnu();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name);
        header.set_entry_type(*kind);
        header.set_mode(0o644);
        if matches!(kind, EntryType::Symlink | EntryType::Link) {
            header.set_link_name_literal(content).unwrap();
            header.set_size(0);
            header.set_cksum();
            builder.append(&header, std::io::empty()).unwrap();
        } else {
            header.set_size(content.len() as u64);
            header.set_cksum();
            builder.append(&header, *content).unwrap();
        }
    }
    builder.into_inner().unwrap().finish().unwrap()
}

#[test]
fn archives_that_lie_are_refused() {
    let regular = EntryType::Regular;
    let limits = Limits::default();
    let good = make_archive(&[
        (b"a", regular, b"1"),
        (b"b/c", regular, b"2"),
        (b"l", EntryType::Symlink, b"../a"),
    ]);
    assert_eq!(load(&good, &limits).unwrap().len(), 3);
    // A layer that was copied unchanged comes from another program: with folders, and a dot in front of every path.
    let by_others = make_archive(&[(b"./", EntryType::Directory, b""), (b"./a", regular, b"1")]);
    assert!(load(&by_others, &limits).unwrap().entry("a").is_some());
    let deep = format!("{}f", "d/".repeat(45));
    for (what, entries) in [
        ("up", vec![(&b"../a"[..], regular, &b"1"[..])]),
        ("inner up", vec![(b"a/../../b", regular, b"1")]),
        ("absolute", vec![(b"/etc/passwd", regular, b"1")]),
        ("inner dot", vec![(b"a/./b", regular, b"1")]),
        ("twice by a dot", vec![(b"./a", regular, b"1"), (b"a", regular, b"2")]),
        ("double slash", vec![(b"a//b", regular, b"1")]),
        ("git", vec![(b"a/.GIT/config", regular, b"1")]),
        ("hard link", vec![(b"a", EntryType::Link, b"/etc/passwd")]),
        ("device", vec![(b"a", EntryType::Char, b"")]),
        ("fifo", vec![(b"a", EntryType::Fifo, b"")]),
        ("folder with content", vec![(b"a/", EntryType::Directory, b"1")]),
        ("twice", vec![(b"a", regular, b"1"), (b"a", regular, b"2")]),
        ("file and folder", vec![(b"a", regular, b"1"), (b"a/b", regular, b"2")]),
        (
            "link and folder",
            vec![(b"a", EntryType::Symlink, b"/etc"), (b"a/b", regular, b"2")],
        ),
        ("not UTF-8", vec![(b"\xff", regular, b"1")]),
    ] {
        let error = load(&make_archive(&entries), &limits).unwrap_err();
        assert!(matches!(error, StorageError::InvalidArchive { .. }), "{what}: {error}");
    }
    let shallow = Limits { depth: 40, ..limits };
    assert!(load(&make_archive(&[(deep.as_bytes(), regular, b"1")]), &shallow).is_err());
    assert!(matches!(
        load(b"no archive", &limits).unwrap_err(),
        StorageError::InvalidArchive { .. }
    ));
    assert!(load(&good[..good.len() / 2], &limits).is_err());
}

#[test]
fn archives_are_bounded() {
    let zeros = vec![0; 4 << 20];
    let regular = EntryType::Regular;
    let bytes = make_archive(&[(b"a", regular, &zeros), (b"b", regular, &zeros), (b"c", regular, b"")]);
    assert!(bytes.len() < 100_000, "it is a small bomb");
    for limits in [
        Limits {
            file_bytes: 4 << 20,
            unpacked_bytes: (8 << 20) - 1,
            ..Limits::default()
        },
        Limits {
            file_bytes: (4 << 20) - 1,
            ..Limits::default()
        },
        Limits {
            files: 2,
            ..Limits::default()
        },
    ] {
        let error = load(&bytes, &limits).unwrap_err();
        assert!(matches!(error, StorageError::TooLarge { .. }), "{error}");
    }
    let limits = Limits {
        file_bytes: 4 << 20,
        unpacked_bytes: 8 << 20,
        files: 3,
        ..Limits::default()
    };
    assert_eq!(load(&bytes, &limits).unwrap().size(), 8 << 20);
}
