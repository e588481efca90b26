//! The status of a PackageValues: whether its changes are valid, whether the HelmReleases have them, and whether these are healthy.

use jiff::Timestamp;
use tenure_api::condition::{self, Condition, ConditionStatus};
use tenure_api::{Package, PackageValuesStatus, reason};

use super::effective::{self, Merge};
use super::{Plan, Snapshot};
use crate::outcome;
use crate::package::{Overrides, Problem, select_variant};
use crate::plan::{EventKind, Next, Status};

impl Status for PackageValuesStatus {
    fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    fn conditions_mut(&mut self) -> &mut Vec<Condition> {
        &mut self.conditions
    }
}

/// A condition: its status, a reason and a message.
struct State {
    status: ConditionStatus,
    reason: String,
    message: String,
}

impl State {
    fn new(status: ConditionStatus, reason: &str, message: impl Into<String>) -> Self {
        Self {
            status,
            reason: reason.to_owned(),
            message: message.into(),
        }
    }

    fn of_problem(status: ConditionStatus, problem: &Problem) -> Self {
        Self::new(status, problem.reason, problem.message.clone())
    }
}

/// Reports the state of the changes, with an event if Ready has news.
pub(super) fn report(snapshot: &Snapshot, now: Timestamp, mut plan: Plan) -> Plan {
    let metadata = &snapshot.values.metadata;
    let old = snapshot.values.status.as_ref();
    let mut status = old.cloned().unwrap_or_default();
    status.observed_generation = metadata.generation;
    let overrides = Overrides::of(&snapshot.values);
    let (merge, accepted) = judge_changes(snapshot, &overrides);
    status.components = merge.components;
    let merged = judge_merge(snapshot, &overrides);
    let ready = judge_health(snapshot, &overrides, &accepted, &merged);
    for (type_, state) in [
        (condition::ACCEPTED, &accepted),
        (condition::MERGED, &merged),
        (condition::READY, &ready),
    ] {
        let entry = (type_, state.status, state.reason.as_str(), state.message.as_str());
        outcome::set_condition(&mut status.conditions, metadata, now, entry);
    }
    let conditions = old.map(|status| status.conditions.as_slice()).unwrap_or_default();
    let kind = match ready.status {
        ConditionStatus::False => EventKind::Warning,
        ConditionStatus::True | ConditionStatus::Unknown => EventKind::Normal,
    };
    // Progress is in the status, and is no news.
    if ready.status != ConditionStatus::Unknown {
        plan.events
            .extend(outcome::make_event(conditions, kind, &ready.reason, &ready.message));
    }
    plan.status = outcome::find_change(old, &status);
    plan.next = Next::Done(None);
    plan
}

/// Judges whether the changes are valid, and whether their Package and components exist.
fn judge_changes(snapshot: &Snapshot, overrides: &Overrides) -> (Merge, State) {
    let Some(package) = find_package(snapshot) else {
        return (Merge::default(), report_missing_package(snapshot));
    };
    match select_variant(package, snapshot.source.as_ref(), Some(overrides)) {
        // The variant decides which components exist.
        Err(problem) => (Merge::default(), State::of_problem(ConditionStatus::Unknown, &problem)),
        Ok(selection) => {
            let merge = effective::merge(package, overrides, &selection);
            let accepted = match &merge.problem {
                Some(problem) => State::of_problem(ConditionStatus::False, problem),
                None => State::new(
                    ConditionStatus::True,
                    reason::packages::ACCEPTED,
                    "the changes are valid",
                ),
            };
            (merge, accepted)
        }
    }
}

/// Returns the Package, unless it is being deleted.
fn find_package(snapshot: &Snapshot) -> Option<&Package> {
    let package = snapshot.package.as_ref();
    package.filter(|package| package.metadata.deletion_timestamp.is_none())
}

fn report_missing_package(snapshot: &Snapshot) -> State {
    let name = snapshot.values.metadata.name.as_deref().unwrap_or_default();
    let conditions = snapshot.values.status.as_ref();
    let conditions = conditions
        .map(|status| status.conditions.as_slice())
        .unwrap_or_default();
    let accepted = condition::find(conditions, condition::ACCEPTED);
    let had_package = accepted.is_some_and(|accepted| accepted.reason != reason::packages::TARGET_NOT_FOUND);
    if had_package {
        return State::new(
            ConditionStatus::False,
            reason::packages::ORPHANED,
            format!("Package/{name} was deleted: delete this PackageValues, or create the Package again"),
        );
    }
    State::new(
        ConditionStatus::False,
        reason::packages::TARGET_NOT_FOUND,
        format!("Package/{name} does not exist: the changes are applied when it is created"),
    )
}

/// Judges whether all HelmReleases have the changes of this generation.
fn judge_merge(snapshot: &Snapshot, overrides: &Overrides) -> State {
    let package = find_package(snapshot);
    let status = package.and_then(|package| package.status.as_ref());
    if status.and_then(|status| status.applied_values.as_ref()) == Some(&overrides.origin) {
        return State::new(
            ConditionStatus::True,
            reason::packages::MERGED,
            "the HelmReleases have these changes",
        );
    }
    State::new(
        ConditionStatus::False,
        reason::PROGRESSING,
        "the HelmReleases do not have these changes yet",
    )
}

/// Judges the whole: the first condition that is not True, then the state of the Package. A Package that has not reconciled these changes yet says nothing.
fn judge_health(snapshot: &Snapshot, overrides: &Overrides, accepted: &State, merged: &State) -> State {
    if accepted.status != ConditionStatus::True {
        return State::new(ConditionStatus::False, &accepted.reason, accepted.message.clone());
    }
    let package = find_package(snapshot);
    let status = package.and_then(|package| package.status.as_ref());
    let status = status.filter(|status| status.observed_values.as_ref() == Some(&overrides.origin));
    let ready = status.and_then(|status| condition::find(&status.conditions, condition::READY));
    let is_current = |ready: &&Condition| {
        let generation = package.and_then(|package| package.metadata.generation);
        ready.observed_generation == generation
    };
    match ready.filter(is_current) {
        Some(ready) if merged.status == ConditionStatus::True || ready.status == ConditionStatus::False => {
            State::new(ready.status, &ready.reason, ready.message.clone())
        }
        _ => State::new(ConditionStatus::Unknown, &merged.reason, merged.message.clone()),
    }
}
