//! The loop of one object: plan and execute until the plan says otherwise, then sleep until its time or a change. Each object has one task, so that
//! no object is reconciled twice at the same time. This module does the waiting. The plan decides when to continue and what to do.
//!
//! Thousands of these tasks rest while a few work, and a task is as large as the largest future that it ever awaits. So a future that a resting task
//! does not need is in a box, which exists only while it is awaited.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tenure_api::ObjectId;
use tenure_cluster::ClusterError;
use tenure_planner::{Next, interrupted_attempts};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::cluster_view::key::Key;
use crate::cluster_view::mailbox::{Mailbox, MailboxTable};
use crate::context::attempt_marks::{AttemptMarks, MarkedTurn};
use crate::telemetry::metrics::{Metrics, Outcome, WaitingGuard};
use crate::telemetry::spans;

/// First and longest pause after a failure of the controller's own bookkeeping.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));
/// The interval between checks for changes while a watch for them is broken or forbidden.
const UNWATCHED: Duration = Duration::from_secs(2);
/// The limit of restarts of an attempt in a row before a pause of one second.
const RESTARTS: u32 = 10;
/// The limit of rounds of an attempt before a pause of one second. A large attempt has about twenty. A plan that never ends must not keep a processor
/// busy.
const ROUNDS: u32 = 200;

/// The reconciler of one object: observe, plan, execute and write in a single round.
pub(crate) trait Reconciler: Send + Sync + 'static {
    /// Returns the key of the object.
    fn key(&self) -> &Key;

    /// Checks whether the object's lane has its rights in the namespace. Before that, nothing is attempted. The object is woken when that changes.
    fn is_admitted(&self) -> bool {
        true
    }

    /// Returns the semaphore that limits the concurrent attempts of the object's lane.
    fn permits(&self) -> impl Future<Output = Arc<Semaphore>> + Send;

    /// Returns a narrower semaphore of the object's lane, for an object with less urgent work. An attempt takes a permit of this semaphore first.
    fn low_priority(&self) -> impl Future<Output = Option<Arc<Semaphore>>> + Send {
        std::future::ready(None)
    }

    /// Observes, plans, executes the plan's steps, and writes status and events. Returns `None` if the object is deleted.
    fn run_round(&mut self) -> impl Future<Output = Result<Option<Next>, ClusterError>> + Send;

    /// Returns the records of running attempts. Only kinds that read content of others have them.
    fn marks(&self) -> Option<Arc<AttemptMarks>> {
        None
    }

    /// Writes into the status that the object waits, because several processes in a row ended during its attempt.
    fn report_wait(&self, _crashes: u32, _until: Timestamp) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Ends the attempt and begins a new one, whose time counts from now.
    fn restart(&mut self);

    /// Checks whether a change is a reason for a new attempt, after the previous attempt has ended.
    fn needs_attempt(&mut self, changed: &HashSet<ObjectId>) -> impl Future<Output = bool> + Send;

    /// Checks whether something that the reconciler waits for may change without a watch event.
    fn needs_polling(&self) -> bool {
        false
    }

    /// Prepares to read objects without watches again, before the next round of a waiting attempt.
    fn prepare_poll(&mut self) {}

    /// Forgets everything about a deleted object.
    fn forget(&mut self);

    /// Checks whether the object exists, also after a re-creation.
    fn exists(&self) -> bool;
}

/// Counts the attempts of one object in the metrics.
#[derive(Clone, Copy)]
pub(crate) struct Meter<'a> {
    pub(crate) metrics: &'a Metrics,
    /// Returns whether the object's status reports a failure; `None` if the object is deleted.
    pub(crate) is_failing: &'a (dyn Fn() -> Option<bool> + Sync),
}

/// Drives one object until its deletion or the end of the controllers. A meter counts the work.
pub(crate) async fn run_object_loop<R: Reconciler>(
    mut reconciler: R,
    mailboxes: &MailboxTable,
    (mailbox, meter): (&Mailbox, Option<Meter<'_>>),
    end: &CancellationToken,
) {
    let mut pause = PAUSES.0;
    let mut complaint = String::new();
    let mut fresh = false;
    let mut began: Option<Instant> = None;
    if !wait_for_admission(&reconciler, mailbox, end).await {
        return;
    }
    let marks = reconciler.marks();
    let (mut first, mut turn) = (None, None);
    if let Some(attempt_marks) = &marks {
        let crashes = attempt_marks.count_crashes(reconciler.key());
        if crashes == 0 {
            first = Some(attempt_marks.begin_first_attempt());
        } else {
            tokio::select! {
                taken = Box::pin(wait_for_turn(&reconciler, attempt_marks, crashes)) => turn = Some(taken),
                () = end.cancelled() => return,
            }
        }
    }
    while !end.is_cancelled() {
        if !wait_for_admission(&reconciler, mailbox, end).await {
            return;
        }
        let waiting = meter.map(|meter| meter.metrics.wait(reconciler.key()));
        let permits = tokio::select! {
            permits = Box::pin(take_permits(&reconciler, mailbox)) => permits,
            () = end.cancelled() => return,
        };
        let working = waiting.map(WaitingGuard::start_work);
        let since = *began.get_or_insert_with(Instant::now);
        // Only after the lane has capacity: the time in the queue does not count for the attempt.
        if std::mem::take(&mut fresh) {
            reconciler.restart();
        }
        let marked = marks
            .as_ref()
            .map(|attempt_marks| attempt_marks.mark_begin(reconciler.key()));
        let span = spans::begin_attempt(reconciler.key());
        let next = Box::pin(run_attempt(&mut reconciler, end).instrument(span)).await;
        drop((marked, first.take(), turn.take()));
        drop((permits, working));
        if count_attempt(meter, reconciler.key(), &next, since) {
            began = None;
        }
        match next {
            Ok(None | Some(Next::Forget)) => {
                reconciler.forget();
                let key = reconciler.key().clone();
                if mailboxes.remove_unless(&key, || reconciler.exists()) {
                    return;
                }
                // Re-created, or kept by its finalizer: wait for the next change.
                fresh = true;
                tokio::select! {
                    () = mailbox.wait_for_notification() => {}
                    () = end.cancelled() => return,
                }
            }
            Ok(Some(next)) => {
                pause = PAUSES.0;
                complaint.clear();
                fresh = wait_for_wake(&mut reconciler, mailbox, end, next).await == Wake::NewAttempt;
            }
            Err(error) => {
                let problem = error.to_string();
                if problem == complaint {
                    tracing::debug!(object = %reconciler.key(), %error, "bookkeeping failed again");
                } else {
                    tracing::warn!(object = %reconciler.key(), %error, "bookkeeping failed; it is tried again");
                    complaint = problem;
                }
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = end.cancelled() => return,
                }
                pause = (pause * 2).min(PAUSES.1);
            }
        }
    }
}

/// Counts an attempt in the metrics if it has ended. Returns false if the metrics have to count it later, because it only waits.
fn count_attempt(
    meter: Option<Meter<'_>>,
    key: &Key,
    next: &Result<Option<Next>, ClusterError>,
    since: Instant,
) -> bool {
    let Some(meter) = meter else { return true };
    let Some(outcome) = Outcome::from_next(next, || (meter.is_failing)() == Some(true)) else {
        return false;
    };
    let exists = || (meter.is_failing)().is_some();
    meter.metrics.take_attempt(key, since.elapsed(), outcome, exists);
    true
}

/// Why a reconciler woke up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wake {
    NewAttempt,
    SameAttempt,
}

/// Waits for capacity in the lane for an attempt. Dropping the returned permits frees it.
async fn take_permits<R: Reconciler>(reconciler: &R, mailbox: &Mailbox) -> [Option<OwnedSemaphorePermit>; 2] {
    let narrow = match reconciler.low_priority().await {
        Some(narrow) => take_narrow(reconciler, mailbox, narrow).await,
        None => None,
    };
    [narrow, reconciler.permits().await.acquire_owned().await.ok()]
}

/// Waits for its turn in the narrow semaphore, unless more work arrives meanwhile. The attempt looks at all changes when it begins, so a notification
/// consumed here is not lost.
async fn take_narrow<R: Reconciler>(
    reconciler: &R,
    mailbox: &Mailbox,
    narrow: Arc<Semaphore>,
) -> Option<OwnedSemaphorePermit> {
    let mut taking = std::pin::pin!(narrow.acquire_owned());
    loop {
        tokio::select! {
            taken = &mut taking => return taken.ok(),
            () = mailbox.wait_for_notification() => {
                reconciler.low_priority().await?;
            }
        }
    }
}

/// Waits until the lane has its rights, or until the object is deleted. Returns false if the controllers end first.
async fn wait_for_admission<R: Reconciler>(reconciler: &R, mailbox: &Mailbox, end: &CancellationToken) -> bool {
    while reconciler.exists() && !reconciler.is_admitted() {
        tokio::select! {
            () = mailbox.wait_for_notification() => {}
            () = end.cancelled() => return false,
        }
    }
    true
}

/// Delays the first attempt of an object that was being reconciled when an earlier process ended, and writes that into the status.
async fn wait_for_turn<R: Reconciler>(reconciler: &R, attempt_marks: &AttemptMarks, crashes: u32) -> MarkedTurn {
    let now = Timestamp::now();
    let wait = interrupted_attempts::find_pause(crashes);
    reconciler
        .report_wait(crashes, now.checked_add(wait).unwrap_or(now))
        .await;
    tokio::time::sleep(wait).await;
    attempt_marks.wait_for_marked_turn().await
}

/// Executes rounds until the plan wants to wait.
async fn run_attempt<R: Reconciler>(reconciler: &mut R, end: &CancellationToken) -> Result<Option<Next>, ClusterError> {
    let (mut restarts, mut rounds) = (0, 0_u32);
    loop {
        if end.is_cancelled() {
            return Ok(Some(Next::Done(None)));
        }
        rounds = rounds.wrapping_add(1);
        if rounds.is_multiple_of(ROUNDS) {
            tracing::warn!(object = %reconciler.key(), rounds, "an attempt doesn't end; it continues after a pause");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        match reconciler.run_round().await? {
            Some(Next::Again) => {}
            Some(Next::Restart) => {
                reconciler.restart();
                restarts += 1;
                if restarts % RESTARTS == 0 {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
            other => return Ok(other),
        }
    }
}

/// Sleeps until the plan's time, or until an awaited change.
async fn wait_for_wake<R: Reconciler>(
    reconciler: &mut R,
    mailbox: &Mailbox,
    end: &CancellationToken,
    next: Next,
) -> Wake {
    let (until, waiting) = match next {
        Next::Wait(until) => (Some(find_delay(until)), true),
        Next::Done(at) => (at.map(find_delay), false),
        Next::Again | Next::Restart | Next::Forget => return Wake::SameAttempt,
    };
    let woken = if waiting { Wake::SameAttempt } else { Wake::NewAttempt };
    let deadline = until.map(|until| tokio::time::Instant::now() + until);
    loop {
        let needs_polling = waiting && reconciler.needs_polling();
        let wake = match (deadline, needs_polling) {
            (Some(deadline), true) => Some(deadline.min(tokio::time::Instant::now() + UNWATCHED)),
            (deadline, _) => deadline,
        };
        let timer = async {
            match wake {
                Some(wake) => tokio::time::sleep_until(wake).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = end.cancelled() => return woken,
            () = timer => {
                if needs_polling {
                    reconciler.prepare_poll();
                }
                return woken;
            }
            () = mailbox.wait_for_notification() => {
                let changed = mailbox.take_changed();
                if (waiting && !changed.is_empty()) || Box::pin(reconciler.needs_attempt(&changed)).await {
                    return woken;
                }
            }
        }
    }
}

fn find_delay(until: Timestamp) -> Duration {
    Duration::try_from(until.duration_since(Timestamp::now())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::reconcile_loop::reconciled::Reconciled as _;

    /// A reconciler that records its calls.
    struct Noted {
        key: Key,
        permits: Arc<Semaphore>,
        narrow: Arc<Mutex<Option<Arc<Semaphore>>>>,
        notes: Arc<Mutex<Vec<&'static str>>>,
    }

    impl Noted {
        fn record_step(&self, what: &'static str) {
            self.notes.lock().unwrap().push(what);
        }
    }

    impl Reconciler for Noted {
        fn key(&self) -> &Key {
            &self.key
        }

        async fn permits(&self) -> Arc<Semaphore> {
            self.record_step("queues");
            Arc::clone(&self.permits)
        }

        async fn low_priority(&self) -> Option<Arc<Semaphore>> {
            self.narrow.lock().unwrap().clone()
        }

        async fn run_round(&mut self) -> Result<Option<Next>, ClusterError> {
            self.record_step("works");
            Ok(Some(Next::Done(None)))
        }

        fn restart(&mut self) {
            self.record_step("begins");
        }

        async fn needs_attempt(&mut self, _: &HashSet<ObjectId>) -> bool {
            true
        }

        fn forget(&mut self) {}

        fn exists(&self) -> bool {
            true
        }
    }

    #[tokio::test]
    async fn an_attempt_begins_when_there_is_room_for_it() {
        let (permits, notes) = (Arc::new(Semaphore::new(1)), Arc::new(Mutex::new(Vec::new())));
        let reconciler = Noted {
            key: Key::new(tenure_api::Kustomization::KIND, "team", "apps"),
            permits: Arc::clone(&permits),
            narrow: Arc::default(),
            notes: Arc::clone(&notes),
        };
        let (mailboxes, mailbox, end) = (MailboxTable::default(), Mailbox::default(), CancellationToken::new());
        let noted = || notes.lock().unwrap().clone();
        let script = async {
            let reached = async |what: &[&str]| {
                while noted() != what {
                    tokio::task::yield_now().await;
                }
            };
            reached(&["queues", "works"]).await;
            // Other objects of its lane take the capacity, and it is woken.
            let others = Arc::clone(&permits).acquire_owned().await.unwrap();
            mailbox.wake();
            reached(&["queues", "works", "queues"]).await;
            drop(others);
            reached(&["queues", "works", "queues", "begins", "works"]).await;
            end.cancel();
        };
        tokio::join!(run_object_loop(reconciler, &mailboxes, (&mailbox, None), &end), script);
    }

    /// An object with less to do than others waits for its turn first.
    #[tokio::test]
    async fn low_priority_attempt_takes_capacity_only_in_its_turn() {
        let (permits, narrow) = (Arc::new(Semaphore::new(1)), Arc::new(Semaphore::new(1)));
        let notes = Arc::new(Mutex::new(Vec::new()));
        let reconciler = Noted {
            key: Key::new(tenure_api::Kustomization::KIND, "team", "apps"),
            permits: Arc::clone(&permits),
            narrow: Arc::new(Mutex::new(Some(Arc::clone(&narrow)))),
            notes: Arc::clone(&notes),
        };
        let (mailboxes, mailbox, end) = (MailboxTable::default(), Mailbox::default(), CancellationToken::new());
        let script = async {
            let other = Arc::clone(&narrow).acquire_owned().await.unwrap();
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert!(notes.lock().unwrap().is_empty() && permits.available_permits() == 1);
            drop(other);
            while *notes.lock().unwrap() != ["queues", "works"] {
                tokio::task::yield_now().await;
            }
            while narrow.available_permits() == 0 {
                tokio::task::yield_now().await;
            }
            assert_eq!(permits.available_permits(), 1);
            end.cancel();
        };
        tokio::join!(biased; script, run_object_loop(reconciler, &mailboxes, (&mailbox, None), &end));
    }

    /// An object that gets more to do no longer waits for the turns of objects with less to do.
    #[tokio::test]
    async fn attempt_with_new_work_leaves_low_priority_queue() {
        let (permits, narrow) = (Arc::new(Semaphore::new(1)), Arc::new(Semaphore::new(0)));
        let (hurry, notes) = (Arc::new(Mutex::new(Some(narrow))), Arc::new(Mutex::new(Vec::new())));
        let reconciler = Noted {
            key: Key::new(tenure_api::Kustomization::KIND, "team", "apps"),
            permits,
            narrow: Arc::clone(&hurry),
            notes: Arc::clone(&notes),
        };
        let (mailboxes, mailbox, end) = (MailboxTable::default(), Mailbox::default(), CancellationToken::new());
        let script = async {
            let rest = async || {
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
            };
            // Other notifications change nothing.
            mailbox.wake();
            rest().await;
            assert!(notes.lock().unwrap().is_empty());
            *hurry.lock().unwrap() = None;
            mailbox.wake();
            while *notes.lock().unwrap() != ["queues", "works"] {
                tokio::task::yield_now().await;
            }
            end.cancel();
        };
        tokio::join!(biased; script, run_object_loop(reconciler, &mailboxes, (&mailbox, None), &end));
    }
}
