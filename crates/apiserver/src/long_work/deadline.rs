//! Limits of the work on a request: its time, and the size of its messages. The checkpoints of loops
//! ([`tenure_checkpoint`]) ask this module, which never waits.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Instant;

use tenure_checkpoint::Limits;
use tokio::sync::Semaphore;

/// Limit for the messages of one request, in bytes.
const MAX_REPORTED: usize = 32 * 1024 * 1024;

/// The limits of the work on one request: its time, and the size of its messages.
#[derive(Debug)]
pub(crate) struct Deadline {
    at: Instant,
    given_up: AtomicBool,
    reported: AtomicUsize,
    /// Number of places in line that this request holds: for locks that requests of all users need.
    pub(super) awaited: AtomicUsize,
    /// The user's line for such a lock.
    pub(super) line: OnceLock<Arc<Semaphore>>,
}

impl Deadline {
    pub(crate) fn new(at: Instant) -> Arc<Self> {
        Arc::new(Self {
            at,
            given_up: AtomicBool::new(false),
            reported: AtomicUsize::new(0),
            awaited: AtomicUsize::new(0),
            line: OnceLock::new(),
        })
    }

    /// Marks that no caller waits for the result any more.
    pub(super) fn mark_given_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }
}

impl Limits for Deadline {
    fn is_over(&self) -> bool {
        self.given_up.load(Ordering::Relaxed) || Instant::now() >= self.at
    }

    fn may_report(&self, bytes: usize) -> bool {
        self.reported.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) <= MAX_REPORTED
    }
}

thread_local! {
    /// The deadline of the request on which this thread works.
    static PRESENT: RefCell<Option<Arc<Deadline>>> = const { RefCell::new(None) };
}

/// Returns the deadline of the request on which this thread works, if it works on one.
pub(super) fn find_current_deadline() -> Option<Arc<Deadline>> {
    PRESENT.with_borrow(Clone::clone)
}

/// Marks the thread as working on a request with this deadline, until dropped.
struct Present {
    before: Option<Arc<Deadline>>,
    _limits: tenure_checkpoint::LimitsGuard,
}

impl Present {
    fn set_deadline(deadline: &Arc<Deadline>) -> Self {
        Self {
            before: PRESENT.replace(Some(deadline.clone())),
            _limits: tenure_checkpoint::LimitsGuard::enter(deadline.clone()),
        }
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        PRESENT.set(self.before.take());
    }
}

/// Work that ends at its deadline, whichever thread runs it.
pub(crate) struct WithDeadline<F> {
    deadline: Arc<Deadline>,
    work: Pin<Box<F>>,
}

impl<F: Future> WithDeadline<F> {
    pub(crate) fn new(deadline: Arc<Deadline>, work: F) -> Self {
        Self {
            deadline,
            work: Box::pin(work),
        }
    }
}

impl<F: Future> Future for WithDeadline<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        let _present = Present::set_deadline(&this.deadline);
        this.work.as_mut().poll(context)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::Duration;

    use tenure_checkpoint::{Ended, STEPS, checkpoint, report_bytes};

    use super::*;

    /// Runs a loop of this many steps. Returns its end, if a checkpoint ended it.
    fn run_steps(steps: u32) -> Result<(), Ended> {
        run_work(|| (0..steps).for_each(|_| checkpoint()))
    }

    fn run_work(work: impl FnOnce()) -> Result<(), Ended> {
        catch_unwind(AssertUnwindSafe(work))
            .map_err(|payload| *payload.downcast::<Ended>().expect("the end of a deadline"))
    }

    fn far_deadline() -> Instant {
        Instant::now() + Duration::from_secs(3600)
    }

    #[test]
    fn a_loop_ends_when_its_time_is_up() {
        assert_eq!(run_steps(10 * STEPS), Ok(()), "who has no deadline goes on");
        {
            let _present = Present::set_deadline(&Deadline::new(far_deadline()));
            assert_eq!(run_steps(10 * STEPS), Ok(()));
            let _within = Present::set_deadline(&Deadline::new(Instant::now()));
            assert_eq!(run_steps(STEPS), Err(Ended::OutOfTime));
        }
        assert_eq!(
            run_steps(10 * STEPS),
            Ok(()),
            "and the next on this thread is not ended"
        );
    }

    #[test]
    fn a_loop_ends_when_nobody_waits_for_it() {
        let deadline = Deadline::new(far_deadline());
        let _present = Present::set_deadline(&deadline);
        assert_eq!(run_steps(STEPS), Ok(()));
        deadline.mark_given_up();
        assert_eq!(run_steps(STEPS), Err(Ended::OutOfTime));
    }

    #[test]
    fn reports_are_bounded_by_their_limit() {
        let once = || report_bytes(MAX_REPORTED);
        assert_eq!(run_work(|| (0..3).for_each(|_| once())), Ok(()), "of no request");
        let _present = Present::set_deadline(&Deadline::new(far_deadline()));
        assert_eq!(run_work(once), Ok(()));
        assert_eq!(run_work(|| report_bytes(1)), Err(Ended::TooManyReports));
    }
}
