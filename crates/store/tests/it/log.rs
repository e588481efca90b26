//! The log in front of the tables after a kill of the process. Acknowledged writes are there, a torn end is ignored,
//! damage is detected, and foreign files are refused.

use std::path::Path;
use std::process::Command;

use tenure_store::{Expect, Journal, Limits, Record, RedbJournal, Store};

use crate::{delete, list_keys, open, put};

const TABLES: &str = "objects.redb";
const LOGS: [&str; 2] = ["objects-0.log", "objects-1.log"];
const BLOCK: usize = 4096;

/// Copies the files of an open store.
fn copy_directory(directory: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for name in [TABLES, LOGS[0], LOGS[1]] {
        std::fs::copy(directory.join(name), copy.path().join(name)).unwrap();
    }
    copy
}

/// Returns a killed store with `count` values, none of them in the tables.
async fn make_killed_store(count: usize) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    for index in 0..count {
        put(&store, &format!("/a/{index}"), Expect::Absent, &"v".repeat(index * 300))
            .await
            .unwrap();
    }
    copy_directory(directory.path())
}

/// Opens the store in `directory`. Returns the number of values, if each is intact and none before the last is
/// missing.
fn open_and_count(directory: &Path) -> Result<usize, String> {
    let store = Store::open(directory, Limits::default()).map_err(|error| error.to_string())?;
    let snapshot = store.snapshot();
    assert_eq!(store.revision(), 1 + snapshot.len() as u64);
    for index in 0..snapshot.len() {
        let entry = snapshot.get(&format!("/a/{index}")).expect("one in the middle is lost");
        assert_eq!(entry.bytes, "v".repeat(index * 300), "{index}");
        assert_eq!(entry.revision, 2 + index as u64);
    }
    Ok(snapshot.len())
}

/// Opens a copy with a damaged log. The original stays unchanged.
fn damage_and_open(directory: &Path, damage: impl FnOnce(&mut Vec<u8>)) -> Result<usize, String> {
    let copy = copy_directory(directory);
    let path = copy.path().join(LOGS[0]);
    let mut bytes = std::fs::read(&path).unwrap();
    damage(&mut bytes);
    std::fs::write(&path, bytes).unwrap();
    let result = open_and_count(copy.path());
    if let Err(error) = &result {
        assert!(error.contains("objects-0.log") && error.contains(TABLES), "{error}");
        assert!(error.contains("backup"), "{error}");
    }
    result
}

/// Returns the starts of the frames, and the end of the last one.
fn frames(directory: &Path) -> Vec<usize> {
    let bytes = std::fs::read(directory.join(LOGS[0])).unwrap();
    let blocks: Vec<&[u8]> = bytes.chunks(BLOCK).collect();
    let used = blocks
        .iter()
        .rposition(|block| block.iter().any(|byte| *byte != 0))
        .unwrap()
        + 1;
    let begins = (0..used).filter(|block| blocks[*block].starts_with(b"tenurlog"));
    begins.chain([used]).map(|block| block * BLOCK).collect()
}

/// Writes that are only in the log are read at the start. A closed store has them in its tables.
#[tokio::test]
async fn log_is_replayed_at_start_and_merged_at_close() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    put(&store, "/a", Expect::Absent, "1").await.unwrap();
    put(&store, "/b", Expect::Absent, "2").await.unwrap();
    put(&store, "/a", Expect::Revision(2), "3").await.unwrap();
    delete(&store, "/b", 3).await.unwrap();
    let copy = copy_directory(directory.path());
    for _ in 0..2 {
        let store = open(copy.path());
        assert_eq!(list_keys(&store.snapshot(), "/"), ["/a=3@4"]);
        assert_eq!(store.revision(), 5);
        assert_eq!(list_keys(&store.snapshot_at(3).unwrap(), "/"), ["/a=1@2", "/b=2@3"]);
    }
    drop(store);
    for directory in [directory.path(), copy.path()] {
        assert!(
            LOGS.iter().all(|name| !directory.join(name).exists()),
            "closed, and the log is there"
        );
        let mut tables = RedbJournal::open(&directory.join(TABLES)).unwrap();
        let loaded = tables.load().unwrap();
        assert_eq!((loaded.revision, loaded.objects.len(), loaded.history.len()), (5, 1, 4));
        let before: Vec<_> = loaded.history.iter().map(|record| record.previous.clone()).collect();
        assert_eq!(before, [None, None, Some((2, "1".into())), Some((3, "2".into()))]);
    }
}

#[tokio::test]
async fn a_torn_end_is_left_out() {
    let copy = make_killed_store(20).await;
    let frames = frames(copy.path());
    let [.., start, end] = frames[..] else {
        panic!("{frames:?}")
    };
    assert_eq!(damage_and_open(copy.path(), |_| {}).unwrap(), 20);
    // Sectors that were not written, one or several, including the first and the last with content.
    let sectors = (end - start) / 512;
    assert!(sectors > 8, "the last frame is long");
    let written = (64 + 25 + 5 + 19 * 300_usize).div_ceil(512);
    for from in (0..written).step_by(3) {
        let torn = |bytes: &mut Vec<u8>| bytes[start + from * 512..end].fill(0);
        assert_eq!(damage_and_open(copy.path(), torn).unwrap(), 19, "{from}");
        let hole = |bytes: &mut Vec<u8>| bytes[start + from * 512..start + (from + 1) * 512].fill(0);
        assert_eq!(damage_and_open(copy.path(), hole).unwrap(), 19, "{from}");
    }
    // The filling of the last block does not matter.
    assert_eq!(damage_and_open(copy.path(), |bytes| bytes[end - 1] = 0).unwrap(), 20);
}

#[tokio::test]
async fn a_store_goes_on_after_a_torn_end() {
    let copy = make_killed_store(3).await;
    let frames = frames(copy.path());
    let path = copy.path().join(LOGS[0]);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[frames[2]..].fill(0);
    std::fs::write(&path, bytes).unwrap();
    let store = open(copy.path());
    assert_eq!(store.revision(), 3);
    assert_eq!(put(&store, "/b", Expect::Absent, "1").await.unwrap().revision, 4);
    let again = copy_directory(copy.path());
    drop(store);
    for directory in [copy.path(), again.path()] {
        let store = open(directory);
        assert_eq!((store.revision(), store.snapshot().len()), (4, 3));
    }
}

#[tokio::test]
async fn every_flipped_bit_is_found_or_harmless() {
    let copy = make_killed_store(6).await;
    let frames = frames(copy.path());
    let end = *frames.last().unwrap();
    for at in (0..end + BLOCK).step_by(211) {
        let result = damage_and_open(copy.path(), |bytes| bytes[at] ^= 1 << (at % 8));
        assert!(result.as_ref().is_err() || result == Ok(6), "{at}: {result:?}");
    }
    // Every third byte of a frame's head; of the last frame too, though nothing follows it.
    for start in [frames[0], frames[frames.len() - 2]] {
        for at in (start..start + 93).step_by(3) {
            let result = damage_and_open(copy.path(), |bytes| bytes[at] ^= 1 << (at % 8));
            assert!(result.is_err(), "{at}: {result:?}");
        }
    }
}

#[tokio::test]
async fn a_lost_part_that_others_follow_is_found() {
    let copy = make_killed_store(20).await;
    let frames = frames(copy.path());
    for pair in frames.windows(2).take(frames.len() - 2).step_by(5) {
        let [start, end] = pair[..] else { unreachable!() };
        assert!(
            damage_and_open(copy.path(), |bytes| bytes[start..end].fill(0)).is_err(),
            "{start}"
        );
        assert!(
            damage_and_open(copy.path(), |bytes| bytes[start..start + 512].fill(0)).is_err(),
            "{start}"
        );
        assert!(
            damage_and_open(copy.path(), |bytes| bytes[start..start + 64].fill(0xff)).is_err(),
            "{start}"
        );
    }
    assert!(damage_and_open(copy.path(), |bytes| *bytes = b"no log".to_vec()).is_err());
}

/// A crash tears the last frame and never shortens the file: a shorter file lost acknowledged data, be it a frame or
/// only the space after the last one.
#[tokio::test]
async fn truncated_log_is_refused_not_treated_as_torn() {
    let copy = make_killed_store(20).await;
    let length = std::fs::metadata(copy.path().join(LOGS[0])).unwrap().len();
    let length = usize::try_from(length).unwrap();
    let mut cuts = frames(copy.path());
    cuts.extend(cuts.clone().into_iter().map(|cut| cut + 512));
    cuts.extend([0, 1, 700, 8192, length / 2, length - BLOCK, length - 1]);
    for cut in cuts {
        let error = damage_and_open(copy.path(), |bytes| bytes.truncate(cut)).unwrap_err();
        assert!(
            error.contains("cut short") && error.contains("put the whole file back"),
            "{cut}: {error}"
        );
    }
    // The file without frames counts, too.
    let other = copy_directory(copy.path());
    std::fs::write(other.path().join(LOGS[1]), b"").unwrap();
    let error = open_and_count(other.path()).unwrap_err();
    assert!(error.contains("cut short") && error.contains(LOGS[1]), "{error}");
    for name in LOGS {
        let copy = copy_directory(copy.path());
        std::fs::remove_file(copy.path().join(name)).unwrap();
        let opened = open_and_count(copy.path());
        // Without the file of all frames nothing shows that frames existed; the other file is missed.
        match name == LOGS[1] {
            true => assert!(opened.unwrap_err().contains("objects-1.log is missing")),
            false => assert_eq!(opened, Ok(0)),
        }
    }
}

/// Format 2: the files of the log do not contain their length, and grow by a frame.
#[tokio::test]
async fn a_log_of_the_second_format_is_taken_over() {
    const NUMBERS: redb::TableDefinition<'_, &str, u64> = redb::TableDefinition::new("numbers");
    let copy = make_killed_store(20).await;
    let database = redb::Database::create(copy.path().join(TABLES)).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(NUMBERS).unwrap().insert("format", 2).unwrap();
    transaction.commit().unwrap();
    drop(database);
    for name in LOGS {
        let bytes = std::fs::read(copy.path().join(name)).unwrap();
        std::fs::write(copy.path().join(name), &bytes[BLOCK..]).unwrap();
    }
    let frames = frames(copy.path());
    let [.., start, _] = frames[..] else {
        panic!("{frames:?}")
    };
    for cut in [start, start + 512, start + 700, start + BLOCK] {
        assert_eq!(
            damage_and_open(copy.path(), |bytes| bytes.truncate(cut)).unwrap(),
            19,
            "{cut}"
        );
    }
    assert_eq!(open_and_count(copy.path()), Ok(20));
    // Once closed, the store has the current format.
    assert_eq!(open_and_count(copy.path()), Ok(20));
}

#[tokio::test]
async fn another_stores_log_is_refused() {
    let (copy, other) = (make_killed_store(3).await, make_killed_store(4).await);
    std::fs::copy(other.path().join(LOGS[0]), copy.path().join(LOGS[0])).unwrap();
    let error = open_and_count(copy.path()).unwrap_err();
    assert!(error.contains("another store's"), "{error}");
    // An old log of the same store is refused, too, if the tables do not lead up to it.
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()));
    let tables = std::fs::read(directory.path().join(TABLES)).unwrap();
    let store = open(directory.path());
    put(&store, "/a/0", Expect::Absent, "").await.unwrap();
    drop(store);
    let store = open(directory.path());
    put(&store, "/a/1", Expect::Absent, "").await.unwrap();
    let copy = copy_directory(directory.path());
    std::fs::write(copy.path().join(TABLES), tables).unwrap();
    let error = open_and_count(copy.path()).unwrap_err();
    assert!(error.contains("revision 3 and not revision 2"), "{error}");
}

#[tokio::test]
async fn the_log_changes_its_file_and_the_tables_follow() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let mut copies = Vec::new();
    for index in 0..600 {
        put(&store, &format!("/a/{index}"), Expect::Absent, &"v".repeat(index * 300))
            .await
            .unwrap();
        if index % 150 == 149 {
            copies.push((copied_logs(directory.path()), index + 1));
        }
    }
    // A value that is longer than a file of the log.
    let long = "x".repeat(9 << 20);
    put(&store, "/b", Expect::Absent, &long).await.unwrap();
    put(&store, "/c", Expect::Absent, "c").await.unwrap();
    drop(store);
    assert!(LOGS.iter().all(|name| !directory.path().join(name).exists()));
    let store = open(directory.path());
    assert_eq!(store.snapshot().len(), 602);
    assert_eq!(store.snapshot().get("/b").unwrap().bytes, long);
    // The newest changes are in the log all the time.
    for (logs, written) in copies {
        let last = format!("/a/{}", written - 1);
        assert!(
            logs.iter()
                .any(|log| log.windows(last.len()).any(|window| window == last.as_bytes()))
        );
    }
}

fn copied_logs(directory: &Path) -> [Vec<u8>; 2] {
    LOGS.map(|name| std::fs::read(directory.join(name)).unwrap())
}

/// Format 1: neither a log nor an identity.
#[tokio::test]
async fn tables_of_the_first_format_are_taken_over() {
    const NUMBERS: redb::TableDefinition<'_, &str, u64> = redb::TableDefinition::new("numbers");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(TABLES);
    let record = |revision, key: &str| Record {
        revision,
        key: key.into(),
        kind: tenure_store::EventKind::Put,
        value: "1".into(),
        previous: None,
    };
    let mut tables = RedbJournal::open(&path).unwrap();
    tables.load().unwrap();
    tables.append(&[record(2, "/a"), record(3, "/b")], None).unwrap();
    drop(tables);
    let set_format = |format: u64| {
        let database = redb::Database::open(&path).unwrap();
        let transaction = database.begin_write().unwrap();
        {
            let mut numbers = transaction.open_table(NUMBERS).unwrap();
            numbers.insert("format", format).unwrap();
            numbers.remove("identity").unwrap();
        }
        transaction.commit().unwrap();
    };
    set_format(1);
    let store = open(directory.path());
    put(&store, "/c", Expect::Absent, "1").await.unwrap();
    let copy = copy_directory(directory.path());
    drop(store);
    for directory in [directory.path(), copy.path()] {
        assert_eq!(
            list_keys(&open(directory).snapshot(), "/"),
            ["/a=1@2", "/b=1@3", "/c=1@4"]
        );
    }
    // A store of a later program is not changed.
    set_format(4);
    let error = Store::open(directory.path(), Limits::default()).unwrap_err();
    assert!(error.to_string().contains("format 4"), "{error}");
}

const FULL: &str = "STORE_FULL_DIRECTORY";

/// Not a test by itself: the process whose files may not grow. It writes until a write fails, deletes, and prints the
/// acknowledged writes.
#[test]
fn writer_on_a_full_disk() {
    let Ok(directory) = std::env::var(FULL) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    runtime.block_on(async {
        let store = open(Path::new(&directory));
        let mut refused = 0;
        for index in 0.. {
            let key = format!("/a/{index}");
            match put(&store, &key, Expect::Absent, &"v".repeat(3000)).await {
                Ok(entry) => println!("ack {key} {}", entry.revision),
                Err(tenure_store::WriteError::Full(_)) => refused += 1,
                Err(error) => panic!("{error}"),
            }
            if refused == 5 {
                break;
            }
        }
        println!("full at {}", store.revision());
    });
}

#[tokio::test]
async fn a_file_that_can_not_grow_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()));
    let length = std::fs::metadata(directory.path().join(TABLES)).unwrap().len();
    // In blocks of 512 bytes, the shell's unit: a little more than the current size of the tables.
    let limit = (length + (400 << 10)) / 512;
    let output = Command::new("sh")
        .arg("-c")
        .arg(format!("trap '' XFSZ; ulimit -f {limit}; exec \"$0\" \"$@\""))
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "log::writer_on_a_full_disk",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(FULL, directory.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let words = |line: &'_ str| {
        line.find("ack ")
            .map(|at| line[at..].split(' ').map(str::to_owned).collect::<Vec<_>>())
    };
    let acknowledged: Vec<Vec<String>> = text.lines().filter_map(words).collect();
    assert!(
        text.contains("full at "),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(acknowledged.len() > 20, "{text}");
    let store = open(directory.path());
    let snapshot = store.snapshot();
    assert_eq!(snapshot.len(), acknowledged.len());
    for words in &acknowledged {
        assert_eq!(snapshot.get(&words[1]).unwrap().revision.to_string(), words[2]);
    }
    let last = store.revision();
    assert_eq!(put(&store, "/b", Expect::Absent, "1").await.unwrap().revision, last + 1);
}
