//! Answers that their client has not read yet, and the end of those that it doesn't read.

use std::any::Any;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::{Duration, Instant};

use futures::task::AtomicWaker;
use parking_lot::Mutex;

use crate::byte_ledger::ByteLedger;
use crate::streams::StreamEnd;

/// Longest time for the reset of a stream, in milliseconds.
const RESET: u64 = 2_000;

/// The zero point of the times in this module.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

fn now_millis() -> u64 {
    u64::try_from(START.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// One answer, until its last piece is written or the answer is given up.
pub(crate) struct PendingResponse {
    /// The permits and charges of the request, which are released at the end of the answer.
    _held: Box<dyn Any + Send + Sync>,
    /// The stream of the answer, if its connection has several streams.
    stream: Option<Arc<StreamEnd>>,
    /// Pieces in the connection that are not written yet.
    outstanding: AtomicUsize,
    /// The time when the client last read a piece, or when the first unread piece was sent.
    since: AtomicU64,
    /// The time after which nothing more is sent; zero for never.
    given_up: AtomicU64,
    waker: AtomicWaker,
}

impl std::fmt::Debug for PendingResponse {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("PendingResponse").finish_non_exhaustive()
    }
}

impl PendingResponse {
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

    /// Records that a piece went to the connection.
    pub(super) fn hand_over(&self) {
        if self.outstanding.fetch_add(1, Ordering::AcqRel) == 0 {
            self.since.store(now_millis(), Ordering::Release);
        }
    }

    /// Records that a piece was written, or dropped with its connection.
    pub(super) fn take_back(&self) {
        self.since.store(now_millis(), Ordering::Release);
        if self.outstanding.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.waker.wake();
        }
    }

    /// Checks whether all pieces are written. If not, the calling task is woken when they are.
    pub(super) fn is_taken(&self, context: &mut std::task::Context<'_>) -> bool {
        self.waker.register(context.waker());
        self.outstanding.load(Ordering::Acquire) == 0
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire) > 0
    }

    fn is_stalled(&self, patience: Duration) -> bool {
        let waits = now_millis().saturating_sub(self.since.load(Ordering::Acquire));
        self.outstanding.load(Ordering::Acquire) > 0 && u128::from(waits) >= patience.as_millis()
    }

    /// Stops sending the answer. Returns whether the connection must be closed for that.
    fn stop_sending(&self) -> bool {
        let Some(stream) = &self.stream else { return true };
        let begun = self.given_up.load(Ordering::Acquire);
        if begun > 0 {
            // The stream was reset. If the client doesn't even read the reset in time, it reads nothing from the whole
            // connection, so the connection is closed.
            return now_millis().saturating_sub(begun) > RESET;
        }
        self.given_up.store(now_millis().max(1), Ordering::Release);
        self.waker.wake();
        stream.end_stream();
        false
    }
}

/// The answers of one connection that its client has not read completely.
#[derive(Debug, Default)]
pub(crate) struct UnreadResponses(Mutex<Vec<Weak<PendingResponse>>>);

impl UnreadResponses {
    /// Number of tracked answers above which finished ones are removed from the list.
    const FEW: usize = 32;

    pub(super) fn add(&self, answer: &Arc<PendingResponse>) {
        let mut answers = self.0.lock();
        if answers.len() >= Self::FEW && answers.len() == answers.capacity() {
            answers.retain(|answer| answer.strong_count() > 0);
            let room = answers.len().max(Self::FEW);
            answers.reserve(room);
        }
        answers.push(Arc::downgrade(answer));
    }

    /// Resets each stream whose client has read nothing for `patience`. Returns when the client stops reading the
    /// whole connection.
    pub(crate) async fn wait_until_stalled(&self, patience: Duration, ledger: &ByteLedger) {
        let short = (patience / 8).max(Duration::from_millis(1));
        loop {
            tokio::time::sleep(short).await;
            let patience = if ledger.is_short() { short } else { patience };
            let stalled: Vec<Arc<PendingResponse>> = {
                let mut answers = self.0.lock();
                answers.retain(|answer| answer.strong_count() > 0);
                let answers = answers.iter().filter_map(Weak::upgrade);
                answers.filter(|answer| answer.is_stalled(patience)).collect()
            };
            for answer in stalled {
                let cut = answer.stop_sending();
                tracing::debug!(cut, "a client doesn't read its answer");
                if cut {
                    return;
                }
            }
        }
    }
}
