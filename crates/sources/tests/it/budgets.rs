//! The charges for fetches and archives, and repositories that exceed the budgets.

use std::time::Duration;

use serde_json::json;
use tenure_git_server::Content;
use tenure_sources::{
    ArtifactStore, BudgetLimits, ByteBudget, FetchBudgets, FetchError, OverBudget, SourceKey, StorageError,
};
use tokio::time::Instant;

use crate::bed::{Bed, noise, source};

fn make_budget(lane: u64, all: u64) -> ByteBudget {
    ByteBudget::new(BudgetLimits {
        what: "things",
        lane,
        all,
        lane_setting: "--things-per-tenant",
        all_setting: "--things",
        is_half: false,
    })
}

fn far_deadline() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

#[tokio::test]
async fn a_fetch_waits_for_memory_and_gives_it_back() {
    let mut bed = Bed::new().await;
    bed.repository.commit([("a", "1")], "first").await.unwrap();
    bed.account = FetchBudgets {
        lane: "mine".to_owned(),
        memory: make_budget(4 << 20, 8 << 20),
        unpacking: make_budget(1, 2),
        ..FetchBudgets::unlimited()
    };
    let main = json!({"branch": "main"});
    let others = bed.account.memory.acquire("a", 4 << 20, far_deadline()).await.unwrap();
    let more = bed.account.memory.acquire("b", 4 << 20, far_deadline()).await.unwrap();
    let mut request = bed.request(main.clone());
    request.asked.timeout = Duration::from_millis(100);
    let (error, message) = bed.refuse_request(&request).await;
    assert!(
        error.is_transient() && message.contains("--things allows 8 MiB"),
        "{message}"
    );
    // The fetch waits, and gets memory that is released meanwhile.
    request.asked.timeout = Duration::from_secs(60);
    let (fetched, ()) = tokio::join!(bed.fetch(&request, None), async {
        while !bed.account.memory.is_wanted() {
            tokio::task::yield_now().await;
        }
        drop(others);
    });
    fetched.unwrap();
    drop(more);
    // The turn works the same way.
    let turn = bed.account.unpacking.acquire("mine", 1, far_deadline()).await.unwrap();
    let (fetched, ()) = tokio::join!(bed.fetch(&request, None), async {
        while !bed.account.unpacking.is_wanted() {
            tokio::task::yield_now().await;
        }
        assert_eq!(bed.account.memory.held(), 0, "who waits for a turn holds no memory");
        drop(turn);
    });
    fetched.unwrap();
    assert_eq!((bed.account.memory.held(), bed.account.unpacking.held()), (0, 0));
    bed.assert_tidy();
}

#[tokio::test]
async fn repository_over_tenant_budget_is_refused_with_its_setting() {
    let mut bed = Bed::new().await;
    bed.repository
        .commit([("a", noise(1, 3 << 20))], "large")
        .await
        .unwrap();
    let main = json!({"branch": "main"});
    bed.account.memory = make_budget(2 << 20, 64 << 20);
    let (error, message) = bed.refuse(main.clone()).await;
    let expected = |error: &FetchError| matches!(error, FetchError::OverBudget(OverBudget::TooLarge { .. }));
    assert!(expected(&error) && !error.is_transient(), "{error:?}");
    assert!(message.contains("at most 2 MiB fit: --things-per-tenant"), "{message}");
    assert_eq!(error.reason().as_str(), "GitOperationFailed");
    bed.account.memory = make_budget(64 << 20, 64 << 20);
    bed.account.trees = make_budget(1 << 20, 2 << 20).process_limits();
    let (error, message) = bed.refuse(main.clone()).await;
    assert!(
        expected(&error) && message.contains("at most 1 MiB fit: --things-per-tenant"),
        "{message}"
    );
    // Excluded files need no memory.
    let spec = json!({"url": bed.server.http_url("app"), "ref": main, "ignore": "a"});
    bed.get_request(&bed.request_spec(spec)).await;
    bed.assert_tidy();
}

#[tokio::test]
async fn a_list_of_references_is_charged() {
    let mut bed = Bed::new().await;
    let commit = bed.repository.commit([("a", "1")], "first").await.unwrap();
    for n in 0..20 {
        let name = format!("refs/tags/v1.0.{n}-{}", "x".repeat(200));
        bed.repository.set_reference(&name, &commit).await.unwrap();
    }
    bed.account.memory = make_budget((512 << 10) + 4096, 1 << 30);
    let (error, message) = bed.refuse(json!({"semver": ">=1.0.0-0"})).await;
    assert!(
        matches!(error, FetchError::OverBudget(_)) && message.contains("--things-per-tenant"),
        "{message}"
    );
    assert_eq!(bed.account.memory.held(), 0);
}

/// Returns the bytes of all files below a folder.
fn on_disk(folder: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata().unwrap() {
            found if found.is_dir() => on_disk(&entry.path()),
            found => found.len(),
        })
        .sum()
}

#[tokio::test]
async fn archives_are_charged_and_old_revisions_make_room() {
    let mut bed = Bed::new().await;
    let disk = make_budget(1 << 20, 2 << 20);
    let folder = bed.folder.path().join("charged");
    bed.store = ArtifactStore::open(&folder, disk.clone()).unwrap();
    let main = json!({"branch": "main"});
    let mut last = None;
    for n in 0..6 {
        let files = [("a", Content::File(noise(n, 300_000)))];
        bed.repository.commit(files, "another").await.unwrap();
        // The pack, the archive in progress, the current archive and the previous one together exceed the budget.
        let (artifact, _) = bed.get(main.clone()).await;
        assert_eq!(disk.held(), on_disk(&folder));
        assert!(bed.store.contains(&source(), &artifact.facts.digest));
        last = Some(artifact);
    }
    let last = last.unwrap();
    bed.repository
        .commit([("b", noise(9, 900_000))], "too much")
        .await
        .unwrap();
    let (error, message) = bed.refuse(main.clone()).await;
    assert!(message.contains("--things-per-tenant"), "{error:?}: {message}");
    assert!(
        bed.store.contains(&source(), &last.facts.digest),
        "what is in use is not given up for it"
    );
    assert_eq!(disk.held(), on_disk(&folder));
    assert_eq!(disk.held(), disk.held_by(""));

    // After the store is opened again, existing archives are charged to their lanes, and archives beyond the budget are removed.
    let disk = make_budget(1 << 20, 2 << 20);
    let store = ArtifactStore::open(&folder, disk.clone()).unwrap();
    store.adopt(&source(), &last.facts.digest, "tenant/a").unwrap();
    assert_eq!(disk.held_by("tenant/a"), last.size);
    assert_eq!(on_disk(&folder), last.size);
    store.remove(&source()).unwrap();
    assert_eq!((disk.held(), on_disk(&folder)), (0, 0));
}

#[tokio::test]
async fn adopted_archive_over_budget_is_removed() {
    let bed = Bed::new().await;
    bed.repository
        .commit([("a", noise(1, 300_000))], "first")
        .await
        .unwrap();
    let (artifact, _) = bed.get(json!({"branch": "main"})).await;
    let store = ArtifactStore::open(bed.folder.path().join("artifacts"), make_budget(1000, 1000)).unwrap();
    let refused = store.adopt(&source(), &artifact.facts.digest, "a").unwrap_err();
    assert!(matches!(refused, StorageError::OverBudget(_)), "{refused}");
    assert!(!store.contains(&source(), &artifact.facts.digest));
}

#[test]
fn archives_of_deleted_sources_are_removed() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = ArtifactStore::open(folder.path(), make_budget(1000, 1000)).unwrap();
    let root = folder.path().join("gitrepository");
    let archive = format!("{}.tar.gz", "a".repeat(64));
    for place in ["team/app/u1", "team/app/u2", "team/other/u3", "gone/app/u1"] {
        std::fs::create_dir_all(root.join(place)).unwrap();
        std::fs::write(root.join(place).join(&archive), "x").unwrap();
    }
    // A file of an older layout without uids.
    std::fs::write(root.join("team/app").join(&archive), "x").unwrap();
    store
        .retain("GitRepository", |namespace, name, uid| {
            (namespace, name, uid) == ("team", "app", "u2")
        })
        .unwrap();
    let digest = format!("sha256:{}", "a".repeat(64));
    let stored = |name, uid| {
        let source = SourceKey::new("GitRepository", "team", name, uid).unwrap();
        store.contains(&source, &digest)
    };
    assert!(stored("app", "u2") && !stored("app", "u1") && !stored("other", "u3"));
    let left: Vec<_> = std::fs::read_dir(root.join("team")).unwrap().collect();
    assert_eq!((left.len(), on_disk(&root)), (1, 1));
    assert!(!root.join("gone").exists());
}
