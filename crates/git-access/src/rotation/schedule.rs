//! All time spans of the rotation: when a credential is replaced, how long two overlap, and when the host ends a forgotten one.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tenure_api::access::Period;
use tenure_api::access::request::HeldCredential;
use tenure_api::time::Time;

use super::SourceState;
use tenure_api::jitter::choose_fraction;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// The minimum time for which an old credential continues beside a new one.
const SHORTEST_OVERLAP: Duration = Duration::from_secs(HOUR);
/// The maximum overlap. A tenant chooses the interval of its sources, and sources are also asked to fetch.
const LONGEST_OVERLAP: Duration = Duration::from_secs(7 * DAY);
/// The margin beyond two intervals.
const OVERLAP_MARGIN: Duration = Duration::from_secs(10 * MINUTE);
/// The longest outage of the host, or of this controller, that a credential survives.
pub const OUTAGE: Duration = Duration::from_secs(14 * DAY);
/// The time before its end at which a credential is reported.
pub(super) const NEAR_END: Duration = Duration::from_secs(7 * DAY);
/// How long an order to the host may be in transit, from the time of its record. A list that is taken earlier can't prove that nothing was made. The sender of the
/// order gives up before then.
pub const SETTLE: Duration = Duration::from_secs(MINUTE);
/// How long a host may refuse a new credential before it is given up.
pub(super) const PATIENCE: Duration = Duration::from_secs(10 * MINUTE);
/// The minimum between two unplanned credentials. A user that deletes the Secret in a loop gets no more than that.
pub(super) const LEAST_BETWEEN: Duration = Duration::from_secs(10 * MINUTE);
/// The maximum life of a leaked credential after the delivery of its successor.
pub(super) const LEAK_DEADLINE: Duration = Duration::from_secs(15 * MINUTE);
/// The interval of checks whether sources use a new credential.
pub(crate) const LOOK: Duration = Duration::from_secs(30);
/// The minimum between two lists of a target that a refused source causes.
pub(super) const LEAST_BETWEEN_LOOKS: Duration = Duration::from_secs(MINUTE);
/// The minimum interval between two reads of a delivered Secret.
const SECRET_LOOK: Duration = Duration::from_secs(15);
/// The maximum interval between two plans.
pub(crate) const IDLE_LOOK: Duration = Duration::from_secs(HOUR);
/// The first and the longest wait after a failure.
const FIRST_RETRY: Duration = Duration::from_secs(MINUTE);
const LONGEST_RETRY: Duration = Duration::from_secs(HOUR);
/// The longest wait that a host can demand.
const LONGEST_WAIT: Duration = Duration::from_secs(DAY);

pub(crate) fn add_duration(moment: Timestamp, span: Duration) -> Timestamp {
    SignedDuration::try_from(span)
        .ok()
        .and_then(|span| moment.checked_add(span).ok())
        .unwrap_or(Timestamp::MAX)
}

/// Returns a time for the ledger: in whole seconds, so that it is equal after a read.
pub(crate) fn record_time(moment: Timestamp) -> Time {
    Time(Timestamp::from_second(moment.as_second()).unwrap_or(moment))
}

/// Returns the life of the old credential beside the new one: twice the longest interval of a running source, with a margin.
#[must_use]
pub fn find_overlap(sources: &[SourceState]) -> Duration {
    let running = sources.iter().filter(|source| !source.is_suspended);
    let longest = running.map(|source| source.interval).max().unwrap_or_default();
    let twice = longest.saturating_mul(2).saturating_add(OVERLAP_MARGIN);
    twice.clamp(SHORTEST_OVERLAP, LONGEST_OVERLAP)
}

/// Returns the time at which the host should end a new credential.
#[must_use]
pub fn find_expiry(host_now: Timestamp, rotate: Period, sources: &[SourceState]) -> Timestamp {
    let lives = rotate
        .duration()
        .saturating_add(find_overlap(sources))
        .saturating_add(OUTAGE);
    let ends = add_duration(host_now, lives);
    // Whole seconds, rounded up.
    Timestamp::from_second(ends.as_second().saturating_add(1)).unwrap_or(ends)
}

/// Returns the due time of a credential: after its period, or up to a twentieth earlier to spread the load, and never later. A credential that the host ends before
/// its period and the shortest overlap are over is due at half of its life. The host's clock, which is ahead of the local one by `host_ahead`, decides this end.
#[must_use]
pub fn find_due_time(held: &HeldCredential, rotate: Period, uid: &str, host_ahead: SignedDuration) -> Timestamp {
    let begun = held.begun_at.0;
    let fraction = choose_fraction(&format!("{uid}/{}", held.generation), begun);
    let period = rotate.duration();
    let by_period = add_duration(begun, period.saturating_sub(period.mul_f64(fraction / 20.0)));
    let Some(ends) = &held.expires_at else {
        return by_period;
    };
    let host_begun = begun.checked_add(host_ahead).unwrap_or(begun);
    let life = Duration::try_from(ends.0.duration_since(host_begun)).unwrap_or_default();
    if life < period.saturating_add(SHORTEST_OVERLAP) {
        return by_period.min(add_duration(begun, life / 2));
    }
    by_period
}

/// Returns the time of the next attempt after this number of failures in a row.
#[must_use]
pub(crate) fn find_retry_time(now: Timestamp, failures: u32) -> Timestamp {
    let factor = 1_u32
        .checked_shl(failures.saturating_sub(1).min(16))
        .unwrap_or(u32::MAX);
    add_duration(now, FIRST_RETRY.saturating_mul(factor).min(LONGEST_RETRY))
}

/// Computes the wait until a delivered Secret is read again. In all, 20 Secrets are read in a second at most, and each is read once an hour at least. A watch would
/// need the right to list all Secrets of a namespace.
#[must_use]
pub fn find_reread_interval(delivered: usize) -> Duration {
    let each = Duration::from_millis(50).saturating_mul(u32::try_from(delivered).unwrap_or(u32::MAX));
    each.clamp(SECRET_LOOK, IDLE_LOOK)
}

/// Computes when a refused new credential is tried again. The waits grow, since hosts ban addresses for refused attempts.
#[must_use]
pub(super) fn find_next_probe(begun_at: Timestamp, now: Timestamp) -> Timestamp {
    let waited = Duration::try_from(now.duration_since(begun_at)).unwrap_or_default();
    add_duration(now, LOOK.max(waited / 2).min(PATIENCE))
}

/// Limits a host's demand for a later attempt: at least one second, and at most a day.
#[must_use]
pub(crate) fn wait_for(now: Timestamp, until: Timestamp) -> Timestamp {
    until.clamp(
        add_duration(now, Duration::from_secs(1)),
        add_duration(now, LONGEST_WAIT),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(hours: u64, is_suspended: bool) -> SourceState {
        SourceState {
            name: "GitRepository/a".to_owned(),
            is_suspended,
            interval: Duration::from_secs(hours * HOUR),
            asked: None,
            last_handled: None,
            refused_at: None,
        }
    }

    #[test]
    fn overlap_is_twice_the_longest_source_interval() {
        let minutes = |sources: &[SourceState]| find_overlap(sources).as_secs() / MINUTE;
        assert_eq!(minutes(&[]), 60);
        assert_eq!(minutes(&[source(0, false)]), 60);
        assert_eq!(minutes(&[source(1, false), source(3, false)]), 370);
        // A suspended source doesn't extend the overlap, and no interval extends it beyond the maximum.
        assert_eq!(minutes(&[source(1, false), source(300, true)]), 130);
        assert_eq!(minutes(&[source(1 << 40, false)]), 7 * 24 * 60);
    }

    #[test]
    fn a_credential_is_due_early_and_ends_late() {
        let now = Timestamp::from_second(1_790_000_000).unwrap();
        let rotate: Period = "90d".parse().unwrap();
        let ends = find_expiry(now, rotate, &[]);
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
                let due = find_due_time(&held(number, Some(ends)), rotate, "uid", SignedDuration::ZERO);
                due.duration_since(now).as_secs_f64() / 86_400.0
            })
            .collect();
        assert!(days.iter().all(|days| (85.49..=90.0).contains(days)), "{days:?}");
        assert!(days.iter().any(|days| *days < 86.0) && days.iter().any(|days| *days > 89.5));
        // A token with a life of one hour is due after half of it.
        let short = add_duration(now, Duration::from_secs(HOUR));
        assert_eq!(
            find_due_time(&held(1, Some(short)), rotate, "uid", SignedDuration::ZERO),
            add_duration(now, Duration::from_secs(HOUR / 2))
        );
        // If the host ends no credentials, only the period counts. No number causes an overflow.
        assert!(
            find_due_time(&held(1, None), rotate, "uid", SignedDuration::ZERO) <= add_duration(now, rotate.duration())
        );
        assert_eq!(
            find_due_time(&held(1, Some(Timestamp::MIN)), rotate, "uid", SignedDuration::ZERO),
            now
        );
        assert!(
            find_retry_time(now, u32::MAX) == add_duration(now, LONGEST_RETRY)
                && find_retry_time(now, 0) == add_duration(now, FIRST_RETRY)
        );
        assert_eq!(wait_for(now, Timestamp::MAX), add_duration(now, LONGEST_WAIT));
        let looks = [0, 300, 1_000, 72_000, usize::MAX].map(|delivered| find_reread_interval(delivered).as_secs());
        assert_eq!(looks, [15, 15, 50, HOUR, HOUR]);
        assert_eq!(add_duration(now, Duration::MAX), Timestamp::MAX);
    }
}
