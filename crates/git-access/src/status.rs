//! The statuses of requests, grants and AccessProviders.
//!
//! This module writes the conditions, the state of a request in one word, and the bounded history. Statuses contain no values. A condition keeps its transition
//! time while its status stays the same.

use std::collections::BTreeSet;

use jiff::Timestamp;
use tenure_api::access::name_target;
use tenure_api::access::request::{HistoryEntry, LONGEST_HISTORY};
use tenure_api::access::{FluxAccessGrant, FluxAccessRequest, FluxAccessRequestStatus};
use tenure_api::condition::{Condition, ConditionStatus, READY};
use tenure_api::text;
use tenure_api::time::Time;
use tenure_tenancy::access::approval::Verdict;

use super::notice;
use super::rotation::conditions::make_conditions;
use super::rotation::{Plan, RotationEvent};

/// Condition of a request: whether an approver has approved it.
pub const APPROVED: &str = "Approved";
/// Condition of an AccessProvider: whether its agent's configuration could be read.
pub const CONFIGURATION_READ: &str = "ConfigurationRead";
/// Condition of an AccessProvider: whether the host accepts its authoriser.
pub const AUTHORISER_WORKS: &str = "AuthoriserWorks";
/// Condition of an AccessProvider: whether the host listed the credentials of all delivered targets. Unrecorded credentials are revoked.
pub const SWEPT: &str = "Swept";
/// The maximum of targets in a message.
const MOST_LISTED: usize = 5;
/// The maximum of receivers in a status.
const MOST_RECEIVERS: usize = 100;
/// The maximum length of a cause in a history.
const LONGEST_CAUSE: usize = 256;

/// Returns a condition with the current time.
#[must_use]
pub fn make_condition(
    type_: &str,
    status: ConditionStatus,
    (reason, message): (&str, String),
    now: Timestamp,
) -> Condition {
    Condition {
        last_transition_time: truncate_to_seconds(now),
        message: text::visible_line(&message).into_owned(),
        observed_generation: None,
        reason: reason.to_owned(),
        status,
        type_: type_.to_owned(),
    }
}

/// Returns the condition [`SWEPT`]: whether the host listed the credentials of all targets. `unlisted`: the paths of the other targets, with the reasons.
#[must_use]
pub fn make_sweep_condition(unlisted: &[(&str, &str)], now: Timestamp) -> Condition {
    if unlisted.is_empty() {
        let message = "all delivered credentials could be listed at the host".to_owned();
        return make_condition(SWEPT, ConditionStatus::True, ("Listed", message), now);
    }
    let lines = unlisted
        .iter()
        .take(MOST_LISTED)
        .map(|(path, why)| format!("{path}: {why}"));
    let listed = lines.collect::<Vec<_>>().join("; ");
    let more = match unlisted.len().saturating_sub(MOST_LISTED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let message = format!(
        "these could not be listed at the host, so an unrecorded credential may live there: {listed}{more}; let the authoriser list their deploy \
         tokens and keys"
    );
    make_condition(SWEPT, ConditionStatus::False, ("NotListed", message), now)
}

fn truncate_to_seconds(moment: Timestamp) -> Time {
    Time(Timestamp::from_second(moment.as_second()).unwrap_or(moment))
}

/// Replaces conditions. A condition with an unchanged status keeps its transition time.
#[must_use]
pub fn replace_conditions(before: &[Condition], mut after: Vec<Condition>) -> Vec<Condition> {
    for condition in &mut after {
        let same = before
            .iter()
            .find(|old| old.type_ == condition.type_ && old.status == condition.status);
        if let Some(old) = same {
            condition.last_transition_time = old.last_transition_time.clone();
        }
    }
    after
}

/// Records the namespaces that would have the Secret, for approvers, who may not read the owners of namespaces.
pub fn record_receivers(status: &mut FluxAccessRequestStatus, reaching: &BTreeSet<String>) {
    status.receivers = reaching.iter().take(MOST_RECEIVERS).cloned().collect();
    let more = reaching.len().saturating_sub(MOST_RECEIVERS);
    status.more_receivers = u32::try_from(more).unwrap_or(u32::MAX);
}

/// Returns the state of a request in one word. A pending request with `has_ledgers` had an approval before, so it is revoked.
#[must_use]
pub fn name_state(verdict: &Verdict, has_ledgers: bool) -> &'static str {
    match verdict {
        Verdict::Approved(_) => "Approved",
        Verdict::Denied(_) => "Denied",
        Verdict::Pending(_) if has_ledgers => "Revoked",
        Verdict::Pending(_) => "Pending",
    }
}

/// Returns the state of a request with this status. Its ledgers and its previous state show whether it ever had an approval.
#[must_use]
pub fn decide_state(status: &FluxAccessRequestStatus, verdict: &Verdict) -> &'static str {
    let was_approved = matches!(status.state.as_deref(), Some("Revoked" | "Approved"));
    name_state(verdict, was_approved || !status.credentials.is_empty())
}

/// Returns all conditions of a request, from its verdict and the plans for its namespaces.
#[must_use]
pub fn conclude_request(
    request: &FluxAccessRequest,
    verdict: &Verdict,
    plans: &[(&str, &Plan)],
    now: Timestamp,
) -> Vec<Condition> {
    let target = name_target(&request.spec.provider, request.spec.target.id);
    let mut conditions = make_conditions(plans, now);
    let approved = match verdict {
        Verdict::Approved(word) => {
            let sort = if word.is_standing {
                "FluxAccessStandingGrant"
            } else {
                "FluxAccessGrant"
            };
            make_condition(
                APPROVED,
                ConditionStatus::True,
                ("Approved", format!("by {} ({sort} {})", word.by, word.object)),
                now,
            )
        }
        Verdict::Denied(word) => {
            let why = word
                .reason
                .as_ref()
                .map(|reason| format!(": {reason}"))
                .unwrap_or_default();
            make_condition(
                APPROVED,
                ConditionStatus::False,
                (
                    "Denied",
                    format!("{} denied it (FluxAccessGrant {}){why}", word.by, word.object),
                ),
                now,
            )
        }
        Verdict::Pending(reasons) => {
            let mut message = format!(
                "an account with the verb approve on fluxaccesstargets {target} answers it with a FluxAccessGrant that repeats specHash {}",
                request.spec.spec_hash
            );
            if !reasons.is_empty() {
                message = format!("{message}; {}", reasons.join("; "));
            }
            make_condition(APPROVED, ConditionStatus::Unknown, ("Pending", message), now)
        }
    };
    if plans.is_empty() {
        let ready = match verdict {
            Verdict::Approved(_) => (
                ConditionStatus::True,
                "NothingToDeliver",
                "none of the requested namespaces exists".to_owned(),
            ),
            Verdict::Denied(_) => (ConditionStatus::False, "Denied", approved.message.clone()),
            Verdict::Pending(_) => (
                ConditionStatus::Unknown,
                "Pending",
                format!("it waits for an answer: {}", approved.message),
            ),
        };
        let (status, reason, message) = ready;
        conditions = vec![make_condition(READY, status, (reason, message), now)];
    }
    conditions.push(approved);
    conditions
}

/// Adds occurrences in a namespace to the history of a request, and drops the oldest entries.
pub fn record_history(
    status: &mut FluxAccessRequestStatus,
    namespace: &str,
    happened: &[RotationEvent],
    now: Timestamp,
) {
    let entry = |event: &RotationEvent| HistoryEntry {
        at: truncate_to_seconds(now),
        actor: "tenure".to_owned(),
        action: event.action.to_owned(),
        namespace: Some(namespace.to_owned()),
        id: event.id,
        generation: Some(event.generation),
        cause: event.cause.chars().take(LONGEST_CAUSE).collect(),
    };
    status.history.extend(happened.iter().map(entry));
    trim_history(status);
}

/// Adds a new answer and its author to the history.
pub fn record_verdict(status: &mut FluxAccessRequestStatus, verdict: &Verdict, state: &str, now: Timestamp) {
    let (actor, cause) = match verdict {
        Verdict::Approved(word) | Verdict::Denied(word) => (word.by.clone(), word.reason.clone().unwrap_or_default()),
        Verdict::Pending(_) => ("tenure".to_owned(), String::new()),
    };
    status.history.push(HistoryEntry {
        at: truncate_to_seconds(now),
        actor,
        action: state.to_owned(),
        namespace: None,
        id: None,
        generation: None,
        cause: cause.chars().take(LONGEST_CAUSE).collect(),
    });
    trim_history(status);
}

/// Adds the result for the issue at the request's project.
pub(super) fn record_notice(status: &mut FluxAccessRequestStatus, event: &notice::NoticeEvent, now: Timestamp) {
    status.history.push(HistoryEntry {
        at: truncate_to_seconds(now),
        actor: "tenure".to_owned(),
        action: event.action.to_owned(),
        namespace: None,
        id: None,
        generation: None,
        cause: event.cause.chars().take(LONGEST_CAUSE).collect(),
    });
    trim_history(status);
}

fn trim_history(status: &mut FluxAccessRequestStatus) {
    let over = status.history.len().saturating_sub(LONGEST_HISTORY);
    status.history.drain(..over);
}

/// Returns the condition whether a grant counts.
#[must_use]
pub fn make_grant_condition(
    grant: &FluxAccessGrant,
    request: Option<(&FluxAccessRequest, &Verdict)>,
    now: Timestamp,
) -> Condition {
    let name = grant.metadata.name.as_deref().unwrap_or_default();
    let Some((_, verdict)) = request else {
        let message =
            "there is no FluxAccessRequest of this name: answer another one; tenure access list shows them".to_owned();
        return make_condition(READY, ConditionStatus::False, ("NoRequest", message), now);
    };
    match verdict {
        Verdict::Approved(word) | Verdict::Denied(word) if word.object == name && !word.is_standing => {
            let message = format!("it counts: the request is {}", name_state(verdict, false));
            make_condition(READY, ConditionStatus::True, ("Counts", message), now)
        }
        Verdict::Approved(_) | Verdict::Denied(_) => {
            let message = "another answer is acted on: a denial comes before an approval".to_owned();
            make_condition(READY, ConditionStatus::False, ("NotActedOn", message), now)
        }
        Verdict::Pending(reasons) => {
            let own = format!("FluxAccessGrant {name}: ");
            let why = reasons.iter().find_map(|reason| reason.strip_prefix(own.as_str()));
            let why = why
                .or(reasons.first().map(String::as_str))
                .unwrap_or("it does not count");
            make_condition(READY, ConditionStatus::False, ("DoesNotCount", why.to_owned()), now)
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure_api::access::{FluxAccessGrantSpec, FluxAccessRequestSpec};
    use tenure_tenancy::access::approval::ApproverAnswer;

    use super::*;

    fn make_time(second: i64) -> Timestamp {
        Timestamp::from_second(1_790_000_000 + second).unwrap()
    }

    fn make_answer(object: &str) -> ApproverAnswer {
        ApproverAnswer {
            object: object.to_owned(),
            by: "alice".to_owned(),
            reason: Some("no".to_owned()),
            not_after: None,
            is_standing: false,
        }
    }

    #[test]
    fn conditions_name_pending_cause_and_keep_transition_times() {
        let request = FluxAccessRequest::new(
            "work-42-a",
            FluxAccessRequestSpec {
                provider: "work".to_owned(),
                ..FluxAccessRequestSpec::default()
            },
        );
        let pending = Verdict::Pending(vec!["FluxAccessGrant one: it ended".to_owned()]);
        let first = conclude_request(&request, &pending, &[], make_time(0));
        assert!(
            first[0].message.contains("verb approve on fluxaccesstargets work-0"),
            "{first:?}"
        );
        let again = replace_conditions(&first, conclude_request(&request, &pending, &[], make_time(60)));
        assert_eq!(again, first);
        let denied = replace_conditions(
            &first,
            conclude_request(&request, &Verdict::Denied(make_answer("one")), &[], make_time(60)),
        );
        assert_eq!(
            (denied[1].reason.as_str(), denied[1].last_transition_time.0),
            ("Denied", make_time(60))
        );

        let grant = |name: &str| FluxAccessGrant::new(name, FluxAccessGrantSpec::default());
        let judge =
            |name: &str, verdict: &Verdict| make_grant_condition(&grant(name), Some((&request, verdict)), make_time(0));
        assert_eq!(judge("one", &pending).message, "it ended");
        assert_eq!(
            judge("one", &Verdict::Denied(make_answer("one"))).status,
            ConditionStatus::True
        );
        assert_eq!(judge("two", &Verdict::Denied(make_answer("one"))).reason, "NotActedOn");
        assert_eq!(
            make_grant_condition(&grant("one"), None, make_time(0)).reason,
            "NoRequest"
        );
    }

    #[test]
    fn unlisted_targets_are_named() {
        assert_eq!(make_sweep_condition(&[], make_time(0)).status, ConditionStatus::True);
        let paths: Vec<String> = (0..7).map(|number| format!("group-1/{number}")).collect();
        let unlisted: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), "HTTP 403")).collect();
        let condition = make_sweep_condition(&unlisted, make_time(0));
        assert_eq!(
            (condition.status, condition.reason.as_str()),
            (ConditionStatus::False, "NotListed")
        );
        assert!(
            condition.message.contains("group-1/4: HTTP 403; and 2 more"),
            "{}",
            condition.message
        );
    }

    #[test]
    fn receivers_are_named_up_to_a_hundred() {
        let mut status = FluxAccessRequestStatus::default();
        let there = (0..130).map(|number| format!("team-{number:03}")).collect();
        record_receivers(&mut status, &there);
        assert_eq!((status.receivers.len(), status.more_receivers), (100, 30));
        record_receivers(&mut status, &["team-a".to_owned()].into());
        assert_eq!(
            (status.receivers, status.more_receivers),
            (vec!["team-a".to_owned()], 0)
        );
    }

    #[test]
    fn a_history_is_bounded() {
        let mut status = FluxAccessRequestStatus::default();
        let happened = RotationEvent {
            action: "Minted",
            generation: 1,
            id: Some(1),
            cause: "x".repeat(10_000),
        };
        for _ in 0..30 {
            record_history(&mut status, "team-a", std::slice::from_ref(&happened), make_time(0));
        }
        record_verdict(
            &mut status,
            &Verdict::Denied(make_answer("one")),
            "Denied",
            make_time(1),
        );
        assert_eq!(status.history.len(), LONGEST_HISTORY);
        assert!(status.history.iter().all(|entry| entry.cause.len() <= LONGEST_CAUSE));
        assert_eq!(status.history.last().map(|entry| entry.actor.as_str()), Some("alice"));
    }
}
