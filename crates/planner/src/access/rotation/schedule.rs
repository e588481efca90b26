//! When a credential is replaced, how long two are there at once, and when the host ends one that everybody forgot. Owns all time spans of that.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tenure_api::access::Period;
use tenure_api::access::request::HeldCredential;
use tenure_api::time::Time;

use super::SourceSeen;
use crate::jitter::choose_fraction;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// The shortest time for which an old credential lives on beside a new one.
const SHORTEST_OVERLAP: Duration = Duration::from_secs(HOUR);
/// The longest: a tenant chooses how long the interval of a source is, and a source is asked besides.
const LONGEST_OVERLAP: Duration = Duration::from_secs(7 * DAY);
/// What comes on top of two intervals.
const OVERLAP_MARGIN: Duration = Duration::from_secs(10 * MINUTE);
/// How long the host, or this controller, may be away before a credential ends.
pub const OUTAGE: Duration = Duration::from_secs(14 * DAY);
/// How near to its end a credential is told of.
pub(super) const NEAR_END: Duration = Duration::from_secs(7 * DAY);
/// How long an order to the host may be on its way, from the moment that it was recorded: no list that is taken before says that nothing was made. Whoever
/// gives the order has given it up by then.
pub const SETTLE: Duration = Duration::from_secs(MINUTE);
/// How long a new credential may be refused before it is given up.
pub(super) const PATIENCE: Duration = Duration::from_secs(10 * MINUTE);
/// The least between two credentials that aren't due by time: who deletes the Secret in a loop orders no more than that.
pub(super) const LEAST_BETWEEN: Duration = Duration::from_secs(10 * MINUTE);
/// The longest that a leaked credential lives on after another one was delivered.
pub(super) const LEAK_DEADLINE: Duration = Duration::from_secs(15 * MINUTE);
/// How often it is looked whether sources use a new credential.
pub(in crate::access) const LOOK: Duration = Duration::from_secs(30);
/// The least between two lists of a target that are asked for because a source was refused.
pub(super) const LEAST_BETWEEN_LOOKS: Duration = Duration::from_secs(MINUTE);
/// How often a delivered Secret is looked at, if there are few.
const SECRET_LOOK: Duration = Duration::from_secs(15);
/// How often it is looked at all.
pub(in crate::access) const IDLE_LOOK: Duration = Duration::from_secs(HOUR);
/// The first wait after something went wrong, and the longest.
const FIRST_RETRY: Duration = Duration::from_secs(MINUTE);
const LONGEST_RETRY: Duration = Duration::from_secs(HOUR);
/// The longest that a host's word is waited for.
const LONGEST_WAIT: Duration = Duration::from_secs(DAY);

pub(in crate::access) fn later(moment: Timestamp, span: Duration) -> Timestamp {
    SignedDuration::try_from(span)
        .ok()
        .and_then(|span| moment.checked_add(span).ok())
        .unwrap_or(Timestamp::MAX)
}

/// A time as the ledger has it: whole seconds, so that it reads back as it was.
pub(in crate::access) fn record_time(moment: Timestamp) -> Time {
    Time(Timestamp::from_second(moment.as_second()).unwrap_or(moment))
}

/// How long the old credential lives on: twice the longest interval of a source that isn't suspended, and some.
#[must_use]
pub fn overlap(sources: &[SourceSeen]) -> Duration {
    let running = sources.iter().filter(|source| !source.is_suspended);
    let longest = running.map(|source| source.interval).max().unwrap_or_default();
    let twice = longest.saturating_mul(2).saturating_add(OVERLAP_MARGIN);
    twice.clamp(SHORTEST_OVERLAP, LONGEST_OVERLAP)
}

/// When the host is to end a new credential.
#[must_use]
pub fn expiry(host_now: Timestamp, rotate: Period, sources: &[SourceSeen]) -> Timestamp {
    let lives = rotate
        .duration()
        .saturating_add(overlap(sources))
        .saturating_add(OUTAGE);
    let ends = later(host_now, lives);
    // Whole seconds, and one more rather than one less.
    Timestamp::from_second(ends.as_second().saturating_add(1)).unwrap_or(ends)
}

/// When a credential is due: after its period, up to a twentieth earlier so that not all are at once, and never later. One that the host lets live for less
/// than that is due at half of its life. When it ends is by the host's clock, which is ahead of this one by so much.
#[must_use]
pub fn due(held: &HeldCredential, rotate: Period, uid: &str, host_ahead: SignedDuration) -> Timestamp {
    let begun = held.begun_at.0;
    let fraction = choose_fraction(&format!("{uid}/{}", held.generation), begun);
    let period = rotate.duration();
    let by_period = later(begun, period.saturating_sub(period.mul_f64(fraction / 20.0)));
    let Some(ends) = &held.expires_at else {
        return by_period;
    };
    let host_begun = begun.checked_add(host_ahead).unwrap_or(begun);
    let life = Duration::try_from(ends.0.duration_since(host_begun)).unwrap_or_default();
    if life < period.saturating_add(SHORTEST_OVERLAP) {
        return by_period.min(later(begun, life / 2));
    }
    by_period
}

/// When something that went wrong so often in a row is tried again.
#[must_use]
pub(in crate::access) fn retry(now: Timestamp, failures: u32) -> Timestamp {
    let factor = 1_u32
        .checked_shl(failures.saturating_sub(1).min(16))
        .unwrap_or(u32::MAX);
    later(now, FIRST_RETRY.saturating_mul(factor).min(LONGEST_RETRY))
}

/// Computes the wait until a delivered Secret is read again. In all, 20 Secrets are read in a second at most, and each is read once an hour at least. A watch
/// would need the right to list all Secrets of a namespace.
#[must_use]
pub fn choose_look(delivered: usize) -> Duration {
    let each = Duration::from_millis(50).saturating_mul(u32::try_from(delivered).unwrap_or(u32::MAX));
    each.clamp(SECRET_LOOK, IDLE_LOOK)
}

/// Computes when a refused new credential is tried again. The waits grow, since hosts ban addresses for refused attempts.
#[must_use]
pub(super) fn probe_again(begun_at: Timestamp, now: Timestamp) -> Timestamp {
    let waited = Duration::try_from(now.duration_since(begun_at)).unwrap_or_default();
    later(now, LOOK.max(waited / 2).min(PATIENCE))
}

/// When a host is asked again that said itself when: not at once, and not in years.
#[must_use]
pub(in crate::access) fn wait_for(now: Timestamp, until: Timestamp) -> Timestamp {
    until.clamp(later(now, Duration::from_secs(1)), later(now, LONGEST_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(hours: u64, is_suspended: bool) -> SourceSeen {
        SourceSeen {
            name: "GitRepository/a".to_owned(),
            is_suspended,
            interval: Duration::from_secs(hours * HOUR),
            asked: None,
            last_handled: None,
            refused_at: None,
        }
    }

    #[test]
    fn two_live_at_once_for_twice_the_longest_interval() {
        let minutes = |sources: &[SourceSeen]| overlap(sources).as_secs() / MINUTE;
        assert_eq!(minutes(&[]), 60);
        assert_eq!(minutes(&[source(0, false)]), 60);
        assert_eq!(minutes(&[source(1, false), source(3, false)]), 370);
        // Who is suspended is not waited for, and nobody is for ever.
        assert_eq!(minutes(&[source(1, false), source(300, true)]), 130);
        assert_eq!(minutes(&[source(1 << 40, false)]), 7 * 24 * 60);
    }

    #[test]
    fn a_credential_is_due_early_and_ends_late() {
        let now = Timestamp::from_second(1_790_000_000).unwrap();
        let rotate: Period = "90d".parse().unwrap();
        let ends = expiry(now, rotate, &[]);
        assert_eq!(
            ends.as_second() - now.as_second(),
            i64::try_from(90 * DAY + HOUR + 14 * DAY).unwrap() + 1
        );
        let held = |generation: u64, ends: Option<Timestamp>| HeldCredential {
            generation,
            id: Some(1),
            name: String::new(),
            fingerprint: String::new(),
            begun_at: record_time(now),
            expires_at: ends.map(record_time),
            verified_at: None,
            retire_at: None,
        };
        let days: Vec<f64> = (0..500_u64)
            .map(|number| {
                let due = due(&held(number, Some(ends)), rotate, "uid", SignedDuration::ZERO);
                due.duration_since(now).as_secs_f64() / 86_400.0
            })
            .collect();
        assert!(days.iter().all(|days| (85.49..=90.0).contains(days)), "{days:?}");
        assert!(days.iter().any(|days| *days < 86.0) && days.iter().any(|days| *days > 89.5));
        // A token that lives for an hour is due after half of it.
        let short = later(now, Duration::from_secs(HOUR));
        assert_eq!(
            due(&held(1, Some(short)), rotate, "uid", SignedDuration::ZERO),
            later(now, Duration::from_secs(HOUR / 2))
        );
        // Where the host ends none, time alone counts; and no number is too large.
        assert!(due(&held(1, None), rotate, "uid", SignedDuration::ZERO) <= later(now, rotate.duration()));
        assert_eq!(
            due(&held(1, Some(Timestamp::MIN)), rotate, "uid", SignedDuration::ZERO),
            now
        );
        assert!(retry(now, u32::MAX) == later(now, LONGEST_RETRY) && retry(now, 0) == later(now, FIRST_RETRY));
        assert_eq!(wait_for(now, Timestamp::MAX), later(now, LONGEST_WAIT));
        let looks = [0, 300, 1_000, 72_000, usize::MAX].map(|delivered| choose_look(delivered).as_secs());
        assert_eq!(looks, [15, 15, 50, HOUR, HOUR]);
        assert_eq!(later(now, Duration::MAX), Timestamp::MAX);
    }
}
