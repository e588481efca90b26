//! How a Tenant goes: its GitOps has stopped before this is planned, since a Tenant that is being deleted has no namespace to act in
//! ([`tenure_tenancy::realm`]); then its namespaces go, and at last the finalizer that kept it until then.
//!
//! Owns what is deleted, and that what hangs is named. Refuses to delete a namespace that is neither recorded with this uid nor proved to be the controllers' own creation, and any at all where whoever deleted the Tenant
//! lets its dependents stay (`--cascade=orphan`): the garbage collector takes the owner off them, and they are nobody's.

use std::collections::BTreeSet;

use jiff::Timestamp;
use tenure_api::condition::{self, ConditionStatus};
use tenure_api::metadata::TENURE_FINALIZER;
use tenure_api::{ObjectId, ObjectMeta, ObjectView, reason};
use tenure_tenancy::record::is_intended;
use tenure_tenancy::{NamespaceFacts, TenantFacts};

use super::{Plan, RETRY_INTERVAL, Snapshot, disowning, labels, status};
use crate::answer::Live;
use crate::dependents::Dependents;
use crate::ending::{self, add_duration};
use crate::plan::{Delete, EventKind, FinalizerChange, Next, Request, Watched};

/// The finalizer by which the garbage collector is told that dependents stay.
const ORPHAN: &str = "orphan";

fn has_finalizer(metadata: &ObjectMeta, name: &str) -> bool {
    metadata.finalizers.iter().flatten().any(|finalizer| finalizer == name)
}

/// Sees to it that a Tenant doesn't go before its namespaces have.
pub(super) fn add_finalizer(snapshot: &Snapshot, plan: &mut Plan) {
    if !has_finalizer(&snapshot.tenant.metadata, TENURE_FINALIZER) {
        plan.finalizer = Some(FinalizerChange::Add(TENURE_FINALIZER.to_owned()));
    }
}

/// What to do about a Tenant that is being deleted.
pub(super) fn plan_deletion(snapshot: &Snapshot, facts: &TenantFacts, now: Timestamp, mut plan: Plan) -> Plan {
    let metadata = &snapshot.tenant.metadata;
    if !has_finalizer(metadata, TENURE_FINALIZER) {
        plan.next = Next::Forget;
        return plan;
    }
    // The garbage collector would delete namespaces with an ownerReference to the Tenant. So that is removed while the Tenant's finalizer holds the Tenant.
    let mut disowning = Vec::new();
    let steps = disowning::disown_namespaces(snapshot, facts, |_| false, &mut disowning);
    if !steps.is_empty() {
        plan.steps = steps;
        plan.next = Next::Again;
        return plan;
    }
    let unseen = list_unseen_intents(snapshot, facts);
    if !unseen.is_empty() {
        plan.steps = unseen;
        plan.next = Next::Again;
        return plan;
    }
    if has_failed_read(snapshot, facts) {
        plan.next = Next::Done(Some(add_duration(now, RETRY_INTERVAL)));
        return plan;
    }
    let created = list_created(snapshot, facts);
    let claims = snapshot.realm.claims_of(facts);
    let recorded = claims
        .into_iter()
        .filter(|facts_of| facts.has_recorded(facts_of) && !created.iter().any(|one| one.name == facts_of.name));
    let remaining: Vec<&NamespaceFacts> = recorded.chain(&created).collect();
    let is_orphaning = has_finalizer(metadata, ORPHAN);
    if disowning::is_any_owned(snapshot, facts) && !is_orphaning && remaining.is_empty() {
        return tell_remaining(snapshot, &remaining, now, disowning, plan);
    }
    if remaining.is_empty() || is_orphaning {
        plan.finalizer = Some(FinalizerChange::Remove(TENURE_FINALIZER.to_owned()));
        plan.next = Next::Forget;
        return plan;
    }
    let mut problems = disowning;
    let steps = delete_namespaces(snapshot, &remaining, now, &mut plan, &mut problems);
    if !steps.is_empty() {
        plan.steps = steps;
        plan.next = Next::Again;
        return plan;
    }
    tell_remaining(snapshot, &remaining, now, problems, plan)
}

/// Reads of namespaces that the controllers were about to create and that no watch has told of. A Tenant may be deleted before its namespace is recorded.
fn list_unseen_intents(snapshot: &Snapshot, facts: &TenantFacts) -> Vec<Request> {
    let names = facts.intended.keys().filter(|name| !facts.recorded.contains_key(*name));
    names
        .map(|name| labels::identify(name))
        .filter(|id| !snapshot.live.contains_key(id))
        .map(|id| {
            Request::Read(Watched {
                id,
                version: "v1".to_owned(),
            })
        })
        .collect()
}

/// Whether such a read failed: then the namespace may be there, and the Tenant's finalizer stays.
fn has_failed_read(snapshot: &Snapshot, facts: &TenantFacts) -> bool {
    let mut names = facts.intended.keys();
    names.any(|name| matches!(snapshot.live.get(&labels::identify(name)), Some(Live::Failed(_))))
}

/// The namespaces that the controllers created for the Tenant and didn't record any more: they bear the proof whose digest the Tenant's status has.
fn list_created(snapshot: &Snapshot, facts: &TenantFacts) -> Vec<NamespaceFacts> {
    let names = facts.intended.keys();
    let live = names.filter_map(|name| snapshot.live.get(&labels::identify(name))?.object());
    live.filter_map(|object| {
        let metadata: ObjectMeta = serde_json::from_value(object.get("metadata")?.clone()).ok()?;
        let found = NamespaceFacts::from(&metadata);
        is_intended(facts, &found).then_some(found)
    })
    .collect()
}

fn delete_namespaces(
    snapshot: &Snapshot,
    remaining: &[&NamespaceFacts],
    now: Timestamp,
    plan: &mut Plan,
    problems: &mut Vec<String>,
) -> Vec<Request> {
    let names: BTreeSet<ObjectId> = remaining.iter().map(|facts| labels::identify(&facts.name)).collect();
    let uids: BTreeSet<&str> = remaining.iter().map(|facts| facts.uid.as_str()).collect();
    let mut dependents = super::dependents(snapshot, now, &mut plan.memory);
    let Dependents { live, .. } = dependents;
    let deletions = dependents.deletions(
        |id| !names.contains(id),
        |live| {
            ObjectView::of(live)
                .find_text("/metadata/uid")
                .is_some_and(|uid| uids.contains(uid))
        },
        "its Tenant is being deleted",
        problems,
    );
    // As it was seen: of one that the collector has just taken the owner off, nothing is known.
    let with_version = |delete: Delete| {
        let seen = live.get(&delete.target.id).and_then(|live| live.object());
        let version = seen.and_then(|seen| ObjectView::of(seen).find_text("/metadata/resourceVersion"));
        Request::Delete(Delete {
            resource_version: version.map(str::to_owned),
            ..delete
        })
    };
    deletions.into_iter().map(with_version).collect()
}

/// Says which namespaces the Tenant waits for.
fn tell_remaining(
    snapshot: &Snapshot,
    remaining: &[&NamespaceFacts],
    now: Timestamp,
    problems: Vec<String>,
    mut plan: Plan,
) -> Plan {
    let names: Vec<String> = remaining.iter().map(|facts| facts.name.clone()).collect();
    let mut message = format!(
        "is being deleted, and its namespaces with it: {} still there. What keeps one says: kubectl get namespace NAME -o jsonpath='{{.status.conditions}}'",
        ending::name_some(&names, status::LONGEST_LIST)
    );
    for problem in &problems {
        message.push('\n');
        message.push_str(problem);
    }
    let old = snapshot.tenant.status.clone().unwrap_or_default();
    let mut status = old.clone();
    "Terminating".clone_into(&mut status.state);
    status.namespaces.retain(|name| names.contains(name));
    status.spaces.retain(|space| names.contains(&space.name));
    status.size = i64::try_from(status.namespaces.len()).unwrap_or(i64::MAX);
    status.observed_generation = snapshot.tenant.metadata.generation;
    if !problems.is_empty() {
        plan.events.extend(ending::make_news(
            &old.conditions,
            EventKind::Warning,
            reason::TERMINATING,
            &message,
        ));
    }
    let entry = (
        condition::READY,
        ConditionStatus::False,
        reason::TERMINATING,
        message.as_str(),
    );
    ending::set_condition(&mut status.conditions, &snapshot.tenant.metadata, now, entry);
    plan.status = ending::find_change(snapshot.tenant.status.as_ref(), &status);
    let retry = (!problems.is_empty()).then(|| add_duration(now, RETRY_INTERVAL));
    plan.next = Next::Done(retry.map(|at| plan.memory.next().map_or(at, |next| next.min(at))));
    plan
}
