//! How a plan ends: the status with Flux's conditions and reasons, the events, and the next time.
//!
//! A status is written only when it differs. What Flux changes at every interval without saying anything new (the history's times, the
//! duration in a message) is changed here only together with something else, so that a resync writes nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tenure_api::condition::{self, Condition, ConditionStatus};
use tenure_api::inventory::{ResourceInventory, ResourceRef, split_api_version};
use tenure_api::kustomization::{self, KustomizationStatus};
use tenure_api::metadata::EVENT_REVISION;
use tenure_api::{ObjectId, Time, reason};

use super::context::{Context, after, subject};
use super::desired::Desired;
use super::prune::Pruned;
use super::types::Snapshot;
use super::{Plan, contest};
use crate::answer::{DeleteAnswer, Live, WriteAnswer};
use crate::plan::{Event, EventKind, Next, Watched};

/// Entries of the history (Flux's).
const HISTORY: usize = 5;
/// The first pause after a request without an answer; doubled up to the retry interval.
const FIRST_TRANSIENT_PAUSE: Duration = Duration::from_secs(1);

/// A time with whole seconds, as statuses have it.
fn whole_seconds(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

fn set(
    status: &mut KustomizationStatus,
    snapshot: &Snapshot,
    now: Timestamp,
    entry: (&str, ConditionStatus, &str, &str),
) {
    let (type_, value, reason, message) = entry;
    let condition = Condition {
        type_: type_.to_owned(),
        status: value,
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: snapshot.kustomization.metadata.generation,
        last_transition_time: whole_seconds(now),
    };
    condition::set(&mut status.conditions, condition);
}

/// The status to write, if it differs from what is there.
fn changed(snapshot: &Snapshot, status: &KustomizationStatus) -> Option<Value> {
    if snapshot.kustomization.status.as_ref() == Some(status) {
        return None;
    }
    serde_json::to_value(status).ok()
}

fn said_before(snapshot: &Snapshot, type_: &str, reason: &str, message: &str) -> bool {
    snapshot
        .kustomization
        .status
        .as_ref()
        .and_then(|status| condition::find(&status.conditions, type_))
        .is_some_and(|old| old.reason == reason && old.message == message)
}

fn event(kind: EventKind, reason: &str, message: String, revision: Option<&str>) -> Event {
    let annotations: BTreeMap<String, String> = revision
        .map(|revision| (EVENT_REVISION.to_owned(), revision.to_owned()))
        .into_iter()
        .collect();
    Event {
        kind,
        reason: reason.to_owned(),
        message,
        annotations,
    }
}

fn stalled_status(snapshot: &Snapshot, now: Timestamp, reason: &str, message: &str) -> KustomizationStatus {
    let mut status = snapshot.kustomization.status.clone().unwrap_or_default();
    condition::remove(&mut status.conditions, condition::RECONCILING);
    set(
        &mut status,
        snapshot,
        now,
        (condition::READY, ConditionStatus::False, reason, message),
    );
    set(
        &mut status,
        snapshot,
        now,
        (condition::STALLED, ConditionStatus::True, reason, message),
    );
    status.observed_generation = snapshot.kustomization.metadata.generation;
    handled(&mut status, snapshot);
    status
}

fn handled(status: &mut KustomizationStatus, snapshot: &Snapshot) {
    if snapshot.attempt.requested_at.is_some() {
        status
            .last_handled_reconcile_at
            .clone_from(&snapshot.attempt.requested_at);
    }
}

/// Nothing will happen until somebody changes the object; said before it is known who acts.
pub(super) fn stalled_before_admission(snapshot: &Snapshot, now: Timestamp, reason: &str, message: String) -> Plan {
    let mut plan = Plan::idle(subject(snapshot), snapshot.memory.clone());
    plan.status = changed(snapshot, &stalled_status(snapshot, now, reason, &message));
    if !said_before(snapshot, condition::READY, reason, &message) {
        plan.events
            .push(event(EventKind::Warning, reason, message.clone(), None));
    }
    plan.withheld.push(crate::plan::Withheld {
        what: "everything".to_owned(),
        why: message,
    });
    plan
}

/// Nothing will happen until somebody changes the object.
pub(super) fn stalled(mut context: Context<'_>, reason: &str, message: String) -> Box<Plan> {
    let snapshot = context.snapshot;
    let status = stalled_status(snapshot, context.now, reason, &message);
    if !said_before(snapshot, condition::READY, reason, &message) {
        let revision = context.revision.clone();
        context
            .events
            .push(event(EventKind::Warning, reason, message.clone(), revision.as_deref()));
    }
    context.withhold("everything", message);
    let mut plan = context.finish(Next::Done(None));
    plan.status = changed(snapshot, &status);
    Box::new(plan)
}

/// The attempt failed; tried again after the retry interval.
pub(super) fn failed(context: Context<'_>, reason: &str, message: String) -> Box<Plan> {
    let delay = context.retry_interval;
    failed_until(context, reason, message, delay)
}

/// The attempt failed; soon again if it was for want of an answer.
pub(super) fn failed_by(mut context: Context<'_>, reason: &str, message: String, transient: bool) -> Box<Plan> {
    if !transient {
        return failed(context, reason, message);
    }
    let pause = FIRST_TRANSIENT_PAUSE.saturating_mul(2_u32.saturating_pow(context.memory.transient_failures.min(16)));
    context.memory.transient_failures = context.memory.transient_failures.saturating_add(1);
    let delay = pause.min(context.retry_interval);
    failed_until(context, reason, message, delay)
}

/// The attempt failed; tried again after so long.
pub(super) fn failed_until(mut context: Context<'_>, reason: &str, message: String, delay: Duration) -> Box<Plan> {
    let snapshot = context.snapshot;
    let now = context.now;
    let mut status = context.status();
    status.inventory = inventory_so_far(&context, std::iter::empty());
    forget_never_created(&context, &mut status);
    set_failed(&mut status, &context, reason, &message);
    context.memory.waiting = None;
    report_changes(&mut context);
    if !said_before(snapshot, condition::READY, reason, &message) {
        let revision = context.revision.clone();
        context
            .events
            .push(event(EventKind::Warning, reason, message.clone(), revision.as_deref()));
    }
    context.withhold("Ready", message);
    let mut plan = context.finish(Next::Done(Some(after(now, delay))));
    plan.status = changed(snapshot, &status);
    Box::new(plan)
}

fn set_failed(status: &mut KustomizationStatus, context: &Context<'_>, reason: &str, message: &str) {
    let (snapshot, now) = (context.snapshot, context.now);
    condition::remove(&mut status.conditions, condition::STALLED);
    set(
        status,
        snapshot,
        now,
        (condition::READY, ConditionStatus::False, reason, message),
    );
    let retrying = (
        "Reconciling",
        ConditionStatus::True,
        reason::PROGRESSING_WITH_RETRY,
        "The last attempt failed; see Ready",
    );
    set(status, snapshot, now, retrying);
    set_contested(status, context);
    if context.revision.is_some() {
        status.last_attempted_revision.clone_from(&context.revision);
    }
    handled(status, snapshot);
}

fn set_contested(status: &mut KustomizationStatus, context: &Context<'_>) {
    let contested = contest::current(context);
    if contested.is_empty() {
        condition::remove(&mut status.conditions, condition::CONTESTED);
    } else {
        let entry = (
            condition::CONTESTED,
            ConditionStatus::True,
            reason::FIELD_CONTESTED,
            &*contested.join("\n"),
        );
        set(status, context.snapshot, context.now, entry);
    }
}

/// The inventory while it is not known that everything of it is settled: nothing of it is lost, and what was applied is in it.
fn inventory_so_far<'w>(context: &Context<'_>, also: impl Iterator<Item = &'w Watched>) -> Option<ResourceInventory> {
    let old = context.status().inventory;
    let mut entries = old.clone().map(|inventory| inventory.entries).unwrap_or_default();
    let mut add = |id: String, v: String| {
        if !entries.iter().any(|entry| entry.id == id) {
            entries.push(ResourceRef { id, v });
        }
    };
    for (id, answer) in &context.snapshot.attempt.applied {
        if let WriteAnswer::Done(object) = answer {
            let api_version = object.0.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
            add(id.to_string(), split_api_version(api_version).1.to_owned());
        }
    }
    for target in also {
        add(target.id.to_string(), target.version.clone());
    }
    if entries.is_empty() && old.is_none() {
        None
    } else {
        Some(ResourceInventory { entries })
    }
}

/// Takes out what was named before its creation and then refused: it is known not to exist, and no write of it was sent.
fn forget_never_created(context: &Context<'_>, status: &mut KustomizationStatus) {
    let Some(inventory) = &mut status.inventory else { return };
    inventory.entries.retain(|entry| {
        let Ok(id) = entry.id.parse::<ObjectId>() else {
            return true;
        };
        let absent = matches!(context.live(&id), Some(Live::Absent));
        !absent || context.snapshot.attempt.applied.contains_key(&id)
    });
}

/// The inventory when everything desired was applied: that, what is still being deleted, and what could not be looked at.
fn inventory_after(context: &Context<'_>, desired: &Desired, pruned: &Pruned) -> ResourceInventory {
    let entry = |target: &Watched| ResourceRef {
        id: target.id.to_string(),
        v: target.version.clone(),
    };
    let mut entries: Vec<ResourceRef> = desired.objects.iter().map(|object| entry(&object.target)).collect();
    entries.extend(pruned.remaining.iter().map(entry));
    let old = context.status().inventory.unwrap_or_default();
    entries.extend(old.entries.into_iter().filter(|entry| {
        desired
            .unknown
            .iter()
            .any(|(unknown, _)| unknown.to_string() == entry.id)
    }));
    ResourceInventory { entries }
}

/// The status that is written before objects are created: the inventory names them already, so that a process that dies in between
/// loses none. Nothing when it names them already.
pub(super) fn status_before_creation<'w>(
    context: &Context<'_>,
    created: impl Iterator<Item = &'w Watched>,
) -> Option<Value> {
    let inventory = inventory_so_far(context, created);
    let old = context.status();
    if inventory == old.inventory {
        return None;
    }
    let mut status = old;
    status.inventory = inventory;
    let message = format!("Applying revision {}", context.revision.as_deref().unwrap_or_default());
    set_progressing(&mut status, context, &message);
    changed(context.snapshot, &status)
}

fn set_progressing(status: &mut KustomizationStatus, context: &Context<'_>, message: &str) {
    let (snapshot, now) = (context.snapshot, context.now);
    condition::remove(&mut status.conditions, condition::STALLED);
    set(
        status,
        snapshot,
        now,
        (
            condition::READY,
            ConditionStatus::Unknown,
            reason::PROGRESSING,
            "Reconciliation in progress",
        ),
    );
    set(
        status,
        snapshot,
        now,
        (
            condition::RECONCILING,
            ConditionStatus::True,
            reason::PROGRESSING,
            message,
        ),
    );
    set_contested(status, context);
    status.last_attempted_revision.clone_from(&context.revision);
}

/// Something has to become so before the next stage.
pub(super) fn waiting(mut context: Context<'_>, deadline: Timestamp, message: String) -> Box<Plan> {
    let snapshot = context.snapshot;
    let mut status = context.status();
    status.inventory = inventory_so_far(&context, std::iter::empty());
    set_progressing(&mut status, &context, &message);
    report_changes(&mut context);
    let mut plan = context.finish(Next::Wait(deadline));
    plan.status = changed(snapshot, &status);
    Box::new(plan)
}

/// Everything is applied; its health is waited for.
pub(super) fn waiting_for_health(
    mut context: Context<'_>,
    desired: &Desired,
    pruned: &Pruned,
    deadline: Timestamp,
    message: String,
) -> Box<Plan> {
    let snapshot = context.snapshot;
    let mut status = context.status();
    status.inventory = Some(inventory_after(&context, desired, pruned));
    set_progressing(&mut status, &context, &message);
    set(
        &mut status,
        snapshot,
        context.now,
        (
            condition::HEALTHY,
            ConditionStatus::Unknown,
            reason::PROGRESSING,
            &message,
        ),
    );
    report_changes(&mut context);
    let mut plan = context.finish(Next::Wait(deadline));
    plan.status = changed(snapshot, &status);
    Box::new(plan)
}

/// Everything is applied, and not healthy.
pub(super) fn unhealthy(mut context: Context<'_>, desired: &Desired, pruned: &Pruned, message: String) -> Box<Plan> {
    let snapshot = context.snapshot;
    let now = context.now;
    let mut status = context.status();
    let entry = (
        condition::HEALTHY,
        ConditionStatus::False,
        reason::HEALTH_CHECK_FAILED,
        message.as_str(),
    );
    set(&mut status, snapshot, now, entry);
    set_failed(&mut status, &context, reason::HEALTH_CHECK_FAILED, &message);
    status.inventory = Some(inventory_after(&context, desired, pruned));
    if changed(snapshot, &status).is_some() {
        record(&mut status, &context, &desired.digest, reason::HEALTH_CHECK_FAILED);
    }
    context.memory.waiting = None;
    report_changes(&mut context);
    if !said_before(snapshot, condition::READY, reason::HEALTH_CHECK_FAILED, &message) {
        let revision = context.revision.clone();
        context.events.push(event(
            EventKind::Warning,
            reason::HEALTH_CHECK_FAILED,
            message.clone(),
            revision.as_deref(),
        ));
    }
    context.withhold("Ready", message);
    let at = after(now, context.retry_interval);
    let mut plan = context.finish(Next::Done(Some(at)));
    plan.status = changed(snapshot, &status);
    Box::new(plan)
}

/// Everything that can be done is done.
pub(super) fn succeeded(mut context: Context<'_>, desired: &Desired, pruned: &Pruned) -> Plan {
    let snapshot = context.snapshot;
    let now = context.now;
    context.memory.transient_failures = 0;
    contest::forget_old(&mut context);
    context.memory.settled.retain(|id, _| desired.contains(id));
    if !desired.unknown.is_empty() {
        return unknown_kinds(context, desired, pruned);
    }
    let revision = context.revision.clone().unwrap_or_default();
    let mut status = context.status();
    status.inventory = Some(inventory_after(&context, desired, pruned));
    condition::remove(&mut status.conditions, condition::RECONCILING);
    condition::remove(&mut status.conditions, condition::STALLED);
    let mut message = format!("Applied revision: {revision}");
    for contested in contest::current(&context) {
        message.push_str("; contested: ");
        message.push_str(&contested);
    }
    set(
        &mut status,
        snapshot,
        now,
        (
            condition::READY,
            ConditionStatus::True,
            reason::RECONCILIATION_SUCCEEDED,
            &message,
        ),
    );
    if context.spec().wait || !context.spec().health_checks.is_empty() {
        if !condition::is_true(&status.conditions, condition::HEALTHY) {
            let took = elapsed(now, snapshot.attempt.started);
            let message = format!("Health check passed in {}", go_duration(took));
            set(
                &mut status,
                snapshot,
                now,
                (condition::HEALTHY, ConditionStatus::True, reason::SUCCEEDED, &message),
            );
        } else if let Some(healthy) = condition::find(&status.conditions, condition::HEALTHY).cloned() {
            let generation = snapshot.kustomization.metadata.generation;
            condition::set(
                &mut status.conditions,
                Condition {
                    observed_generation: generation,
                    ..healthy
                },
            );
        }
    } else {
        condition::remove(&mut status.conditions, condition::HEALTHY);
    }
    set_contested(&mut status, &context);
    let first_time = status.last_applied_revision.as_deref() != Some(revision.as_str())
        || !snapshot
            .kustomization
            .status
            .as_ref()
            .is_some_and(|old| condition::is_true(&old.conditions, condition::READY));
    status.last_applied_revision = Some(revision.clone());
    status.last_attempted_revision = Some(revision.clone());
    status.observed_generation = snapshot.kustomization.metadata.generation;
    handled(&mut status, snapshot);
    if changed(snapshot, &status).is_some() || !context.memory.changes.is_empty() {
        record(&mut status, &context, &desired.digest, reason::RECONCILIATION_SUCCEEDED);
    }
    report_changes(&mut context);
    if first_time {
        let message = format!(
            "Reconciliation finished in {}, next run in {}",
            go_duration(elapsed(now, snapshot.attempt.started)),
            go_duration(context.interval)
        );
        context.events.push(event(
            EventKind::Normal,
            reason::RECONCILIATION_SUCCEEDED,
            message,
            Some(&revision),
        ));
    }
    let at = next_time(&context);
    let mut plan = context.finish(Next::Done(Some(at)));
    plan.status = changed(snapshot, &status);
    plan
}

/// Everything else is applied, but some kinds are not known to the cluster.
fn unknown_kinds(mut context: Context<'_>, desired: &Desired, pruned: &Pruned) -> Plan {
    let snapshot = context.snapshot;
    let now = context.now;
    let lines: Vec<&str> = desired.unknown.iter().map(|(_, message)| message.as_str()).collect();
    let message = format!(
        "{} of {} objects are applied; the cluster does not know the kinds of the others: install what defines them\n{}",
        desired.objects.len(),
        desired.objects.len() + desired.unknown.len(),
        lines.join("\n")
    );
    let mut status = context.status();
    set_failed(&mut status, &context, reason::UNKNOWN_KIND, &message);
    status.inventory = Some(inventory_after(&context, desired, pruned));
    report_changes(&mut context);
    if !said_before(snapshot, condition::READY, reason::UNKNOWN_KIND, &message) {
        let revision = context.revision.clone();
        context.events.push(event(
            EventKind::Warning,
            reason::UNKNOWN_KIND,
            message,
            revision.as_deref(),
        ));
    }
    let at = after(now, context.retry_interval).min(next_time(&context));
    let mut plan = context.finish(Next::Done(Some(at)));
    plan.status = changed(snapshot, &status);
    plan
}

/// One event for all that was changed in this attempt.
fn report_changes(context: &mut Context<'_>) {
    let attempt = &context.snapshot.attempt;
    context.memory.changes.retain(|id, _| {
        let deleted = matches!(
            attempt.deleted.get(id),
            Some(DeleteAnswer::Accepted | DeleteAnswer::Absent)
        );
        match attempt.applied.get(id) {
            Some(WriteAnswer::Done(_)) => true,
            Some(WriteAnswer::Failed(_)) => false,
            None => deleted,
        }
    });
    if context.memory.changes.is_empty() {
        return;
    }
    let lines: Vec<String> = std::mem::take(&mut context.memory.changes).into_values().collect();
    let revision = context.revision.clone();
    context.events.push(event(
        EventKind::Normal,
        reason::PROGRESSING,
        lines.join("\n"),
        revision.as_deref(),
    ));
}

fn record(status: &mut KustomizationStatus, context: &Context<'_>, digest: &str, outcome: &str) {
    let now = whole_seconds(context.now);
    let took = go_duration(elapsed(context.now, context.snapshot.attempt.started));
    let found = status
        .history
        .iter()
        .position(|entry| entry.digest == digest && entry.last_reconciled_status == outcome);
    let entry = match found {
        Some(position) => {
            let mut entry = status.history.remove(position);
            entry.last_reconciled = now;
            entry.last_reconciled_duration = took;
            entry.total_reconciliations += 1;
            entry
        }
        None => kustomization::Snapshot {
            digest: digest.to_owned(),
            first_reconciled: now.clone(),
            last_reconciled: now,
            last_reconciled_duration: took,
            last_reconciled_status: outcome.to_owned(),
            metadata: context
                .revision
                .clone()
                .map(|revision| BTreeMap::from([("revision".to_owned(), revision)])),
            total_reconciliations: 1,
        },
    };
    status.history.insert(0, entry);
    status.history.truncate(HISTORY);
}

/// The interval, give or take 5 % by a hash of the object and the time, so that many do not come due together; sooner when a
/// back-off ends.
fn next_time(context: &Context<'_>) -> Timestamp {
    let uid = context
        .snapshot
        .kustomization
        .metadata
        .uid
        .as_deref()
        .unwrap_or_default();
    let at = after(
        context.now,
        crate::jitter::jittered(context.interval, uid, context.snapshot.attempt.started),
    );
    match contest::next_end(context) {
        Some(end) => at.min(end),
        None => at,
    }
}

fn elapsed(now: Timestamp, since: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

/// A duration as Go prints it, to the millisecond: `1m0s`, `250ms`.
pub(super) fn go_duration(duration: Duration) -> String {
    let milliseconds = duration.as_millis();
    if milliseconds < 1_000 {
        return if milliseconds == 0 {
            "0s".to_owned()
        } else {
            format!("{milliseconds}ms")
        };
    }
    let seconds = milliseconds / 1_000;
    let rest = milliseconds % 1_000;
    let fraction = if rest == 0 {
        String::new()
    } else {
        format!(".{rest:03}").trim_end_matches('0').to_owned()
    };
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        format!("{hours}h{minutes}m{seconds}{fraction}s")
    } else if minutes > 0 {
        format!("{minutes}m{seconds}{fraction}s")
    } else {
        format!("{seconds}{fraction}s")
    }
}
