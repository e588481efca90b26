//! Owns the budget of a build: what it makes is counted in bytes, what it does in steps, and when either is spent, or the caller
//! wants it to end, everything that could go on asks here and stops.
//!
//! The counters belong to the thread for as long as a build runs on it, and aren't handed from function to function: what is
//! copied or made is counted where nodes and texts are made ([`crate::yaml::node`]), so a transformer that is added later can't
//! forget it. Counting never fails; a loop that may run long calls [`check`] and hands its error up. [`crate::build_each`] looks once
//! more at the end, so that a spent build never looks complete, whatever became of the error on its way.

use std::cell::{Cell, RefCell};

use crate::error::Error;
use crate::options::{Budget, Stop};

/// Steps between two looks at whether the caller wants the build to end.
const QUANTUM: u64 = 4096;

/// Why a build is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spent {
    Bytes(u64),
    Steps(u64),
    Stopped,
}

impl Spent {
    pub(crate) fn message(self) -> String {
        match self {
            Spent::Bytes(limit) => format!(
                "the build makes more than {}: copy less, or shorter texts, into fewer fields, split the build, or raise its budget \
                 of bytes",
                shown(limit)
            ),
            Spent::Steps(limit) => format!(
                "the build takes more than {limit} steps: use fewer or simpler transformers on fewer resources, split the build, or \
                 raise its budget of steps"
            ),
            Spent::Stopped => "the build was stopped by its caller".to_owned(),
        }
    }

    /// The error of a build that is given up; `met` is what it ended with, which says where.
    pub(crate) fn error(self, met: Option<&Error>, directory: &str) -> Error {
        let place = met.and_then(Error::place);
        let place = place.unwrap_or_else(|| crate::error::shown(directory).to_owned());
        match self {
            Spent::Stopped => Error::Stopped { place },
            Spent::Bytes(limit) | Spent::Steps(limit) => Error::Budget {
                place,
                message: self.message(),
                limit,
            },
        }
    }
}

/// Bytes as people write them.
fn shown(bytes: u64) -> String {
    [(30, "GiB"), (20, "MiB"), (10, "KiB")]
        .into_iter()
        .find(|(shift, _)| bytes >= 1 << shift && bytes.is_multiple_of(1 << shift))
        .map_or_else(
            || format!("{bytes} bytes"),
            |(shift, unit)| format!("{} {unit}", bytes >> shift),
        )
}

struct Meter {
    /// Bytes that may still be made.
    bytes: Cell<u64>,
    /// Steps until the next look around.
    until_look: Cell<u64>,
    /// Steps that come after those.
    steps: Cell<u64>,
    limits: Cell<Budget>,
    spent: Cell<Option<Spent>>,
}

const NO_LIMIT: u64 = u64::MAX;

thread_local! {
    static METER: Meter = const {
        Meter {
            bytes: Cell::new(NO_LIMIT),
            until_look: Cell::new(NO_LIMIT),
            steps: Cell::new(0),
            limits: Cell::new(Budget::UNLIMITED),
            spent: Cell::new(None),
        }
    };
    static STOP: RefCell<Stop> = const { RefCell::new(Stop::NEVER) };
}

/// Counts a build until it is dropped.
pub(crate) struct Metering {
    before: (u64, u64, u64, Budget, Option<Spent>),
    stop: Stop,
}

/// Begins to count a build on this thread.
pub(crate) fn begin(budget: Budget, stop: &Stop) -> Metering {
    let is_stopped = stop.is_stopped();
    let stop = STOP.with(|held| held.replace(stop.clone()));
    METER.with(|meter| Metering {
        before: (
            meter.bytes.replace(budget.bytes),
            meter.until_look.replace(QUANTUM.min(budget.steps)),
            meter.steps.replace(budget.steps.saturating_sub(QUANTUM)),
            meter.limits.replace(budget),
            meter.spent.replace(is_stopped.then_some(Spent::Stopped)),
        ),
        stop,
    })
}

impl Metering {
    /// What the build has made and done so far.
    pub(crate) fn used(&self) -> Budget {
        METER.with(|meter| {
            let limits = meter.limits.get();
            Budget {
                bytes: limits.bytes - meter.bytes.get(),
                steps: limits.steps
                    - meter
                        .steps
                        .get()
                        .saturating_add(meter.until_look.get())
                        .min(limits.steps),
            }
        })
    }
}

impl Drop for Metering {
    fn drop(&mut self) {
        let (bytes, until_look, steps, limits, spent) = self.before;
        METER.with(|meter| {
            meter.bytes.set(bytes);
            meter.until_look.set(until_look);
            meter.steps.set(steps);
            meter.limits.set(limits);
            meter.spent.set(spent);
        });
        STOP.with(|held| held.replace(std::mem::take(&mut self.stop)));
    }
}

/// Counts bytes that are made.
#[inline]
pub(crate) fn made(bytes: usize) {
    METER.with(|meter| match meter.bytes.get().checked_sub(bytes as u64) {
        Some(left) => meter.bytes.set(left),
        None => give_up(meter, Spent::Bytes(meter.limits.get().bytes)),
    });
}

/// Counts steps: nodes, resources or names that are looked at, and bytes of text by the sixteen.
#[inline]
pub(crate) fn work(steps: usize) {
    METER.with(|meter| match meter.until_look.get().checked_sub(steps as u64) {
        Some(left) if left > 0 => meter.until_look.set(left),
        _ => look_around(meter, steps as u64),
    });
}

/// Counts a text that is made.
#[inline]
pub(crate) fn text(length: usize) {
    made(length);
    work(1 + length / 16);
}

#[cold]
fn look_around(meter: &Meter, steps: u64) {
    let over = steps.saturating_sub(meter.until_look.get());
    let left = meter.steps.get();
    if STOP.with(|stop| stop.try_borrow().is_ok_and(|stop| stop.is_stopped())) {
        give_up(meter, Spent::Stopped);
    }
    if left < over || left == 0 {
        give_up(meter, Spent::Steps(meter.limits.get().steps));
    }
    let taken = left.min(over.saturating_add(QUANTUM));
    meter.steps.set(left - taken);
    meter.until_look.set(taken.saturating_sub(over));
}

#[cold]
fn give_up(meter: &Meter, why: Spent) {
    if meter.spent.get().is_none() {
        meter.spent.set(Some(why));
    }
}

/// Why the build of this thread is given up, if it is.
#[inline]
pub(crate) fn spent() -> Option<Spent> {
    METER.with(|meter| meter.spent.get())
}

/// Tells whether to go on.
///
/// # Errors
/// When the build is given up; says why.
#[inline]
pub(crate) fn check() -> Result<(), String> {
    match spent() {
        None => Ok(()),
        Some(why) => Err(why.message()),
    }
}

/// Gives back what is made until it is dropped: for what is read or written only to be looked at. The steps stay.
pub(crate) struct Passing(u64);

/// From here on, what is made is gone again soon.
pub(crate) fn in_passing() -> Passing {
    Passing(METER.with(|meter| meter.bytes.get()))
}

impl Passing {
    /// It turns out to stay.
    pub(crate) fn stays(self) {
        std::mem::forget(self);
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        METER.with(|meter| {
            if meter.spent.get().is_none() {
                meter.bytes.set(self.0);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Budget = Budget {
        bytes: 100,
        steps: 10_000,
    };

    #[test]
    fn bytes_are_counted_until_they_are_spent() {
        let metering = begin(SMALL, &Stop::NEVER);
        made(60);
        {
            let _passing = in_passing();
            made(40);
            assert_eq!(spent(), None);
        }
        assert_eq!(metering.used().bytes, 60);
        made(41);
        assert_eq!(spent(), Some(Spent::Bytes(100)));
        assert!(check().unwrap_err().contains("more than 100 bytes"));
        drop(metering);
        assert_eq!(spent(), None);
    }

    #[test]
    fn steps_are_counted_in_small_and_in_large() {
        for one in [1, 7, 4096, 9999] {
            let metering = begin(SMALL, &Stop::NEVER);
            for _ in 0..9_999 / one {
                work(one);
            }
            assert_eq!(spent(), None, "{one}");
            assert_eq!(metering.used().steps, 9_999 / one as u64 * one as u64, "{one}");
            work(9_999);
            assert_eq!(spent(), Some(Spent::Steps(10_000)), "{one}");
        }
    }

    #[test]
    fn a_stop_is_noticed_within_a_quantum() {
        let stop = Stop::new();
        let _metering = begin(Budget::UNLIMITED, &stop);
        work(1);
        stop.stop();
        (0..QUANTUM).for_each(|_| work(1));
        assert_eq!(spent(), Some(Spent::Stopped));
    }

    #[test]
    fn a_build_inside_another_counts_for_itself() {
        let outer = begin(SMALL, &Stop::NEVER);
        {
            let _inner = begin(SMALL, &Stop::NEVER);
            made(1000);
            assert!(spent().is_some());
        }
        assert_eq!((spent(), outer.used().bytes), (None, 0));
    }
}
