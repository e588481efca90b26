//! `kill -9` during writes: acknowledged writes are there, revisions continue, watchers miss nothing.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use tenure_store::Expect;

use crate::{open, put};

const DIRECTORY: &str = "STORE_CRASH_DIRECTORY";

/// Not a test by itself: the process that is killed. It writes forever and prints the acknowledged writes.
#[test]
fn writer_until_killed() {
    let Ok(directory) = std::env::var(DIRECTORY) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    runtime.block_on(async {
        let store = open(Path::new(&directory));
        let start = store.revision();
        let writers = (0..8).map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for index in 0.. {
                    let key = format!("/w{writer}/{start}-{index}");
                    let entry = put(&store, &key, Expect::Absent, &key).await.unwrap();
                    println!("ack {key} {}", entry.revision);
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
    });
}

/// Runs the writer until it has acknowledged `count` writes, and kills it. Returns key and revision of each.
fn killed_after(directory: &Path, count: usize) -> BTreeMap<String, u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "crash::writer_until_killed",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut acknowledged = BTreeMap::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let note = |line: String, acknowledged: &mut BTreeMap<String, u64>| {
        // The test harness prints its own text into the first line.
        let Some(at) = line.find("ack /") else { return };
        let words: Vec<&str> = line[at..].split(' ').collect();
        if let [_, key, revision] = words[..]
            && let Ok(revision) = revision.parse()
        {
            acknowledged.insert(key.to_owned(), revision);
        }
    };
    while acknowledged.len() < count {
        note(lines.next().unwrap().unwrap(), &mut acknowledged);
    }
    child.kill().unwrap();
    // The last line may be torn by the kill: a torn line acknowledges nothing.
    let mut rest: Vec<String> = lines.map_while(Result::ok).collect();
    rest.pop();
    for line in rest {
        note(line, &mut acknowledged);
    }
    child.wait().unwrap();
    acknowledged
}

#[tokio::test]
async fn acknowledged_writes_survive_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let mut all = BTreeMap::new();
    let mut highest = 0;
    for round in 0..24 {
        let acknowledged = killed_after(directory.path(), 20 + round * 17 % 90);
        let store = open(directory.path());
        let snapshot = store.snapshot();
        all.extend(acknowledged);
        for (key, revision) in &all {
            let entry = snapshot
                .get(key)
                .unwrap_or_else(|| panic!("{key} was acknowledged and is lost"));
            assert_eq!((entry.revision, &entry.bytes[..]), (*revision, key.as_bytes()));
        }
        assert!(store.revision() > highest, "revisions went back");
        highest = store.revision();
        // A watcher from the start still sees every write, in order.
        let (_, events) = store.events_after("/", 1, usize::MAX).unwrap();
        let revisions: Vec<u64> = events.iter().map(|event| event.revision).collect();
        assert_eq!(revisions, (2..=highest).collect::<Vec<_>>());
        assert_eq!(events.len(), snapshot.len());
    }
}
