//! Threads with a lower priority than all others. Long computations run there, so that short ones find a processor at
//! once.
//!
//! The caller decides which work runs here, how much at the same time, and when it has to end.
//!
//! A share of the processors alone is not enough. With two processors, a tenant with large objects may use one for
//! its lane's work and one for its requests. A small tenant then waits until the scheduler preempts a processor, some
//! milliseconds each time. A thread with a lower priority yields the processor as soon as another thread is ready,
//! and otherwise uses all free time.

use std::panic::resume_unwind;
use std::thread::{Builder, scope};

/// Niceness of such a thread: each step reduces its weight by about a quarter. With five, it has a third of the
/// weight of others. So it yields at once to a thread that wakes up. If the processors are never idle, it still
/// progresses slowly, so that no thread waits forever for something that it holds.
const STEPS_BACK: i32 = 5;

/// Runs `work` on a thread with a lower priority, and returns its result. The calling thread waits meanwhile, so it
/// must not be one that serves other requests. A panic continues in the calling thread.
///
/// Each call creates a thread, since a thread can't raise its priority again without privileges. That takes some 30
/// µs, and typical work takes milliseconds. If the system refuses the thread or the lower priority, the work runs
/// anyway.
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
        // A thread that ran has taken the work, and has returned its result.
        (_, None) => unreachable!("the work was taken by nobody"),
    }
}

/// Lowers the priority. On Linux this affects only the calling thread; elsewhere it would affect the whole process.
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
    fn borrowed_data_is_changed_in_place() {
        let mut numbers = vec![3, 1, 2];
        let sum: i32 = run_behind_others(|| {
            numbers.sort_unstable();
            numbers.iter().sum()
        });
        assert_eq!((sum, numbers), (6, vec![1, 2, 3]));
    }

    #[test]
    fn panics_reach_the_caller() {
        let panicked = catch_unwind(|| run_behind_others(|| std::panic::panic_any(7_u8)));
        assert_eq!(panicked.unwrap_err().downcast_ref::<u8>(), Some(&7));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn only_working_thread_lowers_its_priority() {
        let niceness = || rustix::process::nice(0).unwrap();
        let before = niceness();
        assert_eq!(run_behind_others(niceness), (before + STEPS_BACK).min(19));
        assert_eq!(niceness(), before);
    }
}
