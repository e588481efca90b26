//! Checkpoints of computations whose length a client chose. A loop over a client's data can't be removed from its
//! thread. So the loop calls [`checkpoint`] at each step, and [`report_bytes`] where it reports something.
//!
//! A computation ends by unwinding the stack, with an [`Ended`] as the payload. Invariant: such a computation owns
//! all its data, so no loop runs while shared data is half changed. The caller that starts the computation sets the
//! [`Limits`] and has the clock. Without limits nothing ends.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;

/// Steps between two checks of the limits.
pub const STEPS: u32 = 256;

/// The reason why a computation was ended: the payload of the unwinding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The time is over, or no caller waits for the result.
    OutOfTime,
    /// The computation reports more than anyone would read: some rules report each pair of items.
    TooManyReports,
}

/// The limits of a computation: its time, and the bytes of its reports.
pub trait Limits: fmt::Debug + Send + Sync {
    /// Checks whether the computation must end. Called every [`STEPS`] steps.
    fn is_over(&self) -> bool;

    /// Adds bytes to the length of all reports, and returns whether the total is within the limit.
    fn may_report(&self, bytes: usize) -> bool;
}

thread_local! {
    static PRESENT: RefCell<Option<Arc<dyn Limits>>> = const { RefCell::new(None) };
    static TAKEN: Cell<u32> = const { Cell::new(0) };
}

/// A guard: the given limits apply to the current thread until the value is dropped.
#[must_use = "the limits hold for as long as this lives"]
#[derive(Debug)]
pub struct LimitsGuard {
    before: Option<Arc<dyn Limits>>,
}

impl LimitsGuard {
    /// Sets the limits of this thread, until the result is dropped; then the previous limits apply again.
    pub fn enter(limits: Arc<dyn Limits>) -> Self {
        Self {
            before: PRESENT.replace(Some(limits)),
        }
    }
}

impl Drop for LimitsGuard {
    fn drop(&mut self) {
        PRESENT.set(self.before.take());
    }
}

/// Marks one step of a loop whose length a client chose. Does not return if the computation must end.
pub fn checkpoint() {
    let taken = TAKEN.get().wrapping_add(1);
    TAKEN.set(taken);
    if taken.is_multiple_of(STEPS) {
        check_limits();
    }
}

/// Ends the computation if the limits of this thread are exceeded.
#[cold]
fn check_limits() {
    let over = PRESENT.with_borrow(|present| present.as_ref().is_some_and(|limits| limits.is_over()));
    if over && !std::thread::panicking() {
        resume_unwind(Box::new(Ended::OutOfTime));
    }
}

/// Announces a report of this many bytes. Does not return if that is too much.
pub fn report_bytes(bytes: usize) {
    let may = PRESENT.with_borrow(|present| present.as_ref().is_none_or(|limits| limits.may_report(bytes)));
    if !may && !std::thread::panicking() {
        resume_unwind(Box::new(Ended::TooManyReports));
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[derive(Debug, Default)]
    struct TestLimits {
        over: AtomicBool,
    }

    impl Limits for TestLimits {
        fn is_over(&self) -> bool {
            self.over.load(Ordering::Relaxed)
        }

        fn may_report(&self, bytes: usize) -> bool {
            bytes <= 10
        }
    }

    /// Runs work. Returns the reason, if a checkpoint ended it.
    fn ends(work: impl FnOnce()) -> Option<Ended> {
        let ended = catch_unwind(AssertUnwindSafe(work)).err()?;
        ended.downcast::<Ended>().ok().map(|ended| *ended)
    }

    fn loops() -> Option<Ended> {
        ends(|| (0..STEPS).for_each(|_| checkpoint()))
    }

    #[test]
    fn work_without_limits_goes_on() {
        assert_eq!(loops(), None);
        assert_eq!(ends(|| report_bytes(usize::MAX)), None);
    }

    #[test]
    fn limits_end_work_until_they_are_left() {
        let limits = Arc::new(TestLimits::default());
        let within = LimitsGuard::enter(limits.clone());
        assert_eq!(loops(), None);
        assert_eq!(ends(|| report_bytes(10)), None);
        assert_eq!(ends(|| report_bytes(11)), Some(Ended::TooManyReports));
        limits.over.store(true, Ordering::Relaxed);
        assert_eq!(loops(), Some(Ended::OutOfTime));
        {
            let _inner = LimitsGuard::enter(Arc::new(TestLimits::default()));
            assert_eq!(loops(), None, "the innermost limits hold");
        }
        assert_eq!(loops(), Some(Ended::OutOfTime), "then those before");
        drop(within);
        assert_eq!(loops(), None);
    }
}
