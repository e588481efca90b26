//! Spreading of due times without randomness: a hash of the object and the time takes its place.

use std::time::Duration;

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

/// Returns the interval, up to 5 % shorter or longer (Flux's `--interval-jitter-percentage`), by a hash of the uid and a time.
#[must_use]
pub fn add_jitter(interval: Duration, uid: &str, at: Timestamp) -> Duration {
    // 95 % to 105 % in 65 536 steps.
    let factor = 0.95 + choose_fraction(uid, at) / 10.0;
    interval.mul_f64(factor.clamp(0.95, 1.05)).max(Duration::from_millis(1))
}

/// Returns a number from 0 to 1 that follows from a uid and a time: another one for each, and the same each time.
#[must_use]
pub fn choose_fraction(uid: &str, at: Timestamp) -> f64 {
    let hash = Sha256::digest(format!("{uid}/{}", at.as_millisecond()).as_bytes());
    let number = hash
        .iter()
        .take(2)
        .fold(0_u32, |number, byte| number * 256 + u32::from(*byte));
    f64::from(number) / 65_536.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_spreads_interval_by_five_percent_and_is_deterministic() {
        let interval = Duration::from_secs(1_000);
        let at = Timestamp::UNIX_EPOCH;
        let spread: Vec<f64> = (0..500)
            .map(|number| add_jitter(interval, &format!("uid-{number}"), at).as_secs_f64())
            .collect();
        assert!(
            spread.iter().all(|seconds| (950.0..=1_050.0).contains(seconds)),
            "{spread:?}"
        );
        // Over nearly all of it, and not around one time.
        assert!(spread.iter().any(|seconds| *seconds < 955.0) && spread.iter().any(|seconds| *seconds > 1_045.0));
        assert_eq!(add_jitter(interval, "a", at), add_jitter(interval, "a", at));
        assert!(!add_jitter(Duration::ZERO, "a", at).is_zero());
    }
}
