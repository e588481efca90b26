//! Secrets that users write by hand, for a host at which Tenure makes no credentials. They are requested and approved like others, and their age is watched.
//!
//! This module computes the number of a target, because no host assigns one, and reports about the Secret. It never writes or deletes such a Secret, because it
//! belongs to its author.

use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tenure_api::access::Period;
use tenure_api::access::request::CredentialLedger;

use super::request::name_scope;
use super::rotation::conditions::{Finding, assess_manual_secret};
use super::rotation::schedule::{self, add_duration};
use super::rotation::{Plan, WantedState};
use super::secret_facts::Facts;
use tenure_remote_requests::git_host::{Scope, Target};

/// The number of bytes of a hash in a number. Every JSON reader keeps numbers of this size exactly.
const NUMBER_BYTES: usize = 6;

/// The observed state of a Secret that a user writes by hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManualSecretState {
    /// The Secret couldn't be read, for this reason.
    Unknown(String),
    /// The Secret is missing.
    Absent,
    /// The time of the last change of its data.
    Since(Timestamp),
}

/// Returns the target at such a host. Its number follows from its path alone, so another path is another target and needs another approval.
#[must_use]
pub fn make_target(scope: Scope, path: &str) -> Target {
    let mut hash = Sha256::new();
    hash.update(name_scope(scope));
    hash.update([0]);
    hash.update(path);
    let bytes = hash.finalize();
    let id = bytes
        .iter()
        .take(NUMBER_BYTES)
        .fold(0_u64, |id, byte| id << 8 | u64::from(*byte));
    Target {
        scope,
        // No number is zero.
        id: id.max(1),
        path: path.to_owned(),
    }
}

/// Reads the age of a Secret. Without a time, it counts as infinitely old.
#[must_use]
pub fn read_age(secret: &Value, now: Timestamp) -> ManualSecretState {
    let facts = Facts::of_metadata(secret, now);
    ManualSecretState::Since(facts.written_at.unwrap_or(Timestamp::MIN))
}

/// Returns the report about the Secret in a namespace.
#[must_use]
pub fn plan(namespace: &str, seen: &ManualSecretState, wanted: &WantedState, rotate: Period, now: Timestamp) -> Plan {
    let idle = add_duration(now, schedule::IDLE_LOOK);
    let mut plan = Plan {
        ledger: CredentialLedger {
            namespace: namespace.to_owned(),
            ..CredentialLedger::default()
        },
        step: None,
        happened: Vec::new(),
        findings: Vec::new(),
        again: idle,
        is_over: false,
        trial: None,
        is_by_hand: true,
    };
    match (wanted, seen) {
        (WantedState::Revoked(_) | WantedState::Abandoned(_), _) => plan.is_over = true,
        (WantedState::HeldBack(why), _) => plan.findings.push(Finding::held_back(why)),
        (WantedState::Delivered, ManualSecretState::Unknown(why)) => {
            plan.findings.push(Finding::unreadable_secret(why));
            plan.again = add_duration(now, schedule::LOOK);
        }
        (WantedState::Delivered, ManualSecretState::Absent) => {
            plan.findings.extend(assess_manual_secret(None, rotate, now));
            plan.again = add_duration(now, schedule::LOOK);
        }
        (WantedState::Delivered, ManualSecretState::Since(written)) => {
            plan.findings.extend(assess_manual_secret(Some(*written), rotate, now));
            let due = add_duration(*written, rotate.duration());
            plan.again = if due > now { idle.min(due) } else { idle };
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::rotation::conditions::{EXPIRING, VERIFIED, make_conditions};
    use super::*;

    fn parse_time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn target_number_is_stable_and_unique_per_path() {
        let one = make_target(Scope::Project, "group-1/app");
        assert_eq!(one, make_target(Scope::Project, "group-1/app"));
        assert!(one.id > 0 && one.id < 1 << 48);
        for other in [
            make_target(Scope::Group, "group-1/app"),
            make_target(Scope::Project, "group-1/app2"),
        ] {
            assert_ne!(one.id, other.id);
        }
    }

    #[test]
    fn a_missing_old_or_unreadable_secret_is_reported() {
        let now = parse_time("2026-06-01T12:00:00Z");
        let rotate: Period = "90d".parse().unwrap();
        let plan_reasons = |seen: &ManualSecretState, wanted: &WantedState| {
            let planned = plan("team-a", seen, wanted, rotate, now);
            assert!(planned.step.is_none() && planned.again > now);
            let conditions = make_conditions(&[("team-a", &planned)], now);
            // Tenure doesn't observe the use of such a Secret.
            assert!(conditions.iter().all(|condition| condition.type_ != VERIFIED));
            let reasons = conditions
                .iter()
                .map(|condition| format!("{} {}", condition.type_, condition.reason));
            (reasons.collect::<Vec<_>>().join(", "), planned)
        };
        let wanted = &WantedState::Delivered;
        assert_eq!(
            plan_reasons(&ManualSecretState::Absent, wanted).0,
            "Ready SecretMissing"
        );
        assert_eq!(
            plan_reasons(&ManualSecretState::Unknown("forbidden".to_owned()), wanted).0,
            "Ready SecretUnreadable"
        );
        let young = ManualSecretState::Since(parse_time("2026-03-03T12:30:00Z"));
        let (reasons, planned) = plan_reasons(&young, wanted);
        assert_eq!(
            (reasons.as_str(), planned.again),
            ("Ready WrittenByHand", parse_time("2026-06-01T12:30:00Z"))
        );
        let (reasons, planned) = plan_reasons(&ManualSecretState::Since(parse_time("2026-03-01T12:00:00Z")), wanted);
        assert_eq!(reasons, format!("Ready WrittenByHand, {EXPIRING} TooOld"));
        assert!(planned.again == parse_time("2026-06-01T13:00:00Z"));
        assert_eq!(
            plan_reasons(&young, &WantedState::HeldBack("suspended".to_owned())).0,
            "Ready HeldBack"
        );
        assert!(
            plan_reasons(&young, &WantedState::Revoked("denied".to_owned()))
                .1
                .is_over
        );
    }

    /// A Secret without a recorded change of its data counts as old.
    #[test]
    fn secret_age_counts_from_last_data_change() {
        let now = parse_time("2026-06-01T12:00:00Z");
        let secret = json!({ "metadata": { "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [
            { "manager": "kubectl", "operation": "Update", "time": "2026-05-01T00:00:00Z", "fieldsV1": { "f:data": { "f:password": {} } } },
            { "manager": "somebody", "operation": "Update", "time": "2026-05-31T00:00:00Z", "fieldsV1": { "f:metadata": {} } },
            { "manager": "liar", "operation": "Update", "time": "2036-05-31T00:00:00Z", "fieldsV1": { "f:data": {} } }] } });
        assert_eq!(
            read_age(&secret, now),
            ManualSecretState::Since(parse_time("2026-05-01T00:00:00Z"))
        );
        assert_eq!(read_age(&json!({}), now), ManualSecretState::Since(Timestamp::MIN));
    }
}
