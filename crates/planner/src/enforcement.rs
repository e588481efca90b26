//! The Enforcement: whether the policies and the webhook configurations of a cluster are right.
//!
//! The module decides each condition, and Ready from all of them. One process may keep the policies and another one the configurations: each reports its own part, and
//! reads the other's report. A part that no process keeps any more is not reported as valid.

use jiff::Timestamp;
use tenure_admission_rules::Rule;
use tenure_admission_rules::rule_enforcement::PolicyCoverage;
use tenure_api::condition::{self, LANES_SEPARATED, POLICIES_IN_FORCE, READY, WEBHOOKS_IN_FORCE};
use tenure_api::enforcement::{EnforcementStatus, KeptRule};
use tenure_api::text::count_of;
use tenure_api::{Condition, ConditionStatus, Time, reason};
use tenure_tenancy::Settings;

use crate::rights::SharedMinting;

/// The most lanes that a condition lists. The events in the platform namespace list all of them.
const LISTED: usize = 5;

/// A part of the tenancy enforcement that one process keeps in force, and that has its own condition in the Enforcement's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnforcedPart {
    /// The policies and their bindings.
    Policies,
    /// The webhook configurations.
    Webhooks,
    /// Lanes of several namespaces, which must not request an administrator's token.
    Lanes,
}

impl EnforcedPart {
    const ALL: [Self; 3] = [Self::Policies, Self::Webhooks, Self::Lanes];

    fn condition(self) -> &'static str {
        match self {
            Self::Policies => POLICIES_IN_FORCE,
            Self::Webhooks => WEBHOOKS_IN_FORCE,
            Self::Lanes => LANES_SEPARATED,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Policies => "policies",
            Self::Webhooks => "webhooks",
            Self::Lanes => "lanes",
        }
    }

    /// Checks whether the part enforces a rule while it is in force.
    fn keeps_rule(self, rule: Rule) -> bool {
        match self {
            Self::Policies => !matches!(rule.kept_by_policies(), PolicyCoverage::Never | PolicyCoverage::Always),
            Self::Webhooks => rule.has_webhooks(),
            Self::Lanes => false,
        }
    }

    /// Checks whether a process of this installation reports the part. Returns `None` for lanes, because the settings don't say whether a process has lanes.
    fn is_kept(self, settings: &Settings) -> Option<bool> {
        match self {
            Self::Policies => Some(settings.has_policies),
            Self::Webhooks => Some(settings.is_guarded),
            Self::Lanes => None,
        }
    }
}

/// The state of one [`EnforcedPart`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartState {
    /// Whether the part is in force.
    pub is_in_force: bool,
    /// The reason of the condition, a word in CamelCase.
    pub reason: &'static str,
    /// The message of the condition.
    pub message: String,
}

impl PartState {
    /// Creates the state of a part that is in force.
    #[must_use]
    pub fn in_force(message: impl Into<String>) -> Self {
        Self {
            is_in_force: true,
            reason: reason::IN_FORCE,
            message: message.into(),
        }
    }

    /// Creates the state of a part that is not in force, or unknown.
    #[must_use]
    pub fn not_in_force(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            is_in_force: false,
            reason,
            message: message.into(),
        }
    }
}

/// Returns the state of [`EnforcedPart::Lanes`]: in force if each lane of several namespaces is known to have no right to an administrator's token.
#[must_use]
pub fn assess_lanes<'a>(found: impl ExactSizeIterator<Item = &'a SharedMinting>) -> PartState {
    let more = found.len().saturating_sub(LISTED);
    // Lanes with a known answer come first.
    let (known, unknown): (Vec<_>, Vec<_>) = found.partition(|found| found.is_known());
    let reason = match known.is_empty() {
        true => reason::NOT_REPORTED,
        false => reason::SHARED_LANE_MINTS,
    };
    let all = known.into_iter().chain(unknown);
    let mut listed: Vec<String> = all.take(LISTED).map(ToString::to_string).collect();
    if listed.is_empty() {
        return PartState::in_force("no lane of several namespaces may request an administrator's token");
    }
    if more > 0 {
        listed.push(format!("and {} more", count_of(more, "namespace")));
    }
    PartState::not_in_force(reason, listed.join("; "))
}

/// Returns the Enforcement's status with the new state of one part. Returns nothing if the status doesn't change.
#[must_use]
pub fn update_status(
    status: &EnforcementStatus,
    (part, state): (EnforcedPart, &PartState),
    settings: &Settings,
    now: Timestamp,
) -> Option<EnforcementStatus> {
    let mut noted = status.clone();
    let describe = |type_: &str, is_so: bool, reason: &str, message: String| Condition {
        type_: type_.to_owned(),
        status: match is_so {
            true => ConditionStatus::True,
            false => ConditionStatus::False,
        },
        reason: reason.to_owned(),
        message,
        observed_generation: None,
        last_transition_time: Time(now),
    };
    for other in EnforcedPart::ALL {
        if other != part && other.is_kept(settings) == Some(false) {
            condition::remove(&mut noted.conditions, other.condition());
        }
    }
    let condition = describe(part.condition(), state.is_in_force, state.reason, state.message.clone());
    condition::set(&mut noted.conditions, condition);
    // A part that the settings enable, and that no process has reported, counts as not in force.
    for other in EnforcedPart::ALL
        .into_iter()
        .filter(|other| other.is_kept(settings) == Some(true))
    {
        if condition::find(&noted.conditions, other.condition()).is_none() {
            let message = format!(
                "{} are meant to be in force, and nothing has reported them yet",
                other.name()
            );
            let missing = describe(other.condition(), false, reason::NOT_REPORTED, message);
            condition::set(&mut noted.conditions, missing);
        }
    }
    noted.rules = list_rules(&noted.conditions);
    let parts: Vec<Condition> = EnforcedPart::ALL
        .iter()
        .filter_map(|part| condition::find(&noted.conditions, part.condition()))
        .cloned()
        .collect();
    let first_wrong = parts.iter().find(|part| part.status != ConditionStatus::True);
    let reason = first_wrong.map_or(reason::IN_FORCE, |part| part.reason.as_str());
    let messages: Vec<&str> = parts
        .iter()
        .filter(|part| first_wrong.is_none() || part.status != ConditionStatus::True)
        .map(|part| part.message.as_str())
        .collect();
    let ready = describe(READY, first_wrong.is_none(), reason, messages.join("; "));
    condition::set(&mut noted.conditions, ready);
    (noted != *status).then_some(noted)
}

/// Lists every rule with the parts that enforce it now, and with the parts that should enforce it and are not in force.
fn list_rules(conditions: &[Condition]) -> Vec<KeptRule> {
    let describe = |rule: Rule| {
        let mut kept = KeptRule {
            name: rule.as_str().to_owned(),
            purpose: rule.purpose().as_str().to_owned(),
            ..KeptRule::default()
        };
        if rule.kept_by_policies() == PolicyCoverage::Always {
            kept.kept_by.push("policies of the installation".to_owned());
        }
        for part in EnforcedPart::ALL.into_iter().filter(|part| part.keeps_rule(rule)) {
            let Some(condition) = condition::find(conditions, part.condition()) else {
                continue;
            };
            let is_in_part = part == EnforcedPart::Policies && rule.kept_by_policies() == PolicyCoverage::InPart;
            let name = if is_in_part { "policies (in part)" } else { part.name() };
            if condition.status == ConditionStatus::True {
                kept.kept_by.push(name.to_owned());
            } else {
                kept.missing.push(name.to_owned());
            }
        }
        kept
    };
    Rule::ALL.into_iter().map(describe).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::allow_attributes, reason = "tests may panic")]

    use super::*;

    fn time_at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn make_settings() -> Settings {
        Settings {
            has_policies: true,
            is_guarded: true,
            ..Settings::default()
        }
    }

    fn ready(status: &EnforcementStatus) -> (ConditionStatus, &str, &str, i64) {
        let ready = condition::find(&status.conditions, READY).unwrap();
        let since = ready.last_transition_time.0.as_second();
        (ready.status, &ready.reason, &ready.message, since)
    }

    #[test]
    fn ready_is_false_until_all_parts_are_in_force() {
        let good = PartState::in_force("34 policies");
        let first = update_status(
            &EnforcementStatus::default(),
            (EnforcedPart::Policies, &good),
            &make_settings(),
            time_at(1),
        )
        .unwrap();
        // Both are meant, and one was never seen.
        let missing = "webhooks are meant to be in force, and nothing has reported them yet";
        assert_eq!(ready(&first), (ConditionStatus::False, "NotReported", missing, 1));
        let bad = PartState::not_in_force(reason::WEAKENED, "webhooks were changed or gone: x");
        let second = update_status(&first, (EnforcedPart::Webhooks, &bad), &make_settings(), time_at(2)).unwrap();
        let wanted = (
            ConditionStatus::False,
            "Weakened",
            "webhooks were changed or gone: x",
            1,
        );
        assert_eq!(ready(&second), wanted);
        // The other part's word changes nothing of that.
        assert_eq!(
            update_status(&second, (EnforcedPart::Policies, &good), &make_settings(), time_at(3)),
            None
        );
        let third = update_status(
            &second,
            (EnforcedPart::Webhooks, &PartState::in_force("webhooks")),
            &make_settings(),
            time_at(4),
        )
        .unwrap();
        assert_eq!(
            ready(&third),
            (ConditionStatus::True, "InForce", "34 policies; webhooks", 4)
        );
        let worse = PartState::not_in_force(reason::NOT_MET_YET, "not met yet");
        let fourth = update_status(&third, (EnforcedPart::Policies, &worse), &make_settings(), time_at(5)).unwrap();
        assert_eq!(ready(&fourth), (ConditionStatus::False, "NotMetYet", "not met yet", 5));
    }

    #[test]
    fn each_rule_names_its_enforcing_parts() {
        let (good, bad) = (
            PartState::in_force("held"),
            PartState::not_in_force(reason::WEAKENED, "gone"),
        );
        let status = update_status(
            &EnforcementStatus::default(),
            (EnforcedPart::Webhooks, &good),
            &make_settings(),
            time_at(1),
        )
        .unwrap();
        let find = |status: &EnforcementStatus, name: &str| {
            let found = status.rules.iter().find(|rule| rule.name == name).cloned();
            let rule = found.unwrap();
            (rule.kept_by.join(", "), rule.missing.join(", "))
        };
        let pair = |kept: &str, missing: &str| (kept.to_owned(), missing.to_owned());
        assert_eq!(status.rules.len(), Rule::ALL.len());
        assert_eq!(
            find(&status, "persistent-volumes"),
            pair("webhooks", "policies (in part)")
        );
        assert_eq!(find(&status, "gitops-account"), pair("webhooks", "policies"));
        assert_eq!(find(&status, "resource-quotas"), pair("webhooks", ""));
        let status = update_status(&status, (EnforcedPart::Policies, &good), &make_settings(), time_at(2)).unwrap();
        assert_eq!(find(&status, "gitops-account"), pair("policies, webhooks", ""));
        assert_eq!(
            find(&status, "ingress-options"),
            pair("policies (in part), webhooks", "")
        );
        assert_eq!(
            find(&status, "controller-rights"),
            pair("policies of the installation", "")
        );
        let status = update_status(&status, (EnforcedPart::Webhooks, &bad), &make_settings(), time_at(3)).unwrap();
        assert_eq!(find(&status, "gitops-account"), pair("policies", "webhooks"));
        assert_eq!(find(&status, "resource-quotas"), pair("", "webhooks"));
        assert_eq!(ready(&status).0, ConditionStatus::False);
    }

    #[test]
    fn unused_part_has_no_condition() {
        let bad = PartState::not_in_force(reason::WEAKENED, "gone");
        let good = PartState::in_force("34 policies");
        let status = update_status(
            &EnforcementStatus::default(),
            (EnforcedPart::Webhooks, &bad),
            &make_settings(),
            time_at(1),
        )
        .unwrap();
        let alone = Settings {
            is_guarded: false,
            ..make_settings()
        };
        let status = update_status(&status, (EnforcedPart::Policies, &good), &alone, time_at(2)).unwrap();
        assert_eq!(condition::find(&status.conditions, WEBHOOKS_IN_FORCE), None);
        assert_eq!(ready(&status).0, ConditionStatus::True);
    }
}
