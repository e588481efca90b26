//! Counts the bytes that are made and the steps that are done, so that a reader of untrusted text can limit and stop the work.
//!
//! The counters belong to the thread, from [`start_metering`] until its result is dropped. Functions do not pass them on: nodes and texts are
//! counted where they are made ([`crate::node`]), so no caller can forget to count. Counting never fails. A loop that may run long calls
//! [`check`] and returns its error. The caller of [`start_metering`] checks [`exhausted_limit`] at the end, so an aborted result never looks complete.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The number of steps between two checks whether the caller has stopped the work.
const QUANTUM: u64 = 4096;

/// The limits for bytes and steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// Bytes that are made: nodes as stored (40 bytes, plus the text if it is longer than 23 bytes), and bytes that callers count.
    pub bytes: u64,
    /// Units of work: a visited node, or sixteen bytes of text.
    pub steps: u64,
}

impl Allowance {
    /// No limit at all.
    pub const UNLIMITED: Allowance = Allowance {
        bytes: u64::MAX,
        steps: u64::MAX,
    };
}

/// The reason why metered work ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spent {
    /// The work made more bytes than this limit.
    Bytes(u64),
    /// The work took more steps than this limit.
    Steps(u64),
    /// The caller stopped the work.
    Stopped,
}

impl fmt::Display for Spent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spent::Bytes(limit) => write!(formatter, "more than {limit} bytes are made of it"),
            Spent::Steps(limit) => write!(formatter, "it takes more than {limit} steps"),
            Spent::Stopped => formatter.write_str("it was stopped"),
        }
    }
}

/// The counters of one thread.
struct Meter {
    /// Bytes that may still be made.
    bytes: Cell<u64>,
    /// Steps until the next check whether the caller has stopped the work.
    until_look: Cell<u64>,
    /// Steps that are allowed after that check.
    steps: Cell<u64>,
    limits: Cell<Allowance>,
    spent: Cell<Option<Spent>>,
}

const NO_LIMIT: u64 = u64::MAX;

thread_local! {
    static METER: Meter = const {
        Meter {
            bytes: Cell::new(NO_LIMIT),
            until_look: Cell::new(NO_LIMIT),
            steps: Cell::new(0),
            limits: Cell::new(Allowance::UNLIMITED),
            spent: Cell::new(None),
        }
    };
    static STOP: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// Counts on this thread until it is dropped.
#[derive(Debug)]
#[must_use = "it counts for as long as it lives"]
pub struct Metering {
    before: (u64, u64, u64, Allowance, Option<Spent>),
    stop: Option<Arc<AtomicBool>>,
}

/// Begins to count on this thread until the result is dropped; then the previous count continues. `stop` ends the work from another thread.
pub fn start_metering(allowance: Allowance, stop: Option<Arc<AtomicBool>>) -> Metering {
    let is_stopped = is_set(stop.as_ref());
    let stop = STOP.with(|held| held.replace(stop));
    METER.with(|meter| Metering {
        before: (
            meter.bytes.replace(allowance.bytes),
            meter.until_look.replace(QUANTUM.min(allowance.steps)),
            meter.steps.replace(allowance.steps.saturating_sub(QUANTUM)),
            meter.limits.replace(allowance),
            meter.spent.replace(is_stopped.then_some(Spent::Stopped)),
        ),
        stop,
    })
}

fn is_set(stop: Option<&Arc<AtomicBool>>) -> bool {
    stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
}

impl Metering {
    /// Returns the bytes and steps that have been used so far.
    #[must_use]
    pub fn usage(&self) -> Allowance {
        METER.with(|meter| {
            let limits = meter.limits.get();
            Allowance {
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
        STOP.with(|held| held.replace(self.stop.take()));
    }
}

/// Counts bytes that are made.
#[inline]
pub fn count_bytes(bytes: usize) {
    METER.with(|meter| match meter.bytes.get().checked_sub(bytes as u64) {
        Some(left) => meter.bytes.set(left),
        None => give_up(meter, Spent::Bytes(meter.limits.get().bytes)),
    });
}

/// Counts steps: visited nodes, resources or names, and one step for sixteen bytes of text.
#[inline]
pub fn count_steps(steps: usize) {
    METER.with(|meter| match meter.until_look.get().checked_sub(steps as u64) {
        Some(left) if left > 0 => meter.until_look.set(left),
        _ => look_around(meter, steps as u64),
    });
}

/// Counts a text that is made.
#[inline]
pub fn count_text(length: usize) {
    count_bytes(length);
    count_steps(1 + length / 16);
}

#[cold]
fn look_around(meter: &Meter, steps: u64) {
    let over = steps.saturating_sub(meter.until_look.get());
    let left = meter.steps.get();
    if STOP.with(|stop| stop.try_borrow().is_ok_and(|stop| is_set(stop.as_ref()))) {
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

/// Returns the exhausted limit, if a limit is exhausted.
#[inline]
#[must_use]
pub fn exhausted_limit() -> Option<Spent> {
    METER.with(|meter| meter.spent.get())
}

/// Checks whether the work may continue.
///
/// # Errors
/// If a limit is exhausted; the message says which one.
#[inline]
pub fn check() -> Result<(), String> {
    match exhausted_limit() {
        None => Ok(()),
        Some(why) => Err(why.to_string()),
    }
}

/// Gives back the bytes made during its life, for data that is read or written only for inspection. The steps stay counted.
#[derive(Debug)]
#[must_use = "it gives back when it is dropped"]
pub struct Passing(u64);

/// Begins a section whose data is dropped soon.
pub fn in_passing() -> Passing {
    Passing(METER.with(|meter| meter.bytes.get()))
}

impl Passing {
    /// Keeps the bytes counted, because the data stays.
    pub fn stays(self) {
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

    const SMALL: Allowance = Allowance {
        bytes: 100,
        steps: 10_000,
    };

    #[test]
    fn bytes_are_counted_until_they_are_spent() {
        let metering = start_metering(SMALL, None);
        count_bytes(60);
        {
            let _passing = in_passing();
            count_bytes(40);
            assert_eq!(exhausted_limit(), None);
        }
        assert_eq!(metering.usage().bytes, 60);
        count_bytes(41);
        assert_eq!(exhausted_limit(), Some(Spent::Bytes(100)));
        assert!(check().unwrap_err().contains("more than 100 bytes"));
        drop(metering);
        assert_eq!(exhausted_limit(), None);
    }

    #[test]
    fn steps_are_counted_in_small_and_in_large() {
        for one in [1, 7, 4096, 9999] {
            let metering = start_metering(SMALL, None);
            for _ in 0..9_999 / one {
                count_steps(one);
            }
            assert_eq!(exhausted_limit(), None, "{one}");
            assert_eq!(metering.usage().steps, 9_999 / one as u64 * one as u64, "{one}");
            count_steps(9_999);
            assert_eq!(exhausted_limit(), Some(Spent::Steps(10_000)), "{one}");
        }
    }

    #[test]
    fn a_stop_is_noticed_within_a_quantum() {
        let stop = Arc::new(AtomicBool::new(false));
        let _metering = start_metering(Allowance::UNLIMITED, Some(stop.clone()));
        count_steps(1);
        stop.store(true, Ordering::Relaxed);
        (0..QUANTUM).for_each(|_| count_steps(1));
        assert_eq!(exhausted_limit(), Some(Spent::Stopped));
    }

    #[test]
    fn a_build_inside_another_counts_for_itself() {
        let outer = start_metering(SMALL, None);
        {
            let _inner = start_metering(SMALL, None);
            count_bytes(1000);
            assert!(exhausted_limit().is_some());
        }
        assert_eq!((exhausted_limit(), outer.usage().bytes), (None, 0));
    }
}
