//! Requests that compute for long: away from the threads that answer all the others, each user within a share of the
//! processors, and not beyond the request's time.
//!
//! Owns where they are carried on ([`run`]) and how they end ([`tenure_checkpoint`]). Refuses to know which requests are meant, which is
//! [`crate::asked`]'s, and what they do, and to number the places: those are [`crate::fairness`]'s.
//!
//! A request is a future, and each of its steps, from one wait to the next, is carried out by a thread of the pool for
//! what blocks. Before every step it takes a place of its user's, one of its tenant's and one among all, and it gives them back after the step: who
//! waits for the store or for a webhook keeps nobody from computing. The places belong to the thread and not to the client, so
//! that somebody who hangs up and asks again gains nothing.

mod deadline;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

pub(crate) use deadline::{Deadline, Within};
use tenure_background::run_behind_others;
use tenure_checkpoint::Ended;

/// One user's places for steps of long work.
#[derive(Debug, Clone)]
pub(crate) struct Turns {
    /// The user's, and those of whom the user is a part, from the innermost.
    pub(crate) own: Vec<Arc<Semaphore>>,
    /// Everybody's.
    pub(crate) all: Arc<Semaphore>,
    /// One place: who waits for what everybody may wait for (see [`enter_line`]).
    pub(crate) line: Arc<Semaphore>,
    /// How long a request waits for its first one.
    pub(crate) patience: Duration,
    /// How long the user's place is kept after work that came to a refusal.
    pub(crate) rest: Rest,
}

/// How long a user's place is kept after work that came to a refusal. Whoever is refused can send the same again at once, at no cost, and
/// would have a processor for himself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rest {
    /// So many times as long as the work took.
    pub(crate) times: u32,
    /// At most so long.
    pub(crate) longest: Duration,
}

impl Rest {
    /// Keeps the user's place; others' are free, and so is the answer.
    fn begin(self, (own, _all): TakenPlace, busy: Duration) {
        if let (false, Ok(runtime)) = (own.is_empty(), Handle::try_current()) {
            let pause = busy.saturating_mul(self.times).min(self.longest);
            runtime.spawn(async move {
                tokio::time::sleep(pause).await;
                drop(own);
            });
        }
    }
}

/// A place, until the step is done.
pub(crate) type TakenPlace = (Vec<OwnedSemaphorePermit>, Option<OwnedSemaphorePermit>);

impl Turns {
    /// First in the user's own line, then in its tenant's: at most the tenant's share of requests waits in everybody's.
    pub(crate) async fn take(&self) -> TakenPlace {
        let mut own = Vec::with_capacity(self.own.len());
        for places in &self.own {
            own.extend(places.clone().acquire_owned().await);
        }
        (own, self.all.clone().acquire_owned().await.ok())
    }
}

/// Why long work has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// It did not begin, as its user has too much of it: the client should come again.
    NoTurn,
    /// It went too far.
    Ended(Ended),
}

/// Carries on `work` away from the thread that asks, step by step, until it has a result or `deadline` is over. Without turns, at
/// once. If the caller stops waiting, the work ends at its next checkpoint. Where the result is a refusal, the user's place is kept
/// for a while: see [`Rest`].
pub(crate) async fn run<F>(
    turns: Option<Turns>,
    deadline: Arc<Deadline>,
    work: F,
    is_refusal: fn(&F::Output) -> bool,
) -> Result<F::Output, Stopped>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let _waiting = Waiting(deadline.clone());
    let mut work = Within::new(deadline.clone(), work);
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
            Some(turns) if begun => turns.take().await,
            Some(turns) => tokio::time::timeout(turns.patience, turns.take())
                .await
                .map_err(|_| Stopped::NoTurn)?,
        };
        begun = true;
        let waker = waker.clone();
        let step = tokio::task::spawn_blocking(move || {
            // With the thread, and not with who waits for it.
            let turn = turn;
            let began = Instant::now();
            let runtime = Handle::current();
            let polled = run_behind_others(|| {
                let _within = runtime.enter();
                Pin::new(&mut work).poll(&mut Context::from_waker(&waker))
            });
            let busy = busy.saturating_add(began.elapsed());
            match polled {
                Poll::Ready(result) => {
                    if let Some(rest) = rest.filter(|_| is_refusal(&result)) {
                        rest.begin(turn, busy);
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
                // What is no panic is the end of the run time, which waits for nothing any more.
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

/// Holds what [`enter_line`] gives.
#[derive(Debug)]
pub(crate) struct Line {
    request: Option<Arc<Deadline>>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(request) = &self.request {
            request.awaited.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Called before a wait for something that requests of all users wait for, and held until that is given back. Of one user's
/// long work only one stands in such a line, and once it does, its steps wait for no places: what it has, others wait for.
pub(crate) async fn enter_line() -> Line {
    let request = deadline::present();
    let line = request.as_ref().and_then(|request| request.line.get().cloned());
    let place = match line {
        Some(line) => line.acquire_owned().await.ok(),
        None => None,
    };
    if let Some(request) = &request {
        request.awaited.fetch_add(1, Ordering::Relaxed);
    }
    Line { request, _place: place }
}

/// Somebody waits for the result.
struct Waiting(Arc<Deadline>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

/// What was waited for is there; also if it was before anybody waited.
#[derive(Default)]
struct Woken(Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

#[cfg(test)]
mod tests;
