//! Requests that compute for long. They run away from the threads that answer all other requests, each user within a
//! share of the processors, and no longer than the request's time.
//!
//! [`run`] carries out such a request, and [`tenure_checkpoint`] ends it. [`crate::long_requests`] decides which requests are
//! long work, and [`crate::fairness`] sets the number of permits.
//!
//! A request is a future, and a thread of the blocking pool carries out each step from one wait to the next. Before
//! every step the request takes a permit of its user, one of its tenant and one among all users, and releases them
//! after the step. So a request that waits for the store or a webhook blocks no other computation. A permit belongs
//! to the thread and not to the client, so a client that hangs up and asks again gains nothing.

mod deadline;

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinError;

pub(crate) use deadline::{Deadline, WithDeadline};
use tenure_background::run_behind_others;
use tenure_checkpoint::Ended;

/// The semaphores that limit one user's concurrent steps of long work.
#[derive(Debug, Clone)]
pub(crate) struct StepLimiter {
    /// The permits of the user, and of the shares that contain the user, from the innermost.
    pub(crate) own: Vec<Arc<Semaphore>>,
    /// The permits that all users share.
    pub(crate) all: Arc<Semaphore>,
    /// A line with one permit, for requests that wait for a lock that requests of all users need (see [`enter_line`]).
    pub(crate) line: Arc<Semaphore>,
    /// How long a request waits for its first permit.
    pub(crate) patience: Duration,
    /// How long the user's permit stays taken after work that ended in a refusal.
    pub(crate) rest: RefusalPause,
}

/// How long a user's permit stays taken after work that ended in a refusal. A refused client can send the same
/// request again at once, at no cost, and would otherwise use a whole processor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RefusalPause {
    /// The pause as a multiple of the work's duration.
    pub(crate) times: u32,
    /// The longest pause.
    pub(crate) longest: Duration,
}

impl RefusalPause {
    /// Keeps the user's permit during the pause. The permits of all users are released at once, and the answer is
    /// sent without delay.
    fn begin_pause(self, (own, _all): StepPermits, busy: Duration) {
        if let (false, Ok(runtime)) = (own.is_empty(), Handle::try_current()) {
            let pause = busy.saturating_mul(self.times).min(self.longest);
            runtime.spawn(async move {
                tokio::time::sleep(pause).await;
                drop(own);
            });
        }
    }
}

/// The permits of one step of long work: of the user and its shares, and of all users.
pub(crate) type StepPermits = (Vec<OwnedSemaphorePermit>, Option<OwnedSemaphorePermit>);

impl StepLimiter {
    /// Returns a limiter for the server's own work, of which this many steps run at once.
    pub(crate) fn of_server(steps: usize) -> Self {
        Self {
            own: Vec::new(),
            all: Arc::new(Semaphore::new(steps)),
            line: Arc::new(Semaphore::new(1)),
            patience: Duration::MAX,
            rest: RefusalPause {
                times: 0,
                longest: Duration::ZERO,
            },
        }
    }

    /// Takes a permit in the user's own line first, then in its tenant's. So at most the tenant's share of requests
    /// waits in the line of all users.
    pub(crate) async fn acquire_permits(&self) -> StepPermits {
        let mut own = Vec::with_capacity(self.own.len());
        for places in &self.own {
            own.extend(places.clone().acquire_owned().await);
        }
        (own, self.all.clone().acquire_owned().await.ok())
    }
}

/// The reason why long work has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// The work did not begin, because its user got no permit in time: the client should retry.
    NoTurn,
    /// The work was stopped at a limit.
    Ended(Ended),
}

/// Runs `work` on other threads, step by step, until it has a result or `deadline` is over. Without turns the work
/// begins at once. If the caller stops waiting, the work ends at its next checkpoint. If the result is a refusal, the
/// user's permit stays taken for a while: see [`RefusalPause`].
pub(crate) async fn run<F>(
    turns: Option<StepLimiter>,
    deadline: Arc<Deadline>,
    work: F,
    is_refusal: fn(&F::Output) -> bool,
) -> Result<F::Output, Stopped>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let _waiting = CallerWait(deadline.clone());
    let mut work = WithDeadline::new(deadline.clone(), work);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    if let Some(turns) = &turns {
        let _already = deadline.line.set(turns.line.clone());
    }
    let rest = turns.as_ref().map(|turns| turns.rest);
    let mut begun = false;
    let mut busy = Duration::ZERO;
    loop {
        let turn = match &turns {
            None => (Vec::new(), None),
            Some(_) if deadline.awaited.load(Ordering::Relaxed) > 0 => (Vec::new(), None),
            Some(turns) if begun => turns.acquire_permits().await,
            Some(turns) => tokio::time::timeout(turns.patience, turns.acquire_permits())
                .await
                .map_err(|_| Stopped::NoTurn)?,
        };
        begun = true;
        let waker = waker.clone();
        let step = tokio::task::spawn_blocking(move || {
            // The thread holds the permit until the step ends, even if the waiting task is dropped before.
            let turn = turn;
            let began = Instant::now();
            let runtime = Handle::current();
            let polled = run_behind_others(|| {
                let _within = runtime.enter();
                IS_STEP.set(true);
                Pin::new(&mut work).poll(&mut Context::from_waker(&waker))
            });
            let busy = busy.saturating_add(began.elapsed());
            match polled {
                Poll::Ready(result) => {
                    if let Some(rest) = rest.filter(|_| is_refusal(&result)) {
                        rest.begin_pause(turn, busy);
                    }
                    Ok(result)
                }
                Poll::Pending => Err((work, busy)),
            }
        });
        match step.await {
            Ok(Ok(result)) => return Ok(result),
            Ok(Err(unfinished)) => (work, busy) = unfinished,
            Err(failed) => {
                // An error other than a panic means that the runtime ended, and then nothing waits for the result.
                let ended = match failed.try_into_panic() {
                    Ok(payload) => payload
                        .downcast::<Ended>()
                        .map_or_else(|payload| std::panic::resume_unwind(payload), |ended| *ended),
                    Err(_) => Ended::OutOfTime,
                };
                return Err(Stopped::Ended(ended));
            }
        }
        woken.0.notified().await;
    }
}

thread_local! {
    /// Whether this thread carries out a step of long work. Each step has a thread of its own.
    static IS_STEP: Cell<bool> = const { Cell::new(false) };
}

/// Runs a part of an answer that computes for long on another thread, within the user's share. Long work is such a
/// thread already, and has its permits: it runs the part in place. If it waited for permits that it holds itself, it
/// would never end.
///
/// # Errors
/// If the part panics.
pub(crate) async fn run_part<T: Send + 'static>(
    turns: Option<&StepLimiter>,
    part: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    if IS_STEP.get() {
        return Ok(part());
    }
    let turn = match turns {
        Some(turns) => Some(turns.acquire_permits().await),
        None => None,
    };
    let running = tokio::task::spawn_blocking(move || {
        // The thread holds the permits until the part ends, even if the waiting task is dropped before.
        let _turn = turn;
        part()
    });
    running.await
}

/// The place in the user's line that [`enter_line`] returns, until it is dropped.
#[derive(Debug)]
pub(crate) struct QueuePlace {
    request: Option<Arc<Deadline>>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        if let Some(request) = &self.request {
            request.awaited.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Waits for a place in the user's line. Call this before a wait for a lock that requests of all users need, such as
/// the lock for allocations. Hold the place until the lock is released. Only one request of a user's long work has a
/// place at a time. Its further steps wait for no permits, because other users wait for the lock that it holds.
pub(crate) async fn enter_line() -> QueuePlace {
    let request = deadline::find_current_deadline();
    let line = request.as_ref().and_then(|request| request.line.get().cloned());
    let place = match line {
        Some(line) => line.acquire_owned().await.ok(),
        None => None,
    };
    if let Some(request) = &request {
        request.awaited.fetch_add(1, Ordering::Relaxed);
    }
    QueuePlace { request, _place: place }
}

/// A caller's wait for the result. Dropping it ends the work at its next checkpoint.
struct CallerWait(Arc<Deadline>);

impl Drop for CallerWait {
    fn drop(&mut self) {
        self.0.mark_given_up();
    }
}

/// Wakes [`run`] when the work can continue, even if that happens before `run` waits.
#[derive(Default)]
struct Woken(Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

#[cfg(test)]
mod tests;
