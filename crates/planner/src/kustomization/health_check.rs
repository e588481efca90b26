//! Health after the apply: of all objects with `wait`, else of the objects in `healthChecks`. A wait occupies no worker: the attempt is kept, and planned again when a
//! watched object changes.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure_api::inventory::split_api_version;
use tenure_api::reference::NamespacedObjectKindReference;
use tenure_api::{ObjectId, ObjectView, condition, reason};

use super::context::Context;
use super::custom_health::CustomHealth;
use super::desired::Desired;
use super::prune::Pruned;
use super::types::HealthWait;
use super::{Phase, changes, object_action, outcome};
use crate::answer::{Live, WriteAnswer};
use crate::health::Health;
use crate::outcome::add_duration;
use crate::plan::{EventKind, Next, Request, Watched};

/// The time of a wait for health before it is reported, if the status already says that a revision is being applied.
const QUIET: Duration = Duration::from_secs(1);

/// The version for a health check that names none: Flux's, although the field's description speaks of a preferred version.
const USUAL_VERSION: &str = "apps/v1";

/// Finds the object that a health check names; nothing if the object is ambiguous.
pub(super) fn find_target(check: &NamespacedObjectKindReference) -> Option<Watched> {
    let api_version = check.api_version.as_deref().filter(|version| !version.is_empty());
    let (group, version) = split_api_version(api_version.unwrap_or(USUAL_VERSION));
    let id = ObjectId {
        namespace: check.namespace.clone().unwrap_or_default(),
        name: check.name.clone(),
        group: group.to_owned(),
        kind: check.kind.clone(),
    };
    // The text form refuses invalid names.
    let id = id.to_string().parse().ok()?;
    Some(Watched {
        id,
        version: version.to_owned(),
    })
}

/// Checks the health; returns when everything is healthy or nothing is to be checked.
pub(super) fn check_health(context: &mut Context<'_>, desired: &Desired, pruned: &Pruned) -> Phase<()> {
    if let Some(plan) = restart_if_changed(context, desired) {
        return Err(plan);
    }
    let mut targets: Vec<Watched> = Vec::new();
    if context.spec().wait {
        for object in &desired.objects {
            let live = context.find_live(&object.target.id).and_then(Live::object);
            if object_action::find_skip_reason(&object.object.0, live).is_none()
                && !is_itself(context, &object.target.id)
            {
                targets.push(object.target.clone());
            }
        }
    } else {
        for check in &context.spec().health_checks {
            let Some(target) = find_target(check) else {
                let message = format!(
                    "spec.healthChecks: {} {} needs a name and a namespace that can be one, and a valid apiVersion, if any",
                    check.kind, check.name
                );
                return Err(outcome::plan_stalled(context.fork(), reason::INVALID_SPEC, message));
            };
            if !is_itself(context, &target.id) {
                targets.push(target);
            }
        }
    }
    if targets.is_empty() {
        context.memory.waiting = None;
        context.memory.expressions.health.clear();
        return Ok(());
    }
    let reads: Vec<Request> = targets
        .iter()
        .filter(|target| context.find_live(&target.id).is_none())
        .cloned()
        .map(Request::Read)
        .collect();
    if !reads.is_empty() {
        return Err(context.fork().plan_again(reads));
    }
    let mut waiting = Vec::new();
    let mut waiting_for: Vec<&ObjectId> = Vec::new();
    let mut failed = Vec::new();
    let mut custom = CustomHealth::from_spec(context.spec());
    for target in &targets {
        let Some(live) = context.find_live(&target.id) else {
            continue;
        };
        let confidential = desired.is_confidential(&target.id);
        let health = custom.assess_object(&mut context.memory.expressions, &target.id, live, confidential);
        let line = format!("{} status: '{}'", target.id.subject(), health.as_str());
        match health {
            Health::Current => {}
            Health::Failed(message) => failed.push(with_message(line, &message)),
            // A Job that its TTL removed has done its work.
            Health::NotFound
                if target.id.kind == "Job" && !context.snapshot.attempt.applied.contains_key(&target.id) => {}
            other => {
                waiting.push((line, other.message().to_owned()));
                waiting_for.push(&target.id);
            }
        }
    }
    let ids: BTreeSet<&ObjectId> = targets.iter().map(|target| &target.id).collect();
    let verdicts = &mut context.memory.expressions.health;
    verdicts.retain(|id, _| ids.contains(id));
    if waiting.is_empty() && failed.is_empty() {
        context.memory.waiting = None;
        return Ok(());
    }
    let status = context.status();
    let was_healthy = condition::is_true(&status.conditions, condition::HEALTHY)
        && status.last_applied_revision == context.revision
        && context.memory.changes.is_empty()
        && context.memory.unreported.is_empty();
    if waiting.is_empty() {
        let message = format!(
            "health check failed early due to failed resources: [{}]",
            failed.join(", ")
        );
        return Err(outcome::end_unhealthy(context.fork(), desired, pruned, message));
    }
    if context.memory.waiting.as_ref().is_none_or(|waiting| {
        Some(&waiting.revision) != context.revision.as_ref()
            || waiting.generation != context.snapshot.kustomization.metadata.generation
    }) {
        context.memory.waiting = Some(HealthWait {
            revision: context.revision.clone().unwrap_or_default(),
            generation: context.snapshot.kustomization.metadata.generation,
            since: if was_healthy { context.now } else { context.find_start() },
            attempt: context.snapshot.attempt.started,
            quiet_until: Some(add_duration(context.now, QUIET)),
        });
    }
    if let Some(waiting) = &mut context.memory.waiting {
        waiting.attempt = context.snapshot.attempt.started;
    }
    let deadline = context.find_deadline();
    if context.now >= deadline {
        let lines: Vec<String> = waiting
            .into_iter()
            .map(|(line, message)| with_message(line, &message))
            .chain(failed)
            .collect();
        let message = format!(
            "health check failed after {}: timeout waiting for: [{}]",
            super::history::write_go_duration(context.timeout),
            lines.join(", ")
        );
        return Err(outcome::end_unhealthy(context.fork(), desired, pruned, message));
    }
    // Checks that were not evaluated run when the evaluation budget has something to spend again.
    let again = context
        .memory
        .expressions
        .budget
        .find_refill_time()
        .filter(|_| custom.is_spent);
    let until = again.map_or(deadline, |again| again.min(deadline));
    for (line, message) in &waiting {
        context.withhold("Ready", with_message(line.clone(), message));
    }
    if was_healthy {
        // The object was healthy with this revision: a rollout runs by itself. This is not reported yet.
        return Err(Box::new(context.fork().into_plan(Next::Wait(until))));
    }
    let quiet_until = context.memory.waiting.as_ref().and_then(|waiting| waiting.quiet_until);
    if let Some(quiet_until) =
        quiet_until.filter(|quiet_until| context.now < *quiet_until && outcome::is_reported_progressing(context))
    {
        // Most rollouts that need no time end at once: then one event reports the changes together with their outcome.
        changes::retain_changes(context);
        return Err(Box::new(context.fork().into_plan(Next::Wait(until.min(quiet_until)))));
    }
    let message = describe_wait(context, &waiting_for);
    Err(outcome::waiting_for_health(
        context.fork(),
        desired,
        pruned,
        until,
        message,
    ))
}

/// Describes the wait by one of its objects. The reported object stays the same until it is healthy, so the status isn't written for each object that becomes healthy.
fn describe_wait(context: &Context<'_>, waiting_for: &[&ObjectId]) -> String {
    let describe = |id: &&ObjectId| format!("applied; waiting for {} to be healthy", id.describe());
    let status = context.status();
    let reported = condition::find(&status.conditions, condition::HEALTHY).map(|healthy| healthy.message.as_str());
    let mut messages = waiting_for.iter().map(describe);
    let first = messages.next().unwrap_or_default();
    messages
        .find(|message| reported == Some(message.as_str()))
        .unwrap_or(first)
}

/// Restarts the attempt, since a newer revision has come. If the attempt waited for health, this is reported in Flux's words: by an event in any case, and by Ready if
/// Ready is not about the new revision yet.
pub(super) fn restart_attempt(mut context: Context<'_>, by: &str, is_new_revision: bool) -> Box<super::Plan> {
    let attempt = context.snapshot.attempt.started;
    let is_waiting = |waiting: &HealthWait| waiting.attempt == attempt;
    if !context.memory.waiting.as_ref().is_some_and(is_waiting) {
        return Box::new(context.into_plan(Next::Restart));
    }
    let status =
        is_new_revision.then(|| outcome::set_cancelled(&context, &format!("New reconciliation triggered by {by}")));
    let message = format!("Health checks canceled due to new reconciliation triggered by {by}");
    let revision = context.memory.waiting.as_ref().map(|waiting| waiting.revision.clone());
    let event = outcome::make_event(
        EventKind::Normal,
        reason::HEALTH_CHECK_CANCELED,
        message,
        revision.as_deref(),
    );
    context.events.push(event);
    let mut plan = context.into_plan(Next::Restart);
    plan.status = status.flatten();
    Box::new(plan)
}

fn with_message(line: String, message: &str) -> String {
    if message.is_empty() {
        line
    } else {
        format!("{line} ({message})")
    }
}

/// Checks whether the object is the Kustomization itself, which can't wait for its own health.
fn is_itself(context: &Context<'_>, id: &ObjectId) -> bool {
    // In another cluster, an object with this id is not this Kustomization.
    context.snapshot.kustomization.spec.kube_config.is_none()
        && id.group == "kustomize.toolkit.fluxcd.io"
        && id.kind == "Kustomization"
        && id.namespace == context.namespace
        && id.name == context.name
}

/// Restarts the attempt if another client changed an object after this attempt applied it. So drift is also corrected during a long wait for health.
fn restart_if_changed(context: &Context<'_>, desired: &Desired) -> Option<Box<super::Plan>> {
    let attempt = &context.snapshot.attempt;
    for object in &desired.objects {
        let id = &object.target.id;
        let answer = match (attempt.applied.get(id), attempt.dry_runs.get(id)) {
            (Some(WriteAnswer::Done(answer)), _) | (None, Some(WriteAnswer::Done(answer))) => &answer.0,
            _ => continue,
        };
        let Some(live) = context.find_live(id) else { continue };
        let changed = match live {
            Live::Present(live) => {
                read_version(&live.0) > read_version(answer)
                    && object_action::digest_live(context, object, &live.0)
                        != object_action::digest_live(context, object, answer)
            }
            // A finished Job may be removed by its own TTL.
            Live::Absent | Live::Unserved => attempt.applied.contains_key(id) && id.kind != "Job",
            Live::Failed(_) => false,
        };
        if changed && super::contested_fields::find_back_off(context, id).is_none() {
            return Some(Box::new(context.fork().into_plan(Next::Restart)));
        }
    }
    None
}

/// Reads the resourceVersion as a number: both existing servers count with it. Without one, nothing is newer.
fn read_version(object: &serde_json::Value) -> u64 {
    let version = ObjectView::new(object).read_text("/metadata/resourceVersion");
    version.parse().unwrap_or(0)
}
