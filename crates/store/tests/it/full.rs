//! A disk without space: acknowledged writes stay, deletions work, clients get an error, and the store recovers by
//! itself.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::sys::resource::{RLIM_INFINITY, Resource, setrlimit};
use tenure_store::{Change, Expect, Limits, OpenError, Payload, Store, Write, WriteError};

use crate::{delete, open, put};

const LIMITED: &str = "STORE_LIMITED_DIRECTORY";
const MOUNTED: &str = "STORE_MOUNTED_DIRECTORY";
/// The files of an open store.
const FILES: [&str; 4] = ["objects.redb", "objects-0.log", "objects-1.log", "objects-reserve.log"];

/// Runs one of the tests below in a process of its own.
fn child(name: &str, variable: &str, directory: &Path, shell: &str) -> std::process::Output {
    Command::new("sh")
        .arg("-c")
        .arg(format!("{shell}; exec \"$0\" \"$@\""))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(variable, directory)
        .output()
        .unwrap()
}

/// Puts values until the disk is full; returns the acknowledged keys with their revisions.
async fn fill(store: &Store, prefix: &str, length: usize) -> Vec<(String, u64)> {
    let mut acknowledged = Vec::new();
    for index in 0.. {
        let key = format!("{prefix}{index}");
        match put(store, &key, Expect::Absent, &"v".repeat(length)).await {
            Ok(entry) => acknowledged.push((key, entry.revision)),
            Err(WriteError::Full(_)) => break,
            Err(error) => panic!("{error}"),
        }
    }
    acknowledged
}

/// Waits without a write, as no client may want to write.
async fn until_writable(store: &Store) {
    for _ in 0..600 {
        if store.check_writable().is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{:?}", store.check_writable());
}

/// Copies the files that a process would leave if it were killed now.
fn copy_directory(directory: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    let copying = Command::new("sh")
        .arg("-c")
        .arg("ulimit -S -f unlimited; for name in \"$@\"; do cp \"$0/$name\" .; done")
        .arg(directory)
        .args(FILES)
        .current_dir(copy.path())
        .status();
    assert!(copying.unwrap().success());
    copy
}

/// Checks that the store has exactly these objects.
fn check(store: &Store, there: &[(String, u64)]) {
    let snapshot = store.snapshot();
    assert_eq!(snapshot.len(), there.len());
    for (key, revision) in there {
        assert_eq!(snapshot.get(key).map(|entry| entry.revision), Some(*revision), "{key}");
    }
}

/// Not a test by itself: the process whose files may not grow.
#[test]
fn store_in_files_that_may_not_grow() {
    let Ok(directory) = std::env::var(LIMITED) else {
        return;
    };
    let directory = Path::new(&directory);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let store = open(directory);
        assert!(store.check_writable().is_ok());
        put(&store, "/first", Expect::Absent, "1").await.unwrap();
        setrlimit(Resource::RLIMIT_FSIZE, 3 << 20, RLIM_INFINITY).unwrap();
        let mut there = fill(&store, "/a/", 3000).await;
        there.push(("/first".to_owned(), 2));
        assert!(
            matches!(store.check_writable(), Err(WriteError::Full(_))),
            "{:?}",
            store.check_writable()
        );
        // Deletions continue, and so does a step of a deletion.
        let mut last = store.revision();
        for _ in 0..200 {
            let (key, revision) = there.remove(0);
            let gone = delete(&store, &key, revision).await.unwrap();
            assert_eq!(gone.revision, last + 1);
            last = gone.revision;
        }
        let (key, revision) = there.pop().unwrap();
        let marked = Write {
            key: key.as_str().into(),
            expect: Expect::Revision(revision),
            change: Change::Put(Payload::plain("1, and marked")),
            frees: true,
        };
        let entry = store.write(marked.clone()).await.unwrap();
        there.push((key.clone(), entry.revision));
        // A write that claims to be a step of a deletion is refused if it is longer than a step may be.
        let long = Write {
            expect: Expect::Revision(entry.revision),
            change: Change::Put(Payload::plain("v".repeat(3 << 20))),
            ..marked
        };
        assert!(matches!(store.write(long).await, Err(WriteError::Full(_))));
        last = entry.revision;
        let killed = copy_directory(directory);
        // There is space again, and the store notices that without a write.
        setrlimit(Resource::RLIMIT_FSIZE, RLIM_INFINITY, RLIM_INFINITY).unwrap();
        let copy = open(killed.path());
        check(&copy, &there);
        assert_eq!(copy.revision(), last);
        drop(copy);
        until_writable(&store).await;
        let entry = put(&store, "/c", Expect::Absent, &"v".repeat(3000)).await.unwrap();
        assert_eq!(entry.revision, last + 1);
        there.push(("/c".to_owned(), entry.revision));
        drop(store);
        let store = open(directory);
        check(&store, &there);
        assert_eq!(store.revision(), last + 1);
        println!("held with {}", there.len());
    });
}

/// Deletions succeed on a full disk, and the store recovers without a restart.
#[test]
fn deletions_on_full_disk_succeed_and_end_the_shortage() {
    let directory = tempfile::tempdir().unwrap();
    let output = child(
        "full::store_in_files_that_may_not_grow",
        LIMITED,
        directory.path(),
        "trap '' XFSZ",
    );
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("held with "),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Not a test by itself: the process on a disk whose space the store has used up.
#[test]
fn store_on_a_small_disk() {
    let Ok(directory) = std::env::var(MOUNTED) else {
        return;
    };
    let directory = Path::new(&directory).join("data");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let store = open(&directory);
        let mut there = fill(&store, "/a/", 20_000).await;
        assert!(there.len() > 200, "{}", there.len());
        // Most objects are deleted, and then there is space for others, on a disk that has not grown.
        let most = there.len() / 4 * 3;
        for (key, revision) in there.drain(..most) {
            delete(&store, &key, revision).await.unwrap();
        }
        until_writable(&store).await;
        for index in 0..20 {
            let key = format!("/b/{index}");
            let entry = put(&store, &key, Expect::Absent, &"v".repeat(20_000)).await.unwrap();
            there.push((key, entry.revision));
        }
        check(&store, &there);
        let revision = store.revision();
        drop(store);
        // A start on a disk without any space may be refused. Then nothing is lost, and the store opens when there is
        // space.
        let store = match Store::open(&directory, Limits::default()) {
            Ok(store) => store,
            Err(error) => {
                assert!(matches!(error, OpenError::Full { .. }), "{error}");
                let grown = Command::new("mount")
                    .args(["-o", "remount,size=48m"])
                    .arg(directory.parent().unwrap())
                    .status();
                assert!(grown.unwrap().success());
                open(&directory)
            }
        };
        check(&store, &there);
        assert_eq!(store.revision(), revision);
        println!("held");
    });
}

#[test]
fn deletions_free_space_on_full_disk() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let mounting = format!("mount -t tmpfs -o size=24m tenure {path}");
    let may = Command::new("unshare")
        .args(["-rm", "sh", "-c", &mounting])
        .output()
        .is_ok_and(|output| output.status.success());
    if !may {
        eprintln!("skipped: a file system can't be mounted here (unshare -rm)");
        return;
    }
    let output = Command::new("unshare")
        .args(["-rm", "sh", "-c", &format!("{mounting} && exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "full::store_on_a_small_disk",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(MOUNTED, path)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("held"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
