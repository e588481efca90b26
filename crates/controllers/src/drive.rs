//! The loop of one object: plan and execute until the plan says otherwise, then sleep until it is time or something changed.
//! One task an object, so that an object is never worked on twice at the same time. Owns the waiting; when, and what then, is the plan's.
//!
//! Thousands of these tasks rest while a few work, and a task is as large as the largest thing that it ever waits for. So whatever a resting one
//! doesn't need is in a box, which is there while it is waited for.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tenure_api::ObjectId;
use tenure_cluster::ClusterError;
use tenure_planner::{Next, restart};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::figures::{Figures, Outcome, Waiting};
use crate::key::Key;
use crate::mailbox::{Mailbox, MailboxTable};
use crate::spans;
use crate::under_way::{Turn, UnderWay};

/// First and longest pause after the controller's own bookkeeping failed.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));
/// How often changes are looked for while a watch that would tell of them is broken or not allowed.
const UNWATCHED: Duration = Duration::from_secs(2);
/// How many times in a row an attempt is started over before it has to wait a second.
const RESTARTS: u32 = 10;
/// How many rounds an attempt may have before it has to wait a second; a large one has some twenty. Whatever a plan that comes to no
/// end may cost, it doesn't keep a processor busy.
const ROUNDS: u32 = 200;

/// One object's reconciler: observe, plan, execute and write, as a single round.
pub(crate) trait Reconciler: Send + Sync + 'static {
    /// Which object.
    fn key(&self) -> &Key;

    /// Whether its lane has its rights: nothing is attempted before, and it is woken when that changes.
    fn is_admitted(&self) -> bool {
        true
    }

    /// The part of its lane that it works in.
    fn permits(&self) -> impl Future<Output = Arc<Semaphore>> + Send;

    /// A narrower part of its lane that it waits for first, when it has less to do than others there.
    fn unhurried(&self) -> impl Future<Output = Option<Arc<Semaphore>>> + Send {
        std::future::ready(None)
    }

    /// Observes, plans, executes the plan's steps, writes status and events. Nothing when the object is gone.
    fn round(&mut self) -> impl Future<Output = Result<Option<Next>, ClusterError>> + Send;

    /// Where its attempts are marked while they are under way: those that read what others wrote.
    fn marks(&self) -> Option<Arc<UnderWay>> {
        None
    }

    /// Says in its status that it waits, since so many processes in a row ended in the midst of it.
    fn tell_of_wait(&self, _crashes: u32, _until: Timestamp) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Forgets the attempt and begins a new one, whose time counts from now.
    fn restart(&mut self);

    /// Whether what changed is a reason to begin a new attempt, after the last one is done.
    fn triggered(&mut self, changed: &HashSet<ObjectId>) -> impl Future<Output = bool> + Send;

    /// Whether something that it waits for may change without a watch telling of it.
    fn unwatched(&self) -> bool {
        false
    }

    /// Looks for changes that no watch tells of, before the next round of a waiting attempt.
    fn look_again(&mut self) {}

    /// The object is gone: forget everything about it.
    fn forget(&mut self);

    /// Whether the object is there (again).
    fn exists(&self) -> bool;
}

/// Where it is counted what is done with an object.
#[derive(Clone, Copy)]
pub(crate) struct Meter<'a> {
    pub(crate) figures: &'a Figures,
    /// Whether the object is not as it should be, by its status; nothing when it is gone.
    pub(crate) is_failing: &'a (dyn Fn() -> Option<bool> + Sync),
}

/// Drives one object until it is gone or the controllers end. What is done is counted where there is a meter.
pub(crate) async fn drive<R: Reconciler>(
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
    if let Some(under_way) = &marks {
        let crashes = under_way.crashes(reconciler.key());
        if crashes == 0 {
            first = Some(under_way.first());
        } else {
            tokio::select! {
                taken = Box::pin(wait_for_turn(&reconciler, under_way, crashes)) => turn = Some(taken),
                () = end.cancelled() => return,
            }
        }
    }
    while !end.is_cancelled() {
        if !wait_for_admission(&reconciler, mailbox, end).await {
            return;
        }
        let waiting = meter.map(|meter| meter.figures.wait(reconciler.key()));
        let permits = tokio::select! {
            permits = Box::pin(take_permits(&reconciler, mailbox)) => permits,
            () = end.cancelled() => return,
        };
        let working = waiting.map(Waiting::begin);
        let since = *began.get_or_insert_with(Instant::now);
        // Not before there is room for it in its lane: time that passes in the queue is not the attempt's.
        if std::mem::take(&mut fresh) {
            reconciler.restart();
        }
        let marked = marks.as_ref().map(|under_way| under_way.begin(reconciler.key()));
        let span = spans::begin_attempt(reconciler.key());
        let next = Box::pin(attempt(&mut reconciler, end).instrument(span)).await;
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
                // Made anew, or kept by its finalizer: wait for whatever changes it.
                fresh = true;
                tokio::select! {
                    () = mailbox.notified() => {}
                    () = end.cancelled() => return,
                }
            }
            Ok(Some(next)) => {
                pause = PAUSES.0;
                complaint.clear();
                fresh = sleep(&mut reconciler, mailbox, end, next).await == Wake::NewAttempt;
            }
            Err(error) => {
                let said = error.to_string();
                if said == complaint {
                    tracing::debug!(object = %reconciler.key(), %error, "bookkeeping failed once more");
                } else {
                    tracing::warn!(object = %reconciler.key(), %error, "bookkeeping failed; it is tried again");
                    complaint = said;
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

/// Counts an attempt that is over; whether it is.
fn count_attempt(
    meter: Option<Meter<'_>>,
    key: &Key,
    next: &Result<Option<Next>, ClusterError>,
    since: Instant,
) -> bool {
    let Some(meter) = meter else { return true };
    let Some(outcome) = Outcome::of(next, || (meter.is_failing)() == Some(true)) else {
        return false;
    };
    let exists = || (meter.is_failing)().is_some();
    meter.figures.take_attempt(key, since.elapsed(), outcome, exists);
    true
}

/// What a reconciler woke up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wake {
    NewAttempt,
    SameAttempt,
}

/// Waits until there is room for an attempt in its lane, which there is until what is returned is dropped.
async fn take_permits<R: Reconciler>(reconciler: &R, mailbox: &Mailbox) -> [Option<OwnedSemaphorePermit>; 2] {
    let narrow = match reconciler.unhurried().await {
        Some(narrow) => take_narrow(reconciler, mailbox, narrow).await,
        None => None,
    };
    [narrow, reconciler.permits().await.acquire_owned().await.ok()]
}

/// Waits for its turn in the narrow part, unless meanwhile there comes to be more to do. What changed is looked at when the attempt begins, so that a notice
/// which is taken here is not missed there.
async fn take_narrow<R: Reconciler>(
    reconciler: &R,
    mailbox: &Mailbox,
    narrow: Arc<Semaphore>,
) -> Option<OwnedSemaphorePermit> {
    let mut taking = std::pin::pin!(narrow.acquire_owned());
    loop {
        tokio::select! {
            taken = &mut taking => return taken.ok(),
            () = mailbox.notified() => {
                reconciler.unhurried().await?;
            }
        }
    }
}

/// Waits until the lane has its rights, or the object is gone; whether it came to that before the end.
async fn wait_for_admission<R: Reconciler>(reconciler: &R, mailbox: &Mailbox, end: &CancellationToken) -> bool {
    while reconciler.exists() && !reconciler.is_admitted() {
        tokio::select! {
            () = mailbox.notified() => {}
            () = end.cancelled() => return false,
        }
    }
    true
}

/// Waits before the first attempt of an object that was under way when an earlier process ended, and says so in its status.
async fn wait_for_turn<R: Reconciler>(reconciler: &R, under_way: &UnderWay, crashes: u32) -> Turn {
    let now = Timestamp::now();
    let wait = restart::find_pause(crashes);
    reconciler
        .tell_of_wait(crashes, now.checked_add(wait).unwrap_or(now))
        .await;
    tokio::time::sleep(wait).await;
    under_way.turn().await
}

/// Rounds until the plan wants to wait.
async fn attempt<R: Reconciler>(reconciler: &mut R, end: &CancellationToken) -> Result<Option<Next>, ClusterError> {
    let (mut restarts, mut rounds) = (0, 0_u32);
    loop {
        if end.is_cancelled() {
            return Ok(Some(Next::Done(None)));
        }
        rounds = rounds.wrapping_add(1);
        if rounds.is_multiple_of(ROUNDS) {
            tracing::warn!(object = %reconciler.key(), rounds, "an attempt comes to no end; it goes on after a pause");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        match reconciler.round().await? {
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

/// Sleeps until the plan's time, or until something happened that it waits for.
async fn sleep<R: Reconciler>(reconciler: &mut R, mailbox: &Mailbox, end: &CancellationToken, next: Next) -> Wake {
    let (until, waiting) = match next {
        Next::Wait(until) => (Some(delay(until)), true),
        Next::Done(at) => (at.map(delay), false),
        Next::Again | Next::Restart | Next::Forget => return Wake::SameAttempt,
    };
    let woken = if waiting { Wake::SameAttempt } else { Wake::NewAttempt };
    let deadline = until.map(|until| tokio::time::Instant::now() + until);
    loop {
        let unwatched = waiting && reconciler.unwatched();
        let wake = match (deadline, unwatched) {
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
                if unwatched {
                    reconciler.look_again();
                }
                return woken;
            }
            () = mailbox.notified() => {
                let changed = mailbox.take_changed();
                if (waiting && !changed.is_empty()) || Box::pin(reconciler.triggered(&changed)).await {
                    return woken;
                }
            }
        }
    }
}

fn delay(until: Timestamp) -> Duration {
    Duration::try_from(until.duration_since(Timestamp::now())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::reconciled::Reconciled as _;

    /// A reconciler that writes down what is done with it.
    struct Noted {
        key: Key,
        permits: Arc<Semaphore>,
        narrow: Arc<Mutex<Option<Arc<Semaphore>>>>,
        notes: Arc<Mutex<Vec<&'static str>>>,
    }

    impl Noted {
        fn note(&self, what: &'static str) {
            self.notes.lock().unwrap().push(what);
        }
    }

    impl Reconciler for Noted {
        fn key(&self) -> &Key {
            &self.key
        }

        async fn permits(&self) -> Arc<Semaphore> {
            self.note("queues");
            Arc::clone(&self.permits)
        }

        async fn unhurried(&self) -> Option<Arc<Semaphore>> {
            self.narrow.lock().unwrap().clone()
        }

        async fn round(&mut self) -> Result<Option<Next>, ClusterError> {
            self.note("works");
            Ok(Some(Next::Done(None)))
        }

        fn restart(&mut self) {
            self.note("begins");
        }

        async fn triggered(&mut self, _: &HashSet<ObjectId>) -> bool {
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
            // Others of its lane take the room, and it is woken.
            let others = Arc::clone(&permits).acquire_owned().await.unwrap();
            mailbox.wake();
            reached(&["queues", "works", "queues"]).await;
            drop(others);
            reached(&["queues", "works", "queues", "begins", "works"]).await;
            end.cancel();
        };
        tokio::join!(drive(reconciler, &mailboxes, (&mailbox, None), &end), script);
    }

    #[tokio::test]
    async fn who_has_less_to_do_takes_no_room_from_others_before_its_turn() {
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
        tokio::join!(biased; script, drive(reconciler, &mailboxes, (&mailbox, None), &end));
    }

    #[tokio::test]
    async fn who_has_come_to_have_more_to_do_waits_for_no_turn_of_those_that_have_less() {
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
            // Whatever else it is told.
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
        tokio::join!(biased; script, drive(reconciler, &mailboxes, (&mailbox, None), &end));
    }
}
