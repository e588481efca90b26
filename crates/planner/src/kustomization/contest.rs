//! Drift that keeps coming back. A field that was put back three times within a minute is contested: the object is left alone for a
//! while, longer each time, and the condition names the other manager instead of the two writing for ever.

use std::time::Duration;

use jiff::SignedDuration;
use serde_json::Value;
use tenure_api::ObjectId;
use tenure_api::metadata::KUSTOMIZE_CONTROLLER;

use super::context::Context;
use super::desired::DesiredObject;
use super::types::{BackOff, DriftedField, Reversal};
use crate::ending::later;
use crate::fields;

/// Within this time reversals of one field are counted.
const WINDOW: SignedDuration = SignedDuration::from_secs(60);
/// That many reversals make a contest.
const REVERSALS: usize = 3;
/// The first back-off; doubled each time up to the longest.
const FIRST_BACK_OFF: Duration = Duration::from_secs(60);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(600);

/// The fields that somebody changed since the object was last as desired; none when the desired object itself has changed.
pub(super) fn changes(
    context: &Context<'_>,
    object: &DesiredObject,
    live: &Value,
    before: &Value,
    after: &Value,
) -> Vec<DriftedField> {
    if let Some(found) = context.memory.drift.get(&object.target.id) {
        return found.clone();
    }
    let was_as_desired = context
        .memory
        .settled
        .get(&object.target.id)
        .is_some_and(|settled| settled.desired == object.digest);
    if !was_as_desired {
        return Vec::new();
    }
    fields::differences(before, after)
        .into_iter()
        .map(|difference| DriftedField {
            manager: fields::other_manager(live, &difference, KUSTOMIZE_CONTROLLER),
            path: difference.path,
        })
        .collect()
}

/// The changes for a message: ` (replicas was changed by kubectl-edit)`.
pub(super) fn describe(changes: &[DriftedField]) -> String {
    if changes.is_empty() {
        return String::new();
    }
    let one = |change: &DriftedField| match &change.manager {
        Some(manager) => format!("{} was changed by {manager}", change.path),
        None => format!("{} was changed", change.path),
    };
    format!(" (drift: {})", changes.iter().map(one).collect::<Vec<_>>().join(", "))
}

/// Whether putting these fields back once more would be one time too many; then the object is backed off, and this is why.
pub(super) fn judge(context: &mut Context<'_>, id: &ObjectId, changes: &[DriftedField]) -> Option<String> {
    let now = context.now;
    let contested: Vec<&DriftedField> = changes
        .iter()
        .filter(|change| {
            context
                .memory
                .reversals
                .get(&key(id, &change.path))
                .is_some_and(|reversals| {
                    reversals
                        .iter()
                        .filter(|reversal| now.duration_since(reversal.at) < WINDOW)
                        .count()
                        >= REVERSALS
                })
        })
        .collect();
    if contested.is_empty() {
        return None;
    }
    let times = context.memory.backed_off.get(id).map_or(0, |back_off| back_off.times) + 1;
    let delay = FIRST_BACK_OFF
        .saturating_mul(2_u32.saturating_pow(times.saturating_sub(1).min(8)))
        .min(LONGEST_BACK_OFF);
    let mut managers: Vec<String> = contested.iter().filter_map(|change| change.manager.clone()).collect();
    managers.sort();
    managers.dedup();
    let back_off = BackOff {
        until: later(now, delay),
        times,
        managers,
        paths: contested.iter().map(|change| change.path.clone()).collect(),
    };
    let why = explain(id, &back_off);
    for change in &contested {
        context.memory.reversals.remove(&key(id, &change.path));
    }
    context.memory.backed_off.insert(id.clone(), back_off);
    Some(why)
}

/// Why an object is left alone, while it is.
pub(super) fn backed_off(context: &Context<'_>, id: &ObjectId) -> Option<String> {
    let back_off = context.memory.backed_off.get(id)?;
    (context.now < back_off.until).then(|| explain(id, back_off))
}

fn explain(id: &ObjectId, back_off: &BackOff) -> String {
    let who = if back_off.managers.is_empty() {
        "another writer".to_owned()
    } else {
        back_off.managers.join(", ")
    };
    format!(
        "{}: {who} keeps changing {} back; left alone until {}: let one of the two own the field",
        id.subject(),
        back_off.paths.join(", "),
        seconds(back_off.until)
    )
}

fn seconds(time: jiff::Timestamp) -> String {
    jiff::Timestamp::from_second(time.as_second())
        .unwrap_or(time)
        .to_string()
}

/// Keeps what was found out about the drift over a take-over, after which the object no longer tells who changed it.
pub(super) fn keep(context: &mut Context<'_>, id: &ObjectId, changes: &[DriftedField]) {
    context.memory.drift.insert(id.clone(), changes.to_vec());
}

/// Remembers that these fields are being put back now.
pub(super) fn remember(context: &mut Context<'_>, id: &ObjectId, changes: &[DriftedField]) {
    let now = context.now;
    for change in changes {
        let reversals = context.memory.reversals.entry(key(id, &change.path)).or_default();
        reversals.retain(|reversal| now.duration_since(reversal.at) < WINDOW);
        reversals.push(Reversal {
            at: now,
            manager: change.manager.clone().unwrap_or_default(),
        });
    }
}

/// Forgets contests that are over and reversals that no longer count.
pub(super) fn forget_old(context: &mut Context<'_>) {
    let now = context.now;
    context.memory.reversals.retain(|_, reversals| {
        reversals.retain(|reversal| now.duration_since(reversal.at) < WINDOW);
        !reversals.is_empty()
    });
    // Kept for a while after it ended, so that a contest that goes on is backed off longer.
    context
        .memory
        .backed_off
        .retain(|_, back_off| now.duration_since(back_off.until) < WINDOW);
}

/// Why each object that is left alone now is.
pub(super) fn current(context: &Context<'_>) -> Vec<String> {
    context
        .memory
        .backed_off
        .iter()
        .filter(|(_, back_off)| context.now < back_off.until)
        .map(|(id, back_off)| explain(id, back_off))
        .collect()
}

/// When the next back-off ends.
pub(super) fn next_end(context: &Context<'_>) -> Option<jiff::Timestamp> {
    context
        .memory
        .backed_off
        .values()
        .map(|back_off| back_off.until)
        .filter(|until| *until > context.now)
        .min()
}

fn key(id: &ObjectId, path: &str) -> String {
    format!("{id}#{path}")
}
