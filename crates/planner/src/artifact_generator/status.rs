//! The status of an ArtifactGenerator: the result for each artifact of the generator, and one condition Ready as the summary.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;
use tenure_api::artifact_generator::GeneratedArtifact;
use tenure_api::condition::{self, Condition, ConditionStatus};
use tenure_api::{ArtifactGeneratorStatus, ObjectView, reason};

use super::Recipe;
use super::{KIND, Plan, RETRY_INTERVAL, Snapshot, children, list_artifacts};
use crate::answer::Live;
use crate::outcome::{self, ConditionEntry, add_duration};
use crate::plan::{EventKind, Next, Status, Withheld};
use tenure_api::digest::digest_value;

/// The most bytes of problems in one message.
const PROBLEMS_BYTES: usize = 4 << 10;

impl Status for ArtifactGeneratorStatus {
    fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    fn conditions_mut(&mut self) -> &mut Vec<Condition> {
        &mut self.conditions
    }
}

pub(super) fn name_subject(snapshot: &Snapshot) -> String {
    outcome::name_subject(KIND, &snapshot.generator.metadata)
}

fn begin_status(snapshot: &Snapshot) -> ArtifactGeneratorStatus {
    snapshot.generator.status.clone().unwrap_or_default()
}

fn set(status: &mut ArtifactGeneratorStatus, snapshot: &Snapshot, now: Timestamp, entry: ConditionEntry<'_>) {
    outcome::set_condition(&mut status.conditions, &snapshot.generator.metadata, now, entry);
}

fn add_event(snapshot: &Snapshot, plan: &mut Plan, kind: EventKind, reason: &str, message: &str) {
    let old = snapshot.generator.status.as_ref();
    let old = old.map(|status| status.conditions.as_slice()).unwrap_or_default();
    plan.events.extend(outcome::make_event(old, kind, reason, message));
}

fn finish_plan(snapshot: &Snapshot, mut plan: Plan, mut status: ArtifactGeneratorStatus) -> Plan {
    let requested = snapshot.attempt.requested_at.as_ref();
    outcome::record_handled_request(&mut status.last_handled_reconcile_at, requested);
    plan.status = outcome::find_change(snapshot.generator.status.as_ref(), &status);
    plan
}

/// Ends a plan that does nothing until a user changes an object. Existing artifacts stay.
pub(super) fn plan_stalled(snapshot: &Snapshot, now: Timestamp, mut plan: Plan, reason: &str, message: String) -> Plan {
    let mut status = begin_status(snapshot);
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
    add_event(snapshot, &mut plan, EventKind::Warning, reason, &message);
    plan.steps.clear();
    Arc::make_mut(plan.memory.recipes.get_or_insert_default()).problem = Some(message.clone());
    plan.withheld.push(Withheld {
        what: "everything".to_owned(),
        why: message,
    });
    plan.next = Next::Done(None);
    finish_plan(snapshot, plan, status)
}

/// Ends a plan that is tried again. Existing artifacts stay.
pub(super) fn plan_waiting(snapshot: &Snapshot, now: Timestamp, mut plan: Plan, reason: &str, message: String) -> Plan {
    let mut status = begin_status(snapshot);
    condition::remove(&mut status.conditions, condition::STALLED);
    set(
        &mut status,
        snapshot,
        now,
        (condition::READY, ConditionStatus::False, reason, &message),
    );
    let retrying = (
        condition::RECONCILING,
        ConditionStatus::True,
        reason::PROGRESSING_WITH_RETRY,
        "The last attempt failed; see Ready",
    );
    set(&mut status, snapshot, now, retrying);
    add_event(snapshot, &mut plan, EventKind::Warning, reason, &message);
    plan.steps.clear();
    plan.withheld.push(Withheld {
        what: "Ready".to_owned(),
        why: message,
    });
    let at = add_duration(now, RETRY_INTERVAL);
    plan.next = Next::Done(Some(plan.memory.refused.next().map_or(at, |next| next.min(at))));
    finish_plan(snapshot, plan, status)
}

/// Reports that some of the objects could not be written.
pub(super) fn not_written(snapshot: &Snapshot, now: Timestamp, plan: Plan, problems: &[String]) -> Plan {
    plan_waiting(snapshot, now, plan, reason::RECONCILIATION_FAILED, tell_some(problems))
}

/// Joins the first problems up to [`PROBLEMS_BYTES`], and adds the number of the others.
fn tell_some(problems: &[String]) -> String {
    let mut message = String::new();
    for (index, problem) in problems.iter().enumerate() {
        if !message.is_empty() && message.len() + problem.len() > PROBLEMS_BYTES {
            message.push_str(&format!("\nand {} more", problems.len() - index));
            break;
        }
        if !message.is_empty() {
            message.push('\n');
        }
        message.push_str(problem);
    }
    message
}

/// The state of the artifact of one recipe.
enum ArtifactState {
    /// The artifact matches its sources.
    UpToDate,
    /// The artifact is being made.
    InProgress,
    /// The artifact failed: the reason, and whether the failure is a wait for a source.
    Failed(String, bool),
}

/// Ends a plan whose objects are written; the status reports the state of each.
pub(super) fn end_written(snapshot: &Snapshot, now: Timestamp, mut plan: Plan) -> Plan {
    let mut status = begin_status(snapshot);
    condition::remove(&mut status.conditions, condition::STALLED);
    let namespace = snapshot.generator.metadata.namespace.as_deref().unwrap_or_default();
    let artifacts = list_artifacts(&snapshot.sources);
    let stored = plan.memory.recipes.clone().unwrap_or_default();
    let recipes = &stored.recipes;
    let mut inventory = Vec::new();
    let (mut failures, mut waits, mut under_way) = (Vec::new(), true, 0);
    for recipe in recipes.values() {
        match judge_artifact(snapshot, recipe, namespace, &artifacts) {
            ArtifactState::UpToDate => {}
            ArtifactState::InProgress => under_way += 1,
            ArtifactState::Failed(message, is_waiting) => {
                waits &= is_waiting;
                failures.push(message);
            }
        }
        if let Some(stored) = snapshot.stored.get(&recipe.name) {
            inventory.push(GeneratedArtifact {
                digest: stored.facts.digest.clone(),
                filename: stored.path.rsplit('/').next().unwrap_or_default().to_owned(),
                name: recipe.name.clone(),
                namespace: namespace.to_owned(),
            });
        }
    }
    let total = recipes.len();
    let changed: Vec<String> = inventory
        .iter()
        .filter(|made| !status.inventory.contains(made))
        .map(|made| format!("{}/{} ({})", made.namespace, made.name, made.digest))
        .collect();
    status.inventory = inventory;
    if !failures.is_empty() {
        let reason = if waits {
            reason::SOURCE_FETCH_FAILED
        } else {
            reason::BUILD_FAILED
        };
        // The ExternalArtifact retries a failure. This status changes when the failure changes.
        let keep = status.clone();
        let mut plan = plan_waiting(snapshot, now, plan, reason, tell_some(&failures));
        let mut status = plan.status.take().unwrap_or_else(|| begin_status(snapshot));
        status.inventory = keep.inventory;
        plan.next = Next::Done(None);
        return finish_plan(snapshot, plan, status);
    }
    if under_way > 0 {
        let message = format!("{} of {total} artifacts are made", total - under_way);
        if !condition::is_true(&status.conditions, condition::READY) {
            let entry = (
                condition::READY,
                ConditionStatus::Unknown,
                reason::PROGRESSING,
                message.as_str(),
            );
            set(&mut status, snapshot, now, entry);
        }
        let entry = (
            condition::RECONCILING,
            ConditionStatus::True,
            reason::PROGRESSING,
            message.as_str(),
        );
        set(&mut status, snapshot, now, entry);
        plan.next = Next::Done(None);
        return finish_plan(snapshot, plan, status);
    }
    condition::remove(&mut status.conditions, condition::RECONCILING);
    let message = format!("reconciliation succeeded, generated {total} artifact(s)");
    set(
        &mut status,
        snapshot,
        now,
        (condition::READY, ConditionStatus::True, reason::SUCCEEDED, &message),
    );
    status.observed_sources_digest = Some(digest_value(&json!(
        artifacts
            .iter()
            .map(|(alias, artifact)| (alias, &artifact.facts))
            .collect::<Vec<_>>()
    )));
    if !changed.is_empty() {
        let message = format!(
            "external artifacts reconciled: {}",
            outcome::join_names(&changed, PROBLEMS_BYTES)
        );
        add_event(snapshot, &mut plan, EventKind::Normal, reason::SUCCEEDED, &message);
    }
    plan.next = Next::Done(None);
    finish_plan(snapshot, plan, status)
}

/// Finds the state of a recipe's artifact. The artifact store decides whether the artifact exists. The ExternalArtifact's status only gives the reason for its
/// absence.
fn judge_artifact(
    snapshot: &Snapshot,
    recipe: &Recipe,
    namespace: &str,
    artifacts: &std::collections::BTreeMap<String, tenure_remote_requests::artifact::IncludedArtifact>,
) -> ArtifactState {
    let missing = recipe
        .list_aliases()
        .find_map(|alias| match snapshot.sources.get(alias) {
            Some(source) => source.find_artifact().err(),
            None => Some(format!("source alias '{alias}' not found")),
        });
    if let Some(problem) = missing {
        return ArtifactState::Failed(format!("get sources failed: {problem}"), true);
    }
    let stored = snapshot.stored.get(&recipe.name);
    if stored.is_some_and(|stored| stored.fingerprint == recipe.fingerprint(artifacts)) {
        return ArtifactState::UpToDate;
    }
    let id = children::make_artifact_id(namespace, &recipe.name);
    let live = snapshot.live.get(&id).and_then(Live::object).map(ObjectView::new);
    match live.and_then(|live| live.find_condition(condition::READY)) {
        Some(ready) if ready.status == "False" => {
            let waits = ready.reason == reason::SOURCE_FETCH_FAILED;
            ArtifactState::Failed(format!("{} build failed: {}", recipe.name, ready.message), waits)
        }
        _ => ArtifactState::InProgress,
    }
}
