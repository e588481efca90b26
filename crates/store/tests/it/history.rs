//! Revisions, snapshots and watches, before and after a restart.

use tenure_store::{EventKind, Expect, Limits, Store, WriteError};

use crate::{delete, list_keys, open, put};

#[tokio::test]
async fn a_write_needs_the_state_it_expects() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let first = put(&store, "/a/x", Expect::Absent, "1").await.unwrap();
    assert_eq!(first.revision, 2);
    let Err(WriteError::Conflict { current: Some(current) }) = put(&store, "/a/x", Expect::Absent, "2").await else {
        panic!("created twice");
    };
    assert_eq!(current, first);
    assert!(matches!(
        put(&store, "/a/y", Expect::Revision(2), "2").await,
        Err(WriteError::Conflict { current: None })
    ));
    let second = put(&store, "/a/x", Expect::Revision(2), "2").await.unwrap();
    assert_eq!(second.revision, 3);
    let gone = delete(&store, "/a/x", 3).await.unwrap();
    assert_eq!((gone.revision, &gone.bytes[..]), (4, &b"gone at 4"[..]));
    assert!(store.snapshot().is_empty());
}

#[tokio::test]
async fn snapshots_stay_and_old_ones_can_be_had() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    put(&store, "/a/x", Expect::Absent, "1").await.unwrap();
    let before = store.snapshot();
    put(&store, "/a/x", Expect::Revision(2), "2").await.unwrap();
    put(&store, "/a/y", Expect::Absent, "3").await.unwrap();
    delete(&store, "/a/x", 3).await.unwrap();
    assert_eq!(list_keys(&before, "/a/"), ["/a/x=1@2"]);
    let at = |revision| list_keys(&store.snapshot_at(revision).unwrap(), "/a/");
    assert_eq!(at(1), [""; 0]);
    assert_eq!(at(2), ["/a/x=1@2"]);
    assert_eq!(at(3), ["/a/x=2@3"]);
    assert_eq!(at(4), ["/a/x=2@3", "/a/y=3@4"]);
    assert_eq!(at(5), ["/a/y=3@4"]);
    assert_eq!(list_keys(&store.snapshot(), "/b/"), [""; 0]);
}

#[tokio::test]
async fn watch_sees_changes_under_its_prefix_across_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    put(&store, "/a/x", Expect::Absent, "1").await.unwrap();
    put(&store, "/b/x", Expect::Absent, "1").await.unwrap();
    put(&store, "/a/x", Expect::Revision(2), "2").await.unwrap();
    drop(store);

    let store = open(directory.path());
    delete(&store, "/a/x", 4).await.unwrap();
    let mut watcher = store.watch("/a/", 1).unwrap();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let event = watcher.next().await.unwrap().unwrap();
        let before = event
            .previous
            .as_ref()
            .map(|entry| String::from_utf8(entry.bytes.to_vec()).unwrap());
        seen.push((event.revision, event.kind, before));
    }
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(
        seen,
        [
            (2, EventKind::Put, None),
            (4, EventKind::Put, text("1")),
            (5, EventKind::Delete, text("2"))
        ]
    );
    assert_eq!(watcher.position(), 5);
}

#[tokio::test]
async fn watch_wakes_for_changes_under_its_prefix() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let mut watcher = store.watch("/a/", store.revision()).unwrap();
    let waiting = tokio::spawn(async move { watcher.next().await.unwrap().unwrap().revision });
    put(&store, "/b/x", Expect::Absent, "1").await.unwrap();
    put(&store, "/a/x", Expect::Absent, "1").await.unwrap();
    assert_eq!(waiting.await.unwrap(), 3);
}

#[tokio::test]
async fn watch_behind_the_history_gets_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let limits = Limits {
        history_events: 4,
        ..Limits::default()
    };
    let store = Store::open(directory.path(), limits.clone()).unwrap();
    let mut slow = store.watch("/", 1).unwrap();
    for index in 0..10 {
        put(&store, &format!("/a/{index}"), Expect::Absent, "x").await.unwrap();
    }
    assert_eq!(store.compacted_revision(), 7);
    assert_eq!(slow.next().await.unwrap().unwrap_err().compacted, 7);
    assert!(store.watch("/", 6).is_err());
    assert!(store.snapshot_at(6).is_err());
    assert_eq!(store.snapshot_at(7).unwrap().len(), 6);
    drop(slow);
    drop(store);
    // The file may keep more history than memory did, and never less.
    let store = Store::open(directory.path(), limits).unwrap();
    assert_eq!(store.snapshot_at(7).unwrap().len(), 6);
}

#[tokio::test]
async fn history_is_compacted_on_disk_and_revisions_continue() {
    let directory = tempfile::tempdir().unwrap();
    let limits = Limits {
        history_events: 16,
        ..Limits::default()
    };
    let store = Store::open(directory.path(), limits.clone()).unwrap();
    let mut revision = put(&store, "/a", Expect::Absent, "0").await.unwrap().revision;
    let writes: Vec<_> = (0..6000)
        .map(|index| {
            let store = store.clone();
            async move {
                put(&store, &format!("/n/{index}"), Expect::Absent, "x")
                    .await
                    .unwrap()
                    .revision
            }
        })
        .collect();
    revision = revision.max(futures::future::join_all(writes).await.into_iter().max().unwrap());
    put(&store, "/a", Expect::Revision(2), "1").await.unwrap();
    delete(&store, "/a", revision + 1).await.unwrap();
    drop(store);
    let store = Store::open(directory.path(), limits).unwrap();
    assert_eq!(store.revision(), revision + 2);
    assert!(store.watch("/", 100).is_err());
    assert_eq!(
        put(&store, "/a", Expect::Absent, "2").await.unwrap().revision,
        revision + 3
    );
}

#[tokio::test]
async fn a_watcher_of_something_quiet_does_not_fall_off() {
    let directory = tempfile::tempdir().unwrap();
    let limits = Limits {
        history_events: 64,
        ..Limits::default()
    };
    let store = Store::open(directory.path(), limits).unwrap();
    let mut watcher = store.watch("/quiet/", store.revision()).unwrap();
    let waiting = tokio::spawn(async move {
        let event = watcher.next().await.unwrap().unwrap();
        (event.key.to_string(), watcher)
    });
    // Ten times the history's size is written under other keys.
    for index in 0..640 {
        put(&store, &format!("/loud/{index}"), Expect::Absent, "x")
            .await
            .unwrap();
        tokio::task::yield_now().await;
    }
    let last = put(&store, "/quiet/a", Expect::Absent, "x").await.unwrap();
    let (key, mut watcher) = waiting.await.unwrap();
    assert_eq!(key, "/quiet/a");
    // The watcher's position also passes changes under other prefixes: a bookmark shows that.
    let later = put(&store, "/loud/later", Expect::Absent, "x").await.unwrap();
    assert!(later.revision > last.revision);
    assert_eq!(watcher.position(), later.revision);
}

#[tokio::test]
async fn change_wakes_only_watches_of_its_prefix() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let mut watchers: Vec<_> = ["/", "/a/", "/a/b", "/b/", ""]
        .iter()
        .map(|prefix| store.watch(*prefix, store.revision()).unwrap())
        .collect();
    let mut waiting: Vec<_> = watchers.iter_mut().map(|watcher| Box::pin(watcher.next())).collect();
    for next in &mut waiting {
        assert!(futures::poll!(next.as_mut()).is_pending());
    }
    put(&store, "/a/b/c", Expect::Absent, "x").await.unwrap();
    let mut woken = Vec::new();
    for next in &mut waiting {
        woken.push(futures::poll!(next.as_mut()).is_ready());
    }
    assert_eq!(woken, [true, true, true, false, true]);
}

#[tokio::test]
async fn file_size_is_independent_of_write_count() {
    let directory = tempfile::tempdir().unwrap();
    let limits = Limits {
        history_events: 500,
        ..Limits::default()
    };
    let size = || std::fs::metadata(directory.path().join("objects.redb")).unwrap().len();
    // A closed store has everything in its one file.
    let churn = async |rounds: usize| {
        let store = Store::open(directory.path(), limits.clone()).unwrap();
        for round in 0..rounds {
            let writes = (0..64).map(|index| {
                let (store, key) = (store.clone(), format!("/a/{index}"));
                async move {
                    let expect = match store.snapshot().get(&key) {
                        Some(entry) => Expect::Revision(entry.revision),
                        None => Expect::Absent,
                    };
                    put(&store, &key, expect, &format!("{round}").repeat(200))
                        .await
                        .unwrap();
                }
            });
            futures::future::join_all(writes).await;
        }
        store.compacted_revision()
    };
    churn(200).await;
    let settled = size();
    let compacted = churn(400).await;
    // About 50 MB were written. History is dropped in bulk, and the log has files of up to 8 MiB. These need space
    // beside the stored values, and their sizes depend on the timing of the writes.
    let enough = settled.max(16 << 20) * 3 / 2;
    assert!(size() <= enough, "{settled} bytes, and then {}", size());
    assert!(compacted > 30_000);
    let again = Store::open(directory.path(), limits).unwrap();
    assert_eq!(again.snapshot().len(), 64);
}
