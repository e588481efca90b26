//! Limits for large work: reading long answers, working with large objects, and holding pages of lists.
//!
//! Large work runs away from the threads that serve all lanes. Each lane does one piece at a time, and at most half of the processors do such work. Small work never
//! waits. The module knows neither the content of the work nor the list of lanes.

use std::sync::Arc;

use tenure_background::run_behind_others;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// From this many bytes of text, work waits for a permit, because such work keeps a processor busy for some milliseconds.
const LARGE: usize = 128 << 10;

/// The number of pages of lists that are in memory at the same time. A page takes three times its text while it is split.
const PAGES: usize = 4;

/// The limit for large work and for pages of lists, which all lanes share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SharedWorkLimit {
    /// The permits for work on at least [`LARGE`] bytes.
    work: Arc<Semaphore>,
    /// The permits for pages of lists in memory.
    pages: Arc<Semaphore>,
}

impl Default for SharedWorkLimit {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self::new(processors / 2)
    }
}

impl SharedWorkLimit {
    /// Allows this many pieces of work at the same time, and at least one.
    #[must_use]
    pub fn new(at_once: usize) -> Self {
        Self {
            work: Arc::new(Semaphore::new(at_once.max(1))),
            pages: Arc::new(Semaphore::new(PAGES)),
        }
    }

    /// Takes all permits, as if every lane were busy.
    #[cfg(test)]
    pub(crate) fn hold_all(&self) -> Vec<OwnedSemaphorePermit> {
        let mut held = Vec::new();
        for all in [&self.work, &self.pages] {
            while let Ok(permit) = Arc::clone(all).try_acquire_owned() {
                held.push(permit);
            }
        }
        held
    }

    /// Returns a new lane's limit: permits of its own, and the shared permits.
    #[must_use]
    pub fn of_lane(&self) -> LaneWorkLimit {
        let line = |all: &Arc<Semaphore>| PermitQueue {
            own: Arc::new(Semaphore::new(1)),
            all: Arc::clone(all),
        };
        LaneWorkLimit {
            work: line(&self.work),
            pages: line(&self.pages),
        }
    }
}

/// The limit of one lane: one piece of large work and one page of a list at a time, within the limit that all lanes share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LaneWorkLimit {
    work: PermitQueue,
    pages: PermitQueue,
}

/// The semaphores for one sort of work: the lane's own with one permit, and the shared semaphore of all lanes.
#[derive(Clone, Debug)]
struct PermitQueue {
    own: Arc<Semaphore>,
    all: Arc<Semaphore>,
}

/// The lane's own permit and one shared permit, which are reserved until the value is dropped.
#[derive(Debug)]
pub(crate) struct WorkPermit {
    _all: Option<OwnedSemaphorePermit>,
    _own: Option<OwnedSemaphorePermit>,
}

impl PermitQueue {
    /// Waits for the lane's own permit, then for a shared one, so only one task of a lane waits in the shared queue. Neither semaphore is ever closed.
    async fn acquire_permit(&self) -> WorkPermit {
        let own = Arc::clone(&self.own).acquire_owned().await.ok();
        let all = Arc::clone(&self.all).acquire_owned().await.ok();
        WorkPermit { _all: all, _own: own }
    }
}

impl LaneWorkLimit {
    /// Does work on a text of this length. Short work runs at once. Long work waits for its permit, runs where no task waits for the thread, and yields to lanes with
    /// less work.
    pub async fn run<T: Send>(&self, bytes: usize, work: impl FnOnce() -> T + Send) -> T {
        if bytes < LARGE {
            return work();
        }
        let _turn = self.work.acquire_permit().await;
        // A runtime with one thread can't move its other tasks to another thread.
        let runtime = Handle::current();
        if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
            return work();
        }
        tokio::task::block_in_place(|| {
            run_behind_others(|| {
                // A reader of an event may spawn a task.
                let _within = runtime.enter();
                work()
            })
        })
    }

    /// Waits for the permits to hold one page of a list in memory.
    pub(crate) async fn take_page(&self) -> WorkPermit {
        self.pages.acquire_permit().await
    }

    /// Whether the lane has no working or waiting task, and no other value shares its limit.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        [&self.work, &self.pages]
            .into_iter()
            .all(|line| Arc::strong_count(&line.own) == 1)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt as _;

    use super::*;

    /// Running work, and the largest number of pieces that ran at the same time.
    #[derive(Debug, Default)]
    struct Busy {
        now: AtomicUsize,
        most: AtomicUsize,
    }

    impl Busy {
        fn work(&self) {
            let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(now, Ordering::SeqCst);
            for _ in 0..100 {
                std::thread::yield_now();
            }
            self.now.fetch_sub(1, Ordering::SeqCst);
        }

        /// Returns the largest number of tasks of these lanes that worked at the same time.
        async fn most(lanes: impl IntoIterator<Item = LaneWorkLimit>) -> usize {
            let busy = Arc::new(Self::default());
            let tasks: Vec<_> = lanes
                .into_iter()
                .map(|turns| {
                    let busy = Arc::clone(&busy);
                    tokio::spawn(async move { turns.run(LARGE, || busy.work()).await })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            busy.most.load(Ordering::SeqCst)
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn a_lane_works_at_one_thing_at_a_time() {
        let lane = SharedWorkLimit::new(4).of_lane();
        assert_eq!(Busy::most(vec![lane.clone(); 64]).await, 1);
        assert!(lane.is_idle());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn all_lanes_together_work_at_so_many_things() {
        let shared = SharedWorkLimit::new(2);
        let most = Busy::most((0..300).map(|_| shared.of_lane())).await;
        assert!((1..=2).contains(&most), "{most}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn work_may_begin_a_task() {
        let lane = SharedWorkLimit::new(1).of_lane();
        let begun = lane.run(LARGE, || tokio::spawn(async { 7 })).await;
        assert_eq!(begun.await.unwrap(), 7);
    }

    #[tokio::test]
    async fn each_lane_has_one_place_in_shared_queue() {
        let shared = SharedWorkLimit::new(1);
        let (many, few) = (shared.of_lane(), shared.of_lane());
        let held = shared.work.acquire().await.unwrap();
        let order = Mutex::new(Vec::new());
        let note = |who: &'static str| {
            let order = &order;
            move || order.lock().unwrap().push(who)
        };
        let waiting = futures::future::join_all((0..20).map(|_| many.run(LARGE, note("many"))));
        tokio::join!(biased; waiting, few.run(LARGE, note("few")), async { drop(held) });
        let order = order.into_inner().unwrap();
        assert_eq!(order.iter().position(|who| *who == "few"), Some(1), "{order:?}");
    }

    #[tokio::test]
    async fn small_work_never_waits() {
        let shared = SharedWorkLimit::new(1);
        let lane = shared.of_lane();
        let _all = shared.work.acquire().await.unwrap();
        assert_eq!(lane.run(LARGE - 1, || 1).now_or_never(), Some(1));
        assert!(lane.run(LARGE, || 1).now_or_never().is_none());
    }

    #[tokio::test]
    async fn pages_are_limited_per_lane_and_in_total() {
        let shared = SharedWorkLimit::new(1);
        let lane = shared.of_lane();
        let held = lane.take_page().await;
        assert!(lane.take_page().now_or_never().is_none());
        let others: Vec<WorkPermit> = (1..PAGES)
            .filter_map(|_| shared.of_lane().take_page().now_or_never())
            .collect();
        assert_eq!(others.len(), PAGES - 1);
        assert!(shared.of_lane().take_page().now_or_never().is_none());
        drop(held);
        assert!(shared.of_lane().take_page().now_or_never().is_some());
    }
}
