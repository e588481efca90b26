//! The meaning of a receiver's answer, the time of the next try, and the rate of requests.

use std::time::Duration;

use tenure_remote_requests::notification::Answer;

use crate::receiver::Rate;

/// The most tries of one event (Flux's).
pub const ATTEMPTS: u32 = 5;
/// The first pause, doubled after each (Flux's).
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// The longest pause, whatever a receiver requests (Flux's).
pub const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The rate of requests to one Provider. In a burst of events, further requests wait.
pub const NOTIFICATION_RATE: Rate = Rate {
    most: 20,
    each: Duration::from_secs(1),
};

/// The rate of requests to all Providers of one tenant, or of one namespace without a tenant.
pub const TENANT_NOTIFICATION_RATE: Rate = Rate {
    most: 100,
    each: Duration::from_millis(200),
};

/// The action after an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The receiver accepted the event.
    Done,
    /// The request is tried again.
    Again {
        /// The pause that the receiver requests.
        after: Option<Duration>,
        /// The failure.
        why: String,
    },
    /// The request is not tried again.
    Failed(String),
}

/// Returns the pause after this many attempts; nothing after the last one.
#[must_use]
pub fn find_pause(attempts: u32, asked: Option<Duration>) -> Option<Duration> {
    if attempts >= ATTEMPTS {
        return None;
    }
    let doubled = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(attempts.saturating_sub(1).min(16)));
    Some(asked.unwrap_or(doubled).min(LONGEST_PAUSE))
}

/// Judges a status code.
pub(super) fn interpret_status(answer: &Answer) -> Verdict {
    let status = answer.status;
    match status {
        200..=299 => Verdict::Done,
        429 => Verdict::Again {
            after: answer.retry_after,
            why: "it answers HTTP 429: it receives too many events".to_owned(),
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
            "it answers HTTP {status}: it does not accept the credentials in the Secret"
        )),
        _ => Verdict::Failed(format!("it answers HTTP {status}")),
    }
}
