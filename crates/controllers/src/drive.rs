//! The loop of one object: plan and execute until the plan says otherwise, then sleep until it is time or something changed.
//! One task an object, so that an object is never worked on twice at the same time. Owns the waiting; when, and what then, is the plan's.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tenure_api::ObjectId;
use tenure_cluster::ClusterError;
use tenure_planner::Next;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::key::Key;
use crate::mailbox::Mailbox;
use crate::world::World;

/// First and longest pause after the controller's own bookkeeping failed.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));
/// How often changes are looked for while a watch that would tell of them is broken or not allowed.
const UNWATCHED: Duration = Duration::from_secs(2);
/// How many times in a row an attempt is started over before it has to wait a second.
const RESTARTS: u32 = 10;

/// One object's reconciler: observe, plan, execute and write, as a single round.
pub(crate) trait Reconciler: Send + 'static {
    /// Which object.
    fn key(&self) -> &Key;

    /// The part of its lane that it works in.
    fn permits(&self) -> impl Future<Output = Arc<Semaphore>> + Send;

    /// Observes, plans, executes the plan's steps, writes status and events. Nothing when the object is gone.
    fn round(&mut self) -> impl Future<Output = Result<Option<Next>, ClusterError>> + Send;

    /// Forgets the attempt: the next round begins a new one.
    fn restart(&mut self);

    /// Whether what changed is a reason to begin a new attempt, after the last one is done.
    fn triggered(&mut self, changed: &HashSet<ObjectId>) -> impl Future<Output = bool> + Send;

    /// Looks for changes that no watch tells of, before the next round of a waiting attempt.
    fn look_again(&mut self) {}

    /// The object is gone: forget everything about it.
    fn forget(&mut self);

    /// Whether the object is there (again).
    fn exists(&self) -> bool;
}

/// Drives one object until it is gone or the controllers end.
pub(crate) async fn drive<R: Reconciler>(
    mut reconciler: R,
    world: Arc<World>,
    mailbox: Arc<Mailbox>,
    end: CancellationToken,
) {
    let mut pause = PAUSES.0;
    while !end.is_cancelled() {
        let permits = reconciler.permits().await;
        let permit = tokio::select! {
            permit = permits.acquire_owned() => permit,
            () = end.cancelled() => return,
        };
        let next = attempt(&mut reconciler, &end).await;
        drop(permit);
        match next {
            Ok(None | Some(Next::Forget)) => {
                reconciler.forget();
                let key = reconciler.key().clone();
                if world.mailboxes.remove_unless(&key, || reconciler.exists()) {
                    return;
                }
                // Made anew, or kept by its finalizer: wait for whatever changes it.
                reconciler.restart();
                tokio::select! {
                    () = mailbox.notified() => {}
                    () = end.cancelled() => return,
                }
            }
            Ok(Some(next)) => {
                pause = PAUSES.0;
                sleep(&mut reconciler, &world, &mailbox, &end, next).await;
            }
            Err(error) => {
                tracing::warn!(object = %reconciler.key(), %error, "bookkeeping failed; it is tried again");
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = end.cancelled() => return,
                }
                pause = (pause * 2).min(PAUSES.1);
            }
        }
    }
}

/// Rounds until the plan wants to wait.
async fn attempt<R: Reconciler>(reconciler: &mut R, end: &CancellationToken) -> Result<Option<Next>, ClusterError> {
    let mut restarts = 0;
    loop {
        if end.is_cancelled() {
            return Ok(Some(Next::Done(None)));
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
async fn sleep<R: Reconciler>(
    reconciler: &mut R,
    world: &World,
    mailbox: &Mailbox,
    end: &CancellationToken,
    next: Next,
) {
    let (until, waiting) = match next {
        Next::Wait(until) => (Some(delay(until)), true),
        Next::Done(at) => (at.map(delay), false),
        Next::Again | Next::Restart | Next::Forget => return,
    };
    let deadline = until.map(|until| tokio::time::Instant::now() + until);
    loop {
        let unwatched = waiting && !world.live.all_synced(reconciler.key());
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
            () = end.cancelled() => return,
            () = timer => {
                if !waiting {
                    reconciler.restart();
                } else if unwatched {
                    reconciler.look_again();
                }
                return;
            }
            () = mailbox.notified() => {
                let changed = mailbox.take_changed();
                if waiting && !changed.is_empty() {
                    return;
                }
                if reconciler.triggered(&changed).await {
                    if !waiting {
                        reconciler.restart();
                    }
                    return;
                }
            }
        }
    }
}

fn delay(until: Timestamp) -> Duration {
    Duration::try_from(until.duration_since(Timestamp::now())).unwrap_or_default()
}
