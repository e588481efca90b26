//! Turns for what is large: reading long answers, working with large objects, and holding pages of lists.
//!
//! Owns who works when. It is done away from the threads that serve everybody, one piece of work of a lane at a time, and half of the
//! processors at most do such work; whoever is small never waits. Refuses to know what is computed, and which lanes there are.

use std::sync::Arc;

use tenure_background::run_behind_others;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// From so many bytes of text on, work waits for a turn: a processor is busy for some milliseconds with as much.
const LARGE: usize = 128 << 10;

/// How many pages of lists are in memory at the same time. One takes three times its text while it is taken apart.
const PAGES: usize = 4;

/// What all lanes share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SharedTurns {
    work: Arc<Semaphore>,
    pages: Arc<Semaphore>,
}

impl Default for SharedTurns {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self::new(processors / 2)
    }
}

impl SharedTurns {
    /// So many work at the same time, and at least one.
    #[must_use]
    pub fn new(at_once: usize) -> Self {
        Self {
            work: Arc::new(Semaphore::new(at_once.max(1))),
            pages: Arc::new(Semaphore::new(PAGES)),
        }
    }

    /// Everything that there is of them, as if every lane were busy.
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

    /// The turns of another lane.
    #[must_use]
    pub fn of_lane(&self) -> WorkTurns {
        let line = |all: &Arc<Semaphore>| Line {
            own: Arc::new(Semaphore::new(1)),
            all: Arc::clone(all),
        };
        WorkTurns {
            work: line(&self.work),
            pages: line(&self.pages),
        }
    }
}

/// The turns of one lane. Cheap to clone.
#[derive(Clone, Debug)]
pub struct WorkTurns {
    work: Line,
    pages: Line,
}

/// One place of the lane's, and the places of all.
#[derive(Clone, Debug)]
struct Line {
    own: Arc<Semaphore>,
    all: Arc<Semaphore>,
}

/// A place of the lane's and one among all, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _all: Option<OwnedSemaphorePermit>,
    _own: Option<OwnedSemaphorePermit>,
}

impl Line {
    /// First in the lane's own line: so only one of a lane waits in everybody's. Neither is ever closed.
    async fn take(&self) -> Turn {
        let own = Arc::clone(&self.own).acquire_owned().await.ok();
        let all = Arc::clone(&self.all).acquire_owned().await.ok();
        Turn { _all: all, _own: own }
    }
}

impl WorkTurns {
    /// Does work on so many bytes of text: at once if they are few, else when it is its turn, where nobody waits for the thread, and behind
    /// whoever has less to do.
    pub async fn run<T: Send>(&self, bytes: usize, work: impl FnOnce() -> T + Send) -> T {
        if bytes < LARGE {
            return work();
        }
        let _turn = self.work.take().await;
        // A runtime of one thread has nobody to hand its other tasks to.
        let runtime = Handle::current();
        if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
            return work();
        }
        tokio::task::block_in_place(|| {
            run_behind_others(|| {
                // Who is told of something may begin a task.
                let _within = runtime.enter();
                work()
            })
        })
    }

    /// Waits until a page of a list may be held.
    pub(crate) async fn take_page(&self) -> Turn {
        self.pages.take().await
    }

    /// Whether nobody works or waits in the lane, and it is nobody else's.
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

    /// Work that is under way, and how much of it was at the same time.
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

        /// The most that was done at the same time by tasks of these lanes.
        async fn most(lanes: impl IntoIterator<Item = WorkTurns>) -> usize {
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
        let lane = SharedTurns::new(4).of_lane();
        assert_eq!(Busy::most(vec![lane.clone(); 64]).await, 1);
        assert!(lane.is_idle());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn all_lanes_together_work_at_so_many_things() {
        let shared = SharedTurns::new(2);
        let most = Busy::most((0..300).map(|_| shared.of_lane())).await;
        assert!((1..=2).contains(&most), "{most}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn work_may_begin_a_task() {
        let lane = SharedTurns::new(1).of_lane();
        let begun = lane.run(LARGE, || tokio::spawn(async { 7 })).await;
        assert_eq!(begun.await.unwrap(), 7);
    }

    #[tokio::test]
    async fn one_of_a_lane_stands_in_the_line_of_all() {
        let shared = SharedTurns::new(1);
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
    async fn what_is_small_never_waits() {
        let shared = SharedTurns::new(1);
        let lane = shared.of_lane();
        let _all = shared.work.acquire().await.unwrap();
        assert_eq!(lane.run(LARGE - 1, || 1).now_or_never(), Some(1));
        assert!(lane.run(LARGE, || 1).now_or_never().is_none());
    }

    #[tokio::test]
    async fn a_lane_holds_one_page_and_all_hold_so_many() {
        let shared = SharedTurns::new(1);
        let lane = shared.of_lane();
        let held = lane.take_page().await;
        assert!(lane.take_page().now_or_never().is_none());
        let others: Vec<Turn> = (1..PAGES)
            .filter_map(|_| shared.of_lane().take_page().now_or_never())
            .collect();
        assert_eq!(others.len(), PAGES - 1);
        assert!(shared.of_lane().take_page().now_or_never().is_none());
        drop(held);
        assert!(shared.of_lane().take_page().now_or_never().is_some());
    }
}
