//! Pruning: what the inventory names and Git no longer has is deleted, if the live object's own labels say that it is ours too.

use std::collections::BTreeSet;

use serde_json::Value;
use tenure_api::inventory::{ResourceInventory, ResourceRef};
use tenure_api::metadata::{PRUNE, RECONCILE, SSA};
use tenure_api::{ObjectId, reason};
use tenure_tenancy::inventory;

use super::apply::annotation;
use super::context::Context;
use super::desired::Desired;
use super::order;
use super::{Phase, ending};
use crate::answer::{DeleteAnswer, Live};
use crate::plan::{Delete, Step, Watched};

/// How the prune ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Pruned {
    /// What may still be there and stays in the inventory.
    pub(super) remaining: Vec<Watched>,
}

/// What may be done about one object of the inventory.
pub(super) enum Verdict {
    Read,
    Delete(Delete),
    /// It is not there (any more).
    Gone,
    /// It is not ours to delete; it leaves the inventory.
    Released(String),
    /// It is being deleted.
    Terminating,
    Failed(String),
}

/// The entries of the inventory that Git no longer has, in the order of their deletion. Entries that cannot be ours are left out.
pub(super) fn candidates(context: &Context<'_>, desired: &Desired) -> Vec<Watched> {
    entries(
        context
            .snapshot
            .kustomization
            .status
            .as_ref()
            .and_then(|status| status.inventory.as_ref()),
    )
    .into_iter()
    .filter(|target| !desired.contains(&target.id))
    .filter(|target| inventory::entry(&context.snapshot.placement, &target.id).is_ok())
    .collect()
}

/// The entries of an inventory that can be read, in the order of their deletion.
pub(super) fn entries(inventory: Option<&ResourceInventory>) -> Vec<Watched> {
    let mut targets: Vec<Watched> = inventory
        .into_iter()
        .flat_map(|inventory| &inventory.entries)
        .filter_map(|ResourceRef { id, v }| {
            Some(Watched {
                id: id.parse().ok()?,
                version: v.clone(),
            })
        })
        .collect();
    targets.sort_by(|one, other| order::compare(&other.id, &one.id));
    let mut seen: BTreeSet<ObjectId> = BTreeSet::new();
    targets.retain(|target| seen.insert(target.id.clone()));
    targets
}

/// Prunes; returns when every delete was answered.
pub(super) fn prune(context: &mut Context<'_>, desired: &Desired) -> Phase<Pruned> {
    let status = context.status();
    for ResourceRef { id, .. } in status.inventory.iter().flat_map(|inventory| &inventory.entries) {
        match id.parse::<ObjectId>() {
            Err(error) => context.withhold(format!("prune of {id}"), error.to_string()),
            Ok(parsed) if desired.contains(&parsed) => {}
            Ok(parsed) => {
                if let Err(denial) = inventory::entry(&context.snapshot.placement, &parsed) {
                    context.withhold(format!("prune of {}", parsed.subject()), denial.message);
                }
            }
        }
    }
    let candidates = candidates(context, desired);
    if !context.spec().prune {
        for target in candidates {
            context.withhold(
                format!("prune of {}", target.id.subject()),
                "spec.prune is false: it is left and no longer tracked",
            );
        }
        return Ok(Pruned::default());
    }
    let mut pruned = Pruned::default();
    let mut reads = Vec::new();
    let mut deletes = Vec::new();
    let mut failures = Vec::new();
    for target in candidates {
        match verdict(context, &target, "it is no longer in the source") {
            Verdict::Read => reads.push(Step::Read(target)),
            Verdict::Delete(step) => {
                let line = format!("{} deleted", target.id.subject());
                context.memory.changes.insert(target.id.clone(), line);
                context.memory.settled.remove(&target.id);
                deletes.push(Step::Delete(step));
            }
            Verdict::Gone => {}
            Verdict::Released(why) => context.withhold(format!("prune of {}", target.id.subject()), why),
            Verdict::Terminating => pruned.remaining.push(target),
            Verdict::Failed(message) => failures.push(message),
        }
    }
    if !reads.is_empty() {
        return Err(context.fork().again(reads));
    }
    if !deletes.is_empty() {
        return Err(context.fork().again(deletes));
    }
    if !failures.is_empty() {
        return Err(ending::failed(
            context.fork(),
            reason::PRUNE_FAILED,
            failures.join("\n"),
        ));
    }
    Ok(pruned)
}

/// What may be done about one object, by its live state and the answers of this attempt.
pub(super) fn verdict(context: &Context<'_>, target: &Watched, why: &str) -> Verdict {
    let subject = target.id.subject();
    let live = match context.live(&target.id) {
        None => return Verdict::Read,
        Some(Live::Absent) => return Verdict::Gone,
        Some(Live::Failed(failure)) => {
            return Verdict::Failed(format!(
                "{subject} can't be read before its deletion ({}): {}",
                failure.reason, failure.message
            ));
        }
        Some(Live::Present(object)) => &object.0,
    };
    match context.snapshot.attempt.deleted.get(&target.id) {
        Some(DeleteAnswer::Absent) => return Verdict::Gone,
        Some(DeleteAnswer::Accepted) => return Verdict::Terminating,
        Some(DeleteAnswer::Failed(failure)) => {
            return Verdict::Failed(format!(
                "{subject} delete failed ({}): {}",
                failure.reason, failure.message
            ));
        }
        None => {}
    }
    if !inventory::is_owned(live, context.namespace, context.name) {
        return Verdict::Released("its owner labels do not name this Kustomization: it is left".to_owned());
    }
    let says = |key: &str, value: &str| annotation(live, key).is_some_and(|found| found.eq_ignore_ascii_case(value));
    for (key, value) in [(PRUNE, "disabled"), (RECONCILE, "disabled"), (SSA, "Ignore")] {
        if says(key, value) {
            return Verdict::Released(format!("annotation {key} says {value}: it is left"));
        }
    }
    if live.pointer("/metadata/deletionTimestamp").is_some() {
        return Verdict::Terminating;
    }
    Verdict::Delete(Delete {
        target: target.clone(),
        uid: live.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned),
        propagation: "Background".to_owned(),
        why: why.to_owned(),
    })
}
