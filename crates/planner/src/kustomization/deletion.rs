//! A Kustomization that is being deleted: its objects go or stay by its deletion policy, then its finalizer goes.

use jiff::Timestamp;
use tenure_api::kustomization::DeletionPolicy;
use tenure_api::metadata::FLUX_FINALIZER;
use tenure_api::reason;
use tenure_tenancy::{identity, inventory};

use super::context::{Context, deletes_objects, subject};
use super::prune::{self, Verdict};
use super::types::{ServiceAccountFacts, Snapshot};
use super::{Plan, ending};
use crate::overlay::Overlay;
use crate::plan::{Event, EventKind, FinalizerChange, Next, Step, Withheld};

/// What to do about a Kustomization that is being deleted.
pub(super) fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let metadata = &snapshot.kustomization.metadata;
    let ours = metadata
        .finalizers
        .iter()
        .flatten()
        .any(|finalizer| finalizer == FLUX_FINALIZER);
    if !ours {
        let mut plan = Plan::idle(subject(snapshot), super::Memory::default());
        plan.next = Next::Forget;
        return plan;
    }
    let spec = &snapshot.kustomization.spec;
    if spec.suspend {
        return release(snapshot, "spec.suspend is true: its objects are left", false);
    }
    if !deletes_objects(spec) {
        return release(snapshot, "its deletion policy leaves its objects", false);
    }
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let name = metadata.name.as_deref().unwrap_or_default();
    if spec.kube_config.is_some() {
        return release(
            snapshot,
            "spec.kubeConfig was refused: nothing was applied by it here",
            false,
        );
    }
    let identity =
        match identity::of_kustomization(&snapshot.placement, namespace, spec.service_account_name.as_deref()) {
            Ok(identity) => identity,
            Err(denial) => return release(snapshot, &denial.message, true),
        };
    match &snapshot.service_account {
        ServiceAccountFacts::Usable | ServiceAccountFacts::NotLooked => {}
        // As Flux: waiting for an identity that is gone would keep the namespace from going. What is left is named.
        ServiceAccountFacts::NotFound => {
            return release(snapshot, &format!("{identity} does not exist any more"), true);
        }
        ServiceAccountFacts::Refused(message) => {
            return release(snapshot, &format!("no token for {identity}: {message}"), true);
        }
    }
    let context = Context {
        snapshot,
        now,
        namespace,
        name,
        identity,
        interval: spec.interval.parse().unwrap_or(std::time::Duration::from_secs(60)),
        retry_interval: spec
            .effective_retry_interval()
            .unwrap_or(std::time::Duration::from_secs(60)),
        timeout: spec.effective_timeout().unwrap_or(std::time::Duration::from_secs(300)),
        path: String::new(),
        overlay: Overlay::default(),
        memory: snapshot.memory.clone(),
        withheld: Vec::new(),
        events: Vec::new(),
        watch: Vec::new(),
        revision: None,
    };
    delete_objects(context)
}

fn delete_objects(mut context: Context<'_>) -> Plan {
    let snapshot = context.snapshot;
    let status = context.status();
    let mut reads = Vec::new();
    let mut deletes = Vec::new();
    let mut failures = Vec::new();
    let mut terminating = Vec::new();
    let mut deleted = Vec::new();
    for target in prune::entries(status.inventory.as_ref()) {
        let subject = target.id.subject();
        if let Err(denial) = inventory::entry(&snapshot.placement, &target.id) {
            context.withhold(format!("deletion of {subject}"), denial.message);
            continue;
        }
        match prune::verdict(&context, &target, "its Kustomization is deleted") {
            Verdict::Read => reads.push(Step::Read(target)),
            Verdict::Delete(step) => deletes.push(Step::Delete(step)),
            Verdict::Gone => {}
            Verdict::Released(why) => context.withhold(format!("deletion of {subject}"), why),
            Verdict::Terminating => {
                context.watch.push(target);
                terminating.push(subject);
            }
            Verdict::Failed(message) => failures.push(message),
        }
    }
    for id in snapshot.attempt.deleted.keys() {
        deleted.push(format!("{} deleted", id.subject()));
    }
    if !reads.is_empty() {
        return *context.again(reads);
    }
    if !deletes.is_empty() {
        return *context.again(deletes);
    }
    if !failures.is_empty() {
        return *ending::failed(context, reason::PRUNE_FAILED, failures.join("\n"));
    }
    let waits = snapshot.kustomization.spec.deletion_policy() == Some(DeletionPolicy::WaitForTermination);
    if waits && !terminating.is_empty() && context.now < context.deadline() {
        let deadline = context.deadline();
        context.withhold(
            "the finalizer",
            format!("waiting until these are gone: {}", terminating.join(", ")),
        );
        return context.finish(Next::Wait(deadline));
    }
    let mut plan = context.finish(Next::Forget);
    plan.finalizer = Some(FinalizerChange::Remove(FLUX_FINALIZER.to_owned()));
    plan.watch.clear();
    if !deleted.is_empty() {
        plan.events.push(Event {
            kind: EventKind::Normal,
            reason: reason::RECONCILIATION_SUCCEEDED.to_owned(),
            message: deleted.join("\n"),
            annotations: std::collections::BTreeMap::new(),
        });
    }
    plan
}

/// Lets the object go and its objects stay.
fn release(snapshot: &Snapshot, why: &str, warn: bool) -> Plan {
    let mut plan = Plan::idle(subject(snapshot), super::Memory::default());
    plan.finalizer = Some(FinalizerChange::Remove(FLUX_FINALIZER.to_owned()));
    plan.next = Next::Forget;
    let status = snapshot.kustomization.status.as_ref();
    let left: Vec<String> = prune::entries(status.and_then(|status| status.inventory.as_ref()))
        .into_iter()
        .map(|target| target.id.subject())
        .collect();
    for subject in &left {
        plan.withheld.push(Withheld {
            what: format!("deletion of {subject}"),
            why: why.to_owned(),
        });
    }
    if warn && !left.is_empty() {
        plan.events.push(Event {
            kind: EventKind::Warning,
            reason: reason::PRUNE_FAILED.to_owned(),
            message: format!("{why}: these are left behind: {}", left.join(", ")),
            annotations: std::collections::BTreeMap::new(),
        });
    }
    plan
}
