//! The deletion of a Kustomization: its objects go or stay by its deletion policy, then its finalizer is removed.
//!
//! The deletion fails closed. In a namespace that stays, the Kustomization gives up its objects only after its ServiceAccount is known to be gone. It waits for answers
//! that are missing or disputed. The wait ends if no answer can come any more, because the namespace is being deleted or its Tenant is gone. Then the platform is
//! notified of the objects that stay.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tenure_api::ObjectId;
use tenure_api::kustomization::DeletionPolicy;
use tenure_api::metadata::{EVENT_ORIGIN_REVISION, EVENT_REVISION, FLUX_FINALIZER};
use tenure_api::{condition, reason};
use tenure_tenancy::{LEAST_INTERVAL, identity, inventory};

use super::apply_mode::ApplyMode;
use super::changes::{record_change, report_changes};
use super::claims::{self, UnknownOwners};
use super::context::{Context, deletes_objects, name_subject};
use super::prune::{self, PruneDecision};
use super::remote_cluster::TargetError;
use super::removal_order::{self, NextRemoval};
use super::step::{Step, SurveyRequest};
use super::types::{Memory, ServiceAccountFacts, Snapshot, SourceFacts, read_apply_mode};
use super::{Phase, Plan, deletion_outcome, guard, outcome, remote_cluster, retry, siblings};
use crate::answer::{DeleteAnswer, Live, Reason};
use crate::outcome::{add_duration, join_names};
use crate::overlay::Overlay;
use crate::plan::{Delete, Event, EventKind, EventPlace, FinalizerChange, Next, Request, Watched, Withheld};

/// The longest time that a deletion waits for other objects, whatever `spec.timeout` says: the wait may hold up a whole namespace.
const LONGEST_FAREWELL: Duration = Duration::from_secs(3600);
/// The longest time that a deletion waits for others of its source to look at a revision. The wait for a Kustomization that then wants an object is longer.
const LONGEST_LOOK: Duration = Duration::from_secs(60);
/// The most bytes of names in an event: the rest is counted. (Kubernetes cuts the message of an event at 1024.)
const NAMED: usize = 700;

/// Plans the deletion of a Kustomization.
pub(super) fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let metadata = &snapshot.kustomization.metadata;
    let ours = metadata
        .finalizers
        .iter()
        .flatten()
        .any(|finalizer| finalizer == FLUX_FINALIZER);
    if !ours {
        let mut plan = Plan::idle(name_subject(snapshot), Memory::default());
        plan.next = Next::Forget;
        return plan;
    }
    let spec = &snapshot.kustomization.spec;
    if spec.suspend {
        return release_object(snapshot, "spec.suspend is true: its objects are left", false);
    }
    match ApplyMode::read(read_apply_mode(metadata).as_deref()) {
        Ok(ApplyMode::All | ApplyMode::Partial) => {}
        Ok(ApplyMode::DetectOnly) => {
            return release_object(snapshot, "it only looks for differences: its objects are left", false);
        }
        // The remaining objects can still be deleted by other means.
        Err(message) => return release_object(snapshot, &format!("its objects are left: {message}"), false),
    }
    if !deletes_objects(spec) {
        return release_object(snapshot, "its deletion policy leaves its objects", false);
    }
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let name = metadata.name.as_deref().unwrap_or_default();
    let status = snapshot.kustomization.status.as_ref();
    if prune::list_entries(status.and_then(|status| status.inventory.as_ref())).is_empty() {
        return release_object(snapshot, "it has no objects", false);
    }
    let memory = snapshot.memory.clone();
    let identity = match identity::decide_for_kustomization(
        &snapshot.placement,
        namespace,
        spec.service_account_name.as_deref(),
    ) {
        Ok(identity) => identity,
        Err(denial) => return plan_blocked(snapshot, now, memory, denial.reason.as_str(), &denial.message),
    };
    match &snapshot.service_account {
        ServiceAccountFacts::Usable | ServiceAccountFacts::NotLooked => {}
        // As in Flux: a wait for an identity that is gone would keep the object for ever. The message names the remaining objects.
        ServiceAccountFacts::NotFound => {
            return release_object(snapshot, &format!("{identity} does not exist any more"), true);
        }
        ServiceAccountFacts::NamespaceEnds(message) => {
            return release_object(snapshot, &format!("no token for {identity}: {message}"), true);
        }
        ServiceAccountFacts::Forbidden(message) | ServiceAccountFacts::Unanswered(message) => {
            let why = format!("no token for {identity}: {message}");
            return plan_blocked(snapshot, now, memory, reason::IDENTITY_MISSING, &why);
        }
    }
    let looked = remote_cluster::resolve_target(snapshot, &identity);
    let mut context = Context {
        snapshot,
        now,
        namespace,
        name,
        identity,
        interval: spec.interval.parse().unwrap_or(Duration::from_secs(60)),
        retry_interval: find_retry_interval(snapshot),
        timeout: find_timeout(snapshot),
        path: String::new(),
        overlay: Overlay::default(),
        mode: ApplyMode::All,
        detected: Vec::new(),
        ignored: Arc::default(),
        memory,
        named: Arc::default(),
        withheld: Vec::new(),
        events: Vec::new(),
        watch: Vec::new(),
        target: None,
        revision: None,
        built: None,
    };
    match looked {
        Ok(target) => context.target = target,
        Err(TargetError::Ask(step)) => return *context.plan_again(vec![*step]),
        Err(TargetError::Failed { message, .. }) => {
            return plan_blocked(snapshot, now, context.memory, reason::RECONCILIATION_FAILED, &message);
        }
        Err(TargetError::Changed(message)) => {
            return plan_blocked(snapshot, now, context.memory, reason::CLUSTER_CHANGED, &message);
        }
        Err(TargetError::Left) => {
            let why = format!("{} says that it is of another cluster", tenure_api::metadata::CLUSTER);
            return release_object(snapshot, &why, true);
        }
    }
    delete_objects(context)
}

fn delete_objects(mut context: Context<'_>) -> Plan {
    let snapshot = context.snapshot;
    let ends = snapshot.endings.own.map(|_| find_farewell_end(snapshot));
    if ends.is_none_or(|end| context.now < end)
        && let Some(until) = retry::find_wait(snapshot, context.now, &mut context.memory)
    {
        context.withhold("the finalizer", retry::describe_wait(until));
        return context.into_plan(Next::Done(Some(ends.map_or(until, |end| until.min(end)))));
    }
    let status = context.status();
    let reach = context.find_bounds();
    let mut reads = Vec::new();
    let mut deletes = Vec::new();
    let mut failures = Vec::new();
    let mut terminating: Vec<Watched> = Vec::new();
    for target in prune::list_entries(status.inventory.as_ref()) {
        let subject = target.id.subject();
        if let Err(denial) = inventory::check_entry(&reach, &target.id) {
            context.withhold(format!("deletion of {subject}"), denial.message);
            continue;
        }
        match prune::decide_candidate(&mut context, &target, "its Kustomization is deleted") {
            PruneDecision::Read => reads.push(Request::Read(target)),
            PruneDecision::Delete(delete) => deletes.push(delete),
            PruneDecision::Gone => {}
            PruneDecision::Released(why) | PruneDecision::Kept(why) => {
                context.withhold(format!("deletion of {subject}"), why)
            }
            PruneDecision::Terminating => {
                context.watch.push(target.clone());
                terminating.push(target);
            }
            PruneDecision::Failed(message) => failures.push(message),
        }
    }
    if !reads.is_empty() {
        return *context.plan_again(reads);
    }
    let left = guard::exclude_adopted(&context, &mut deletes);
    for delete in &left {
        let why = "it existed before the Kustomization, and is of a protected kind".to_owned();
        context.withheld.push(make_withheld_delete(delete, why));
    }
    let deletes = match leave_to_siblings(&mut context, deletes) {
        Ok(deletes) => deletes,
        Err(plan) => return *plan,
    };
    let asked: Vec<Delete> = deletes
        .iter()
        .filter(|delete| !guard::is_being_deleted(snapshot, &delete.target.id))
        .cloned()
        .collect();
    let owners = match claims::find_claim_owners(&mut context, &asked) {
        Ok(owners) => owners,
        Err(UnknownOwners::Ask(requests)) => return *context.plan_again(requests),
        Err(UnknownOwners::Failed(message)) => return end_blocked(context, reason::PRUNE_FAILED, &message),
    };
    let guarded = guard::guard_deletion(&mut context, deletes, &owners);
    if let Some(message) = guarded.find_stop() {
        report_changes(&mut context);
        return end_blocked(context, reason::DELETION_GUARDED, message);
    }
    let deletes = guarded.free;
    let is_hindered = !failures.is_empty() || guarded.held.is_some();
    let deadline = match snapshot.endings.own {
        Some(_) => context.find_deadline().min(find_farewell_end(snapshot)),
        None => context.find_deadline(),
    };
    match removal_order::choose_next(&context, deletes, &terminating, is_hindered) {
        NextRemoval::Delete(deletes) => {
            let steps = list_steps(&mut context, deletes);
            return *guard::store_allowed(snapshot, context.plan_again(steps));
        }
        NextRemoval::DeleteOwnRights(deletes) => return delete_own_rights(context, deletes),
        NextRemoval::Wait(children, until) => {
            let held = removal_order::describe_children(&context, &children);
            let message = format!("Waiting with the rest of the deletion until these are gone: {held}");
            return *deletion_outcome::await_others(context, until, &message);
        }
        NextRemoval::Done => {}
    }
    if !failures.is_empty() {
        let why = failures.join("\n");
        if find_own_rights_deleted(snapshot).is_some() && is_refused(snapshot) {
            return release_object(snapshot, "its right to delete the rest was deleted", true);
        }
        report_changes(&mut context);
        return end_blocked(context, reason::PRUNE_FAILED, &why);
    }
    if let Some(message) = &guarded.held {
        report_changes(&mut context);
        return end_blocked(context, reason::DELETION_GUARDED, message);
    }
    let terminating: Vec<String> = terminating.iter().map(|target| target.id.subject()).collect();
    let waits = snapshot.kustomization.spec.deletion_policy() == Some(DeletionPolicy::WaitForTermination);
    if waits && !terminating.is_empty() && context.now < deadline {
        context.withhold(
            "the finalizer",
            format!("waiting until these are gone: {}", terminating.join(", ")),
        );
        return context.into_plan(Next::Wait(deadline));
    }
    let asked = snapshot.attempt.deleted.keys().map(ObjectId::subject);
    // Objects whose deletion did not end in time have a message of their own.
    let reported = asked.filter(|subject| !waits || !terminating.contains(subject));
    let deleted: Vec<String> = reported.map(|subject| format!("{subject} deleted")).collect();
    let mut plan = context.into_plan(Next::Forget);
    plan.finalizer = Some(FinalizerChange::Remove(FLUX_FINALIZER.to_owned()));
    plan.watch.clear();
    if waits && !terminating.is_empty() {
        plan.events.push(Event {
            kind: EventKind::Warning,
            reason: reason::PRUNE_FAILED.to_owned(),
            message: format!(
                "failed to wait for resources termination: {}",
                join_names(&terminating, NAMED)
            ),
            annotations: list_applied_revisions(snapshot),
            place: EventPlace::default(),
        });
    }
    if !left.is_empty() {
        let left: Vec<String> = left.iter().map(|delete| delete.target.id.subject()).collect();
        let message = format!(
            "these are left, since they existed before the Kustomization and are of protected kinds: {}",
            join_names(&left, NAMED)
        );
        plan.events.push(Event {
            kind: EventKind::Warning,
            reason: reason::DELETION_GUARDED.to_owned(),
            message,
            annotations: list_applied_revisions(snapshot),
            place: EventPlace::default(),
        });
    }
    if !deleted.is_empty() {
        plan.events.push(Event {
            kind: EventKind::Normal,
            reason: reason::RECONCILIATION_SUCCEEDED.to_owned(),
            message: deleted.join("\n"),
            annotations: list_applied_revisions(snapshot),
            place: EventPlace::default(),
        });
    }
    plan
}

/// Handles an obstacle to the deletion by [`plan_blocked`], and adds the withheld changes and the events so far.
fn end_blocked(context: Context<'_>, reason: &str, why: &str) -> Plan {
    let mut plan = plan_blocked(context.snapshot, context.now, context.memory, reason, why);
    plan.withheld.extend(context.withheld);
    plan.events.extend(context.events);
    plan
}

fn list_steps(context: &mut Context<'_>, deletes: Vec<Delete>) -> Vec<Request> {
    for delete in &deletes {
        let line = format!("{} deleted", delete.target.id.subject());
        record_change(context, &delete.target.id, line);
    }
    deletes.into_iter().map(Request::Delete).collect()
}

/// Deletes the rights of the ServiceAccount. The status is stored before: after a restart, all other requests are refused, and the status gives the reason.
fn delete_own_rights(mut context: Context<'_>, deletes: Vec<Delete>) -> Plan {
    let snapshot = context.snapshot;
    let now = context.now;
    let subjects: Vec<String> = deletes.iter().map(|delete| delete.target.id.subject()).collect();
    let steps = list_steps(&mut context, deletes);
    let mut plan = *context.plan_again(steps);
    if !plan.steps.is_empty() && find_own_rights_deleted(snapshot).is_none() {
        plan.status = deletion_outcome::announce_own_rights(snapshot, now, &subjects.join(", "));
        plan.status_first = plan.status.is_some();
    }
    *guard::store_allowed(snapshot, Box::new(plan))
}

/// Finds the names of the objects that gave the ServiceAccount its rights, if their deletion has begun.
fn find_own_rights_deleted(snapshot: &Snapshot) -> Option<&str> {
    let status = snapshot.kustomization.status.as_ref()?;
    let found = condition::find(&status.conditions, condition::RECONCILING)?;
    deletion_outcome::has_deleted_own_rights(status).then_some(found.message.as_str())
}

/// Checks whether every failed read and deletion was refused for a missing right.
fn is_refused(snapshot: &Snapshot) -> bool {
    let reads = snapshot.live.values().filter_map(|live| match live {
        Live::Failed(failure) => Some(failure),
        Live::Absent | Live::Unserved | Live::Present(_) => None,
    });
    let deletes = snapshot.attempt.deleted.values().filter_map(|answer| match answer {
        DeleteAnswer::Failed(failure) => Some(failure),
        DeleteAnswer::Accepted | DeleteAnswer::Absent | DeleteAnswer::Changed { .. } => None,
    });
    let mut failures = reads.chain(deletes);
    failures.all(|failure| matches!(failure.reason, Reason::Forbidden | Reason::Unauthorized))
}

/// Filters the deletions: objects that another Kustomization of the same source is about to take over stay. So a commit deletes nothing if it renames a Kustomization,
/// or moves files out of its folder and removes it. The plan waits for Kustomizations that want an object, for at most the timeout, and for a short time for those that
/// have not looked yet. In a namespace that is being deleted, no Kustomization takes an object over.
fn leave_to_siblings(context: &mut Context<'_>, deletes: Vec<Delete>) -> Phase<Vec<Delete>> {
    let snapshot = context.snapshot;
    let look_deadline = compute_deadline(snapshot, LONGEST_LOOK);
    let taking = find_farewell_end(snapshot);
    if deletes.is_empty() || snapshot.endings.own.is_some() || context.now >= look_deadline.max(taking) {
        return Ok(deletes);
    }
    let ids: BTreeSet<ObjectId> = deletes.iter().map(|delete| delete.target.id.clone()).collect();
    let artifact = match &snapshot.source {
        SourceFacts::Found { artifact, .. } => artifact.as_ref(),
        SourceFacts::NotFound | SourceFacts::Unknown(_) => None,
    };
    let (has_artifact, revision) = (artifact.is_some(), artifact.map(|artifact| artifact.revision.clone()));
    let survey = match &snapshot.survey {
        Some(survey) if ids.is_subset(&survey.asked) => survey,
        _ => {
            let revision = revision.unwrap_or_default();
            let request = SurveyRequest { revision, ids };
            return Err(context.fork().plan_again(vec![Step::Survey(request)]));
        }
    };
    let sibling = |name: &str| format!("Kustomization/{}/{name}", context.namespace);
    // Without an artifact, the others have nothing to look at.
    let untried = survey
        .untried
        .as_deref()
        .filter(|_| has_artifact && context.now < look_deadline);
    if let Some(untried) = untried.map(sibling) {
        for delete in &deletes {
            let why = format!("{untried} has not looked yet, and may want it");
            context.withheld.push(make_withheld_delete(delete, why));
        }
        let message = format!("Waiting with the deletion until {untried} has looked at its source");
        let until = siblings::find_prune_deadline(context).min(look_deadline);
        return Err(deletion_outcome::await_others(context.fork(), until, &message));
    }
    let mut waits_for = BTreeSet::new();
    let mut free = Vec::new();
    for delete in deletes {
        let by = survey.wanted.get(&delete.target.id).filter(|by| by.is_awaited());
        let Some(by) = by.filter(|_| context.now < taking) else {
            free.push(delete);
            continue;
        };
        let by = sibling(&by.name);
        let why = format!("{by} wants it: left for it to take over");
        context.withheld.push(make_withheld_delete(&delete, why));
        // The labels of the object show when it was taken over.
        context.watch.push(delete.target);
        waits_for.insert(by);
    }
    if free.is_empty() && !waits_for.is_empty() {
        let names: Vec<String> = waits_for.into_iter().collect();
        let message = format!(
            "Waiting with the deletion until what they want was taken over by {}",
            join_names(&names, 500)
        );
        let until = siblings::find_prune_deadline(context).min(taking);
        return Err(deletion_outcome::await_others(context.fork(), until, &message));
    }
    Ok(free)
}

fn make_withheld_delete(delete: &Delete, why: String) -> Withheld {
    let what = format!("deletion of {}", delete.target.id.subject());
    Withheld { what, why }
}

/// Handles an obstacle to the deletion of the objects. In a namespace that stays, the plan waits, however long it takes. If no answer can come any more, the
/// Kustomization is released in the end, or at once if no objects would stay behind.
fn plan_blocked(snapshot: &Snapshot, now: Timestamp, mut memory: Memory, reason: &str, why: &str) -> Plan {
    let ends = snapshot.endings.own.is_some();
    let farewell = find_farewell_end(snapshot);
    if ends && (now >= farewell || list_left_behind(snapshot).is_empty()) {
        return release_object(snapshot, why, true);
    }
    let delay = if reason == reason::DELETION_GUARDED {
        // An answer to it is a change of the Kustomization.
        find_retry_interval(snapshot)
    } else {
        memory.transient_failures = memory.transient_failures.saturating_add(1);
        outcome::find_transient_pause(
            memory.transient_failures.saturating_sub(1),
            find_retry_interval(snapshot),
        )
    };
    retry::record_failure(snapshot, now, &mut memory, &[], delay);
    let message = if ends {
        why.to_owned()
    } else {
        format!("{why}\nIts objects are kept until they can be deleted; with spec.deletionPolicy: Orphan they are left")
    };
    let mut plan = deletion_outcome::retry_deletion(snapshot, now, reason, message, delay);
    plan.memory = memory;
    if let (true, Next::Done(Some(at))) = (ends, &plan.next) {
        plan.next = Next::Done(Some((*at).min(farewell)));
    }
    plan
}

/// Returns the end of the wait of a Kustomization in a namespace or Tenant that ends.
fn find_farewell_end(snapshot: &Snapshot) -> Timestamp {
    compute_deadline(snapshot, find_timeout(snapshot).min(LONGEST_FAREWELL))
}

/// Returns when a wait of this length is over. The wait counts from the deletion, so a restart doesn't begin it again.
fn compute_deadline(snapshot: &Snapshot, long: Duration) -> Timestamp {
    let deleted = snapshot.kustomization.metadata.deletion_timestamp.as_ref();
    let since = deleted.map_or(snapshot.attempt.started, |deleted| deleted.0);
    add_duration(since, long)
}

fn find_timeout(snapshot: &Snapshot) -> Duration {
    let spec = &snapshot.kustomization.spec;
    spec.effective_timeout().unwrap_or(Duration::from_secs(300))
}

fn find_retry_interval(snapshot: &Snapshot) -> Duration {
    let spec = &snapshot.kustomization.spec;
    let interval = spec.effective_retry_interval().unwrap_or(Duration::from_secs(60));
    interval.max(snapshot.least_interval).max(LEAST_INTERVAL)
}

/// Lists the objects that stay if the Kustomization is released now: those in the inventory that are not known to be gone and are not deleted with its own namespace.
fn list_left_behind(snapshot: &Snapshot) -> Vec<String> {
    let status = snapshot.kustomization.status.as_ref();
    prune::list_entries(status.and_then(|status| status.inventory.as_ref()))
        .into_iter()
        // A namespace of the same name in another cluster stays.
        .filter(|target| {
            remote_cluster::is_elsewhere(snapshot) || !snapshot.endings.namespaces.contains(&target.id.namespace)
        })
        .filter(|target| {
            let deleted = snapshot.attempt.deleted.get(&target.id);
            !matches!(deleted, Some(DeleteAnswer::Accepted | DeleteAnswer::Absent))
                && !snapshot.live.get(&target.id).is_some_and(Live::is_gone)
        })
        .map(|target| target.id.subject())
        // All other objects are gone by then.
        .filter(|subject| {
            find_own_rights_deleted(snapshot).is_none_or(|named| named.split(", ").any(|name| name == subject))
        })
        .collect()
}

/// Returns the event's facts about the last applied revision and its origin, as Flux does.
fn list_applied_revisions(snapshot: &Snapshot) -> BTreeMap<String, String> {
    let status = snapshot.kustomization.status.as_ref();
    let revisions = status.map(|status| {
        let (revision, origin) = (&status.last_applied_revision, &status.last_applied_origin_revision);
        [(EVENT_REVISION, revision), (EVENT_ORIGIN_REVISION, origin)]
    });
    let revisions = revisions.into_iter().flatten();
    revisions
        .filter_map(|(key, value)| Some((key.to_owned(), value.clone()?)))
        .collect()
}

/// Lets the object go and its objects stay.
fn release_object(snapshot: &Snapshot, why: &str, warn: bool) -> Plan {
    let mut plan = Plan::idle(name_subject(snapshot), Memory::default());
    plan.finalizer = Some(FinalizerChange::Remove(FLUX_FINALIZER.to_owned()));
    plan.next = Next::Forget;
    let left = list_left_behind(snapshot);
    for subject in &left {
        plan.withheld.push(Withheld {
            what: format!("deletion of {subject}"),
            why: why.to_owned(),
        });
    }
    if warn && !left.is_empty() {
        let mut why: String = why.chars().take(NAMED / 4).collect();
        if snapshot.endings.own.is_some() {
            why = format!("{}: {why}", plan.subject);
        }
        plan.events.push(Event {
            kind: EventKind::Warning,
            reason: reason::PRUNE_FAILED.to_owned(),
            message: format!("{why}: these are left behind: {}", join_names(&left, NAMED)),
            annotations: list_applied_revisions(snapshot),
            // An event can't be written in a namespace that is being deleted, and would be deleted with it.
            place: match snapshot.endings.own {
                Some(_) => EventPlace::Platform,
                None => EventPlace::Beside,
            },
        });
    }
    plan
}
