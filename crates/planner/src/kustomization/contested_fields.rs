//! Drift that keeps coming back. A field that was put back three times within a minute is contested. The object is then left alone for a while, longer each time, and
//! the condition names the other manager. So the two don't write for ever. A field that was put back four times more slowly costs little: it is put back each time, and
//! its other writer is named too.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::Value;
use tenure_api::ObjectId;
use tenure_api::metadata::KUSTOMIZE_CONTROLLER;

use super::context::Context;
use super::desired::DesiredObject;
use super::types::{BackOff, DriftCorrection, DriftedField};
use crate::comparable::Comparable;
use crate::fields;
use crate::outcome::add_duration;

/// Within this time reversals of one field are counted.
const WINDOW: SignedDuration = SignedDuration::from_secs(60);
/// The number of reversals that make a contest.
const REVERSALS: usize = 3;
/// The number of reversals from which the other writer is named, however slow they are.
const NAMED: usize = 4;
/// The number of remembered reversals of a field, and of remembered fields of one Kustomization.
const REMEMBERED: usize = 8;
const FIELDS: usize = 256;
/// The shortest and the longest memory of a field; in between, it is three times the time between reversals.
const PATIENCE: (SignedDuration, SignedDuration) = (SignedDuration::from_mins(10), SignedDuration::from_hours(24));
/// The first back-off; doubled each time up to the longest.
const FIRST_BACK_OFF: Duration = Duration::from_secs(60);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(600);

/// Finds the fields that another writer changed since the object was last as desired. The result is empty if the desired object itself has changed.
pub(super) fn find_changes(
    context: &Context<'_>,
    object: &DesiredObject,
    live: &Value,
    (before, after): (&Comparable<'_>, &Comparable<'_>),
) -> Vec<DriftedField> {
    let id = &object.target.id;
    let (known, taken) = (context.memory.drift.get(id), context.memory.taken.get(id));
    let was_as_desired = || {
        let settled = context.memory.settled.get(id);
        settled.is_some_and(|settled| settled.desired == object.digest)
    };
    let is_looked_for = known.is_none() && was_as_desired();
    let differences = if is_looked_for || taken.is_some() {
        fields::find_differences(&before.to_value(), &after.to_value())
    } else {
        Vec::new()
    };
    let mut found = known.cloned().unwrap_or_default();
    if is_looked_for {
        found.extend(differences.iter().map(|difference| DriftedField {
            manager: fields::find_other_manager(live, difference, KUSTOMIZE_CONTROLLER),
            path: difference.path.clone(),
        }));
    }
    // Fields that others had added are seen only after the take-over, when the object no longer names their managers.
    for difference in differences {
        let manager = taken.and_then(|taken| fields::find_manager_among(taken, &difference));
        if manager.is_some() && !found.iter().any(|found| found.path == difference.path) {
            found.push(DriftedField {
                path: difference.path,
                manager,
            });
        }
    }
    found
}

/// Returns the changes for a message: ` (replicas was changed by kubectl-edit)`.
pub(super) fn describe_changes(changes: &[DriftedField]) -> String {
    if changes.is_empty() {
        return String::new();
    }
    let one = |change: &DriftedField| match &change.manager {
        Some(manager) => format!("{} was changed by {manager}", change.path),
        None => format!("{} was changed", change.path),
    };
    format!(" (drift: {})", changes.iter().map(one).collect::<Vec<_>>().join(", "))
}

/// Checks whether one more restoration of these fields would be too many. Then the object is backed off, and the result is the reason.
pub(super) fn check_contested(context: &mut Context<'_>, id: &ObjectId, changes: &[DriftedField]) -> Option<String> {
    let now = context.now;
    let contested: Vec<&DriftedField> = changes
        .iter()
        .filter(|change| {
            context
                .memory
                .reversals
                .get(&write_key(id, &change.path))
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
        until: add_duration(now, delay),
        times,
        managers,
        paths: contested.iter().map(|change| change.path.clone()).collect(),
    };
    let why = explain_back_off(id, &back_off);
    for change in &contested {
        context.memory.reversals.remove(&write_key(id, &change.path));
    }
    context.memory.backed_off.insert(id.clone(), back_off);
    Some(why)
}

/// Returns why an object is left alone, while it is.
pub(super) fn find_back_off(context: &Context<'_>, id: &ObjectId) -> Option<String> {
    let back_off = context.memory.backed_off.get(id)?;
    (context.now < back_off.until).then(|| explain_back_off(id, back_off))
}

fn explain_back_off(id: &ObjectId, back_off: &BackOff) -> String {
    let who = if back_off.managers.is_empty() {
        "another writer".to_owned()
    } else {
        back_off.managers.join(", ")
    };
    format!(
        "{}: {who} keeps changing {} back; left alone until {}: let one of the two own the field",
        id.subject(),
        back_off.paths.join(", "),
        write_seconds(back_off.until)
    )
}

fn write_seconds(time: jiff::Timestamp) -> String {
    jiff::Timestamp::from_second(time.as_second())
        .unwrap_or(time)
        .to_string()
}

/// Keeps the findings about drift over a take-over, with the old entries. After the take-over the object doesn't name the writer any more.
pub(super) fn carry_drift_record(
    context: &mut Context<'_>,
    id: &ObjectId,
    changes: &[DriftedField],
    entries: Vec<Value>,
) {
    context.memory.drift.insert(id.clone(), changes.to_vec());
    context.memory.taken.insert(id.clone(), entries);
}

/// Remembers that these fields are being put back now.
pub(super) fn record_correction(context: &mut Context<'_>, id: &ObjectId, changes: &[DriftedField]) {
    let now = context.now;
    for change in changes {
        let reversals = context.memory.reversals.entry(write_key(id, &change.path)).or_default();
        if reversals.len() >= REMEMBERED {
            reversals.remove(0);
        }
        reversals.push(DriftCorrection {
            at: now,
            manager: change.manager.clone().unwrap_or_default(),
        });
    }
    while context.memory.reversals.len() > FIELDS {
        let last = |reversals: &[DriftCorrection]| reversals.last().map(|reversal| reversal.at);
        let oldest = context
            .memory
            .reversals
            .iter()
            .min_by_key(|(_, reversals)| last(reversals))
            .map(|(key, _)| key.clone());
        match oldest {
            Some(oldest) => drop(context.memory.reversals.remove(&oldest)),
            None => break,
        }
    }
}

/// Returns the end of the time for which a field's reversals count, if no reversal is added.
fn find_memory_end(reversals: &[DriftCorrection]) -> Option<jiff::Timestamp> {
    let (first, last) = (reversals.first()?.at, reversals.last()?.at);
    let between = i32::try_from(reversals.len().saturating_sub(1))
        .unwrap_or(i32::MAX)
        .max(1);
    let apart = last.duration_since(first) / between;
    let patience = apart.saturating_mul(3).clamp(PATIENCE.0, PATIENCE.1);
    last.checked_add(patience).ok()
}

/// Forgets contests that are over and reversals that no longer count.
pub(super) fn forget_old(context: &mut Context<'_>) {
    let now = context.now;
    context
        .memory
        .reversals
        .retain(|_, reversals| find_memory_end(reversals).is_some_and(|until| now < until));
    // The back-off is kept for a while after its end, so that a continuing contest is backed off longer.
    context
        .memory
        .backed_off
        .retain(|_, back_off| now.duration_since(back_off.until) < WINDOW);
}

/// Describes why each object is left alone now, and which fields are put back again and again.
pub(super) fn list_contested(context: &Context<'_>) -> Vec<String> {
    let mut lines: Vec<String> = context
        .memory
        .backed_off
        .iter()
        .filter(|(_, back_off)| context.now < back_off.until)
        .map(|(id, back_off)| explain_back_off(id, back_off))
        .collect();
    lines.extend(find_slow_contests(context).into_iter().map(|(id, (paths, managers))| {
        let managers: Vec<&str> = managers.into_iter().collect();
        let paths: Vec<&str> = paths.into_iter().collect();
        let who = if managers.is_empty() {
            "another writer".to_owned()
        } else {
            managers.join(", ")
        };
        format!(
            "{}: {who} keeps changing {}, which is put back each time: let one of the two own the field",
            id.subject(),
            paths.join(", ")
        )
    }));
    lines
}

/// Finds the fields that are put back again and again, though too slowly for a back-off, and their writers.
fn find_slow_contests<'m>(context: &'m Context<'_>) -> BTreeMap<ObjectId, (BTreeSet<&'m str>, BTreeSet<&'m str>)> {
    let mut found: BTreeMap<ObjectId, (BTreeSet<&str>, BTreeSet<&str>)> = BTreeMap::new();
    for (key, reversals) in list_named_writers(context) {
        let Some((id, path)) = key.split_once('#') else {
            continue;
        };
        let Ok(id) = id.parse::<ObjectId>() else { continue };
        if find_back_off(context, &id).is_some() {
            continue;
        }
        let (paths, managers) = found.entry(id).or_default();
        paths.insert(path);
        let who = reversals.iter().map(|reversal| reversal.manager.as_str());
        managers.extend(who.filter(|manager| !manager.is_empty()));
    }
    found
}

fn list_named_writers<'m>(context: &'m Context<'_>) -> impl Iterator<Item = (&'m String, &'m Vec<DriftCorrection>)> {
    let now = context.now;
    context.memory.reversals.iter().filter(move |(_, reversals)| {
        reversals.len() >= NAMED && find_memory_end(reversals).is_some_and(|until| now < until)
    })
}

/// Returns the end of the next back-off, or the time at which a named writer is forgotten without further changes.
pub(super) fn find_next_end(context: &Context<'_>) -> Option<jiff::Timestamp> {
    let ends = context.memory.backed_off.values().map(|back_off| back_off.until);
    let over = list_named_writers(context).filter_map(|(_, reversals)| find_memory_end(reversals));
    ends.chain(over).filter(|end| *end > context.now).min()
}

fn write_key(id: &ObjectId, path: &str) -> String {
    format!("{id}#{path}")
}
