//! How far a computation may go: in time, and in what it says. Owns what loops ask on their way, and how a computation ends
//! that may not go on.
//!
//! Refuses to wait: it counts steps, and looks at the clock every few hundred of them.
//!
//! A thread can't be taken away from a loop that keeps it. So the loops whose length a client chooses call [`checkpoint`], which
//! costs next to nothing, and which unwinds the stack once the request's time is up or its client is gone. What it unwinds
//! are computations that own all they work on: no such loop runs while something shared is half changed.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::sync::Semaphore;

/// As many steps are taken without a look at the clock.
const STEPS: u32 = 256;

/// What may be said of one request, in bytes.
const MOST_SAID: usize = 32 * 1024 * 1024;

/// Why a computation ends that may not go on: the payload of the unwinding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Its time is up, or nobody waits for it.
    OutOfTime,
    /// It has more to say about the request than anybody would read: some rules speak of each pair of items.
    SaidTooMuch,
}

/// The time that a request has.
#[derive(Debug)]
pub(crate) struct Deadline {
    at: Instant,
    given_up: AtomicBool,
    said: AtomicUsize,
    /// How many things it has that everybody waits for.
    pub(super) awaited: AtomicUsize,
    /// Its user's turn to wait for such a thing.
    pub(super) line: OnceLock<Arc<Semaphore>>,
}

impl Deadline {
    pub(crate) fn new(at: Instant) -> Arc<Self> {
        Arc::new(Self {
            at,
            given_up: AtomicBool::new(false),
            said: AtomicUsize::new(0),
            awaited: AtomicUsize::new(0),
            line: OnceLock::new(),
        })
    }

    /// Nobody waits for the answer any more.
    pub(super) fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.given_up.load(Ordering::Relaxed) || Instant::now() >= self.at
    }
}

thread_local! {
    /// That of the request which this thread works on.
    static PRESENT: RefCell<Option<Arc<Deadline>>> = const { RefCell::new(None) };
    static TAKEN: Cell<u32> = const { Cell::new(0) };
}

/// That of the request which this thread works on.
pub(super) fn present() -> Option<Arc<Deadline>> {
    PRESENT.with_borrow(Clone::clone)
}

/// One step of a loop whose length a client chooses. Does not return if the request may not go on.
pub(crate) fn checkpoint() {
    let taken = TAKEN.get().wrapping_add(1);
    TAKEN.set(taken);
    if taken.is_multiple_of(STEPS) {
        look();
    }
}

#[cold]
fn look() {
    let over = PRESENT.with_borrow(|present| present.as_ref().is_some_and(|deadline| deadline.is_over()));
    if over && !std::thread::panicking() {
        resume_unwind(Box::new(Ended::OutOfTime));
    }
}

/// So much more is to be said about a request. Does not return if that is too much.
pub(crate) fn say(bytes: usize) {
    let add = |deadline: &Arc<Deadline>| deadline.said.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
    let said = PRESENT.with_borrow(|present| present.as_ref().map_or(0, add));
    if said > MOST_SAID && !std::thread::panicking() {
        resume_unwind(Box::new(Ended::SaidTooMuch));
    }
}

/// While this lives, the thread works on a request that has this deadline.
struct Present(Option<Arc<Deadline>>);

impl Present {
    fn enter(deadline: &Arc<Deadline>) -> Self {
        Self(PRESENT.replace(Some(deadline.clone())))
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        PRESENT.set(self.0.take());
    }
}

/// Work that ends at its deadline, wherever it is carried on.
pub(crate) struct Within<F> {
    deadline: Arc<Deadline>,
    work: Pin<Box<F>>,
}

impl<F: Future> Within<F> {
    pub(crate) fn new(deadline: Arc<Deadline>, work: F) -> Self {
        Self {
            deadline,
            work: Box::pin(work),
        }
    }
}

impl<F: Future> Future for Within<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        let _present = Present::enter(&this.deadline);
        this.work.as_mut().poll(context)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::Duration;

    use super::*;

    /// What ends a loop of this many steps, if something does.
    fn loops(steps: u32) -> Result<(), Ended> {
        ends(|| (0..steps).for_each(|_| checkpoint()))
    }

    fn ends(work: impl FnOnce()) -> Result<(), Ended> {
        catch_unwind(AssertUnwindSafe(work))
            .map_err(|payload| *payload.downcast::<Ended>().expect("the end of a deadline"))
    }

    fn far() -> Instant {
        Instant::now() + Duration::from_secs(3600)
    }

    #[test]
    fn a_loop_ends_when_its_time_is_up() {
        assert_eq!(loops(10 * STEPS), Ok(()), "who has no deadline goes on");
        {
            let _present = Present::enter(&Deadline::new(far()));
            assert_eq!(loops(10 * STEPS), Ok(()));
            let _within = Present::enter(&Deadline::new(Instant::now()));
            assert_eq!(loops(STEPS), Err(Ended::OutOfTime));
        }
        assert_eq!(loops(10 * STEPS), Ok(()), "and the next on this thread is not ended");
    }

    #[test]
    fn a_loop_ends_when_nobody_waits_for_it() {
        let deadline = Deadline::new(far());
        let _present = Present::enter(&deadline);
        assert_eq!(loops(STEPS), Ok(()));
        deadline.give_up();
        assert_eq!(loops(STEPS), Err(Ended::OutOfTime));
    }

    #[test]
    fn no_more_is_said_than_is_read() {
        let once = || say(MOST_SAID);
        assert_eq!(ends(|| (0..3).for_each(|_| once())), Ok(()), "of no request");
        let _present = Present::enter(&Deadline::new(far()));
        assert_eq!(ends(once), Ok(()));
        assert_eq!(ends(|| say(1)), Err(Ended::SaidTooMuch));
    }
}
