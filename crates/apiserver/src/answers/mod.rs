//! Answers on their way out: what they hold until their client has taken them, and their end if it doesn't.
//!
//! Owns the time that a client has to take a piece ([`Unread`]), and what is charged for it to whom ([`crate::ledger`] counts). Whatever
//! is sent is charged until the connection has written it, not until it was handed over: HTTP/2 keeps what its client's window has no
//! room for. A place among the running requests is held for as long. Refuses to know what an answer says.
//!
//! ```text
//!  answer ─▶ charged (waits for room, or comes again) ─▶ pieces ─▶ connection ─▶ written: charge and place are given back
//!                                                          └─ not taken for too long ─▶ stream reset, or connection cut
//! ```

mod sending;
mod unread;

use std::time::Duration;

pub(crate) use sending::{Route, send};
pub(crate) use unread::{Answer, Unread};

/// How much may be on its way out at once, and for how long.
#[derive(Debug, Clone)]
pub struct AnswerBounds {
    /// Bytes of one user's answers. ServiceAccounts of one namespace are one user.
    pub user_bytes: usize,
    /// Bytes of all answers.
    pub total_bytes: usize,
    /// How long a client may take for one piece of an answer, 64 KiB. One that takes longer gets no more of it.
    pub patience: Duration,
    /// Bytes of old values that answers may keep in memory while they are sent, beside those that the history keeps.
    pub old_bytes: usize,
}

impl Default for AnswerBounds {
    fn default() -> Self {
        Self {
            user_bytes: 16 << 20,
            total_bytes: 128 << 20,
            patience: Duration::from_secs(30),
            old_bytes: 64 << 20,
        }
    }
}

/// What is made and sent at once of an answer that is not all there.
pub(crate) const PIECE: usize = 64 * 1024;
