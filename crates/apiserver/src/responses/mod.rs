//! Answers while they are sent: the memory that they hold until their client has read them, and their end if the
//! client doesn't read.
//!
//! [`UnreadResponses`] limits the time in which a client must read a piece, and [`crate::byte_ledger`] counts the charged bytes. A
//! byte is charged until the connection has written it. The handover to the connection is too early: HTTP/2 buffers
//! bytes beyond its client's window. The permit among the running requests is held for the same time.
//!
//! ```text
//!  answer ─▶ charged (waits for room, or comes again) ─▶ pieces ─▶ connection ─▶ written: charge and place are given back
//!                                                          └─ not taken for too long ─▶ stream reset, or connection cut
//! ```

mod response_body;
mod unread_responses;

use std::time::Duration;

pub(crate) use response_body::{Route, track_sending};
pub(crate) use unread_responses::{PendingResponse, UnreadResponses};

/// Limits of answers that are being sent, in size and time.
#[derive(Debug, Clone)]
pub struct ResponseBounds {
    /// Bytes of one user's answers. ServiceAccounts of one namespace are one user.
    pub user_bytes: usize,
    /// Bytes of all answers.
    pub total_bytes: usize,
    /// Longest time in which a client must read one piece of an answer, 64 KiB. A slower client gets no more of the
    /// answer.
    pub patience: Duration,
    /// Bytes of old values that answers may keep in memory while they are sent, beside those in the history.
    pub old_bytes: usize,
}

impl Default for ResponseBounds {
    fn default() -> Self {
        Self {
            user_bytes: 16 << 20,
            total_bytes: 128 << 20,
            patience: Duration::from_secs(30),
            old_bytes: 64 << 20,
        }
    }
}

/// Size of a piece of a streamed answer.
pub(crate) const PIECE: usize = 64 * 1024;
