//! A lane's end of the line to the hub: what it tells goes out in order, and what it asks is answered. Both are bounded: who has asked much
//! waits before it asks more.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::frames::{ANSWER, Answer, FromLane, Question};

/// Frames that wait to be sent.
const WAITING: usize = 256;
/// Questions that wait for their answers; the hub ends who has twice as many.
pub(crate) const QUESTIONS: usize = 32;

/// The lane's end of the line.
#[derive(Debug)]
pub(super) struct Line {
    out: mpsc::Sender<FromLane>,
    asked: Mutex<HashMap<u64, oneshot::Sender<Answer>>>,
    number: AtomicU64,
    room: Semaphore,
}

impl Line {
    /// The line, and what is to be sent over it.
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

    fn asked(&self) -> std::sync::MutexGuard<'_, HashMap<u64, oneshot::Sender<Answer>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the hub something, as soon as there is room on the line.
    pub(super) async fn tell(&self, frame: FromLane) {
        // Without a line there is no hub, and this process is about to end.
        let _gone = self.out.send(frame).await;
    }

    /// Tells the hub something that may be left out when the line is full; whether it was told.
    pub(super) fn try_tell(&self, frame: FromLane) -> bool {
        self.out.try_send(frame).is_ok()
    }

    /// Asks the hub. No answer within half a minute is none.
    pub(super) async fn ask(&self, question: Question) -> Option<Answer> {
        let _room = self.room.acquire().await.ok()?;
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let (send, receive) = oneshot::channel();
        self.asked().insert(number, send);
        let answered = async {
            self.tell(FromLane::Question { number, question }).await;
            receive.await.ok()
        };
        let answer = tokio::time::timeout(ANSWER, answered).await.ok().flatten();
        self.asked().remove(&number);
        answer
    }

    /// Takes an answer.
    pub(super) fn answer(&self, number: u64, answer: Answer) {
        let waiting = self.asked().remove(&number);
        if let Some(waiting) = waiting {
            // Who asked may have gone.
            let _gone = waiting.send(answer);
        }
    }
}
