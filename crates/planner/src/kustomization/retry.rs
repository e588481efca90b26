//! The time of the next try after a failure. A failed attempt is not repeated because a watch woke its Kustomization. It waits for its time, unless its input has
//! changed since (generation, request, source). Other facts that it met (objects, dependencies, the owner of the namespace) may have changed for the better. Then it is
//! tried sooner, after pauses that double. So a user who can change a neighbour's object at will can't cause attempts at will.
//!
//! This module doesn't judge failures: each phase's ending sets the length of the pause.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use tenure_api::ObjectId;
use tenure_api::digest::digest_value;

use super::Phase;
use super::context::Context;
use super::dependency_facts::DependencyFacts;
use super::types::{AttemptInput, Memory, Retry, Snapshot, SourceFacts, read_allowed_deletion, read_apply_mode};
use crate::answer::{Live, WriteAnswer};
use crate::outcome::add_duration;
use crate::plan::{Next, Watched};

/// The first pause of an attempt that is made because something around it changed; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Ends the plan while the pause after a failed attempt lasts. Otherwise records that the current attempt runs to its end.
pub(super) fn check_due(context: &mut Context<'_>) -> Phase<()> {
    let Some(until) = find_wait(context.snapshot, context.now, &mut context.memory) else {
        return Ok(());
    };
    context.withhold("everything", describe_wait(until));
    let mut context = context.fork();
    if let Some(retry) = &context.memory.retry {
        context.watch.clone_from(&retry.watch);
    }
    Err(Box::new(context.into_plan(Next::Done(Some(until)))))
}

/// Describes the wait after a failed attempt, as the reason for the omitted actions.
pub(super) fn describe_wait(until: Timestamp) -> String {
    format!("the last attempt failed; the next one is due at {until}")
}

/// Returns the end of the pause after a failed attempt. Returns nothing if there is no pause, and then records that the current attempt runs to its end.
pub(super) fn find_wait(snapshot: &Snapshot, now: Timestamp, memory: &mut Memory) -> Option<Timestamp> {
    let attempt = snapshot.attempt.started;
    if memory.trying == Some(attempt) {
        return None;
    }
    let until = memory
        .retry
        .as_ref()
        .filter(|retry| retry.asked == read_attempt_input(snapshot))
        .map(|retry| {
            if has_changed_fact(retry, snapshot) {
                retry.soon
            } else {
                retry.until
            }
        })
        .filter(|until| now < *until);
    if until.is_none() {
        memory.trying = Some(attempt);
    }
    until
}

/// Remembers the failure of this attempt, the time of the next one, and the objects to watch meanwhile.
pub(super) fn record_failure(
    snapshot: &Snapshot,
    now: Timestamp,
    memory: &mut Memory,
    watch: &[Watched],
    delay: Duration,
) {
    let attempt = snapshot.attempt.started;
    if memory.trying != Some(attempt) {
        // The attempt ended before its actions began, for example because its source is missing. Then each report of a watch triggers an attempt without a pause.
        return;
    }
    let asked = read_attempt_input(snapshot);
    let times = match &memory.retry {
        // The plan is made again, because its status could not be written.
        Some(before) if before.attempt == attempt => return,
        // An attempt that put something right before it failed is worth another attempt.
        Some(before) if before.asked == asked && !has_applied_objects(snapshot) => before.times.saturating_add(1),
        _ => 1,
    };
    let pause = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(times.saturating_sub(1).min(16)));
    memory.retry = Some(Retry {
        attempt,
        asked,
        surroundings: digest_surroundings(snapshot),
        live: snapshot
            .live
            .iter()
            .filter_map(|(id, live)| Some((id.clone(), find_version(live)?)))
            .collect(),
        watch: watch.to_vec(),
        soon: add_duration(now, pause.min(delay)),
        until: add_duration(now, delay),
        times,
    });
}

/// Checks whether this attempt has applied an object.
fn has_applied_objects(snapshot: &Snapshot) -> bool {
    let mut applied = snapshot.attempt.applied.values();
    applied.any(|answer| matches!(answer, WriteAnswer::Done(_)))
}

/// Returns the input of an attempt.
fn read_attempt_input(snapshot: &Snapshot) -> AttemptInput {
    let metadata = &snapshot.kustomization.metadata;
    AttemptInput {
        uid: metadata.uid.clone(),
        generation: metadata.generation,
        requested_at: crate::read_requested_at(metadata),
        allowed: read_allowed_deletion(metadata),
        apply: read_apply_mode(metadata),
        deleting: metadata.deletion_timestamp.is_some(),
        artifact: match &snapshot.source {
            SourceFacts::Found {
                artifact: Some(artifact),
                ..
            } => Some(artifact.clone()),
            SourceFacts::Found { artifact: None, .. } | SourceFacts::NotFound | SourceFacts::Unknown(_) => None,
        },
    }
}

/// Returns a digest of the facts that an attempt uses besides objects: the owner of the namespace, its deletion, the revisions of its dependencies, and the other
/// owners of wanted objects.
fn digest_surroundings(snapshot: &Snapshot) -> String {
    let applied: BTreeMap<&str, Option<&str>> = snapshot
        .dependencies
        .iter()
        .map(|(name, facts)| {
            let revision = match facts {
                DependencyFacts::NotFound | DependencyFacts::Unknown(_) => None,
                DependencyFacts::Found {
                    last_applied_revision, ..
                } => last_applied_revision.as_deref(),
            };
            (name.as_str(), revision)
        })
        .collect();
    let owners = json!([snapshot.owners, snapshot.rivals]);
    let mut met = vec![
        json!(snapshot.placement),
        json!(snapshot.endings),
        json!(applied),
        owners,
    ];
    if !snapshot.here.is_empty() {
        let here = snapshot
            .here
            .iter()
            .map(|(id, live)| (id.to_string(), find_version(live)));
        met.push(json!(here.collect::<BTreeMap<_, _>>()));
    }
    digest_value(&json!(met))
}

/// Checks whether an object or another fact that the failed attempt used has changed. A fact that is unknown now counts as unchanged.
fn has_changed_fact(retry: &Retry, snapshot: &Snapshot) -> bool {
    let another = |(id, before): (&ObjectId, &String)| {
        let now = snapshot.live.get(id).and_then(find_version);
        now.is_some_and(|now| now != *before)
    };
    retry.surroundings != digest_surroundings(snapshot) || retry.live.iter().any(another)
}

/// Returns the version of an observed object for comparisons. Returns nothing if the object could not be read.
fn find_version(live: &Live) -> Option<String> {
    match live {
        Live::Absent | Live::Unserved => Some(String::new()),
        Live::Present(object) => {
            let text = |path: &str| object.view().read_text(path);
            Some(format!(
                "{} {}",
                text("/metadata/uid"),
                text("/metadata/resourceVersion")
            ))
        }
        Live::Failed(_) => None,
    }
}
