//! Owns the order of tasks: each waits once however often it is asked for, none runs beside itself, one that failed
//! waits longer each time. Pure: time is passed in. Refuses to forget a task that was asked for while it ran.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::dispatch::Task;

const FIRST_DELAY: Duration = Duration::from_millis(20);
const LONGEST_DELAY: Duration = Duration::from_secs(30);

/// The tasks that wait and those that run.
#[derive(Debug, Default)]
pub(super) struct Queue {
    ready: VecDeque<Task>,
    queued: HashSet<Task>,
    running: HashSet<Task>,
    again: HashSet<Task>,
    delayed: BinaryHeap<Reverse<(Instant, Task)>>,
    failures: HashMap<Task, u32>,
}

impl Queue {
    /// Asks for a task.
    pub(super) fn push(&mut self, task: Task) {
        if self.running.contains(&task) {
            self.again.insert(task);
        } else if self.queued.insert(task.clone()) {
            self.ready.push_back(task);
        }
    }

    /// The next task, which then runs.
    pub(super) fn start(&mut self) -> Option<Task> {
        let task = self.ready.pop_front()?;
        self.queued.remove(&task);
        self.running.insert(task.clone());
        Some(task)
    }

    /// Whether the task failed when it ran the last time.
    pub(super) fn has_failed(&self, task: &Task) -> bool {
        self.failures.contains_key(task)
    }

    /// How many run.
    pub(super) fn running(&self) -> usize {
        self.running.len()
    }

    /// A task has ended; one that failed comes again after a while.
    pub(super) fn finish(&mut self, task: Task, failed: bool, now: Instant) {
        self.running.remove(&task);
        if failed {
            let failures = self.failures.entry(task.clone()).or_default();
            *failures += 1;
            let delay = FIRST_DELAY
                .saturating_mul(2_u32.saturating_pow((*failures).min(16)))
                .min(LONGEST_DELAY);
            self.again.remove(&task);
            self.delayed.push(Reverse((now + delay, task)));
            return;
        }
        self.failures.remove(&task);
        if self.again.remove(&task) {
            self.push(task);
        }
    }

    /// Asks for a task at a later time.
    pub(super) fn push_at(&mut self, task: Task, at: Instant) {
        self.delayed.push(Reverse((at, task)));
    }

    /// When the next delayed task comes again.
    pub(super) fn next_delayed(&self) -> Option<Instant> {
        self.delayed.peek().map(|Reverse((at, _))| *at)
    }

    /// Lets delayed tasks that are due come again.
    pub(super) fn release(&mut self, now: Instant) {
        while let Some(Reverse((at, _))) = self.delayed.peek() {
            if *at > now {
                return;
            }
            if let Some(Reverse((_, task))) = self.delayed.pop() {
                self.push(task);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_waits_once_and_never_runs_beside_itself() {
        let now = Instant::now();
        let mut queue = Queue::default();
        let task = || Task::Furnish("a".to_owned());
        queue.push(task());
        queue.push(task());
        assert_eq!(queue.start(), Some(task()));
        assert_eq!(queue.start(), None);
        queue.push(task());
        assert_eq!(queue.start(), None);
        queue.finish(task(), false, now);
        assert_eq!(queue.start(), Some(task()));
        queue.finish(task(), false, now);
        assert_eq!(queue.start(), None);
    }

    #[test]
    fn a_failed_task_comes_again_later_each_time() {
        let now = Instant::now();
        let mut queue = Queue::default();
        let mut last = Duration::ZERO;
        for _ in 0..20 {
            queue.push(Task::Aggregate);
            let Some(task) = queue.start() else {
                unreachable!("it was pushed")
            };
            queue.finish(task, true, now);
            let delay = queue.next_delayed().map(|at| at - now).unwrap_or_default();
            assert!(delay >= last && delay <= LONGEST_DELAY);
            last = delay;
            queue.release(now + LONGEST_DELAY);
            let Some(task) = queue.start() else {
                unreachable!("it was released")
            };
            queue.running.remove(&task);
        }
        assert_eq!(last, LONGEST_DELAY);
    }
}
