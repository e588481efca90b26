//! Where a computation may end whose length somebody else chose: a loop over what a client sent can't be taken away from its thread, so it
//! calls [`checkpoint`] at each step, and [`say`] where it reports something.
//!
//! Owns how such a computation ends: it unwinds the stack, with an [`Ended`] as the payload. What it unwinds are computations that own all
//! they work on; no such loop runs while something shared is half changed. Refuses to know when that is: whoever starts the computation
//! says so with [`Limits`], and has the clock. Without limits nothing ends.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;

/// As many steps are taken without asking the limits.
pub const STEPS: u32 = 256;

/// Why a computation ends that may not go on: the payload of the unwinding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Its time is up, or nobody waits for it.
    OutOfTime,
    /// It has more to say than anybody would read: some rules speak of each pair of items.
    SaidTooMuch,
}

/// How far a computation may go.
pub trait Limits: fmt::Debug + Send + Sync {
    /// Whether it may not go on. Asked every [`STEPS`] steps.
    fn is_over(&self) -> bool;

    /// Takes that it has so many more bytes to say; whether it may.
    fn may_say(&self, bytes: usize) -> bool;
}

thread_local! {
    static PRESENT: RefCell<Option<Arc<dyn Limits>>> = const { RefCell::new(None) };
    static TAKEN: Cell<u32> = const { Cell::new(0) };
}

/// While this lives, the thread works within these limits.
#[must_use = "the limits hold for as long as this lives"]
#[derive(Debug)]
pub struct Within {
    before: Option<Arc<dyn Limits>>,
}

impl Within {
    /// Sets the limits of this thread, until the result is dropped; then those before hold again.
    pub fn enter(limits: Arc<dyn Limits>) -> Self {
        Self {
            before: PRESENT.replace(Some(limits)),
        }
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        PRESENT.set(self.before.take());
    }
}

/// One step of a loop whose length somebody else chose. Does not return if the computation may not go on.
pub fn checkpoint() {
    let taken = TAKEN.get().wrapping_add(1);
    TAKEN.set(taken);
    if taken.is_multiple_of(STEPS) {
        look();
    }
}

#[cold]
fn look() {
    let over = PRESENT.with_borrow(|present| present.as_ref().is_some_and(|limits| limits.is_over()));
    if over && !std::thread::panicking() {
        resume_unwind(Box::new(Ended::OutOfTime));
    }
}

/// So many more bytes are to be said. Does not return if that is too much.
pub fn say(bytes: usize) {
    let may = PRESENT.with_borrow(|present| present.as_ref().is_none_or(|limits| limits.may_say(bytes)));
    if !may && !std::thread::panicking() {
        resume_unwind(Box::new(Ended::SaidTooMuch));
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[derive(Debug, Default)]
    struct Told {
        over: AtomicBool,
    }

    impl Limits for Told {
        fn is_over(&self) -> bool {
            self.over.load(Ordering::Relaxed)
        }

        fn may_say(&self, bytes: usize) -> bool {
            bytes <= 10
        }
    }

    /// What ends this work, if something does.
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
        assert_eq!(ends(|| say(usize::MAX)), None);
    }

    #[test]
    fn limits_end_work_until_they_are_left() {
        let told = Arc::new(Told::default());
        let within = Within::enter(told.clone());
        assert_eq!(loops(), None);
        assert_eq!(ends(|| say(10)), None);
        assert_eq!(ends(|| say(11)), Some(Ended::SaidTooMuch));
        told.over.store(true, Ordering::Relaxed);
        assert_eq!(loops(), Some(Ended::OutOfTime));
        {
            let _inner = Within::enter(Arc::new(Told::default()));
            assert_eq!(loops(), None, "the innermost limits hold");
        }
        assert_eq!(loops(), Some(Ended::OutOfTime), "then those before");
        drop(within);
        assert_eq!(loops(), None);
    }
}
