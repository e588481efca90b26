//! The deletion of a Tenant. GitOps has stopped before this plan, since a Tenant in deletion has no namespace to act in ([`tenure_tenancy::placement`]). The plan
//! deletes the Tenant's namespaces, then removes the finalizer that held the Tenant.
//!
//! The plan names the namespaces that block the deletion. It never deletes a namespace that is neither recorded with this uid nor proved to be created by the
//! controllers. With `--cascade=orphan` it deletes no namespace: the namespaces stay, without a tenant.

use std::collections::BTreeSet;

use jiff::Timestamp;
use tenure_api::condition::{self, ConditionStatus};
use tenure_api::metadata::TENURE_FINALIZER;
use tenure_api::{ObjectId, ObjectMeta, ObjectView, reason};
use tenure_tenancy::record::is_intended;
use tenure_tenancy::{NamespaceFacts, TenantFacts};

use super::{Plan, RETRY_INTERVAL, Snapshot, labels, owner_references, status};
use crate::answer::Live;
use crate::dependents::{Dependents, describe_failure};
use crate::outcome::{self, add_duration};
use crate::plan::{Delete, EventKind, FinalizerChange, Next, Request, Watched};

/// The finalizer that tells the garbage collector to keep dependents.
const ORPHAN: &str = "orphan";

fn has_finalizer(metadata: &ObjectMeta, name: &str) -> bool {
    metadata.finalizers.iter().flatten().any(|finalizer| finalizer == name)
}

/// Adds the finalizer that keeps a Tenant until its namespaces are deleted.
pub(super) fn add_finalizer(snapshot: &Snapshot, plan: &mut Plan) {
    if !has_finalizer(&snapshot.tenant.metadata, TENURE_FINALIZER) {
        plan.finalizer = Some(FinalizerChange::Add(TENURE_FINALIZER.to_owned()));
    }
}

/// Plans for a Tenant that is being deleted.
pub(super) fn plan_deletion(snapshot: &Snapshot, facts: &TenantFacts, now: Timestamp, mut plan: Plan) -> Plan {
    let metadata = &snapshot.tenant.metadata;
    if !has_finalizer(metadata, TENURE_FINALIZER) {
        plan.next = Next::Forget;
        return plan;
    }
    // The garbage collector would delete namespaces with an ownerReference to the Tenant. So the plan removes the reference while the Tenant's finalizer holds the
    // Tenant.
    let mut disowning = Vec::new();
    let steps = owner_references::disown_namespaces(snapshot, facts, |_| false, &mut disowning);
    if !steps.is_empty() {
        plan.steps = steps;
        plan.next = Next::Again;
        return plan;
    }
    let is_orphaning = has_finalizer(metadata, ORPHAN);
    let created = match find_created(snapshot, facts) {
        // The namespaces stay.
        _ if is_orphaning => Vec::new(),
        UnrecordedNamespaces::ReadFirst(reads) => {
            plan.steps = reads;
            plan.next = Next::Again;
            return plan;
        }
        UnrecordedNamespaces::Unknown(problem) => {
            let problems = vec![problem];
            return tell_remaining(snapshot, &[], now, problems, plan);
        }
        UnrecordedNamespaces::Known(created) => created,
    };
    let claims = snapshot.tenancy.claims_of(facts);
    let recorded = claims
        .into_iter()
        .filter(|facts_of| facts.has_recorded(facts_of) && !created.iter().any(|one| one.name == facts_of.name));
    let remaining: Vec<&NamespaceFacts> = recorded.chain(&created).collect();
    if owner_references::is_any_owned(snapshot, facts) && !is_orphaning && remaining.is_empty() {
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
    let mut plan = tell_remaining(snapshot, &remaining, now, problems, plan);
    // A watch may not report a namespace that it never reported before.
    if let (Next::Done(at), false) = (&mut plan.next, created.is_empty()) {
        let again = add_duration(now, RETRY_INTERVAL);
        *at = Some(at.map_or(again, |at| at.min(again)));
    }
    plan
}

/// The namespaces that the controllers created for a Tenant and had not recorded when it was deleted.
enum UnrecordedNamespaces {
    /// No watch has reported these namespaces, so the plan reads them first.
    ReadFirst(Vec<Request>),
    /// A read failed, so a namespace may exist. The Tenant's finalizer stays.
    Unknown(String),
    /// These namespaces have the Tenant's label, and the proof whose digest is in the Tenant's status.
    Known(Vec<NamespaceFacts>),
}

/// Finds the namespaces that the Tenant's status announces as created by the controllers, and that are not recorded.
fn find_created(snapshot: &Snapshot, facts: &TenantFacts) -> UnrecordedNamespaces {
    let mut reads = Vec::new();
    let mut created = Vec::new();
    let names = facts.intended.keys().filter(|name| !facts.recorded.contains_key(*name));
    for id in names.map(|name| labels::make_namespace_id(name)) {
        match snapshot.live.get(&id) {
            None => reads.push(Request::Read(Watched {
                id,
                version: "v1".to_owned(),
            })),
            Some(Live::Failed(failure)) => {
                return UnrecordedNamespaces::Unknown(describe_failure(&id, "read", failure));
            }
            Some(Live::Present(object)) => {
                let metadata = object.0.get("metadata").cloned().unwrap_or_default();
                let found =
                    serde_json::from_value::<ObjectMeta>(metadata).map(|metadata| NamespaceFacts::from(&metadata));
                let is_created = |found: &NamespaceFacts| {
                    found.tenant_label.as_ref() == Some(&facts.name) && is_intended(facts, found)
                };
                created.extend(found.ok().filter(is_created));
            }
            Some(Live::Absent | Live::Unserved) => {}
        }
    }
    match reads.is_empty() {
        true => UnrecordedNamespaces::Known(created),
        false => UnrecordedNamespaces::ReadFirst(reads),
    }
}

fn delete_namespaces(
    snapshot: &Snapshot,
    remaining: &[&NamespaceFacts],
    now: Timestamp,
    plan: &mut Plan,
    problems: &mut Vec<String>,
) -> Vec<Request> {
    let names: BTreeSet<ObjectId> = remaining
        .iter()
        .map(|facts| labels::make_namespace_id(&facts.name))
        .collect();
    let uids: BTreeSet<&str> = remaining.iter().map(|facts| facts.uid.as_str()).collect();
    let mut dependents = super::make_dependents(snapshot, now, &mut plan.memory);
    let Dependents { live, .. } = dependents;
    let deletions = dependents.plan_deletions(
        |id| !names.contains(id),
        |live| {
            ObjectView::new(live)
                .find_text("/metadata/uid")
                .is_some_and(|uid| uids.contains(uid))
        },
        "its Tenant is being deleted",
        problems,
    );
    // Deletes the observed version. If the garbage collector has just removed the owner, the new version is unknown.
    let with_version = |delete: Delete| {
        let seen = live.get(&delete.target.id).and_then(|live| live.object());
        let version = seen.and_then(|seen| ObjectView::new(seen).find_text("/metadata/resourceVersion"));
        Request::Delete(Delete {
            resource_version: version.map(str::to_owned),
            ..delete
        })
    };
    deletions.into_iter().map(with_version).collect()
}

/// Reports the namespaces that the Tenant waits for.
fn tell_remaining(
    snapshot: &Snapshot,
    remaining: &[&NamespaceFacts],
    now: Timestamp,
    problems: Vec<String>,
    mut plan: Plan,
) -> Plan {
    let names: Vec<String> = remaining.iter().map(|facts| facts.name.clone()).collect();
    let mut message = format!(
        "is being deleted, and its namespaces with it: {} still there. For the reason see: kubectl get namespace NAME -o jsonpath='{{.status.conditions}}'",
        outcome::join_names(&names, status::LONGEST_LIST)
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
        plan.events.extend(outcome::make_event(
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
    outcome::set_condition(&mut status.conditions, &snapshot.tenant.metadata, now, entry);
    plan.status = outcome::find_change(snapshot.tenant.status.as_ref(), &status);
    let retry = (!problems.is_empty()).then(|| add_duration(now, RETRY_INTERVAL));
    plan.next = Next::Done(retry.map(|at| plan.memory.next().map_or(at, |next| next.min(at))));
    plan
}
