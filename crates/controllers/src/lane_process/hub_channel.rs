//! A lane's end of the line to the hub: it sends messages in order, and receives the answers to questions. Both are bounded: a caller waits while too
//! many questions are open.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::lane_protocol::messages::{ANSWER, Answer, FromLane, Question};

/// The limit of frames that wait to be sent.
const WAITING: usize = 256;
/// The limit of open questions. The hub ends a lane with twice as many.
pub(crate) const QUESTIONS: usize = 32;

/// The lane's end of the line to the hub: the queue of messages to send, and the questions that wait for answers.
#[derive(Debug)]
pub(super) struct HubChannel {
    out: mpsc::Sender<FromLane>,
    asked: Mutex<HashMap<u64, oneshot::Sender<Answer>>>,
    number: AtomicU64,
    room: Semaphore,
}

impl HubChannel {
    /// Creates the line, and the receiver of the frames to send.
    pub(super) fn new() -> (Self, mpsc::Receiver<FromLane>) {
        let (out, sent) = mpsc::channel(WAITING);
        let line = Self {
            out,
            asked: Mutex::default(),
            number: AtomicU64::new(0),
            room: Semaphore::new(QUESTIONS),
        };
        (line, sent)
    }

    fn lock_questions(&self) -> std::sync::MutexGuard<'_, HashMap<u64, oneshot::Sender<Answer>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a message to the hub, as soon as the line has capacity.
    pub(super) async fn send(&self, frame: FromLane) {
        // Without a line there is no hub, and this process is about to end.
        let _gone = self.out.send(frame).await;
    }

    /// Sends a message that may be dropped if the line is full. Returns whether it was sent.
    pub(super) fn try_send(&self, frame: FromLane) -> bool {
        self.out.try_send(frame).is_ok()
    }

    /// Asks the hub. Returns `None` without an answer within half a minute.
    pub(super) async fn ask(&self, question: Question) -> Option<Answer> {
        let _room = self.room.acquire().await.ok()?;
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let (send, receive) = oneshot::channel();
        self.lock_questions().insert(number, send);
        let answered = async {
            self.send(FromLane::Question { number, question }).await;
            receive.await.ok()
        };
        let answer = tokio::time::timeout(ANSWER, answered).await.ok().flatten();
        self.lock_questions().remove(&number);
        answer
    }

    /// Handles an answer.
    pub(super) fn answer(&self, number: u64, answer: Answer) {
        let waiting = self.lock_questions().remove(&number);
        if let Some(waiting) = waiting {
            // The caller may have given up.
            let _gone = waiting.send(answer);
        }
    }
}
