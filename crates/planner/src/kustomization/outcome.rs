//! The end of a plan: the status with Flux's conditions and reasons, the events, and the next time.
//!
//! A status is written only when it differs. Flux changes some values at every interval without any news (the history's times, the duration in a message). Here these
//! change only together with other values, so that a resync writes nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use tenure_api::condition::{self, Condition, ConditionStatus};
use tenure_api::kustomization::KustomizationStatus;
use tenure_api::metadata::EVENT_REVISION;
use tenure_api::reason;
use tenure_api::text::count_of;

use super::changes::report_changes;
use super::context::{Context, name_subject};
use super::desired::Desired;
use super::history::{find_elapsed, record_attempt, write_go_duration};
use super::prune::Pruned;
use super::step::Step;
use super::tracking::{list_inventory_after, list_inventory_so_far};
use super::types::Snapshot;
use super::{Plan, contested_fields, decryption, guard, origin, retry, siblings};
use crate::outcome::{self, ConditionEntry, add_duration, join_names};
use crate::plan::{Event, EventKind, EventPlace, Next, Watched};

/// The first pause after a request without an answer; doubled up to the retry interval.
const FIRST_TRANSIENT_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause before the next look at a difference that changes all the time.
const LONGEST_LOOK: Duration = Duration::from_secs(60);

/// The number of steps in a message about steps that were not done in time.
const STEPS_NAMED: usize = 5;
/// The most bytes of names of kept objects in an event.
const KEPT_NAMED: usize = 700;

pub(super) fn set(status: &mut KustomizationStatus, snapshot: &Snapshot, now: Timestamp, entry: ConditionEntry<'_>) {
    outcome::set_condition(&mut status.conditions, &snapshot.kustomization.metadata, now, entry);
}

/// Returns the status to write, if it differs from the present one.
pub(super) fn find_status_change(snapshot: &Snapshot, status: &KustomizationStatus) -> Option<KustomizationStatus> {
    outcome::find_change(snapshot.kustomization.status.as_ref(), status)
}

pub(super) fn make_event(kind: EventKind, reason: &str, message: String, revision: Option<&str>) -> Event {
    let annotations: BTreeMap<String, String> = revision
        .map(|revision| (EVENT_REVISION.to_owned(), revision.to_owned()))
        .into_iter()
        .collect();
    Event {
        kind,
        reason: reason.to_owned(),
        message,
        annotations,
        place: EventPlace::default(),
    }
}

fn make_stalled_status(snapshot: &Snapshot, now: Timestamp, reason: &str, message: &str) -> KustomizationStatus {
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
    record_handled(&mut status, snapshot);
    status
}

pub(super) fn record_handled(status: &mut KustomizationStatus, snapshot: &Snapshot) {
    outcome::record_handled_request(
        &mut status.last_handled_reconcile_at,
        snapshot.attempt.requested_at.as_ref(),
    );
}

/// Makes a warning, unless Ready has the message already.
pub(super) fn make_warning(snapshot: &Snapshot, reason: &str, message: &str, revision: Option<&str>) -> Option<Event> {
    let old = snapshot.kustomization.status.as_ref();
    let old = old.map(|status| status.conditions.as_slice()).unwrap_or_default();
    (!outcome::has_same_condition(old, condition::READY, reason, message))
        .then(|| make_event(EventKind::Warning, reason, message.to_owned(), revision))
}

fn add_warning(context: &mut Context<'_>, reason: &str, message: &str) {
    let event = make_warning(context.snapshot, reason, message, context.revision.as_deref());
    context.events.extend(event);
}

/// Ends a plan that does nothing until a user changes the object, before its identity is known.
pub(super) fn plan_stalled_before_admission(
    snapshot: &Snapshot,
    now: Timestamp,
    reason: &str,
    message: String,
) -> Plan {
    let mut plan = Plan::idle(name_subject(snapshot), snapshot.memory.clone());
    plan.status = find_status_change(snapshot, &make_stalled_status(snapshot, now, reason, &message));
    plan.events.extend(make_warning(snapshot, reason, &message, None));
    plan.withheld.push(crate::plan::Withheld {
        what: "everything".to_owned(),
        why: message,
    });
    plan
}

/// Ends a plan that does nothing until a user changes the object.
pub(super) fn plan_stalled(mut context: Context<'_>, reason: &str, message: String) -> Box<Plan> {
    let snapshot = context.snapshot;
    let status = make_stalled_status(snapshot, context.now, reason, &message);
    add_warning(&mut context, reason, &message);
    context.withhold("everything", message);
    let mut plan = context.into_plan(Next::Done(None));
    plan.status = find_status_change(snapshot, &status);
    Box::new(plan)
}

/// Ends a failed attempt; the next one comes after the retry interval.
pub(super) fn plan_failed(context: Context<'_>, reason: &str, message: String) -> Box<Plan> {
    let delay = context.retry_interval;
    plan_failed_for(context, reason, message, delay)
}

/// Describes why an attempt whose time is over does not execute these steps.
pub(super) fn describe_timeout(context: &Context<'_>, steps: &[Step]) -> String {
    let mut named: Vec<String> = steps.iter().take(STEPS_NAMED).map(ToString::to_string).collect();
    if let Some(more) = steps.len().checked_sub(STEPS_NAMED).filter(|more| *more > 0) {
        named.push(format!("{more} more"));
    }
    format!(
        "timeout: not done within {} (spec.timeout): {}",
        write_go_duration(context.timeout),
        named.join(", ")
    )
}

/// Ends a failed attempt. The next one comes soon if an answer was missing.
pub(super) fn fail_with(mut context: Context<'_>, reason: &str, message: String, transient: bool) -> Box<Plan> {
    if !transient {
        return plan_failed(context, reason, message);
    }
    let delay = find_transient_pause(context.memory.transient_failures, context.retry_interval);
    context.memory.transient_failures = context.memory.transient_failures.saturating_add(1);
    plan_failed_for(context, reason, message, delay)
}

/// Returns the pause after this many missing answers in a row.
pub(super) fn find_transient_pause(failures: u32, longest: Duration) -> Duration {
    FIRST_TRANSIENT_PAUSE
        .saturating_mul(2_u32.saturating_pow(failures.min(16)))
        .min(longest)
}

/// Ends a failed attempt; the next one comes after this delay.
pub(super) fn plan_failed_for(mut context: Context<'_>, reason: &str, message: String, delay: Duration) -> Box<Plan> {
    let snapshot = context.snapshot;
    let now = context.now;
    retry::record_failure(snapshot, now, &mut context.memory, &context.watch, delay);
    let mut status = context.status();
    status.inventory = list_inventory_so_far(&context, std::iter::empty());
    set_failed(&mut status, &context, reason, &message);
    if let Some(digest) = context
        .built
        .clone()
        .filter(|_| find_status_change(snapshot, &status).is_some())
    {
        record_attempt(&mut status, &context, &digest, reason);
    }
    context.memory.waiting = None;
    report_changes(&mut context);
    add_warning(&mut context, reason, &message);
    context.withhold("Ready", message);
    let mut plan = context.into_plan(Next::Done(Some(add_duration(now, delay))));
    plan.status = find_status_change(snapshot, &status);
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
    record_handled(status, snapshot);
}

fn set_contested(status: &mut KustomizationStatus, context: &Context<'_>) {
    let contested = contested_fields::list_contested(context);
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

/// Warns once about objects that left the source and stay because of an annotation. The inventory does not name them any more.
fn warn_of_kept(context: &mut Context<'_>, pruned: &Pruned) {
    if pruned.kept.is_empty() {
        return;
    }
    let message = format!(
        "these are no longer in the source, and stay in the cluster, since an annotation says so: {}",
        join_names(&pruned.kept, KEPT_NAMED)
    );
    let event = make_event(
        EventKind::Warning,
        reason::PRUNE_SKIPPED,
        message,
        context.revision.as_deref(),
    );
    context.events.push(event);
}

/// Returns the status that must be stored before these objects are applied. Its inventory names them, so that a later failure loses none. The result is empty if the
/// stored status names them already.
pub(super) fn make_status_before_apply<'w>(
    context: &Context<'_>,
    applied: impl Iterator<Item = &'w Watched>,
) -> Option<KustomizationStatus> {
    let inventory = list_inventory_so_far(context, applied);
    let old = context.status();
    if inventory == old.inventory {
        return None;
    }
    let mut status = old;
    status.inventory = inventory;
    let message = format!("Applying revision {}", context.revision.as_deref().unwrap_or_default());
    set_progressing(&mut status, context, &message);
    find_status_change(context.snapshot, &status)
}

fn set_progressing(status: &mut KustomizationStatus, context: &Context<'_>, message: &str) {
    let (snapshot, now) = (context.snapshot, context.now);
    condition::remove(&mut status.conditions, condition::STALLED);
    if !has_failed_with_revision(status, context) {
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
    }
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

/// Returns the status which reports that the wait for health has ended, if it differs from the present one.
pub(super) fn set_cancelled(context: &Context<'_>, message: &str) -> Option<KustomizationStatus> {
    let mut status = context.status();
    let reason = reason::HEALTH_CHECK_CANCELED;
    let ready = (condition::READY, ConditionStatus::False, reason, message);
    set(&mut status, context.snapshot, context.now, ready);
    find_status_change(context.snapshot, &status)
}

/// Checks whether Ready already reports a failure of this revision of this spec. Then Ready stays during the next tries, and does not change with every attempt.
fn has_failed_with_revision(status: &KustomizationStatus, context: &Context<'_>) -> bool {
    let generation = context.snapshot.kustomization.metadata.generation;
    status.last_attempted_revision == context.revision
        && condition::find(&status.conditions, condition::READY)
            .is_some_and(|ready| ready.status == ConditionStatus::False && ready.observed_generation == generation)
}

/// Ends a plan that waits for a condition of the next stage.
pub(super) fn plan_waiting(mut context: Context<'_>, deadline: Timestamp, message: String) -> Box<Plan> {
    let snapshot = context.snapshot;
    let mut status = context.status();
    status.inventory = list_inventory_so_far(&context, std::iter::empty());
    set_progressing(&mut status, &context, &message);
    report_changes(&mut context);
    let mut plan = context.into_plan(Next::Wait(deadline));
    plan.status = find_status_change(snapshot, &status);
    Box::new(plan)
}

/// Ends an attempt in the mode that only detects differences from Git. The next look comes at the interval, or after a change. A writer that changes objects again and
/// again doesn't cause a look each time.
pub(super) fn end_with_differences(mut context: Context<'_>, reason: &str, message: String) -> Box<Plan> {
    let (snapshot, now) = (context.snapshot, context.now);
    let pause = context.interval.min(LONGEST_LOOK);
    retry::record_failure(snapshot, now, &mut context.memory, &context.watch, pause);
    context.memory.transient_failures = 0;
    context.memory.waiting = None;
    let mut status = context.status();
    condition::remove(&mut status.conditions, condition::RECONCILING);
    condition::remove(&mut status.conditions, condition::STALLED);
    let ready = (condition::READY, ConditionStatus::False, reason, &*message);
    set(&mut status, snapshot, now, ready);
    status.last_attempted_revision.clone_from(&context.revision);
    status.observed_generation = snapshot.kustomization.metadata.generation;
    record_handled(&mut status, snapshot);
    add_warning(&mut context, reason, &message);
    context.withhold("Ready", message);
    let at = next_time(&context);
    let mut plan = context.into_plan(Next::Done(Some(at)));
    plan.status = find_status_change(snapshot, &status);
    Box::new(plan)
}

/// Checks whether the stored status already says that this revision is being applied, so that for a moment there is nothing to add.
pub(super) fn is_reported_progressing(context: &Context<'_>) -> bool {
    let status = context.status();
    let generation = context.snapshot.kustomization.metadata.generation;
    let says = |kind: &str, value: ConditionStatus| {
        condition::find(&status.conditions, kind).is_some_and(|found| {
            found.status == value && found.reason == reason::PROGRESSING && found.observed_generation == generation
        })
    };
    status.last_attempted_revision == context.revision
        && says(condition::RECONCILING, ConditionStatus::True)
        && says(condition::READY, ConditionStatus::Unknown)
}

/// Ends a plan that has applied everything and waits for health. `Reconciling` begins with Flux's sentence.
pub(super) fn waiting_for_health(
    mut context: Context<'_>,
    desired: &Desired,
    pruned: &Pruned,
    deadline: Timestamp,
    message: String,
) -> Box<Plan> {
    let snapshot = context.snapshot;
    let mut status = context.status();
    status.inventory = Some(list_inventory_after(&context, desired, pruned));
    let running = format!(
        "Running health checks for revision {} with a timeout of {} ({message})",
        context.revision.as_deref().unwrap_or_default(),
        write_go_duration(context.timeout)
    );
    set_progressing(&mut status, &context, &running);
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
    warn_of_kept(&mut context, pruned);
    let mut plan = context.into_plan(Next::Wait(deadline));
    plan.status = find_status_change(snapshot, &status);
    Box::new(plan)
}

/// Ends an attempt that has applied everything, without health.
pub(super) fn end_unhealthy(
    mut context: Context<'_>,
    desired: &Desired,
    pruned: &Pruned,
    message: String,
) -> Box<Plan> {
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
    status.inventory = Some(list_inventory_after(&context, desired, pruned));
    if find_status_change(snapshot, &status).is_some() {
        record_attempt(&mut status, &context, &desired.digest, reason::HEALTH_CHECK_FAILED);
    }
    context.memory.waiting = None;
    context.memory.retry = None;
    report_changes(&mut context);
    warn_of_kept(&mut context, pruned);
    add_warning(&mut context, reason::HEALTH_CHECK_FAILED, &message);
    context.withhold("Ready", message);
    let at = add_duration(now, context.retry_interval);
    let at = end_with(&mut context, pruned, at);
    let mut plan = context.into_plan(Next::Done(Some(at)));
    plan.status = find_status_change(snapshot, &status);
    Box::new(plan)
}

/// Ends an attempt that has done everything possible.
pub(super) fn plan_succeeded(mut context: Context<'_>, desired: &Desired, pruned: &Pruned) -> Plan {
    let snapshot = context.snapshot;
    let now = context.now;
    context.memory.transient_failures = 0;
    context.memory.retry = None;
    contested_fields::forget_old(&mut context);
    context.memory.settled.retain(|id, _| desired.contains(id));
    if !desired.unknown.is_empty() {
        return unknown_kinds(context, desired, pruned);
    }
    let revision = context.revision.clone().unwrap_or_default();
    let mut status = context.status();
    status.inventory = Some(list_inventory_after(&context, desired, pruned));
    condition::remove(&mut status.conditions, condition::RECONCILING);
    condition::remove(&mut status.conditions, condition::STALLED);
    let mut message = format!("Applied revision: {revision}");
    for contested in contested_fields::list_contested(&context) {
        message.push_str("; contested: ");
        message.push_str(&contested);
    }
    if let Some(changed) = snapshot
        .attempt
        .rendered
        .as_ref()
        .and_then(decryption::describe_changed)
    {
        message.push_str("; ");
        message.push_str(&changed);
        // The warning is sent once: Ready reports the fact afterwards.
        add_warning(&mut context, reason::RECONCILIATION_SUCCEEDED, &message);
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
            let took = find_elapsed(now, snapshot.attempt.started);
            let message = format!("Health check passed in {}", write_go_duration(took));
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
    guard::forget_allowed(snapshot, &mut status);
    let first_time = status.last_applied_revision.as_deref() != Some(revision.as_str())
        || !snapshot
            .kustomization
            .status
            .as_ref()
            .is_some_and(|old| condition::is_true(&old.conditions, condition::READY));
    status.last_applied_revision = Some(revision.clone());
    status.last_applied_origin_revision = origin::find_origin(snapshot).map(|(_, origin)| origin.to_owned());
    status.last_attempted_revision = Some(revision.clone());
    status.observed_generation = snapshot.kustomization.metadata.generation;
    record_handled(&mut status, snapshot);
    if find_status_change(snapshot, &status).is_some()
        || !context.memory.changes.is_empty()
        || !context.memory.unreported.is_empty()
    {
        record_attempt(&mut status, &context, &desired.digest, reason::RECONCILIATION_SUCCEEDED);
    }
    report_changes(&mut context);
    warn_of_kept(&mut context, pruned);
    if first_time {
        let message = format!(
            "Reconciliation finished in {}, next run in {}",
            write_go_duration(find_elapsed(now, snapshot.attempt.started)),
            write_go_duration(context.interval)
        );
        context.events.push(make_event(
            EventKind::Normal,
            reason::RECONCILIATION_SUCCEEDED,
            message,
            Some(&revision),
        ));
    }
    let at = next_time(&context);
    let at = end_with(&mut context, pruned, at);
    let mut plan = context.into_plan(Next::Done(Some(at)));
    plan.status = find_status_change(snapshot, &status);
    plan
}

/// Returns the time of the next attempt: the given one, or the time of a prune that is put off now.
fn end_with(context: &mut Context<'_>, pruned: &Pruned, at: Timestamp) -> Timestamp {
    if pruned.put_off {
        at.min(siblings::delay_prune(context))
    } else {
        at
    }
}

/// Ends an attempt that has applied everything else, with kinds that are unknown to the cluster.
fn unknown_kinds(mut context: Context<'_>, desired: &Desired, pruned: &Pruned) -> Plan {
    let snapshot = context.snapshot;
    let now = context.now;
    let lines: Vec<&str> = desired.unknown.iter().map(|(_, message)| message.as_str()).collect();
    let message = format!(
        "{} of {} applied; the cluster does not serve the kinds of the others: install their CustomResourceDefinitions\n{}",
        desired.objects.len(),
        count_of(desired.objects.len() + desired.unknown.len(), "object"),
        lines.join("\n")
    );
    let mut status = context.status();
    set_failed(&mut status, &context, reason::UNKNOWN_KIND, &message);
    status.inventory = Some(list_inventory_after(&context, desired, pruned));
    report_changes(&mut context);
    warn_of_kept(&mut context, pruned);
    add_warning(&mut context, reason::UNKNOWN_KIND, &message);
    let at = add_duration(now, context.retry_interval).min(next_time(&context));
    let at = end_with(&mut context, pruned, at);
    let mut plan = context.into_plan(Next::Done(Some(at)));
    plan.status = find_status_change(snapshot, &status);
    plan
}

/// Returns the time of the next attempt: the interval, give or take 5 % by a hash of the object and the time, so that many do not come due together. The time is
/// earlier if a back-off ends.
fn next_time(context: &Context<'_>) -> Timestamp {
    let uid = context
        .snapshot
        .kustomization
        .metadata
        .uid
        .as_deref()
        .unwrap_or_default();
    let at = add_duration(
        context.now,
        tenure_api::jitter::add_jitter(context.interval, uid, context.snapshot.attempt.started),
    );
    match contested_fields::find_next_end(context) {
        Some(end) => at.min(end),
        None => at,
    }
}
