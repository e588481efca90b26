//! Answers that their client has not taken yet, and what becomes of those that it doesn't take.

use std::any::Any;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::{Duration, Instant};

use futures::task::AtomicWaker;
use parking_lot::Mutex;

use crate::ledger::Ledger;
use crate::streams::StreamEnd;

/// Milliseconds that the reset of a stream may take.
const RESET: u64 = 2_000;

/// What all times are counted from.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

fn now() -> u64 {
    u64::try_from(START.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// One answer, until its last piece is written or given up.
pub(crate) struct Answer {
    /// What is given back at its end: the place among the running requests, for one.
    _held: Box<dyn Any + Send + Sync>,
    /// The stream that it goes out on, if that is one of several of a connection.
    stream: Option<Arc<StreamEnd>>,
    /// Pieces that were handed to the connection and are not written.
    outstanding: AtomicUsize,
    /// When the client last took something, or began to owe it.
    since: AtomicU64,
    /// From when on it is sent no further; zero for never.
    given_up: AtomicU64,
    waker: AtomicWaker,
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Answer").finish_non_exhaustive()
    }
}

impl Answer {
    pub(super) fn new(held: Box<dyn Any + Send + Sync>, stream: Option<Arc<StreamEnd>>) -> Arc<Self> {
        Arc::new(Self {
            _held: held,
            stream,
            outstanding: AtomicUsize::new(0),
            since: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
            waker: AtomicWaker::new(),
        })
    }

    /// A piece is handed to the connection.
    pub(super) fn hand_over(&self) {
        if self.outstanding.fetch_add(1, Ordering::AcqRel) == 0 {
            self.since.store(now(), Ordering::Release);
        }
    }

    /// A piece is written, or dropped with its connection.
    pub(super) fn take_back(&self) {
        self.since.store(now(), Ordering::Release);
        if self.outstanding.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.waker.wake();
        }
    }

    /// Whether everything that was handed over is written. If not, whoever asks is woken then.
    pub(super) fn is_taken(&self, context: &mut std::task::Context<'_>) -> bool {
        self.waker.register(context.waker());
        self.outstanding.load(Ordering::Acquire) == 0
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire) > 0
    }

    fn is_stalled(&self, patience: Duration) -> bool {
        let waits = now().saturating_sub(self.since.load(Ordering::Acquire));
        self.outstanding.load(Ordering::Acquire) > 0 && u128::from(waits) >= patience.as_millis()
    }

    /// Sends it no further. Returns whether the connection has to be cut for that.
    fn give_up(&self) -> bool {
        let Some(stream) = &self.stream else { return true };
        let begun = self.given_up.load(Ordering::Acquire);
        if begun > 0 {
            // A reset of its stream was not enough: the connection itself is not read.
            return now().saturating_sub(begun) > RESET;
        }
        self.given_up.store(now().max(1), Ordering::Release);
        self.waker.wake();
        stream.end();
        false
    }
}

/// The answers of one connection that are on their way out.
#[derive(Debug, Default)]
pub(crate) struct Unread(Mutex<Vec<Weak<Answer>>>);

impl Unread {
    /// Answers that are looked after before those that are gone are forgotten.
    const FEW: usize = 32;

    pub(super) fn add(&self, answer: &Arc<Answer>) {
        let mut answers = self.0.lock();
        if answers.len() >= Self::FEW && answers.len() == answers.capacity() {
            answers.retain(|answer| answer.strong_count() > 0);
            let room = answers.len().max(Self::FEW);
            answers.reserve(room);
        }
        answers.push(Arc::downgrade(answer));
    }

    /// Resets each stream whose client has taken nothing for as long as `patience`. Returns when a whole connection does.
    pub(crate) async fn stalled(&self, patience: Duration, ledger: &Ledger) {
        let short = (patience / 8).max(Duration::from_millis(1));
        loop {
            tokio::time::sleep(short).await;
            let patience = if ledger.is_short() { short } else { patience };
            let stalled: Vec<Arc<Answer>> = {
                let mut answers = self.0.lock();
                answers.retain(|answer| answer.strong_count() > 0);
                let answers = answers.iter().filter_map(Weak::upgrade);
                answers.filter(|answer| answer.is_stalled(patience)).collect()
            };
            for answer in stalled {
                let cut = answer.give_up();
                tracing::debug!(cut, "a client doesn't read its answer");
                if cut {
                    return;
                }
            }
        }
    }
}
