//! The status of a Package: Ready if all wanted releases exist as planned and are healthy, with the records of the releases and the state of the dependencies.

use std::time::Duration;

use jiff::Timestamp;
use tenure_api::condition::{self, Condition, ConditionStatus};
use tenure_api::package::DependencyStatus;
use tenure_api::{ObjectId, ObjectView, Package, PackageStatus, reason, text};

use super::desired::Desired;
use super::neighbours::DependencyFacts;
use super::removal::Removal;
use super::selection::Problem;
use super::writes::Work;
use super::{Plan, Snapshot, records};
use crate::answer::Live;
use crate::health::{Health, assess_live};
use crate::outcome::{self, ConditionEntry, add_duration};
use crate::plan::{EventKind, Next, Status, Withheld};
use crate::recorded_objects::Ownership;

/// Bytes of the problems in one message.
const SHOWN: usize = 4 << 10;
/// The most letters of the message of one HelmRelease.
const RELEASE_MESSAGE: usize = 500;
/// helm-controller's reasons while it waits for another release, or for the source of its chart.
const WAITING: [&str; 2] = ["DependencyNotReady", "SourceNotReady"];
/// The time until a failure that no watch reports is looked at again.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

impl Status for PackageStatus {
    fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    fn conditions_mut(&mut self) -> &mut Vec<Condition> {
        &mut self.conditions
    }
}

fn begin_status(snapshot: &Snapshot) -> PackageStatus {
    let mut status = snapshot.package.status.clone().unwrap_or_default();
    status.observed_generation = snapshot.package.metadata.generation;
    status.observed_values = snapshot.overrides.as_ref().map(|overrides| overrides.origin.clone());
    let requested = snapshot.attempt.requested_at.as_ref();
    outcome::record_handled_request(&mut status.last_handled_reconcile_at, requested);
    status
}

fn set(status: &mut PackageStatus, snapshot: &Snapshot, now: Timestamp, entry: ConditionEntry<'_>) {
    outcome::set_condition(&mut status.conditions, &snapshot.package.metadata, now, entry);
}

/// Ends a plan with its status, and an event if Ready has news.
fn finish(snapshot: &Snapshot, mut plan: Plan, status: &PackageStatus) -> Plan {
    let old = snapshot.package.status.as_ref();
    let conditions = old.map(|status| status.conditions.as_slice()).unwrap_or_default();
    if let Some(ready) = condition::find(&status.conditions, condition::READY) {
        let kind = match ready.status {
            ConditionStatus::False => EventKind::Warning,
            ConditionStatus::True | ConditionStatus::Unknown => EventKind::Normal,
        };
        // Progress is in the status, and is no news.
        if ready.status != ConditionStatus::Unknown {
            plan.events
                .extend(outcome::make_event(conditions, kind, &ready.reason, &ready.message));
        }
    }
    plan.status = outcome::find_change(old, status);
    plan
}

/// Sets Ready to False, and Stalled or Reconciling beside it.
fn set_problem(status: &mut PackageStatus, snapshot: &Snapshot, now: Timestamp, problem: &Problem) {
    set(
        status,
        snapshot,
        now,
        (
            condition::READY,
            ConditionStatus::False,
            problem.reason,
            &problem.message,
        ),
    );
    if problem.is_stalled() {
        condition::remove(&mut status.conditions, condition::RECONCILING);
        let entry = (
            condition::STALLED,
            ConditionStatus::True,
            problem.reason,
            problem.message.as_str(),
        );
        set(status, snapshot, now, entry);
    } else {
        condition::remove(&mut status.conditions, condition::STALLED);
        let entry = (
            condition::RECONCILING,
            ConditionStatus::True,
            reason::PROGRESSING_WITH_RETRY,
            "The last attempt failed; see Ready",
        );
        set(status, snapshot, now, entry);
    }
}

/// Reports a refusal: nothing is written, and existing releases stay as they are.
pub(super) fn report_refusal(snapshot: &Snapshot, now: Timestamp, mut plan: Plan, problem: &Problem) -> Plan {
    let mut status = begin_status(snapshot);
    set_problem(&mut status, snapshot, now, problem);
    plan.withheld.push(Withheld {
        what: "everything".to_owned(),
        why: problem.message.clone(),
    });
    plan.next = Next::Done(None);
    finish(snapshot, plan, &status)
}

/// Checks whether Tenure has generated HelmReleases for it.
pub(super) fn has_records(package: &Package) -> bool {
    let status = package.status.as_ref();
    status.is_some_and(|status| !status.releases.is_empty())
}

/// Reports the end of an attempt: nothing is left to write.
pub(super) fn report_result(mut work: Work<'_>, desired: &Desired, removal: &Removal) -> Plan {
    let (snapshot, now) = (work.snapshot, work.now);
    let mut status = begin_status(snapshot);
    status.releases = records::list_records(&work.records);
    list_dependency_states(snapshot, &mut status);
    status.overridden = list_overridden(snapshot);
    report_removal(&mut status, snapshot, now, removal);
    report_contest(&mut status, &work);
    let states = list_states(&work, desired);
    let is_missing = states.iter().any(|state| matches!(state, ReleaseState::Missing));
    let is_complete = work.problems.is_empty() && work.contested.is_empty() && !is_missing;
    report_values(&mut status, snapshot, is_complete);
    if let Some(wait) = desired.wait.as_ref().filter(|_| is_missing && work.problems.is_empty()) {
        work.problems.push(wait.clone());
    }
    if let Some(problem) = choose_problem(&work.problems) {
        set_problem(&mut status, snapshot, now, &problem);
    } else {
        report_health(&mut status, snapshot, now, &states, desired.releases.len());
    }
    work.plan.next = Next::Done(find_retry(&work));
    finish(snapshot, work.plan, &status)
}

/// Returns the time of the next try.
fn find_retry(work: &Work<'_>) -> Option<Timestamp> {
    let retried = [reason::packages::HELM_RELEASE_FAILED, reason::IDENTITY_MISSING];
    let is_failed = work.problems.iter().any(|problem| retried.contains(&problem.reason));
    let next = work.plan.memory.retries.find_next_time();
    let next = next.or_else(|| is_failed.then(|| add_duration(work.now, RETRY_INTERVAL)));
    next.into_iter().chain(work.retry).min()
}

/// Joins the problems of one plan. The first stalled one has the reason, since a user has to end it.
fn choose_problem(problems: &[Problem]) -> Option<Problem> {
    let first = problems
        .iter()
        .find(|problem| problem.is_stalled())
        .or_else(|| problems.first())?;
    let mut messages: Vec<String> = vec![first.message.clone()];
    let others = problems.iter().map(|problem| problem.message.clone());
    messages.extend(others.filter(|message| *message != first.message));
    messages.dedup();
    Some(Problem::new(first.reason, outcome::join_some(&messages, "\n", SHOWN)))
}

fn list_dependency_states(snapshot: &Snapshot, status: &mut PackageStatus) {
    let state = |facts: &DependencyFacts| DependencyStatus {
        ready: matches!(facts, DependencyFacts::Found(facts) if facts.is_ready),
    };
    let dependencies = snapshot.neighbours.dependencies.iter();
    status.dependencies = dependencies.map(|(name, facts)| (name.clone(), state(facts))).collect();
}

fn list_overridden(snapshot: &Snapshot) -> Option<String> {
    let components = snapshot.overrides.iter().flat_map(|overrides| &overrides.components);
    let names: Vec<&str> = components.map(|(name, _)| name.as_str()).collect();
    (!names.is_empty()).then(|| names.join(","))
}

/// Records the PackageValues that all HelmReleases have. While one of them lacks its changes, the last record stays.
fn report_values(status: &mut PackageStatus, snapshot: &Snapshot, is_complete: bool) {
    match &snapshot.overrides {
        None => status.applied_values = None,
        Some(overrides) if is_complete => status.applied_values = Some(overrides.origin.clone()),
        Some(_) => {}
    }
}

fn report_removal(status: &mut PackageStatus, snapshot: &Snapshot, now: Timestamp, removal: &Removal) {
    match &removal.message {
        None => condition::remove(&mut status.conditions, condition::REMOVAL_PENDING),
        Some(message) => {
            let reason = if removal.is_guarded {
                reason::DELETION_GUARDED
            } else {
                reason::PROGRESSING
            };
            let entry = (
                condition::REMOVAL_PENDING,
                ConditionStatus::True,
                reason,
                message.as_str(),
            );
            set(status, snapshot, now, entry);
        }
    }
}

fn report_contest(status: &mut PackageStatus, work: &Work<'_>) {
    if work.contested.is_empty() {
        condition::remove(&mut status.conditions, condition::CONTESTED);
        return;
    }
    let lines = work.contested.iter().map(|(id, managers)| {
        let managers = outcome::join_names(managers, 1 << 10);
        format!(
            "{} is changed again and again, by one of these field managers: {managers}",
            id.subject()
        )
    });
    let lines: Vec<String> = lines.collect();
    let message = outcome::join_some(&lines, "\n", SHOWN);
    let entry = (
        condition::CONTESTED,
        ConditionStatus::True,
        reason::FIELD_CONTESTED,
        message.as_str(),
    );
    set(status, work.snapshot, work.now, entry);
}

/// The state of a wanted release.
enum ReleaseState {
    /// The release doesn't exist yet.
    Missing,
    /// The release is as planned and healthy.
    Ready,
    /// The release is not healthy yet.
    Waiting(String),
    /// The release has failed.
    Failed(String),
    /// The API server refuses the account that helm-controller acts as for this release.
    Refused(String),
}

fn list_states(work: &Work<'_>, desired: &Desired) -> Vec<ReleaseState> {
    let state = |id: &ObjectId| match records::judge(&work.records, id, &work.snapshot.live) {
        Ownership::Ours(_) if work.contested.contains_key(id) => {
            ReleaseState::Waiting(format!("{} differs from its plan; see Contested", id.subject()))
        }
        Ownership::Ours(_) => match work.snapshot.live.get(id) {
            Some(live) => assess_release(id, live),
            None => ReleaseState::Missing,
        },
        _ => ReleaseState::Missing,
    };
    desired.releases.iter().map(|release| state(&release.id)).collect()
}

fn assess_release(id: &ObjectId, live: &Live) -> ReleaseState {
    let Some(object) = live.object().map(ObjectView::new) else {
        return ReleaseState::Missing;
    };
    let suspended = if object.is_true("/spec/suspend") {
        " (suspended)"
    } else {
        ""
    };
    let describe = |message: &str| {
        let message: String = text::visible_line(message).chars().take(RELEASE_MESSAGE).collect();
        format!("{}{suspended}: {message}", id.subject())
    };
    let fail = |message: &str| match find_refused_account(id, object, message) {
        None => ReleaseState::Failed(describe(message)),
        Some(account) => ReleaseState::Refused(format!(
            "{}{suspended}: helm-controller acts as ServiceAccount {account} (--packages-release-account), which the API server refuses: create the account, if it is \
             missing, and give it the rights that the chart needs ({})",
            id.subject(),
            text::visible_line(message)
                .chars()
                .take(RELEASE_MESSAGE)
                .collect::<String>()
        )),
    };
    let generation = object.find_number("/metadata/generation");
    let observed = object.find_number("/status/observedGeneration");
    let is_observed = observed.is_some() && observed == generation;
    // helm-controller leaves the generation of the status when it fails before the installation, such as for a missing Secret.
    let failure = object
        .find_condition(condition::READY)
        .filter(|ready| ready.status == "False" && (is_observed || ready.observed_generation == generation));
    match assess_live(live) {
        Health::Current if is_observed => ReleaseState::Ready,
        Health::Current => ReleaseState::Waiting(describe("helm-controller has not processed it yet")),
        Health::InProgress(message) => match failure {
            Some(ready) if WAITING.contains(&ready.reason) => ReleaseState::Waiting(describe(ready.message)),
            Some(ready) => fail(ready.message),
            None => ReleaseState::Waiting(describe(&message)),
        },
        Health::Failed(message) => fail(&message),
        Health::Terminating => {
            ReleaseState::Waiting(describe("it is being deleted, and is re-created when it is gone"))
        }
        Health::Unknown(message) => ReleaseState::Waiting(describe(&message)),
        Health::NotFound => ReleaseState::Missing,
    }
}

/// Finds the account that a HelmRelease names, if helm-controller reports that the API server refused a request of that account. helm-controller impersonates the account
/// and doesn't ask whether it exists. So the words of the API server are the only sign, and a missing account looks like one without rights.
fn find_refused_account(id: &ObjectId, release: ObjectView<'_>, message: &str) -> Option<String> {
    let name = release
        .find_text("/spec/serviceAccountName")
        .filter(|name| !name.is_empty())?;
    let refused = format!(
        "is forbidden: User \"system:serviceaccount:{}:{name}\" cannot ",
        id.namespace
    );
    message.contains(&refused).then(|| format!("{}/{name}", id.namespace))
}

fn report_health(
    status: &mut PackageStatus,
    snapshot: &Snapshot,
    now: Timestamp,
    states: &[ReleaseState],
    total: usize,
) {
    let failed = states.iter().filter_map(|state| match state {
        ReleaseState::Failed(message) | ReleaseState::Refused(message) => Some(message.clone()),
        _ => None,
    });
    let failed: Vec<String> = failed.collect();
    let waiting = states.iter().filter_map(|state| match state {
        ReleaseState::Waiting(message) => Some(message.clone()),
        _ => None,
    });
    let waiting: Vec<String> = waiting.collect();
    let ready = states
        .iter()
        .filter(|state| matches!(state, ReleaseState::Ready))
        .count();
    condition::remove(&mut status.conditions, condition::STALLED);
    if !failed.is_empty() {
        let has_other = states.iter().any(|state| matches!(state, ReleaseState::Failed(_)));
        let reason = match has_other {
            true => reason::packages::HELM_RELEASE_NOT_READY,
            false => reason::packages::RELEASE_ACCOUNT_FORBIDDEN,
        };
        let problem = Problem::new(reason, outcome::join_some(&failed, "\n", SHOWN));
        set(
            status,
            snapshot,
            now,
            (
                condition::READY,
                ConditionStatus::False,
                problem.reason,
                &problem.message,
            ),
        );
        let entry = (
            condition::RECONCILING,
            ConditionStatus::True,
            reason::PROGRESSING_WITH_RETRY,
            "helm-controller tries again; see Ready",
        );
        set(status, snapshot, now, entry);
    } else if ready < total {
        let waits = match waiting.is_empty() {
            true => String::new(),
            false => format!(": {}", outcome::join_some(&waiting, "; ", SHOWN)),
        };
        let message = format!("{ready} of {} ready{waits}", text::count_of(total as u64, "release"));
        for type_ in [condition::READY, condition::RECONCILING] {
            let value = match type_ {
                condition::READY => ConditionStatus::Unknown,
                _ => ConditionStatus::True,
            };
            set(status, snapshot, now, (type_, value, reason::PROGRESSING, &message));
        }
    } else {
        condition::remove(&mut status.conditions, condition::RECONCILING);
        let message = match total {
            0 => "no component is installed".to_owned(),
            1 => "1 release is ready".to_owned(),
            total => format!("{total} releases are ready"),
        };
        let entry = (
            condition::READY,
            ConditionStatus::True,
            reason::RECONCILIATION_SUCCEEDED,
            message.as_str(),
        );
        set(status, snapshot, now, entry);
    }
}

/// Reports a deletion that waits: for an administrator, or for helm-controller.
pub(super) fn report_deletion(mut work: Work<'_>, removal: &Removal) -> Plan {
    let (snapshot, now) = (work.snapshot, work.now);
    let mut status = begin_status(snapshot);
    status.releases = records::list_records(&work.records);
    report_removal(&mut status, snapshot, now, removal);
    condition::remove(&mut status.conditions, condition::RECONCILING);
    condition::remove(&mut status.conditions, condition::STALLED);
    let message = removal
        .message
        .clone()
        .unwrap_or_else(|| "the Package is being deleted".to_owned());
    let waits = Problem::new(
        if removal.is_guarded {
            reason::DELETION_GUARDED
        } else {
            reason::PROGRESSING
        },
        message,
    );
    let problem = choose_problem(&work.problems).unwrap_or(waits);
    set(
        &mut status,
        snapshot,
        now,
        (
            condition::READY,
            ConditionStatus::False,
            problem.reason,
            &problem.message,
        ),
    );
    work.plan.next = Next::Done(find_retry(&work));
    finish(snapshot, work.plan, &status)
}
