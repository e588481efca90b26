//! The end of a source's plan: status, events and next time.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use tenure_api::artifact::Artifact;
use tenure_api::condition::{self, ConditionStatus};
use tenure_api::metadata::SOURCE_EVENT_REVISION;
use tenure_api::reason;
use tenure_remote_requests::fetch::{FetchFailure, FetchReason};
use tenure_tenancy::DenialReason;

use super::types::{Snapshot, Source, SourceStatus as _};
use super::{Plan, SourceRefusal, SourceRefusalReason, find_pause};
use crate::artifact_address::ArtifactAddress;
use crate::outcome::{self, ConditionEntry, add_duration, cut_to_seconds};
use crate::plan::{Event, EventKind, EventPlace, Next, Status as _, Withheld};
use tenure_remote_requests::artifact::StoredArtifact;

/// The interval between two looks at an awaited object (Flux's `--requeue-dependency`).
const WAITING_INTERVAL: Duration = Duration::from_secs(30);
/// The longest pause that a server can request.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// Annotation on an event: digest of the artifact.
const EVENT_DIGEST: &str = "source.toolkit.fluxcd.io/digest";

pub(super) fn name_subject<S: Source>(snapshot: &Snapshot<S>) -> String {
    outcome::name_subject(S::NAME, snapshot.repository.metadata())
}

fn set_condition<S: Source>(status: &mut S::Status, snapshot: &Snapshot<S>, now: Timestamp, entry: ConditionEntry<'_>) {
    outcome::set_condition(status.conditions_mut(), snapshot.repository.metadata(), now, entry);
}

/// Returns the URL of the stored artifact for other clients; empty if artifacts are not served.
fn write_url<S: Source>(snapshot: &Snapshot<S>, digest: &str) -> String {
    let metadata = snapshot.repository.metadata();
    let named = metadata.namespace.as_deref().zip(metadata.name.as_deref());
    let address = named.and_then(|named| ArtifactAddress::new(S::NAME, named, digest));
    let url = snapshot.advertised.as_ref().zip(address);
    url.map(|(base, address)| base.write_url(&address)).unwrap_or_default()
}

fn find_changed_status<S: Source>(snapshot: &Snapshot<S>, status: &S::Status) -> Option<S::Status> {
    outcome::find_change(snapshot.repository.status(), status)
}

fn add_warning<S: Source>(snapshot: &Snapshot<S>, plan: &mut Plan<S>, reason: &str, message: &str) {
    let old = snapshot.repository.status();
    let old = old.map(|status| status.conditions()).unwrap_or_default();
    plan.events
        .extend(outcome::make_event(old, EventKind::Warning, reason, message));
}

fn record_handled_request<S: Source>(status: &mut S::Status, snapshot: &Snapshot<S>) {
    if let Some(observed) = status.parts().observed {
        outcome::record_handled_request(observed.last_handled, snapshot.attempt.requested_at.as_ref());
    }
}

fn record_generation<S: Source>(status: &mut S::Status, snapshot: &Snapshot<S>) {
    if let Some(observed) = status.parts().observed {
        *observed.generation = snapshot.repository.metadata().generation;
    }
}

/// Returns the status during a fetch. It is written only if nothing is stored yet or the spec has changed, so that a request to an unchanged upstream writes nothing.
pub(super) fn make_progress_status<S: Source>(snapshot: &Snapshot<S>, now: Timestamp) -> Option<S::Status> {
    let mut status = snapshot.repository.status().cloned().unwrap_or_default();
    let generation = snapshot.repository.metadata().generation;
    if status.observed_generation() == generation && snapshot.stored.is_some() || snapshot.memory.failures > 0 {
        return None;
    }
    let message = "building artifact";
    if !condition::is_true(status.conditions(), condition::READY) {
        set_condition(
            &mut status,
            snapshot,
            now,
            (condition::READY, ConditionStatus::Unknown, reason::PROGRESSING, message),
        );
    }
    set_condition(
        &mut status,
        snapshot,
        now,
        (
            condition::RECONCILING,
            ConditionStatus::True,
            reason::PROGRESSING,
            message,
        ),
    );
    condition::remove(status.conditions_mut(), condition::STALLED);
    find_changed_status(snapshot, &status)
}

/// Ends a plan that does nothing until a user changes the object.
pub(super) fn plan_stalled<S: Source>(snapshot: &Snapshot<S>, now: Timestamp, refusal: &SourceRefusal) -> Plan<S> {
    let (reason, message) = (refusal.reason.as_str(), refusal.message.as_str());
    let mut plan = Plan::<S>::idle(name_subject(snapshot), snapshot.memory.clone());
    let mut status = snapshot.repository.status().cloned().unwrap_or_default();
    condition::remove(status.conditions_mut(), condition::RECONCILING);
    set_condition(
        &mut status,
        snapshot,
        now,
        (condition::READY, ConditionStatus::False, reason, message),
    );
    set_condition(
        &mut status,
        snapshot,
        now,
        (condition::STALLED, ConditionStatus::True, reason, message),
    );
    record_generation(&mut status, snapshot);
    record_handled_request(&mut status, snapshot);
    add_warning(snapshot, &mut plan, reason, message);
    plan.status = find_changed_status(snapshot, &status);
    if refusal.reason == SourceRefusalReason::Denied(DenialReason::IdentityMissing) {
        // The owner of a namespace may become known without a change of this object.
        plan.next = Next::Done(Some(add_duration(now, Duration::from_secs(30))));
    }
    plan.withheld.push(Withheld {
        what: "fetch".to_owned(),
        why: message.to_owned(),
    });
    plan
}

/// Ends a plan that waits for another object. The stored artifact stays, and stays usable.
pub(super) fn plan_waiting<S: Source>(snapshot: &Snapshot<S>, now: Timestamp, reason: &str, message: &str) -> Plan<S> {
    let mut plan = Plan::<S>::idle(name_subject(snapshot), snapshot.memory.clone());
    let mut status = snapshot.repository.status().cloned().unwrap_or_default();
    condition::remove(status.conditions_mut(), condition::STALLED);
    for entry in [
        (S::UNAVAILABLE, ConditionStatus::True, reason, message),
        (condition::READY, ConditionStatus::False, reason, message),
        (
            condition::RECONCILING,
            ConditionStatus::True,
            reason::PROGRESSING_WITH_RETRY,
            "A source that this one is made of has no artifact yet; see Ready",
        ),
    ] {
        set_condition(&mut status, snapshot, now, entry);
    }
    record_handled_request(&mut status, snapshot);
    add_warning(snapshot, &mut plan, reason, message);
    plan.withheld.push(Withheld {
        what: "fetch".to_owned(),
        why: message.to_owned(),
    });
    plan.status = find_changed_status(snapshot, &status);
    // A watch reports a change of the awaited object; this time is for changes that no watch reports.
    plan.next = Next::Done(Some(add_duration(now, WAITING_INTERVAL)));
    plan
}

/// Ends a failed fetch. The stored artifact stays, and stays usable.
pub(super) fn plan_failed<S: Source>(
    snapshot: &Snapshot<S>,
    now: Timestamp,
    failure: &FetchFailure,
    interval: Duration,
) -> Plan<S> {
    let reason = failure.reason.as_str();
    let mut status = snapshot.repository.status().cloned().unwrap_or_default();
    let (bad, is_bad) = match failure.reason {
        FetchReason::ArchiveOperationFailed | FetchReason::CopyFailure => {
            (condition::STORAGE_OPERATION_FAILED, ConditionStatus::True)
        }
        FetchReason::VerificationError
        | FetchReason::InvalidGitObject
        | FetchReason::InvalidTagSignature
        | FetchReason::InvalidCommitSignature => (condition::SOURCE_VERIFIED, ConditionStatus::False),
        FetchReason::MetadataPatchError
        | FetchReason::ValuesFilesError
        | FetchReason::DependencyBuildError
        | FetchReason::ChartPackageError
        | FetchReason::ChartVerificationError => (condition::BUILD_FAILED, ConditionStatus::True),
        _ => (condition::FETCH_FAILED, ConditionStatus::True),
    };
    for other in [
        condition::STORAGE_OPERATION_FAILED,
        condition::FETCH_FAILED,
        condition::BUILD_FAILED,
        condition::INCLUDE_UNAVAILABLE,
    ] {
        if other != bad {
            condition::remove(status.conditions_mut(), other);
        }
    }
    // A successful verification is about the stored artifact; a failed one is repeated.
    let verified = condition::is_true(status.conditions(), condition::SOURCE_VERIFIED);
    if bad != condition::SOURCE_VERIFIED && !(verified && snapshot.repository.is_verified()) {
        condition::remove(status.conditions_mut(), condition::SOURCE_VERIFIED);
    }
    set_condition(&mut status, snapshot, now, (bad, is_bad, reason, &failure.message));
    if failure.reason == FetchReason::ChartVerificationError {
        let verified = (
            condition::SOURCE_VERIFIED,
            ConditionStatus::False,
            reason::VERIFICATION_ERROR,
            failure.message.as_str(),
        );
        set_condition(&mut status, snapshot, now, verified);
    }
    set_condition(
        &mut status,
        snapshot,
        now,
        (condition::READY, ConditionStatus::False, reason, &failure.message),
    );
    record_handled_request(&mut status, snapshot);
    let mut plan = Plan::<S>::idle(name_subject(snapshot), snapshot.memory.clone());
    plan.memory.failures = snapshot.memory.failures.saturating_add(1);
    let wait = failure
        .retry_after
        .map(|seconds| Duration::from_secs(seconds).min(LONGEST_WAIT));
    plan.memory.not_before = wait.map(|wait| add_duration(now, wait));
    plan.memory.failed_generation = snapshot.repository.metadata().generation;
    if failure.terminal {
        condition::remove(status.conditions_mut(), condition::RECONCILING);
        set_condition(
            &mut status,
            snapshot,
            now,
            (condition::STALLED, ConditionStatus::True, reason, &failure.message),
        );
        record_generation(&mut status, snapshot);
        plan.next = Next::Done(None);
    } else {
        condition::remove(status.conditions_mut(), condition::STALLED);
        let retrying = (
            condition::RECONCILING,
            ConditionStatus::True,
            reason::PROGRESSING_WITH_RETRY,
            "The last attempt failed; see Ready",
        );
        set_condition(&mut status, snapshot, now, retrying);
        let next = add_duration(now, find_pause(plan.memory.failures, interval));
        plan.next = Next::Done(Some(
            plan.memory.not_before.map_or(next, |not_before| next.max(not_before)),
        ));
    }
    add_warning(snapshot, &mut plan, reason, &failure.message);
    plan.withheld.push(Withheld {
        what: "Ready".to_owned(),
        why: failure.message.clone(),
    });
    plan.status = find_changed_status(snapshot, &status);
    plan
}

/// Ends a successful fetch, after which the upstream's content is stored; `new` is the upstream's description if it was stored just now.
pub(super) fn plan_succeeded<S: Source>(
    snapshot: &Snapshot<S>,
    now: Timestamp,
    stored: &StoredArtifact,
    new: Option<&str>,
    interval: Duration,
) -> Plan<S> {
    let mut status = snapshot.repository.status().cloned().unwrap_or_default();
    let message = S::describe_stored(stored);
    let reasons = S::name_success(stored);
    for type_ in [
        condition::RECONCILING,
        condition::STALLED,
        condition::FETCH_FAILED,
        condition::BUILD_FAILED,
        condition::STORAGE_OPERATION_FAILED,
        condition::ARTIFACT_OUTDATED,
        condition::INCLUDE_UNAVAILABLE,
    ] {
        condition::remove(status.conditions_mut(), type_);
    }
    set_condition(
        &mut status,
        snapshot,
        now,
        (condition::READY, ConditionStatus::True, reasons.ready, &message),
    );
    set_condition(
        &mut status,
        snapshot,
        now,
        (
            condition::ARTIFACT_IN_STORAGE,
            ConditionStatus::True,
            reasons.ready,
            &message,
        ),
    );
    if snapshot.repository.is_verified() {
        let message = S::describe_verified(stored);
        let entry = (
            condition::SOURCE_VERIFIED,
            ConditionStatus::True,
            reason::SUCCEEDED,
            message.as_str(),
        );
        set_condition(&mut status, snapshot, now, entry);
    } else {
        condition::remove(status.conditions_mut(), condition::SOURCE_VERIFIED);
    }
    let url = write_url(snapshot, &stored.facts.digest);
    let as_before = status.parts().artifact.as_ref().is_some_and(|old| {
        old.revision == stored.facts.revision
            && old.digest.as_deref() == Some(stored.facts.digest.as_str())
            && old.metadata.clone().unwrap_or_default() == stored.metadata
            && old.url == url
    });
    if !as_before {
        *status.parts().artifact = Some(Artifact {
            digest: Some(stored.facts.digest.clone()),
            last_update_time: cut_to_seconds(stored.stored_at.unwrap_or(now)),
            metadata: (!stored.metadata.is_empty()).then(|| stored.metadata.clone()),
            path: stored.path.clone(),
            revision: stored.facts.revision.clone(),
            size: i64::try_from(stored.size).ok(),
            url,
        });
    }
    record_generation(&mut status, snapshot);
    if let Some(ignore) = status.parts().observed.and_then(|observed| observed.ignore) {
        ignore.clone_from(&stored.ignore);
    }
    snapshot.repository.note_observed(&mut status, stored, &snapshot.beside);
    record_handled_request(&mut status, snapshot);
    let mut plan = Plan::<S>::idle(name_subject(snapshot), snapshot.memory.clone());
    plan.memory.failures = 0;
    plan.memory.not_before = None;
    plan.memory.failed_generation = None;
    if let Some(subject) = new {
        let message = snapshot.repository.describe_new(stored, subject);
        plan.events.push(Event {
            kind: EventKind::Normal,
            reason: reasons.event.to_owned(),
            message,
            annotations: BTreeMap::from([
                (SOURCE_EVENT_REVISION.to_owned(), stored.facts.revision.clone()),
                (EVENT_DIGEST.to_owned(), stored.facts.digest.clone()),
            ]),
            place: EventPlace::default(),
        });
    }
    plan.status = find_changed_status(snapshot, &status);
    let uid = snapshot.repository.metadata().uid.as_deref().unwrap_or_default();
    let last = plan.memory.last_asked.unwrap_or(now);
    plan.next = Next::Done(Some(add_duration(
        last,
        tenure_api::jitter::add_jitter(interval, uid, last),
    )));
    plan
}
