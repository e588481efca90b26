//! Pruning: an object in the inventory that Git no longer has is deleted, if the live object's own labels also name this Kustomization.

use std::collections::BTreeSet;

use tenure_api::inventory::{ResourceInventory, ResourceRef};
use tenure_api::metadata::{PRUNE, RECONCILE, SSA};
use tenure_api::{ObjectId, ObjectView, reason};
use tenure_tenancy::inventory;
use tenure_tenancy::write_scope::{self, Scope};

use super::apply_mode::{ApplyMode, DetectedDifference};
use super::changes;
use super::claims::{self, UnknownOwners};
use super::context::Context;
use super::desired::Desired;
use super::object_action::find_version;
use super::order;
use super::preview::DifferenceKind;
use super::removal_order::{self, NextRemoval};
use super::step::{Step, SurveyRequest};
use super::{Phase, flux_components, guard, outcome, siblings};
use crate::answer::{DeleteAnswer, Live};
use crate::outcome::join_names;
use crate::plan::{Delete, Propagation, Request, Watched, Withheld};

/// The number of looks in an attempt at an object that changes before its deletion.
const LOOKS: u32 = 5;

/// The result of the prune.
#[derive(Clone, Debug, Default)]
pub(super) struct Pruned {
    /// Objects that may still exist, and stay in the inventory.
    pub(super) remaining: Vec<Watched>,
    /// Objects that leave the inventory and stay in the cluster because of an annotation.
    pub(super) kept: Vec<String>,
    /// Whether it had to be put off for others, which begin when this one's attempt has ended.
    pub(super) put_off: bool,
}

/// The possible action for one object of the inventory.
pub(super) enum PruneDecision {
    Read,
    Delete(Delete),
    /// The object does not exist, or does not exist any more.
    Gone,
    /// The object isn't this Kustomization's to delete; it leaves the inventory.
    Released(String),
    /// An annotation keeps it; it leaves the inventory.
    Kept(String),
    /// The object is being deleted.
    Terminating,
    Failed(String),
}

/// Lists the entries of the inventory that Git no longer has, in the order of their deletion. Entries that cannot be this Kustomization's are left out.
pub(super) fn list_candidates(context: &Context<'_>, desired: &Desired) -> Vec<Watched> {
    let reach = context.find_bounds();
    list_entries(
        context
            .snapshot
            .kustomization
            .status
            .as_ref()
            .and_then(|status| status.inventory.as_ref()),
    )
    .into_iter()
    .filter(|target| !desired.contains(&target.id))
    .filter(|target| inventory::check_entry(&reach, &target.id).is_ok())
    .collect()
}

/// Lists the entries of an inventory that can be read, in the order of their deletion.
pub(super) fn list_entries(inventory: Option<&ResourceInventory>) -> Vec<Watched> {
    let mut targets: Vec<Watched> = inventory
        .into_iter()
        .flat_map(|inventory| &inventory.entries)
        .filter_map(|ResourceRef { id, v, .. }| {
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

/// Prunes; returns after every deletion was answered.
pub(super) fn prune_objects(context: &mut Context<'_>, desired: &Desired) -> Phase<Pruned> {
    let status = context.status();
    let mut pruned = Pruned::default();
    let reach = context.find_bounds();
    for ResourceRef { id, .. } in status.inventory.iter().flat_map(|inventory| &inventory.entries) {
        if let Err(error) = id.parse::<ObjectId>() {
            context.withhold(format!("prune of {id}"), error.to_string());
        }
    }
    for target in list_entries(status.inventory.as_ref()) {
        if desired.contains(&target.id) {
            continue;
        }
        if let Err(denial) = inventory::check_entry(&reach, &target.id) {
            context.withhold(format!("prune of {}", target.id.subject()), denial.message);
            // No right of a tenant reads a namespace that it doesn't have: gone and disputed ones look the same.
            if write_scope::find_new_namespace(&reach, Scope::Cluster, &target.id).is_some() {
                continue;
            }
            // The owner of the namespace may be in dispute for a while only. If the object left the inventory now, it would have no owner for ever.
            pruned.remaining.push(target);
        }
    }
    let candidates = list_candidates(context, desired);
    if !context.spec().prune {
        for target in candidates {
            context.withhold(
                format!("prune of {}", target.id.subject()),
                "spec.prune is false: it is left and no longer tracked",
            );
        }
        return Ok(Pruned::default());
    }
    let mut reads = Vec::new();
    let mut deletes = Vec::new();
    let mut failures = Vec::new();
    let mut terminating = Vec::new();
    let mut threatened = 0;
    for target in candidates {
        let verdict = decide_candidate(context, &target, "it is no longer in the source");
        let goes = matches!(verdict, PruneDecision::Delete(_) | PruneDecision::Failed(_));
        threatened += usize::from(goes || context.snapshot.attempt.deleted.contains_key(&target.id));
        match verdict {
            PruneDecision::Read => reads.push(Request::Read(target)),
            PruneDecision::Delete(delete) => deletes.push(delete),
            PruneDecision::Gone => {}
            PruneDecision::Released(why) => context.withhold(format!("prune of {}", target.id.subject()), why),
            PruneDecision::Kept(why) => {
                pruned.kept.push(target.id.subject());
                context.withhold(format!("prune of {}", target.id.subject()), why);
            }
            PruneDecision::Terminating => terminating.push(target),
            PruneDecision::Failed(message) => failures.push(message),
        }
    }
    if !reads.is_empty() {
        return Err(context.fork().plan_again(reads));
    }
    pruned.remaining.extend(terminating.iter().cloned());
    if context.mode == ApplyMode::DetectOnly {
        for delete in deletes {
            let line = format!("{} would be deleted: {}", delete.target.id.subject(), delete.why);
            context.detected.push(DetectedDifference {
                id: Some(delete.target.id),
                what: DifferenceKind::Pruned,
                line,
                fields: Vec::new(),
            });
        }
        context
            .detected
            .extend(failures.into_iter().map(|line| DetectedDifference {
                id: None,
                what: DifferenceKind::Unseen,
                line,
                fields: Vec::new(),
            }));
        return Ok(pruned);
    }
    // Objects that other Kustomizations of the source want aren't threatened by this prune.
    let before = deletes.len();
    let deletes = keep_for_siblings(context, deletes, &mut pruned)?;
    let threatened = threatened.saturating_sub(before.saturating_sub(deletes.len()));
    let size = guard::PruneSize {
        threatened,
        inventory: list_entries(status.inventory.as_ref()).len(),
        desired: desired.count(),
    };
    let owners = match claims::find_claim_owners(context, &deletes) {
        Ok(owners) => owners,
        Err(UnknownOwners::Ask(requests)) => return Err(context.fork().plan_again(requests)),
        Err(UnknownOwners::Failed(message)) => {
            failures.push(message);
            return Err(outcome::plan_failed(
                context.fork(),
                reason::PRUNE_FAILED,
                failures.join("\n"),
            ));
        }
    };
    let guarded = guard::guard_prune(context, deletes, &owners, &size);
    // Deletions begin after everything is allowed.
    if let (Some(message), ApplyMode::All) = (guarded.find_stop(), context.mode) {
        failures.push(message.to_owned());
        let reason = if failures.len() == 1 {
            reason::DELETION_GUARDED
        } else {
            reason::PRUNE_FAILED
        };
        return Err(outcome::plan_failed(context.fork(), reason, failures.join("\n")));
    }
    let is_hindered = !failures.is_empty() || guarded.held.is_some();
    match removal_order::choose_next(context, guarded.free, &terminating, is_hindered) {
        NextRemoval::Delete(deletes) | NextRemoval::DeleteOwnRights(deletes) => {
            for delete in &deletes {
                let line = format!("{} deleted", delete.target.id.subject());
                changes::record_change(context, &delete.target.id, line);
                context.memory.settled.remove(&delete.target.id);
            }
            let steps = deletes.into_iter().map(Request::Delete).collect();
            let plan = context.fork().plan_again(steps);
            return Err(guard::store_allowed(context.snapshot, plan));
        }
        NextRemoval::Wait(children, until) => {
            let held = removal_order::describe_children(context, &children);
            let message = format!("Waiting with the rest of the prune until these are gone: {held}");
            return Err(outcome::plan_waiting(context.fork(), until, message));
        }
        NextRemoval::Done => {}
    }
    if !failures.is_empty() {
        failures.extend(guarded.held);
        return Err(outcome::plan_failed(
            context.fork(),
            reason::PRUNE_FAILED,
            failures.join("\n"),
        ));
    }
    if let Some(message) = guarded.held {
        return Err(outcome::plan_failed(context.fork(), reason::DELETION_GUARDED, message));
    }
    Ok(pruned)
}

/// Filters the deletions: objects that other Kustomizations of the source want stay. The prune waits, for at most the timeout, until all of them have reached this
/// revision and have taken over the objects that they want. Then it waits as long again for the dependents of this one.
fn keep_for_siblings(context: &mut Context<'_>, deletes: Vec<Delete>, pruned: &mut Pruned) -> Phase<Vec<Delete>> {
    if deletes.is_empty() {
        return Ok(deletes);
    }
    let ids: BTreeSet<ObjectId> = deletes.iter().map(|delete| delete.target.id.clone()).collect();
    let survey = match &context.snapshot.survey {
        Some(survey) if ids.is_subset(&survey.asked) => survey,
        _ => {
            let revision = context.revision.clone().unwrap_or_default();
            return Err(context
                .fork()
                .plan_again(vec![Step::Survey(SurveyRequest { revision, ids })]));
        }
    };
    let (wanted, free): (Vec<Delete>, Vec<Delete>) = deletes
        .into_iter()
        .partition(|delete| survey.wanted.contains_key(&delete.target.id));
    if wanted.is_empty() && survey.behind.is_none() && survey.behind_us.is_none() {
        (context.memory.prune_waiting, context.memory.prune_put_off) = (None, None);
        return Ok(free);
    }
    let sibling = |name: &str| format!("Kustomization/{}/{name}", context.namespace);
    let mut waits_for = BTreeSet::new();
    for delete in &wanted {
        let id = &delete.target.id;
        let Some(by) = survey.wanted.get(id) else { continue };
        let why = format!("{} wants it: left for it to take over", sibling(&by.name));
        if !by.waits_for_us {
            waits_for.insert(sibling(&by.name));
        }
        context.withheld.push(Withheld {
            what: format!("prune of {}", id.subject()),
            why,
        });
    }
    waits_for.extend(survey.behind.as_deref().filter(|_| !free.is_empty()).map(sibling));
    let behind_us = survey.behind_us.as_deref().map(sibling);
    let deadline = siblings::find_prune_deadline(context);
    if context.now < deadline && !waits_for.is_empty() {
        let revision = context.revision.as_deref().unwrap_or_default();
        let names: Vec<String> = waits_for.into_iter().collect();
        let message = format!(
            "Waiting with the prune until {revision} is reached by {}",
            join_names(&names, 500)
        );
        return Err(outcome::plan_waiting(context.fork(), deadline, message));
    }
    pruned.remaining.extend(wanted.into_iter().map(|delete| delete.target));
    match behind_us {
        // The plan can't wait for that Kustomization, which itself waits until this one is ready.
        Some(behind) if !siblings::is_prune_delay_over(context) => {
            for delete in free {
                let what = format!("prune of {}", delete.target.id.subject());
                context.withhold(what, format!("{behind} comes after this one, and may want it"));
                pruned.remaining.push(delete.target);
            }
            pruned.put_off = true;
            Ok(Vec::new())
        }
        _ => Ok(free),
    }
}

/// Judges one candidate, by its live state and the answers of this attempt.
pub(super) fn decide_candidate(context: &mut Context<'_>, target: &Watched, why: &str) -> PruneDecision {
    let subject = target.id.subject();
    let live = match context.find_live(&target.id) {
        None => return PruneDecision::Read,
        Some(Live::Absent | Live::Unserved) => return PruneDecision::Gone,
        Some(Live::Failed(failure)) => {
            return PruneDecision::Failed(format!(
                "{subject} can't be read before its deletion ({}): {}",
                failure.reason, failure.message
            ));
        }
        Some(Live::Present(object)) => &object.0,
    };
    match context.snapshot.attempt.deleted.get(&target.id) {
        Some(DeleteAnswer::Changed { times, .. }) if *times >= LOOKS => {
            return PruneDecision::Failed(format!("{subject} keeps changing while it is to be deleted"));
        }
        // The known state may be from before the change.
        Some(DeleteAnswer::Changed {
            resource_version,
            looked_again: false,
            ..
        }) if *resource_version == find_version(live) => {
            return PruneDecision::Read;
        }
        Some(DeleteAnswer::Changed { .. }) => {}
        Some(DeleteAnswer::Absent) => return PruneDecision::Gone,
        Some(DeleteAnswer::Accepted) => return PruneDecision::Terminating,
        Some(DeleteAnswer::Failed(failure)) => {
            return PruneDecision::Failed(format!(
                "{subject} delete failed ({}): {}",
                failure.reason, failure.message
            ));
        }
        None => {}
    }
    if !inventory::is_owned(live, context.namespace, context.name) {
        // A watch may still report the state before this Kustomization took the object over. If the object were given up for that, it would be in no inventory.
        if context.memory.confirmed.insert(target.id.clone()) {
            return PruneDecision::Read;
        }
        return PruneDecision::Released("its owner labels do not name this Kustomization: it is left".to_owned());
    }
    if flux_components::keeps_kinds(context.snapshot, &target.id) {
        let why = "objects of its kind are reconciled here, and would go with it: it is left";
        return PruneDecision::Released(why.to_owned());
    }
    let says = |key: &str, value: &str| ObjectView::new(live).has_annotation(key, value);
    for (key, value) in [(PRUNE, "disabled"), (RECONCILE, "disabled"), (SSA, "Ignore")] {
        if says(key, value) {
            return PruneDecision::Kept(format!("annotation {key} says {value}: it is left"));
        }
    }
    if ObjectView::new(live).is_being_deleted() {
        return PruneDecision::Terminating;
    }
    PruneDecision::Delete(Delete {
        target: target.clone(),
        uid: ObjectView::new(live).find_text("/metadata/uid").map(str::to_owned),
        resource_version: find_version(live),
        propagation: Propagation::Background,
        why: why.to_owned(),
    })
}
