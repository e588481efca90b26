//! The inventory: what is named in it before it is applied, while an attempt is under way, and when it has ended.
//!
//! What was named and then not created stays named until it is pruned, which finds that it isn't there: that no write of it is still
//! under way can't be known.

use std::collections::HashSet;

use tenure_api::inventory::{ResourceInventory, ResourceRef, split_api_version};

use super::context::Context;
use super::desired::Desired;
use super::prune::Pruned;
use crate::answer::WriteAnswer;
use crate::plan::Watched;

/// The inventory while it is not known that everything of it is settled: nothing of it is lost, and what was applied is in it.
pub(super) fn list_inventory_so_far<'w>(
    context: &Context<'_>,
    also: impl Iterator<Item = &'w Watched>,
) -> Option<ResourceInventory> {
    let old = context.status().inventory;
    let mut entries = old.clone().map(|inventory| inventory.entries).unwrap_or_default();
    let mut named: HashSet<String> = entries.iter().map(|entry| entry.id.clone()).collect();
    let mut add = |id: String, v: String| {
        if named.insert(id.clone()) {
            entries.push(ResourceRef { id, v });
        }
    };
    for (id, answer) in &context.snapshot.attempt.applied {
        if let WriteAnswer::Done(object) = answer {
            let api_version = object.view().read_text("/apiVersion");
            add(id.to_string(), split_api_version(api_version).1.to_owned());
        }
    }
    for target in also {
        add(target.id.to_string(), target.version.clone());
    }
    if entries.is_empty() && old.is_none() {
        None
    } else {
        Some(ResourceInventory { entries })
    }
}

/// The inventory when everything desired was applied: that, what is still being deleted, and what could not be looked at.
pub(super) fn list_inventory_after(context: &Context<'_>, desired: &Desired, pruned: &Pruned) -> ResourceInventory {
    let entry = |target: &Watched| ResourceRef {
        id: target.id.to_string(),
        v: target.version.clone(),
    };
    let mut entries: Vec<ResourceRef> = desired.objects.iter().map(|object| entry(&object.target)).collect();
    entries.extend(pruned.remaining.iter().map(entry));
    let old = context.status().inventory.unwrap_or_default();
    let left = desired
        .unknown
        .iter()
        .map(|(unknown, _)| unknown)
        .chain(&desired.replaced);
    let left: HashSet<String> = left.map(ToString::to_string).collect();
    entries.extend(old.entries.into_iter().filter(|entry| left.contains(&entry.id)));
    ResourceInventory { entries }
}
