//! Two processes, and broken files: a clear error names the place, and the files stay unchanged.

use tenure_store::{Expect, Limits, OpenError, Store};

use crate::{open, put};

#[tokio::test]
async fn a_directory_has_one_user() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let error = Store::open(directory.path(), Limits::default()).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, OpenError::Locked { .. }), "{text}");
    assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
    assert!(text.contains(&directory.path().display().to_string()), "{text}");
    drop(store);
    open(directory.path());
}

async fn make_filled_store() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    for index in 0..200 {
        put(&store, &format!("/a/{index}"), Expect::Absent, &"v".repeat(500))
            .await
            .unwrap();
    }
    directory
}

/// Opens a damaged copy: either the error names the file and the file stays unchanged, or all objects are intact.
fn check(directory: &tempfile::TempDir, damage: impl FnOnce(&mut Vec<u8>)) {
    let path = directory.path().join("objects.redb");
    let whole = std::fs::read(&path).unwrap();
    let mut broken = whole.clone();
    damage(&mut broken);
    std::fs::write(&path, &broken).unwrap();
    match Store::open(directory.path(), Limits::default()) {
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("objects.redb"), "{text}");
        }
        Ok(store) => {
            let snapshot = store.snapshot();
            assert_eq!(
                (snapshot.len(), store.revision()),
                (200, 201),
                "something is lost without a word"
            );
            for (key, entry) in snapshot.range("/", None) {
                assert_eq!(&entry.bytes[..], "v".repeat(500).as_bytes(), "{key}");
            }
        }
    }
    std::fs::write(&path, &whole).unwrap();
}

#[tokio::test]
async fn damaged_files_are_refused_or_right() {
    let directory = make_filled_store().await;
    check(&directory, |bytes| bytes.truncate(bytes.len() / 2));
    check(&directory, |bytes| bytes.truncate(100));
    check(&directory, |bytes| bytes[..64].fill(0));
    check(&directory, |bytes| bytes.fill(0));
    check(&directory, |bytes| *bytes = b"this is no database".to_vec());
    let length = std::fs::metadata(directory.path().join("objects.redb")).unwrap().len();
    let length = usize::try_from(length).unwrap();
    for part in 0..40 {
        check(&directory, |bytes| bytes[length / 40 * part + 1234] ^= 0x10);
    }
}

#[tokio::test]
async fn a_flipped_bit_in_a_value_is_found() {
    let directory = make_filled_store().await;
    let path = directory.path().join("objects.redb");
    let mut bytes = std::fs::read(&path).unwrap();
    let value = b"v".repeat(500);
    let at = bytes.windows(value.len()).position(|window| window == value).unwrap();
    bytes[at + 7] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let error = Store::open(directory.path(), Limits::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("objects.redb") && error.contains("backup"), "{error}");
}

/// A pseudo-random sequence that is the same in every run (xorshift).
struct Chance(u64);

impl Chance {
    fn choose_below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(end).unwrap()).unwrap()
    }
}

#[tokio::test]
async fn hundreds_of_flipped_bits_are_found_or_harmless() {
    let directory = make_filled_store().await;
    let length = std::fs::metadata(directory.path().join("objects.redb")).unwrap().len();
    let length = usize::try_from(length).unwrap();
    let mut chance = Chance(0x5eed);
    for _ in 0..200 {
        let (at, bit) = (chance.choose_below(length), chance.choose_below(8));
        check(&directory, |bytes| bytes[at] ^= 1 << bit);
    }
    // The beginning has the positions of everything else: every second byte is damaged in turn.
    for at in (0..320).step_by(2) {
        let bit = chance.choose_below(8);
        check(&directory, |bytes| bytes[at] ^= 1 << bit);
    }
}

#[tokio::test]
async fn torn_ends_and_lost_pages_are_found_or_harmless() {
    let directory = make_filled_store().await;
    let length = std::fs::metadata(directory.path().join("objects.redb")).unwrap().len();
    let length = usize::try_from(length).unwrap();
    let mut chance = Chance(0x7ea5);
    for _ in 0..30 {
        let cut = chance.choose_below(length);
        check(&directory, |bytes| bytes.truncate(cut));
        let page = chance.choose_below(length / 4096) * 4096;
        check(&directory, |bytes| bytes[page..page + 4096].fill(0));
        check(&directory, |bytes| bytes[page..page + 512].fill(0xff));
    }
}
