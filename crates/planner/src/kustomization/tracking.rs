//! The inventory: its entries before the apply, during an attempt, and at its end.
//!
//! An object that was named and then not created stays in the inventory until a prune finds that it doesn't exist. The plan can't know whether a write of it is still
//! in progress.

use std::collections::{BTreeSet, HashMap, HashSet};

use tenure_api::ObjectId;
use tenure_api::inventory::{ResourceInventory, ResourceRef, split_api_version};
use tenure_api::metadata::OWNER_NAME;

use super::context::Context;
use super::desired::Desired;
use super::prune::Pruned;
use crate::answer::{Live, WriteAnswer};
use crate::plan::Watched;

/// Returns the inventory while some objects are not settled: no entry is lost, and all applied objects are in it.
pub(super) fn list_inventory_so_far<'w>(
    context: &Context<'_>,
    also: impl Iterator<Item = &'w Watched>,
) -> Option<ResourceInventory> {
    let old = context.status().inventory;
    let mut entries = old.clone().map(|inventory| inventory.entries).unwrap_or_default();
    let mut named: HashMap<String, usize> = HashMap::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        named.entry(entry.id.clone()).or_insert(index);
    }
    for (id, answer) in &context.snapshot.attempt.applied {
        let text = id.to_string();
        if let WriteAnswer::Done(object) = answer
            && !named.contains_key(&text)
        {
            let api_version = object.view().read_text("/apiVersion");
            let v = split_api_version(api_version).1.to_owned();
            named.insert(text.clone(), entries.len());
            // An object gets its entry, and its mark, before it is applied for the first time.
            entries.push(ResourceRef {
                id: text,
                v,
                adopted: false,
            });
        }
    }
    for target in also {
        let id = target.id.to_string();
        let known = named.get(&id).and_then(|index| entries.get_mut(*index));
        let adopted = is_adopted(context, &target.id, known.as_deref());
        if let Some(entry) = known {
            entry.adopted = adopted;
        } else {
            named.insert(id.clone(), entries.len());
            let v = target.version.clone();
            entries.push(ResourceRef { id, v, adopted });
        }
    }
    if entries.is_empty() && old.is_none() {
        None
    } else {
        Some(ResourceInventory { entries })
    }
}

/// Lists the adopted objects of the inventory.
pub(super) fn list_adopted(inventory: Option<&ResourceInventory>) -> BTreeSet<ObjectId> {
    let entries = inventory.into_iter().flat_map(|inventory| &inventory.entries);
    let adopted = entries.filter(|entry| entry.adopted);
    adopted.filter_map(|entry| entry.id.parse().ok()).collect()
}

/// Checks whether an object existed before it was applied for the first time, and no Kustomization owned it. An object that is absent will be created.
fn is_adopted(context: &Context<'_>, id: &ObjectId, known: Option<&ResourceRef>) -> bool {
    match (context.find_live(id), known) {
        (Some(Live::Absent | Live::Unserved), _) => false,
        (_, Some(entry)) => entry.adopted && !context.snapshot.attempt.deleted.contains_key(id),
        (Some(Live::Present(live)), None) => live.view().find_label(OWNER_NAME).is_none(),
        (_, None) => false,
    }
}

/// Returns the inventory after everything desired was applied: the desired objects, objects that are still being deleted, and unreadable objects.
pub(super) fn list_inventory_after(context: &Context<'_>, desired: &Desired, pruned: &Pruned) -> ResourceInventory {
    let old = context.status().inventory.unwrap_or_default();
    let known: HashMap<&str, &ResourceRef> = old.entries.iter().map(|entry| (entry.id.as_str(), entry)).collect();
    let entry = |target: &Watched| {
        let id = target.id.to_string();
        let adopted = is_adopted(context, &target.id, known.get(id.as_str()).copied());
        let v = target.version.clone();
        ResourceRef { id, v, adopted }
    };
    let mut entries: Vec<ResourceRef> = desired.objects.iter().map(|object| entry(&object.target)).collect();
    entries.extend(pruned.remaining.iter().map(entry));
    let left = desired
        .unknown
        .iter()
        .map(|(unknown, _)| unknown)
        .chain(&desired.replaced);
    let left: HashSet<String> = left.map(ToString::to_string).collect();
    entries.extend(old.entries.into_iter().filter(|entry| left.contains(&entry.id)));
    ResourceInventory { entries }
}
