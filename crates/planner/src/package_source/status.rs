//! The status of a PackageSource: its variants, the record of the generator, and Ready as the generator reports it for its present generation.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tenure_api::condition::{self, Condition, ConditionStatus};
use tenure_api::package_source::RecordedGenerator;
use tenure_api::{ObjectView, PackageSource, PackageSourceStatus, reason};

use super::generator::make_id;
use super::{Plan, Problem, Snapshot};
use crate::answer::Live;
use crate::outcome::{self, ConditionEntry, add_duration};
use crate::plan::{EventKind, Next, Status, Withheld};

/// The time without a result after which the controller of ArtifactGenerators counts as stalled.
const STALLED_AFTER: Duration = Duration::from_secs(600);
/// The time until a failure that no watch reports is looked at again.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

impl Status for PackageSourceStatus {
    fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    fn conditions_mut(&mut self) -> &mut Vec<Condition> {
        &mut self.conditions
    }
}

fn begin_status(snapshot: &Snapshot) -> PackageSourceStatus {
    let mut status = snapshot.source.status.clone().unwrap_or_default();
    status.observed_generation = snapshot.source.metadata.generation;
    let requested = snapshot.attempt.requested_at.as_ref();
    outcome::record_handled_request(&mut status.last_handled_reconcile_at, requested);
    let names: Vec<&str> = snapshot
        .source
        .spec
        .variants
        .iter()
        .map(|variant| variant.name.as_str())
        .collect();
    status.variants = (!names.is_empty()).then(|| names.join(","));
    status
}

fn set(status: &mut PackageSourceStatus, snapshot: &Snapshot, now: Timestamp, entry: ConditionEntry<'_>) {
    outcome::set_condition(&mut status.conditions, &snapshot.source.metadata, now, entry);
}

fn finish(snapshot: &Snapshot, mut plan: Plan, status: &PackageSourceStatus) -> Plan {
    let old = snapshot.source.status.as_ref();
    let conditions = old.map(|status| status.conditions.as_slice()).unwrap_or_default();
    if let Some(ready) = condition::find(&status.conditions, condition::READY)
        && ready.status != ConditionStatus::Unknown
    {
        let kind = match ready.status {
            ConditionStatus::False => EventKind::Warning,
            ConditionStatus::True | ConditionStatus::Unknown => EventKind::Normal,
        };
        plan.events
            .extend(outcome::make_event(conditions, kind, &ready.reason, &ready.message));
    }
    plan.status = outcome::find_change(old, status);
    plan
}

/// Reports a refusal: an existing generator stays as it is.
pub(super) fn report_refusal(snapshot: &Snapshot, now: Timestamp, mut plan: Plan, problem: Problem) -> Plan {
    let mut status = begin_status(snapshot);
    report_stalled(&mut status, snapshot, now, &problem);
    plan.withheld.push(Withheld {
        what: "everything".to_owned(),
        why: problem.message,
    });
    plan.next = Next::Done(None);
    finish(snapshot, plan, &status)
}

/// Checks whether Tenure has generated an ArtifactGenerator for it.
pub(super) fn has_records(source: &PackageSource) -> bool {
    let status = source.status.as_ref();
    status.is_some_and(|status| status.generator.is_some())
}

fn report_stalled(status: &mut PackageSourceStatus, snapshot: &Snapshot, now: Timestamp, problem: &Problem) {
    condition::remove(&mut status.conditions, condition::RECONCILING);
    for (type_, value) in [
        (condition::READY, ConditionStatus::False),
        (condition::STALLED, ConditionStatus::True),
    ] {
        set(status, snapshot, now, (type_, value, problem.reason, &problem.message));
    }
}

/// Reports a failed request, a conflict, or a record that was not stored.
pub(super) fn report_failure(
    snapshot: &Snapshot,
    now: Timestamp,
    mut plan: Plan,
    record: Option<RecordedGenerator>,
    problem: Problem,
) -> Plan {
    let mut status = begin_status(snapshot);
    status.generator = record;
    let is_retried = problem.reason == reason::RECONCILIATION_FAILED;
    if is_retried {
        condition::remove(&mut status.conditions, condition::STALLED);
        let entry = (
            condition::READY,
            ConditionStatus::False,
            problem.reason,
            problem.message.as_str(),
        );
        set(&mut status, snapshot, now, entry);
        let entry = (
            condition::RECONCILING,
            ConditionStatus::True,
            reason::PROGRESSING_WITH_RETRY,
            "The last attempt failed; see Ready",
        );
        set(&mut status, snapshot, now, entry);
    } else {
        report_stalled(&mut status, snapshot, now, &problem);
    }
    plan.withheld.push(Withheld {
        what: make_id(snapshot).subject(),
        why: problem.message,
    });
    let next = plan.memory.retries.find_next_time();
    plan.next = Next::Done(next.or_else(|| is_retried.then(|| add_duration(now, RETRY_INTERVAL))));
    finish(snapshot, plan, &status)
}

/// Reports the end of an attempt: nothing is left to write.
pub(super) fn report_result(
    snapshot: &Snapshot,
    now: Timestamp,
    mut plan: Plan,
    record: Option<RecordedGenerator>,
    is_empty: bool,
) -> Plan {
    let mut status = begin_status(snapshot);
    status.generator = record;
    if is_empty {
        condition::remove(&mut status.conditions, condition::RECONCILING);
        condition::remove(&mut status.conditions, condition::STALLED);
        let entry = match snapshot.source.spec.source_ref {
            None => (
                condition::READY,
                ConditionStatus::Unknown,
                reason::packages::SOURCE_REF_NOT_SET,
                "spec.sourceRef is not set: name the source of the charts",
            ),
            Some(_) => (
                condition::READY,
                ConditionStatus::True,
                reason::packages::NO_ARTIFACTS,
                "no variant has a component, so no artifact is made",
            ),
        };
        set(&mut status, snapshot, now, entry);
        plan.memory.waiting = None;
        return finish(snapshot, plan, &status);
    }
    let report = judge_generator(snapshot.live.get(&make_id(snapshot)));
    if report.status != ConditionStatus::Unknown {
        plan.memory.waiting = None;
        condition::remove(&mut status.conditions, condition::RECONCILING);
        condition::remove(&mut status.conditions, condition::STALLED);
        let entry = (
            condition::READY,
            report.status,
            report.reason.as_str(),
            report.message.as_str(),
        );
        set(&mut status, snapshot, now, entry);
        return finish(snapshot, plan, &status);
    }
    let since = match plan.memory.waiting {
        Some((generation, since)) if generation == report.generation => since,
        _ => now,
    };
    plan.memory.waiting = Some((report.generation, since));
    let limit = add_duration(since, STALLED_AFTER);
    if now >= limit {
        let minutes = now.duration_since(since).as_mins();
        let problem = Problem {
            reason: reason::packages::SOURCE_WATCHER_STALLED,
            message: format!(
                "{} has no result for its generation {} after {minutes} minutes: check the controller of ArtifactGenerators",
                make_id(snapshot).subject(),
                report.generation
            ),
        };
        report_stalled(&mut status, snapshot, now, &problem);
        return finish(snapshot, plan, &status);
    }
    condition::remove(&mut status.conditions, condition::STALLED);
    for (type_, value) in [
        (condition::READY, ConditionStatus::Unknown),
        (condition::RECONCILING, ConditionStatus::True),
    ] {
        set(
            &mut status,
            snapshot,
            now,
            (type_, value, &report.reason, &report.message),
        );
    }
    let soonest = now.checked_add(SignedDuration::from_secs(1)).unwrap_or(limit);
    plan.next = Next::Done(Some(limit.max(soonest)));
    finish(snapshot, plan, &status)
}

/// The report of a generator.
struct GeneratorReport {
    generation: i64,
    status: ConditionStatus,
    reason: String,
    message: String,
}

/// Reads the condition Ready of a generator. One for an earlier generation doesn't count.
fn judge_generator(live: Option<&Live>) -> GeneratorReport {
    let waits = |generation: i64, reason: &str, message: String| GeneratorReport {
        generation,
        status: ConditionStatus::Unknown,
        reason: reason.to_owned(),
        message,
    };
    let Some(generator) = live.and_then(Live::object).map(ObjectView::new) else {
        let message = "the ArtifactGenerator does not exist yet".to_owned();
        return waits(0, reason::packages::ARTIFACT_GENERATOR_NOT_FOUND, message);
    };
    let generation = generator.find_number("/metadata/generation").unwrap_or_default();
    let not_ready = |message: String| waits(generation, reason::packages::ARTIFACT_GENERATOR_NOT_READY, message);
    let Some(ready) = generator.find_condition(condition::READY) else {
        return not_ready("the ArtifactGenerator has no condition Ready yet".to_owned());
    };
    if ready.observed_generation.is_some_and(|observed| observed != generation) {
        return not_ready(format!(
            "the ArtifactGenerator has no result for its generation {generation} yet"
        ));
    }
    let status = match ready.status {
        "True" => ConditionStatus::True,
        "False" => ConditionStatus::False,
        _ => ConditionStatus::Unknown,
    };
    let is_word = !ready.reason.is_empty() && ready.reason.bytes().all(|byte| byte.is_ascii_alphanumeric());
    GeneratorReport {
        generation,
        status,
        reason: match is_word {
            true => ready.reason.to_owned(),
            false => reason::packages::ARTIFACT_GENERATOR_NOT_READY.to_owned(),
        },
        message: tenure_api::text::visible(ready.message).into_owned(),
    }
}
