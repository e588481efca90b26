//! What an answer means, when it is tried again, and how often something is sent.

use std::time::Duration;

use crate::receiver::Rate;

/// How often one event is tried at most (Flux's).
pub const ATTEMPTS: u32 = 5;
/// The first pause, doubled after each (Flux's).
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// The longest pause, whatever a receiver asks for (Flux's).
pub const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How often something is sent to one Provider: when much happens at once, the rest follows.
pub const LETTER_RATE: Rate = Rate {
    most: 20,
    each: Duration::from_secs(1),
};

/// How often something is sent to all Providers of one tenant, or of one namespace that is nobody's.
pub const TENANT_LETTER_RATE: Rate = Rate {
    most: 100,
    each: Duration::from_millis(200),
};

/// What a receiver has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// How long it asks to wait.
    pub retry_after: Option<Duration>,
    /// As much of the body as is looked at. Nothing of it is told to anybody.
    pub body: Vec<u8>,
}

/// What is to be done after an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was taken.
    Done,
    /// It is tried again.
    Again {
        /// How long the receiver asks to wait.
        after: Option<Duration>,
        /// What was wrong.
        why: String,
    },
    /// It is not tried again.
    Failed(String),
}

/// How long to wait after so many attempts; nothing when there were enough.
#[must_use]
pub fn find_pause(attempts: u32, asked: Option<Duration>) -> Option<Duration> {
    if attempts >= ATTEMPTS {
        return None;
    }
    let doubled = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(attempts.saturating_sub(1).min(16)));
    Some(asked.unwrap_or(doubled).min(LONGEST_PAUSE))
}

/// What a status means.
pub(super) fn judge_status(answer: &Answer) -> Verdict {
    let status = answer.status;
    match status {
        200..=299 => Verdict::Done,
        429 => Verdict::Again {
            after: answer.retry_after,
            why: "it answers HTTP 429: it is told too much".to_owned(),
        },
        501 => Verdict::Failed(format!("it answers HTTP {status}")),
        500..=599 => Verdict::Again {
            after: answer.retry_after.filter(|_| status == 503),
            why: format!("it answers HTTP {status}"),
        },
        300..=399 => Verdict::Failed(format!(
            "it answers HTTP {status}, and a redirect is not followed: write the address that it leads to"
        )),
        401 | 403 => Verdict::Failed(format!(
            "it answers HTTP {status}: it doesn't accept what the Secret says"
        )),
        _ => Verdict::Failed(format!("it answers HTTP {status}")),
    }
}
