//! The reports about credentials: findings of one credential, and the conditions of a request.
//!
//! This module has their reasons, and decides which of them keep a request from being Ready. Messages contain numbers and times, and never a value.

use std::time::Duration;

use jiff::Timestamp;
use tenure_api::access::Period;
use tenure_api::access::request::{CredentialLedger, CredentialPhase};
use tenure_api::condition::{Condition, ConditionStatus, READY};
use tenure_api::reason::PROGRESSING;
use tenure_api::text::{count_of, visible_line};

use super::schedule::{NEAR_END, add_duration, record_time};
use super::state_machine::make_source_token;
use super::{NamespaceState, ObservedAccounts, Plan, SecretState, Snapshot, StagingState, WantedState};

/// Condition: whether all delivered credentials were seen in use.
pub const VERIFIED: &str = "Verified";
/// Condition: a credential ends soon and could not be replaced.
pub const EXPIRING: &str = "Expiring";
/// Condition: an unwanted credential still exists at the host.
pub const LIVES_ON: &str = "LivesOn";
/// The reason of Ready if all is well.
pub const DELIVERED: &str = "Delivered";
/// The maximum of items in one message.
const MOST_LISTED: usize = 5;

/// The condition that a finding belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    /// The finding keeps the request from being Ready.
    Failure,
    /// The work is in progress.
    Progress,
    /// The credential is delivered, but was not seen in use yet, or can't be observed.
    Unverified,
    /// The credential ends soon.
    Expiry,
    /// An unwanted credential still exists at the host.
    LivesOn,
}

/// A finding about a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The subject of the finding.
    pub about: About,
    /// The reason in one word.
    pub reason: String,
    /// The message.
    pub message: String,
}

impl Finding {
    fn new(about: About, reason: &str, message: impl Into<String>) -> Self {
        Self {
            about,
            reason: reason.to_owned(),
            message: message.into(),
        }
    }

    /// Returns the finding for a Secret that belongs to another writer. `marked_for` is the request in the Secret's label.
    pub(super) fn foreign_secret(namespace: &str, marked_for: Option<&str>) -> Self {
        let message = match marked_for {
            None => format!(
                "there is a Secret of this name in namespace {namespace} that is not Tenure's, and it is not touched: delete it, or choose another secret_name"
            ),
            Some(request) => format!(
                "there is a Secret of this name in namespace {namespace} for another request, {}, and it is not touched: choose another secret_name, or \
                 delete the Secret if there is no such request any more",
                visible_line(request)
            ),
        };
        Self::new(About::Failure, "ForeignSecret", message)
    }

    pub(crate) fn held_back(why: &str) -> Self {
        Self::new(About::Failure, "HeldBack", why)
    }

    pub(crate) fn unreadable_secret(why: &str) -> Self {
        Self::new(
            About::Failure,
            "SecretUnreadable",
            format!("the Secret could not be read: {why}"),
        )
    }

    pub(super) fn missing_account(namespace: &str, account: &str) -> Self {
        Self::new(
            About::Progress,
            "AccountMissing",
            format!(
                "there is no ServiceAccount {namespace}/{account} yet, whose imagePullSecrets are to name the Secret: make it"
            ),
        )
    }

    pub(super) fn applied_list((namespace, account): (&str, &str), applier: &str, secret: &str) -> Self {
        Self::new(
            About::Failure,
            "AppliedByAnother",
            format!(
                "the imagePullSecrets of ServiceAccount {namespace}/{account} are applied by {applier}, which would remove the Secret from them again: add - name: {secret} to the source of that applier"
            ),
        )
    }

    pub(super) fn too_many_refusals(from: Timestamp) -> Self {
        Self::new(
            About::Failure,
            "TooManyRefusals",
            format!(
                "the host has refused new credentials, and bans clients that show such credentials too often: the next one is made at {from}; look whether the project \
                 lets deploy tokens or keys in"
            ),
        )
    }

    pub(super) fn waiting_for_trial() -> Self {
        Self::new(
            About::Progress,
            "WaitingForTrial",
            "other new credentials of this project or group are tried first: the next one is made when the host has accepted or refused them",
        )
    }

    pub(super) fn too_many_retiring(count: usize) -> Self {
        Self::new(
            About::Failure,
            "NotVerified",
            format!(
                "{count} earlier credentials still live, as no newer one was seen in use by all sources, or their overlap isn't over: no other one is made \
                 before; look for sources that are not Ready, and for a writer that removes the Secret"
            ),
        )
    }
}

/// Returns the findings that follow from the state of a credential. The plan adds its own findings.
pub(super) fn list_findings(seen: &Snapshot, ledger: &CredentialLedger, now: Timestamp) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add_finding =
        |about: About, reason: &str, message: String| findings.push(Finding::new(about, reason, message));
    if let Some(trouble) = &ledger.trouble {
        let again = ledger
            .retry_at
            .as_ref()
            .map(|at| format!("; it is tried again at {}", at.0))
            .unwrap_or_default();
        add_finding(About::Failure, &trouble.reason, format!("{}{again}", trouble.message));
    }
    if let (SecretState::Unknown(why), NamespaceState::Present) = (&seen.secret, seen.namespace) {
        add_finding(
            About::Failure,
            "SecretUnreadable",
            format!("the Secret could not be read: {why}"),
        );
    }
    if let StagingState::Unknown(why) = &seen.staging {
        add_finding(
            About::Failure,
            "StagingUnreadable",
            format!("the staging Secret could not be read: {why}"),
        );
    }
    if let ObservedAccounts::Unknown(why) = &seen.accounts {
        add_finding(
            About::Failure,
            "AccountsUnreadable",
            format!("the imagePullSecrets of the ServiceAccounts could not be read: {why}"),
        );
    }
    if let WantedState::HeldBack(why) = &seen.wanted {
        add_finding(About::Failure, "HeldBack", why.clone());
    }
    let is_ending = matches!(seen.wanted, WantedState::Revoked(_) | WantedState::Abandoned(_))
        || matches!(seen.namespace, NamespaceState::Terminating | NamespaceState::Gone);
    if is_ending {
        // Uses the recorded ledger: credentials that the plan forgets now are reported one last time.
        let held = seen
            .ledger
            .current
            .iter()
            .chain(&seen.ledger.retiring)
            .filter_map(|held| held.id);
        let ids: Vec<u64> = held.chain(seen.ledger.next.iter().filter_map(|next| next.id)).collect();
        if !ids.is_empty() {
            let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
            let message = format!(
                "these credentials of {} still live at the host: {}; revoke them there, if that can't wait",
                seen.target.path,
                ids.join(", ")
            );
            add_finding(About::LivesOn, "NotRevokedYet", message);
        }
        return findings;
    }
    if let Some(successor) = seen.find_successor() {
        let message = format!(
            "request {} asks for more and has the Secret now; the credential of this request ends once no source can use it any more",
            successor.request_name
        );
        add_finding(About::Progress, "HandingOver", message);
        return findings;
    }
    if let Some(next) = &ledger.next {
        match next.phase {
            CredentialPhase::Distributed => {
                let token = make_source_token(next);
                let (suspended, running): (Vec<_>, Vec<_>) =
                    seen.sources.iter().partition(|source| source.is_suspended);
                let waits = running.into_iter().filter(|source| !source.has_used(&token));
                let names: Vec<&str> = waits.map(|source| source.name.as_str()).take(MOST_LISTED).collect();
                let message = match names.is_empty() {
                    true => "it is about to be tried".to_owned(),
                    false => format!(
                        "these sources have not fetched with it yet, or the host refused them: {}",
                        names.join(", ")
                    ),
                };
                add_finding(About::Unverified, "WaitingForSources", message);
                if !suspended.is_empty() {
                    let names: Vec<&str> = suspended
                        .iter()
                        .map(|source| source.name.as_str())
                        .take(MOST_LISTED)
                        .collect();
                    add_finding(
                        About::Unverified,
                        "SourceSuspended",
                        format!("these sources are suspended and not waited for: {}", names.join(", ")),
                    );
                }
            }
            _ if ledger.current.is_none() => {
                add_finding(
                    About::Progress,
                    PROGRESSING,
                    "the first credential is being made".to_owned(),
                );
            }
            _ => {}
        }
    } else if ledger.current.is_some() {
        let suspended = seen.sources.iter().filter(|source| source.is_suspended);
        let names: Vec<&str> = suspended.map(|source| source.name.as_str()).take(MOST_LISTED).collect();
        if !names.is_empty() {
            let message = format!(
                "these sources are suspended, so they were not seen to use it: {}",
                names.join(", ")
            );
            add_finding(About::Unverified, "SourceSuspended", message);
        }
    } else if ledger.trouble.is_none() {
        add_finding(
            About::Progress,
            PROGRESSING,
            "the first credential is about to be made".to_owned(),
        );
    }
    if let Some((held, end)) = ledger
        .current
        .as_ref()
        .and_then(|held| Some((held, held.expires_at.as_ref()?)))
    {
        let host_now = now.checked_add(seen.host_ahead).unwrap_or(now);
        // Some credentials live only for an hour.
        let life = Duration::try_from(end.0.duration_since(held.begun_at.0)).unwrap_or_default();
        let near = NEAR_END.min(life / 4);
        if end.0 <= host_now {
            add_finding(
                About::Failure,
                "Expired",
                format!(
                    "the credential ended at {}, and could not be replaced before; sources fail until it is",
                    end.0
                ),
            );
        } else if end.0 <= add_duration(host_now, near) {
            add_finding(
                About::Expiry,
                "NotReplaced",
                format!(
                    "the credential ends at {}, and could not be replaced so far: it is kept until then",
                    end.0
                ),
            );
        }
    }
    findings
}

/// Returns the conditions of a request, from the plans of all its namespaces.
#[must_use]
pub fn make_conditions(plans: &[(&str, &Plan)], now: Timestamp) -> Vec<Condition> {
    let condition = |type_: &str, status: ConditionStatus, reason: &str, message: String| Condition {
        last_transition_time: record_time(now),
        message,
        observed_generation: None,
        reason: reason.to_owned(),
        status,
        type_: type_.to_owned(),
    };
    let collect = |about: About| -> Vec<(&str, &Finding)> {
        let all = plans
            .iter()
            .flat_map(|(namespace, plan)| plan.findings.iter().map(move |finding| (*namespace, finding)));
        all.filter(|(_, finding)| finding.about == about).collect()
    };
    let join_findings = |found: &[(&str, &Finding)]| {
        let lines = found
            .iter()
            .take(MOST_LISTED)
            .map(|(namespace, finding)| format!("{namespace}: {}", finding.message));
        let mut text = lines.collect::<Vec<_>>().join("; ");
        if found.len() > MOST_LISTED {
            text = format!("{text}; and {} more", found.len() - MOST_LISTED);
        }
        text
    };
    let (failures, progress, unverified) = (
        collect(About::Failure),
        collect(About::Progress),
        collect(About::Unverified),
    );
    let is_by_hand = !plans.is_empty() && plans.iter().all(|(_, plan)| plan.is_by_hand);
    let mut conditions = Vec::new();
    conditions.push(match (failures.first(), progress.first()) {
        (Some((_, first)), _) => condition(READY, ConditionStatus::False, &first.reason, join_findings(&failures)),
        (None, Some((_, first))) => condition(READY, ConditionStatus::Unknown, &first.reason, join_findings(&progress)),
        (None, None) if is_by_hand => condition(
            READY,
            ConditionStatus::True,
            "WrittenByHand",
            format!(
                "the Secrets of {} were written from outside",
                count_of(plans.len(), "namespace")
            ),
        ),
        (None, None) => condition(
            READY,
            ConditionStatus::True,
            DELIVERED,
            format!("delivered to {}", count_of(plans.len(), "namespace")),
        ),
    });
    let unproven = plans
        .iter()
        .filter(|(_, plan)| {
            plan.ledger
                .current
                .as_ref()
                .is_none_or(|held| held.verified_at.is_none())
        })
        .count();
    let verified = match (unverified.first(), unproven) {
        (Some((_, first)), _) => condition(
            VERIFIED,
            ConditionStatus::Unknown,
            &first.reason,
            join_findings(&unverified),
        ),
        (None, 0) => condition(
            VERIFIED,
            ConditionStatus::True,
            "InUse",
            "all sources were seen to use it".to_owned(),
        ),
        (None, count) => condition(
            VERIFIED,
            ConditionStatus::Unknown,
            "NotYet",
            format!("in {} it was not seen in use yet", count_of(count, "namespace")),
        ),
    };
    conditions.extend((!is_by_hand).then_some(verified));
    for (about, type_) in [(About::Expiry, EXPIRING), (About::LivesOn, LIVES_ON)] {
        let found = collect(about);
        if let Some((_, first)) = found.first() {
            conditions.push(condition(
                type_,
                ConditionStatus::True,
                &first.reason,
                join_findings(&found),
            ));
        }
    }
    conditions
}

/// Returns the finding for a Secret that a user writes by hand. Tenure doesn't replace the Secret, but watches its age. `written_at` is the time of the last change
/// of its value.
#[must_use]
pub fn assess_manual_secret(written_at: Option<Timestamp>, rotate: Period, now: Timestamp) -> Option<Finding> {
    let Some(written_at) = written_at else {
        return Some(Finding::new(
            About::Failure,
            "SecretMissing",
            "no authoriser makes credentials at this host, and there is no Secret: write one by hand",
        ));
    };
    let due = add_duration(written_at, rotate.duration());
    (due <= now).then(|| {
        Finding::new(
            About::Expiry,
            "TooOld",
            format!("the Secret was written at {written_at} and is to be replaced every {rotate}: nothing does that at this host; replace it by hand"),
        )
    })
}
