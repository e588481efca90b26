//! The files of artifacts, in memory while something is rendered from them and for a short time after.
//!
//! Each tree is charged to its lane before it is loaded. If memory is needed and unused trees occupy it, the least recently used tree is dropped
//! first. A tree in use is never dropped.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use tenure_sources::{ArtifactStore, ByteBudget, HeldBytes, Limits, OverBudget, SourceKey, StorageError, Tree};
use tokio::sync::OnceCell;

/// How long an unused tree is kept.
const TREE_KEPT: Duration = Duration::from_secs(30);
/// How long a load waits for a share of the common memory before it drops unused trees of this process.
const SHARE_COMES: Duration = Duration::from_millis(50);
/// The minimum charge for a tree.
const LEAST: u64 = 4 << 10;

/// A source, and the digest of its artifact.
type Key = (SourceKey, String);
/// A tree that is loaded once. Concurrent callers wait for the same load.
type Slot = Arc<OnceCell<Arc<LoadedTree>>>;

/// The file tree of one artifact, the lane that is charged for it, and the reserved bytes.
#[derive(Debug)]
struct LoadedTree {
    tree: Tree,
    lane: String,
    /// Returned when the tree is dropped.
    _held: HeldBytes,
}

/// An entry of the cache: a tree, and the time when it was last requested.
#[derive(Debug)]
struct CachedTree {
    slot: Slot,
    used: Instant,
}

/// The cached file trees, by source and digest, within a memory budget.
#[derive(Debug)]
pub(crate) struct TreeCache {
    store: ArtifactStore,
    limits: Limits,
    budget: ByteBudget,
    cached: Mutex<HashMap<Key, CachedTree>>,
}

/// A tree that a caller uses. The cache drops the tree only after all such values are dropped.
pub(crate) struct TreeInUse {
    loaded: Option<Arc<LoadedTree>>,
    trees: Arc<TreeCache>,
}

impl Deref for TreeInUse {
    type Target = Tree;

    fn deref(&self) -> &Tree {
        static NOTHING: std::sync::LazyLock<Tree> = std::sync::LazyLock::new(Tree::default);
        // `loaded` is set until this value is dropped.
        self.loaded.as_ref().map_or(&NOTHING, |loaded| &loaded.tree)
    }
}

impl Drop for TreeInUse {
    fn drop(&mut self) {
        drop(self.loaded.take());
        self.trees.drop_unused();
    }
}

impl TreeCache {
    pub(crate) fn new(store: ArtifactStore, limits: Limits, budget: ByteBudget) -> Arc<Self> {
        Arc::new(Self {
            store,
            limits,
            budget,
            cached: Mutex::default(),
        })
    }

    fn lock_cache(&self) -> MutexGuard<'_, HashMap<Key, CachedTree>> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads the files of an artifact, charged to a lane, and waits for memory until the deadline. Concurrent callers share one load.
    pub(crate) async fn load(
        self: &Arc<Self>,
        (source, digest): (&SourceKey, &str),
        lane: &str,
        deadline: tokio::time::Instant,
    ) -> Result<TreeInUse, StorageError> {
        let slot = {
            let mut cached = self.lock_cache();
            let key = (source.clone(), digest.to_owned());
            let now = Instant::now();
            let entry = cached.entry(key).or_insert_with(|| CachedTree {
                slot: Slot::default(),
                used: now,
            });
            entry.used = now;
            Arc::clone(&entry.slot)
        };
        let load = || async {
            let size = self.store.loaded_size(source, digest)?.max(LEAST);
            let held = self.reserve_memory(lane, size, deadline).await?;
            let (store, limits, lane) = (self.store.clone(), self.limits, lane.to_owned());
            let (source, digest) = (source.clone(), digest.to_owned());
            let loading = tokio::task::spawn_blocking(move || {
                let tree = store.load(&source, &digest, &limits)?;
                Ok::<_, StorageError>(Arc::new(LoadedTree {
                    tree,
                    lane,
                    _held: held,
                }))
            });
            loading.await.map_err(|problem| StorageError::InvalidArchive {
                digest: String::new(),
                problem: problem.to_string(),
            })?
        };
        let loaded = slot.get_or_try_init(load).await?;
        Ok(TreeInUse {
            loaded: Some(Arc::clone(loaded)),
            trees: Arc::clone(self),
        })
    }

    /// Takes memory for files of several artifacts at once, so that no caller waits for one part while it holds another.
    pub(crate) async fn take_room(
        &self,
        lane: &str,
        bytes: u64,
        deadline: tokio::time::Instant,
    ) -> Result<HeldBytes, OverBudget> {
        self.reserve_memory(lane, bytes.max(LEAST), deadline).await
    }

    /// Returns the memory budget of all trees.
    pub(crate) fn budget(&self) -> &ByteBudget {
        &self.budget
    }

    async fn reserve_memory(
        &self,
        lane: &str,
        bytes: u64,
        deadline: tokio::time::Instant,
    ) -> Result<HeldBytes, OverBudget> {
        let mut waiting = std::pin::pin!(self.budget.acquire(lane, bytes, deadline));
        // The request joins the queue before the check for unused trees: memory that is freed from here on goes to the queue.
        if let Poll::Ready(answer) = futures::poll!(&mut waiting) {
            return answer;
        }
        // If this process only lacks a share of the common memory, the hub grants it soon or not at all. Until then, no tree is dropped.
        if self.budget.is_short_of_share()
            && let Ok(answer) = tokio::time::timeout(SHARE_COMES, &mut waiting).await
        {
            return answer;
        }
        self.drop_unused();
        waiting.await
    }

    /// Drops unused trees while callers wait for their memory.
    fn drop_unused(&self) {
        while self.budget.is_wanted() {
            let mut cached = self.lock_cache();
            let idle = cached.iter().filter(|(_, cached)| self.is_in_the_way(cached));
            let oldest = idle.min_by_key(|(_, cached)| cached.used).map(|(key, _)| key.clone());
            let Some(gone) = oldest.and_then(|key| cached.remove(&key)) else {
                return;
            };
            // Outside the lock: the freed memory goes to others immediately.
            drop(cached);
            drop(gone);
        }
    }

    /// Checks whether a tree is unused, and a caller waits for memory that the tree's lane holds.
    fn is_in_the_way(&self, cached: &CachedTree) -> bool {
        let idle = cached.slot.get().filter(|loaded| Arc::strong_count(loaded) == 1);
        idle.is_some_and(|loaded| self.budget.is_wanted_of(&loaded.lane))
    }

    /// Drops trees that were not used recently.
    pub(crate) fn sweep(&self) {
        self.drop_all_but(|cached| cached.used.elapsed() < TREE_KEPT);
    }

    /// Drops all unused trees.
    pub(crate) fn drop_idle(&self) {
        self.drop_all_but(|cached| cached.slot.get().is_none_or(|loaded| Arc::strong_count(loaded) > 1));
    }

    fn drop_all_but(&self, is_kept: impl Fn(&CachedTree) -> bool) {
        let mut gone = Vec::new();
        let mut cached = self.lock_cache();
        cached.retain(|_, cached| {
            let keep = is_kept(cached);
            if !keep {
                gone.push(Arc::clone(&cached.slot));
            }
            keep
        });
        drop(cached);
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::panic,
        clippy::allow_attributes,
        reason = "tests may panic"
    )]

    use tenure_api::SourceUrl;
    use tenure_api::git_repository::GitRepositoryRef;
    use tenure_git_server::{Content, GitServer, Options, Repository};
    use tenure_planner::git_repository::{FetchRequest, Fetched};
    use tenure_sources::{BudgetLimits, FetchBudgets, GitRequest, GitSecrets, Policy, fetch};

    use super::*;

    /// Each source's own files of one mebibyte, and memory for three trees, of which one lane may have two.
    struct Bed {
        folder: tempfile::TempDir,
        server: GitServer,
        repository: Repository,
        trees: Arc<TreeCache>,
        budget: ByteBudget,
    }

    impl Bed {
        async fn new() -> Self {
            let folder = tempfile::TempDir::new().unwrap();
            let options = Options::default();
            let server = GitServer::start(folder.path().join("git"), options).await.unwrap();
            let repository = server.create("app").await.unwrap();
            let file = ("a", Content::File(vec![b'x'; 1 << 20]));
            repository.commit([file], "a mebibyte").await.unwrap();
            let unlimited = ByteBudget::new(BudgetLimits::unlimited("archives"));
            let store = ArtifactStore::open(folder.path().join("store"), unlimited).unwrap();
            let tree = (1 << 20) + (4 << 10);
            let budget = ByteBudget::new(BudgetLimits {
                what: "trees",
                lane: 2 * tree,
                all: 3 * tree,
                lane_setting: "--trees-per-tenant",
                all_setting: "--trees",
                is_half: false,
            });
            Self {
                folder,
                server,
                repository,
                trees: TreeCache::new(store, Limits::default(), budget.clone()),
                budget,
            }
        }

        async fn source(&self, name: &str) -> (SourceKey, String) {
            let source = SourceKey::new("GitRepository", "team", name, "1").unwrap();
            let asked = FetchRequest {
                url: SourceUrl::new(self.server.http_url("app")),
                reference: GitRepositoryRef {
                    branch: Some("main".to_owned()),
                    ..GitRepositoryRef::default()
                },
                timeout: Duration::from_secs(60),
                ..FetchRequest::default()
            };
            let request = GitRequest::read(source.clone(), asked, &GitSecrets::default()).unwrap();
            let policy = Policy {
                allow: vec![request.url.endpoint().clone()],
                cluster: Vec::new(),
            };
            let (limits, account) = (Limits::default(), FetchBudgets::unlimited());
            let fetched = fetch(&request, &policy, &limits, &self.trees.store, &account).await;
            let Fetched::Stored { artifact, .. } = fetched.unwrap() else {
                panic!("nothing new");
            };
            (source, artifact.facts.digest)
        }

        async fn load(&self, (source, digest): &(SourceKey, String), lane: &str) -> Result<TreeInUse, StorageError> {
            let deadline = tokio::time::Instant::now() + Duration::from_secs(3600);
            self.trees.load((source, digest), lane, deadline).await
        }

        fn count_loaded(&self) -> usize {
            let cached = self.trees.lock_cache();
            cached.values().filter(|cached| cached.slot.get().is_some()).count()
        }
    }

    /// A tree in use is never dropped: a load waits until a tree is unused.
    #[tokio::test]
    async fn full_budget_drops_least_recently_used_tree() {
        let bed = Bed::new().await;
        let mut sources = Vec::new();
        for name in ["a", "b", "c", "d"] {
            sources.push(bed.source(name).await);
        }
        let [a, b, c, d] = sources.as_slice() else { panic!() };
        let tree = bed.load(a, "one").await.unwrap();
        assert_eq!(tree.entry("a").map(|_| ()), Some(()));
        let one = bed.budget.held();
        assert!(one > 1 << 20 && one < (1 << 20) + (4 << 10), "{one}");
        // A second load of the same artifact shares the loaded tree.
        drop(bed.load(a, "one").await.unwrap());
        assert_eq!(bed.budget.held(), one);
        drop(bed.load(b, "one").await.unwrap());
        assert_eq!((bed.count_loaded(), bed.budget.held_by("one")), (2, 2 * one));
        // The lane is full: the unused one of its two trees is dropped.
        let other = bed.load(c, "one").await.unwrap();
        assert_eq!((bed.count_loaded(), bed.budget.held()), (2, 2 * one));
        // Another lane has its own memory, and takes nothing from this one.
        drop(bed.load(b, "two").await.unwrap());
        assert_eq!((bed.count_loaded(), bed.budget.held()), (3, 3 * one));
        // All memory is taken, and two of the three trees are in use.
        drop(bed.load(d, "three").await.unwrap());
        assert_eq!((bed.budget.held_by("two"), bed.budget.held_by("three")), (0, one));
        // No tree is unused: the load waits until one is.
        let deadline = tokio::time::Instant::now();
        let late = bed.trees.load((&b.0, &b.1), "one", deadline).await;
        assert!(matches!(
            late.err(),
            Some(StorageError::OverBudget(OverBudget::Full {
                setting: "--trees-per-tenant",
                ..
            }))
        ));
        let (waited, ()) = tokio::join!(bed.load(b, "one"), async {
            while !bed.budget.is_wanted() {
                tokio::task::yield_now().await;
            }
            drop(other);
        });
        assert_eq!(bed.budget.held_by("one"), 2 * one);
        drop((waited, tree));
        assert!(bed.folder.path().exists());
    }

    #[tokio::test]
    async fn oversized_tree_is_refused_with_name_of_setting() {
        let bed = Bed::new().await;
        let file = ("b", Content::File(vec![b'x'; 2 << 20]));
        bed.repository.commit([file], "more").await.unwrap();
        let large = bed.source("large").await;
        let refused = bed.load(&large, "one").await.err().unwrap();
        assert!(refused.to_string().contains("fit: --trees-per-tenant"), "{refused}");
        assert_eq!(bed.budget.held(), 0);
    }
}
