//! Threads whose turn comes after everybody else's: what computes for long is done there, so that who has little to do finds a processor
//! at once.
//!
//! Owns how such a thread is made. Refuses to know what is computed, how much of it may be done at the same time, and when it has to end:
//! who calls decides that.
//!
//! A share of the processors alone is not enough. With two of them, a tenant whose objects are large may have one for the work of its
//! lane and one for that of its requests; whoever is small then waits until the scheduler takes a processor away, some
//! milliseconds each time. A thread that has stepped back gives it up as soon as another is ready to run, and has all that is left
//! over otherwise.

use std::panic::resume_unwind;
use std::thread::{Builder, scope};

/// By how much such a thread steps back, as `nice` counts it: each step is about a quarter of what a thread gets beside another. With five,
/// it has a third of the weight of others: it yields at once to who wakes up, and where the processors are never idle it goes on,
/// slowly, so that nobody waits for ever for what it holds.
const STEPS_BACK: i32 = 5;

/// Does `work` on a thread that steps back behind all others, and returns what it comes to. The thread that asks waits meanwhile: it must not
/// be one that serves others. A panic goes on in the thread that asks.
///
/// A thread is made for each piece of work, since none may step forward again without privileges. That takes some 30 µs; what comes here
/// takes milliseconds. Where the system gives no thread, or doesn't let it step back, the work is done all the same.
pub fn run_behind_others<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let mut work = Some(work);
    let slot = &mut work;
    let done = scope(|scope| {
        let thread = Builder::new().name("behind-others".to_owned());
        let worker = thread.spawn_scoped(scope, move || {
            step_back();
            slot.take().map(|work| work())
        });
        worker.ok().map(std::thread::ScopedJoinHandle::join)
    });
    match (done, work) {
        (Some(Ok(Some(result))), _) => result,
        (Some(Err(panicked)), _) => resume_unwind(panicked),
        (_, Some(work)) => work(),
        // A thread that ran has taken the work, and has its result.
        (_, None) => unreachable!("the work was taken by nobody"),
    }
}

/// On Linux this is of the calling thread alone; elsewhere it would be of the whole process.
#[cfg(target_os = "linux")]
fn step_back() {
    let _already_behind = rustix::process::nice(STEPS_BACK);
}

#[cfg(not(target_os = "linux"))]
fn step_back() {}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn what_is_borrowed_comes_back_changed() {
        let mut numbers = vec![3, 1, 2];
        let sum: i32 = run_behind_others(|| {
            numbers.sort_unstable();
            numbers.iter().sum()
        });
        assert_eq!((sum, numbers), (6, vec![1, 2, 3]));
    }

    #[test]
    fn a_panic_is_the_callers() {
        let panicked = catch_unwind(|| run_behind_others(|| std::panic::panic_any(7_u8)));
        assert_eq!(panicked.unwrap_err().downcast_ref::<u8>(), Some(&7));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn only_the_thread_that_works_steps_back() {
        let niceness = || rustix::process::nice(0).unwrap();
        let before = niceness();
        assert_eq!(run_behind_others(niceness), (before + STEPS_BACK).min(19));
        assert_eq!(niceness(), before);
    }
}
