//! Copies: consistent during writes, refused if cut or changed, and restored without a revision that was ever given
//! out.

use std::io::Write as _;

use tenure_store::backup::{BackupError, Part, Pieces, restore_backup, verify_backup, write};
use tenure_store::{Expect, Limits, Store};

use crate::{delete, list_keys, open, put};

async fn fill_store(store: &Store) {
    for index in 0..300 {
        put(store, &format!("/a/{index}"), Expect::Absent, &"v".repeat(index * 7))
            .await
            .unwrap();
    }
    let entry = store.snapshot().get("/a/7").cloned().unwrap();
    delete(store, "/a/7", entry.revision).await.unwrap();
}

fn bytes_of(pieces: Pieces) -> Vec<u8> {
    pieces.fold(Vec::new(), |mut all, piece| {
        all.write_all(&piece).unwrap();
        all
    })
}

#[tokio::test]
async fn a_copy_is_the_state_of_one_moment() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    fill_store(&store).await;
    let snapshot = store.snapshot();
    let mut pieces = Pieces::new(snapshot.clone());
    let mut copy = pieces.next().unwrap().to_vec();
    // Writes during the copy are not in it.
    put(&store, "/a/100-late", Expect::Absent, "late").await.unwrap();
    put(&store, "/z", Expect::Absent, "late").await.unwrap();
    copy.extend(bytes_of(pieces));
    let summary = verify_backup(&copy[..]).unwrap();
    assert_eq!((summary.revision, summary.objects), (snapshot.revision(), 299));

    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("new");
    let again = restore_backup(&copy[..], &target, |_, _| Ok(())).unwrap();
    assert_eq!(again, summary);
    let restored = open(&target);
    assert_eq!(list_keys(&restored.snapshot(), "/"), list_keys(&snapshot, "/"));
}

#[tokio::test]
async fn revisions_after_a_restore_were_never_given_out() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    fill_store(&store).await;
    let at_copy = store.revision();
    let copy = bytes_of(Pieces::new(store.snapshot()));
    // Acknowledged after the copy, and lost with the old store: no later write gets this revision.
    let lost = put(&store, "/lost", Expect::Absent, "x").await.unwrap().revision;
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("new");
    restore_backup(&copy[..], &target, |_, _| Ok(())).unwrap();
    for _ in 0..2 {
        let restored = open(&target);
        for old in [1, at_copy, lost] {
            let refused = restored.watch("/", old).unwrap_err();
            assert_eq!(refused.requested, old);
            assert!(restored.snapshot_at(old).is_err());
        }
    }
    let restored = open(&target);
    let first = put(&restored, "/first", Expect::Absent, "x").await.unwrap();
    assert!(first.revision > lost);
    let (_, events) = restored.events_after("/", first.revision - 1, 10).unwrap();
    assert_eq!(events.len(), 1);
}

#[tokio::test]
async fn a_folder_in_use_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    fill_store(&store).await;
    let before = list_keys(&store.snapshot(), "/");
    let copy = bytes_of(Pieces::new(store.snapshot()));
    let refused = restore_backup(&copy[..], directory.path(), |_, _| Ok(())).unwrap_err();
    assert!(matches!(refused, BackupError::NotEmpty(_)), "{refused}");
    drop(store);
    assert!(restore_backup(&copy[..], directory.path(), |_, _| Ok(())).is_err());
    assert_eq!(list_keys(&open(directory.path()).snapshot(), "/"), before);
}

#[tokio::test]
async fn every_cut_and_every_changed_byte_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    for index in 0..12 {
        put(&store, &format!("/a/{index}"), Expect::Absent, "value")
            .await
            .unwrap();
    }
    let files = [("pki/ca.key".to_owned(), "key".into())];
    let mut copy = Vec::new();
    write(&store.snapshot(), &files, &mut copy).unwrap();
    assert_eq!(verify_backup(&copy[..]).unwrap().files, 1);
    for length in 0..copy.len() {
        assert!(verify_backup(&copy[..length]).is_err(), "cut at {length}");
    }
    for at in 0..copy.len() {
        let mut broken = copy.clone();
        broken[at] ^= 1 << (at % 8);
        assert!(verify_backup(&broken[..]).is_err(), "changed at {at}");
        if at % 41 != 0 {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("new");
        assert!(
            restore_backup(&broken[..], &target, |_, _| Ok(())).is_err(),
            "changed at {at}"
        );
        // No part of the restored folder opens as a store with objects.
        if let Ok(opened) = Store::open(&target, Limits::default()) {
            assert!(opened.snapshot().is_empty());
        }
    }
    let mut longer = copy.clone();
    longer.push(0);
    assert!(verify_backup(&longer[..]).is_err());
}

#[test]
fn a_huge_claim_costs_nothing() {
    let mut copy = b"tenure-backup 1\n".to_vec();
    copy.extend(5_u64.to_le_bytes());
    copy.push(2);
    copy.extend((1_u64 << 29).to_le_bytes());
    assert!(verify_backup(&copy[..]).is_err());
    copy.truncate(25);
    copy.extend(u64::MAX.to_le_bytes());
    let text = verify_backup(&copy[..]).unwrap_err().to_string();
    assert!(text.contains("claims"), "{text}");
}

#[test]
fn parts_are_given_back_as_they_were() {
    let mut decoder_input = Vec::new();
    let mut encoder = tenure_store::backup::Encoder::new(9);
    let part = Part::File("pki/ca.crt".to_owned(), "text".into());
    encoder.add(&part);
    decoder_input.extend(encoder.finish());
    let mut decoder = tenure_store::backup::Decoder::new(&decoder_input[..]).unwrap();
    assert_eq!(decoder.revision(), 9);
    assert_eq!(decoder.next_part().unwrap(), Some(part));
    assert_eq!(decoder.next_part().unwrap(), None);
}
