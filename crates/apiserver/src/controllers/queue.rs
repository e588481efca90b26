//! The queue of tasks. A task waits at most once, however often it is added. A task never runs twice at the same
//! time. A failed task waits longer each time. A task that is added while it runs will run again. This module is
//! pure: the caller passes the time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::dispatch::Task;

const FIRST_DELAY: Duration = Duration::from_millis(20);
const LONGEST_DELAY: Duration = Duration::from_secs(30);

/// The waiting, running and delayed tasks of the controllers.
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
    /// Adds a task.
    pub(super) fn push(&mut self, task: Task) {
        if self.running.contains(&task) {
            self.again.insert(task);
        } else if self.queued.insert(task.clone()) {
            self.ready.push_back(task);
        }
    }

    /// Returns the next task and marks it as running.
    pub(super) fn start(&mut self) -> Option<Task> {
        let task = self.ready.pop_front()?;
        self.queued.remove(&task);
        self.running.insert(task.clone());
        Some(task)
    }

    /// Checks whether the task's last run failed.
    pub(super) fn has_failed(&self, task: &Task) -> bool {
        self.failures.contains_key(task)
    }

    /// Returns the number of running tasks.
    pub(super) fn running(&self) -> usize {
        self.running.len()
    }

    /// Marks a task as ended. A failed task is retried after a while.
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

    /// Adds a task for a later time.
    pub(super) fn push_at(&mut self, task: Task, at: Instant) {
        self.delayed.push(Reverse((at, task)));
    }

    /// Returns the time of the next delayed task.
    pub(super) fn next_delayed(&self) -> Option<Instant> {
        self.delayed.peek().map(|Reverse((at, _))| *at)
    }

    /// Moves delayed tasks whose time has come to the queue.
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
