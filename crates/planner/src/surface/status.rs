//! The status of a Surface: its tier and identity, the state of every source, and one Ready that sums them up in their own words.

use std::time::Duration;

use jiff::Timestamp;
use tenure_api::condition::{self, ConditionStatus};
use tenure_api::metadata::REQUESTED_AT;
use tenure_api::reason;
use tenure_api::surface::{SurfaceSourceStatus, SurfaceStatus};
use tenure_api::{ObjectView, StatedCondition};
use tenure_tenancy::ServiceAccount;
use tenure_tenancy::surface::Tier;

use super::children::Child;
use super::deploy_key::KeyState;
use super::{Plan, RETRY_INTERVAL, Snapshot, deploy_key, name_subject, ownership};
use crate::answer::{Live, WriteAnswer};
use crate::interrupted_attempts;
use crate::outcome::{self, ConditionEntry, add_duration};
use crate::plan::{EventKind, Next, Withheld};

fn set(status: &mut SurfaceStatus, snapshot: &Snapshot, now: Timestamp, entry: ConditionEntry<'_>) {
    outcome::set_condition(&mut status.conditions, &snapshot.surface.metadata, now, entry);
}

fn find_changed_status(snapshot: &Snapshot, status: &SurfaceStatus) -> Option<SurfaceStatus> {
    outcome::find_change(snapshot.surface.status.as_ref(), status)
}

fn record_placement(status: &mut SurfaceStatus, tier: Option<Tier<'_>>, account: Option<&ServiceAccount>) {
    status.tier = tier.map(|tier| tier.as_str().to_owned());
    status.tenant = match tier {
        Some(Tier::Tenant(tenant)) => Some(tenant.tenant.to_string()),
        Some(Tier::Platform) | None => None,
    };
    status.identity = account.map(ToString::to_string);
}

fn record_handled_request(status: &mut SurfaceStatus, snapshot: &Snapshot) {
    outcome::record_handled_request(
        &mut status.last_handled_reconcile_at,
        snapshot.attempt.requested_at.as_ref(),
    );
}

fn add_event(snapshot: &Snapshot, plan: &mut Plan, kind: EventKind, reason: &str, message: &str) {
    let old = snapshot.surface.status.as_ref();
    let old = old.map(|status| status.conditions.as_slice()).unwrap_or_default();
    plan.events.extend(outcome::make_event(old, kind, reason, message));
}

/// Reports a refusal: nothing is generated, and existing generated objects stay as they are.
pub(super) fn report_refusal(
    snapshot: &Snapshot,
    now: Timestamp,
    tier: Option<Tier<'_>>,
    reason: &str,
    message: String,
    again: Option<Duration>,
) -> Plan {
    let mut plan = Plan::idle(name_subject(snapshot), snapshot.memory.clone());
    let mut status = snapshot.surface.status.clone().unwrap_or_default();
    record_placement(&mut status, tier, None);
    condition::remove(&mut status.conditions, condition::RECONCILING);
    set(
        &mut status,
        snapshot,
        now,
        (condition::READY, ConditionStatus::False, reason, &message),
    );
    set(
        &mut status,
        snapshot,
        now,
        (condition::STALLED, ConditionStatus::True, reason, &message),
    );
    status.observed_generation = snapshot.surface.metadata.generation;
    record_handled_request(&mut status, snapshot);
    add_event(snapshot, &mut plan, EventKind::Warning, reason, &message);
    plan.status = find_changed_status(snapshot, &status);
    plan.next = Next::Done(again.map(|again| add_duration(now, again)));
    plan.withheld.push(Withheld {
        what: "everything".to_owned(),
        why: message,
    });
    plan
}

/// Reports that the lane is down: existing objects stay as they are, and the status changes again when the lane is back. A Surface that was Ready stays Ready.
pub(super) fn report_lane_problem(snapshot: &Snapshot, now: Timestamp, trouble: &str) -> Plan {
    let mut plan = Plan::idle(name_subject(snapshot), snapshot.memory.clone());
    let old = snapshot.surface.status.as_ref();
    let status = interrupted_attempts::report_wait(old, &snapshot.surface.metadata, now, trouble);
    let conditions = old.map(|status| status.conditions.as_slice()).unwrap_or_default();
    if !outcome::has_same_condition(
        conditions,
        condition::RECONCILING,
        reason::PROGRESSING_WITH_RETRY,
        trouble,
    ) {
        plan.events.extend(outcome::make_event(
            conditions,
            EventKind::Warning,
            reason::PROGRESSING_WITH_RETRY,
            trouble,
        ));
    }
    plan.status = find_changed_status(snapshot, &status);
    plan.next = Next::Done(None);
    plan.withheld.push(Withheld {
        what: "everything".to_owned(),
        why: trouble.to_owned(),
    });
    plan
}

/// Reports that some generated objects could not be written.
pub(super) fn report_write_failures(
    snapshot: &Snapshot,
    now: Timestamp,
    tier: Tier<'_>,
    account: &ServiceAccount,
    children: &[Child],
    mut plan: Plan,
    problems: Vec<String>,
) -> Plan {
    let message = problems.join("\n");
    let mut status = snapshot.surface.status.clone().unwrap_or_default();
    record_placement(&mut status, Some(tier), Some(account));
    status.sources = list_source_states(snapshot, children)
        .into_iter()
        .map(|source| source.status)
        .collect();
    tell_keys(&mut status, snapshot, &mut plan);
    condition::remove(&mut status.conditions, condition::STALLED);
    set(
        &mut status,
        snapshot,
        now,
        (
            condition::READY,
            ConditionStatus::False,
            reason::RECONCILIATION_FAILED,
            &message,
        ),
    );
    let retrying = (
        condition::RECONCILING,
        ConditionStatus::True,
        reason::PROGRESSING_WITH_RETRY,
        "The last attempt failed; see Ready",
    );
    set(&mut status, snapshot, now, retrying);
    record_handled_request(&mut status, snapshot);
    add_event(
        snapshot,
        &mut plan,
        EventKind::Warning,
        reason::RECONCILIATION_FAILED,
        &message,
    );
    for problem in problems {
        plan.withheld.push(Withheld {
            what: "Ready".to_owned(),
            why: problem,
        });
    }
    plan.steps.clear();
    plan.status = find_changed_status(snapshot, &status);
    let at = add_duration(now, RETRY_INTERVAL);
    let key = deploy_key::find_next_time(snapshot, now);
    plan.next = Next::Done(plan.memory.next().into_iter().chain(key).chain([at]).min());
    plan
}

/// Reports that everything is generated, with the state of the generated objects.
pub(super) fn report_success(
    snapshot: &Snapshot,
    now: Timestamp,
    tier: Tier<'_>,
    account: &ServiceAccount,
    children: &[Child],
    mut plan: Plan,
) -> Plan {
    let sources = list_source_states(snapshot, children);
    let mut status = snapshot.surface.status.clone().unwrap_or_default();
    record_placement(&mut status, Some(tier), Some(account));
    condition::remove(&mut status.conditions, condition::STALLED);
    let total = sources.len();
    let ready = sources.iter().filter(|source| source.status.ready).count();
    let failed: Vec<&SourceState> = sources.iter().filter(|source| source.failure.is_some()).collect();
    if snapshot.surface.spec.suspend {
        condition::remove(&mut status.conditions, condition::RECONCILING);
        set(
            &mut status,
            snapshot,
            now,
            (
                condition::READY,
                ConditionStatus::False,
                reason::SUSPENDED,
                "spec.suspend is true",
            ),
        );
    } else if ready == total {
        condition::remove(&mut status.conditions, condition::RECONCILING);
        let message = match total {
            1 => "1 source is applied".to_owned(),
            total => format!("{total} sources are applied"),
        };
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
        add_event(
            snapshot,
            &mut plan,
            EventKind::Normal,
            reason::RECONCILIATION_SUCCEEDED,
            &message,
        );
    } else if let Some(reason) = failed.first().and_then(|source| source.failure.as_deref()) {
        let lines: Vec<String> = failed
            .iter()
            .map(|source| {
                format!(
                    "source {}: {}",
                    source.status.name,
                    source.status.message.as_deref().unwrap_or_default()
                )
            })
            .collect();
        let message = lines.join("\n");
        set(
            &mut status,
            snapshot,
            now,
            (condition::READY, ConditionStatus::False, reason, &message),
        );
        condition::remove(&mut status.conditions, condition::RECONCILING);
        add_event(snapshot, &mut plan, EventKind::Warning, reason, &message);
    } else {
        let waiting = sources
            .iter()
            .find_map(|source| Some((source.status.name.as_str(), source.waiting.as_deref()?)));
        let message = match waiting {
            Some((_, message)) if total == 1 => message.to_owned(),
            Some((name, message)) => format!("{ready} of {total} sources are ready; source {name}: {message}"),
            None if total == 1 => "the source is not ready yet".to_owned(),
            None => format!("{ready} of {total} sources are ready"),
        };
        set(
            &mut status,
            snapshot,
            now,
            (
                condition::READY,
                ConditionStatus::Unknown,
                reason::PROGRESSING,
                &message,
            ),
        );
        set(
            &mut status,
            snapshot,
            now,
            (
                condition::RECONCILING,
                ConditionStatus::True,
                reason::PROGRESSING,
                &message,
            ),
        );
    }
    for source in &sources {
        if !source.status.ready {
            plan.withheld.push(Withheld {
                what: format!("source {}", source.status.name),
                why: source
                    .status
                    .message
                    .clone()
                    .unwrap_or_else(|| "not there yet".to_owned()),
            });
        }
    }
    status.sources = sources.into_iter().map(|source| source.status).collect();
    tell_keys(&mut status, snapshot, &mut plan);
    status.observed_generation = snapshot.surface.metadata.generation;
    record_handled_request(&mut status, snapshot);
    ownership::report_trial(&mut status, snapshot, now);
    plan.status = find_changed_status(snapshot, &status);
    let tried = snapshot.ownership.as_ref().map(ownership::find_next);
    let key = deploy_key::find_next_time(snapshot, now);
    plan.next = Next::Done(tried.into_iter().chain(key).min());
    plan
}

/// Reports the keys of the sources, and the news about them.
fn tell_keys(status: &mut SurfaceStatus, snapshot: &Snapshot, plan: &mut Plan) {
    status.deploy_keys = deploy_key::list_statuses(snapshot);
    plan.events.extend(deploy_key::list_news(snapshot, status));
}

/// The state of one source, collected from its generated objects.
struct SourceState {
    status: SurfaceSourceStatus,
    /// The reason, if the source has failed and is not in progress.
    failure: Option<String>,
    /// The message of a Kustomization that has applied everything and waits for the health of the objects.
    waiting: Option<String>,
}

/// Collects every source's state from its generated objects.
fn list_source_states(snapshot: &Snapshot, children: &[Child]) -> Vec<SourceState> {
    snapshot
        .surface
        .spec
        .sources
        .iter()
        .map(|source| find_source_state(snapshot, &source.name, children))
        .collect()
}

fn find_source_state(snapshot: &Snapshot, source: &str, children: &[Child]) -> SourceState {
    let mut status = SurfaceSourceStatus {
        name: source.to_owned(),
        ready: true,
        ..SurfaceSourceStatus::default()
    };
    let mut failure = None;
    let mut waiting: Option<String> = None;
    let mut messages = Vec::new();
    let mut revisions: Vec<Option<String>> = Vec::new();
    for child in children.iter().filter(|child| child.source == source) {
        let live = match (
            snapshot.live.get(&child.wanted.id),
            snapshot.attempt.applied.get(&child.wanted.id),
        ) {
            (Some(Live::Present(object)), _) | (_, Some(WriteAnswer::Done(object))) => object.view(),
            _ => {
                status.ready = false;
                continue;
            }
        };
        let text = |path: &str| live.find_text(path).map(str::to_owned);
        if child.wanted.id.kind == "GitRepository" {
            status.fetched_revision = text("/status/artifact/revision");
        } else {
            revisions.push(text("/status/lastAppliedRevision"));
        }
        let observed = live.find_number("/status/observedGeneration");
        let generation = live.find_number("/metadata/generation");
        match live.find_condition(condition::READY) {
            Some(ready) if ready.status == "True" && observed == generation => {}
            // Everything is applied, and the Kustomization waits for the health of the objects.
            Some(ready) if is_progressing(ready) => {
                status.ready = false;
                let healthy = live
                    .find_condition(condition::HEALTHY)
                    .filter(|healthy| is_progressing(*healthy));
                if let Some(healthy) = healthy {
                    waiting.get_or_insert(healthy.message.to_owned());
                }
            }
            // The Kustomization only repeats that its source has nothing yet; the source reports its own problem.
            Some(ready) if ready.status == "False" && ready.reason == reason::ARTIFACT_FAILED => status.ready = false,
            Some(ready) if ready.status == "False" => {
                status.ready = false;
                messages.push(ready.message.to_owned());
                failure.get_or_insert(ready.reason.to_owned());
            }
            _ => status.ready = false,
        }
    }
    let key = deploy_key::judge_key(snapshot, source);
    if let Some(key) = &key {
        tell_key(snapshot, key, children, &mut status, (&mut failure, &mut messages));
    }
    let applied = revisions.first().cloned().flatten();
    if applied.is_some() && revisions.iter().all(|revision| *revision == applied) {
        status.applied_revision = applied;
    }
    if status.ready && status.applied_revision != status.fetched_revision {
        // Fetched, and not applied yet.
        status.ready = false;
    }
    // Dependents only repeat their dependency's message, which comes first.
    messages.dedup();
    status.message = if messages.is_empty() {
        None
    } else {
        Some(messages.join("\n"))
    };
    if status.message.is_none() && !status.ready {
        status.message = Some(waiting.clone().unwrap_or_else(|| "in progress".to_owned()));
    }
    if failure.as_deref() == Some(reason::DEPENDENCY_NOT_READY) {
        failure = None;
    }
    SourceState {
        status,
        failure,
        waiting,
    }
}

/// Checks whether a condition reports a running attempt.
fn is_progressing(condition: StatedCondition<'_>) -> bool {
    condition.status == "Unknown" && condition.reason == reason::PROGRESSING && !condition.message.is_empty()
}

/// Reports the state of a source's key. A source is ready only with the key that was made for it. Until a server accepts this key, the message says what to give to the
/// server.
fn tell_key(
    snapshot: &Snapshot,
    key: &KeyState,
    children: &[Child],
    status: &mut SurfaceSourceStatus,
    (failure, messages): (&mut Option<String>, &mut Vec<String>),
) {
    if let Some(problem) = &key.problem {
        status.ready = false;
        *failure = Some(reason::DEPLOY_KEY_UNAVAILABLE.to_owned());
        if key.is_held {
            messages.clear();
        }
        messages.insert(0, problem.clone());
        return;
    }
    let mut children = children.iter();
    let child = children.find(|child| child.source == status.name && child.wanted.id.kind == "GitRepository");
    let is_taken = child.is_some_and(|child| {
        let wanted = ObjectView::new(&child.wanted.object);
        let live = snapshot
            .live
            .get(&child.wanted.id)
            .and_then(Live::object)
            .map(ObjectView::new);
        live.is_some_and(|live| {
            let ready = live.find_condition(condition::READY);
            ready.is_some_and(|ready| ready.status == "True")
                && live.find_number("/status/observedGeneration") == live.find_number("/metadata/generation")
                && live.find_text("/status/lastHandledReconcileAt") == wanted.find_annotation(REQUESTED_AT)
        })
    });
    if is_taken {
        return;
    }
    status.ready = false;
    if let Some(pair) = &key.pair {
        let mut sources = snapshot.surface.spec.sources.iter();
        let url = sources
            .find(|source| source.name == status.name)
            .map(|source| source.url.shown());
        messages.insert(
            0,
            format!(
                "add this deploy key, for reading only, to {}: {} ({})",
                url.unwrap_or_default(),
                pair.public_key,
                pair.fingerprint
            ),
        );
    }
}
