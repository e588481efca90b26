//! Objects whose reconciliation was in progress when the lane's process ended unexpectedly: the pause before the next attempt, and its report in the status.
//!
//! Such an object may end the process again. So other objects come first. Then these objects begin one at a time, each after a pause that grows with the number of
//! unexpected ends.

use std::time::Duration;

use jiff::Timestamp;
use tenure_api::condition::{self, ConditionStatus};
use tenure_api::{ObjectMeta, reason};

use crate::outcome;
use crate::plan::Status;

/// The pause after the first unexpected end; four times as long after each further one.
const FIRST: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(300);
/// The time for which an object that began alone may delay the next one.
pub const ALONE: Duration = Duration::from_secs(10);

/// Returns the pause of an object that was in progress at this many unexpected ends in a row.
#[must_use]
pub fn find_pause(crashes: u32) -> Duration {
    match crashes.checked_sub(1) {
        None => Duration::ZERO,
        Some(before) => 4_u32
            .checked_pow(before)
            .and_then(|factor| FIRST.checked_mul(factor))
            .map_or(LONGEST, |pause| pause.min(LONGEST)),
    }
}

/// Describes the wait and its reason, for the status.
#[must_use]
pub fn describe_wait(crashes: u32, until: Timestamp) -> String {
    let times = match crashes {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        more => format!("{more} times in a row"),
    };
    format!(
        "Waiting until {} at least: the controllers ended unexpectedly {times} while this was being reconciled, so others begin first",
        outcome::cut_to_seconds(until).0
    )
}

/// Returns the status during the wait: a Ready object stays Ready, since nothing of it changes.
#[must_use]
pub fn report_wait<T: Status>(status: Option<&T>, metadata: &ObjectMeta, now: Timestamp, message: &str) -> T {
    let mut status = status.cloned().unwrap_or_default();
    let conditions = status.conditions_mut();
    if !condition::is_true(conditions, condition::READY) {
        let entry = (condition::READY, ConditionStatus::Unknown, reason::PROGRESSING, message);
        outcome::set_condition(conditions, metadata, now, entry);
    }
    let entry = (
        condition::RECONCILING,
        ConditionStatus::True,
        reason::PROGRESSING_WITH_RETRY,
        message,
    );
    outcome::set_condition(conditions, metadata, now, entry);
    status
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenure_api::KustomizationStatus;

    use super::*;

    #[test]
    fn the_pause_grows_to_minutes() {
        let seconds: Vec<u64> = [0, 1, 2, 3, 4, 5, 40, u32::MAX]
            .into_iter()
            .map(|crashes| find_pause(crashes).as_secs())
            .collect();
        assert_eq!(seconds, [0, 1, 4, 16, 64, 256, 300, 300]);
    }

    #[test]
    fn the_wait_is_reported_and_ready_stays_true() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let until = outcome::add_duration(now, find_pause(2));
        let message = describe_wait(2, until);
        assert!(
            message.contains("2026-01-01T00:00:04Z") && message.contains("twice"),
            "{message}"
        );
        let metadata = ObjectMeta {
            generation: Some(3),
            ..ObjectMeta::default()
        };
        let fresh = report_wait::<KustomizationStatus>(None, &metadata, now, &message);
        assert_eq!(fresh.conditions[0].type_, "Ready");
        assert_eq!(fresh.conditions[0].status, ConditionStatus::Unknown);
        let ready = json!({
            "observedGeneration": 3,
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "ReconciliationSucceeded", "message": "Applied revision: x",
                "lastTransitionTime": "2025-01-01T00:00:00Z",
            }],
        });
        let ready: KustomizationStatus = serde_json::from_value(ready).unwrap();
        let waiting = report_wait(Some(&ready), &metadata, now, &message);
        assert_eq!(waiting.observed_generation, Some(3));
        assert_eq!(waiting.conditions[0].message, "Applied revision: x");
        assert_eq!(waiting.conditions[1].type_, "Reconciling");
        assert_eq!(waiting.conditions[1].message, message);
        // The wait is reported once: an unchanged wait writes nothing more.
        assert_eq!(report_wait(Some(&waiting), &metadata, now, &message), waiting);
    }
}
