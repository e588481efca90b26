//! The end of a plan for a Kustomization that is being deleted while a part of it is left. The status names what the plan waits for.

use std::time::Duration;

use jiff::Timestamp;
use tenure_api::condition::{self, ConditionStatus};
use tenure_api::kustomization::KustomizationStatus;
use tenure_api::reason;

use super::Plan;
use super::context::{Context, name_subject};
use super::outcome::{find_status_change, make_warning, record_handled, set};
use super::types::Snapshot;
use crate::outcome::add_duration;
use crate::plan::{Next, Withheld};

/// Ends an attempt that failed to delete something. This needs no identity, since the identity may be missing.
pub(super) fn retry_deletion(
    snapshot: &Snapshot,
    now: Timestamp,
    reason: &str,
    message: String,
    delay: Duration,
) -> Plan {
    let mut plan = Plan::idle(name_subject(snapshot), snapshot.memory.clone());
    let mut status = snapshot.kustomization.status.clone().unwrap_or_default();
    condition::remove(&mut status.conditions, condition::STALLED);
    let ready = (condition::READY, ConditionStatus::False, reason, &*message);
    set(&mut status, snapshot, now, ready);
    if !has_deleted_own_rights(&status) {
        let retrying = (
            condition::RECONCILING,
            ConditionStatus::True,
            reason::PROGRESSING_WITH_RETRY,
            "The last attempt failed; see Ready",
        );
        set(&mut status, snapshot, now, retrying);
    }
    record_handled(&mut status, snapshot);
    plan.events.extend(make_warning(snapshot, reason, &message, None));
    plan.withheld.push(Withheld {
        what: "the finalizer".to_owned(),
        why: message,
    });
    plan.status = find_status_change(snapshot, &status);
    plan.next = Next::Done(Some(add_duration(now, delay)));
    plan
}

/// Returns a plan that waits before the deletion until others have finished. The condition Reconciling shows `message`.
pub(super) fn await_others(context: Context<'_>, until: Timestamp, message: &str) -> Box<Plan> {
    let snapshot = context.snapshot;
    let mut status = context.status();
    let entry = (
        condition::RECONCILING,
        ConditionStatus::True,
        reason::PROGRESSING,
        message,
    );
    set(&mut status, snapshot, context.now, entry);
    set_not_ready(&mut status, snapshot, context.now);
    let mut plan = context.into_plan(Next::Wait(until));
    plan.status = find_status_change(snapshot, &status);
    Box::new(plan)
}

/// Checks whether the deletion of the ServiceAccount's own rights has begun.
pub(super) fn has_deleted_own_rights(status: &KustomizationStatus) -> bool {
    let found = condition::find(&status.conditions, condition::RECONCILING);
    found.is_some_and(|found| found.reason == reason::DELETING_OWN_RIGHTS)
}

/// Sets Ready to Unknown if it is true, or if it reports that a guard stopped the deletion.
fn set_not_ready(status: &mut KustomizationStatus, snapshot: &Snapshot, now: Timestamp) {
    let ready = condition::find(&status.conditions, condition::READY);
    if ready.is_some_and(|ready| ready.status == ConditionStatus::True || ready.reason == reason::DELETION_GUARDED) {
        let entry = (
            condition::READY,
            ConditionStatus::Unknown,
            reason::PROGRESSING,
            "Its objects are being deleted",
        );
        set(status, snapshot, now, entry);
    }
}

/// Returns the status to store before the ServiceAccount's own rights are deleted. `names`: the objects that give them.
pub(super) fn announce_own_rights(snapshot: &Snapshot, now: Timestamp, names: &str) -> Option<KustomizationStatus> {
    let mut status = snapshot.kustomization.status.clone().unwrap_or_default();
    let entry = (
        condition::RECONCILING,
        ConditionStatus::True,
        reason::DELETING_OWN_RIGHTS,
        names,
    );
    set(&mut status, snapshot, now, entry);
    set_not_ready(&mut status, snapshot, now);
    find_status_change(snapshot, &status)
}
