//! The objects to watch with a Kustomization's identity: the inputs of its rendering, the desired objects, and the objects of the inventory that are known to be its
//! own.
//!
//! An inventory is part of a status, and an account that may write a status could name anything in it. So an entry alone opens no watch. This process must have found
//! the object as desired, or must have read it with labels that name the Kustomization. A watch is for a kind in a namespace, and the number of watches for one
//! Kustomization is bounded. Objects beyond the bound are read again at the end of the interval.

use std::collections::BTreeSet;

use tenure_api::text::count_of;
use tenure_tenancy::{Placement, inventory};

use super::context::Context;
use super::desired::Desired;
use super::types::Snapshot;
use super::{health_check, prune, remote_cluster};
use crate::answer::Live;
use crate::plan::Watched;

/// The number of watches (a kind in a namespace) for one Kustomization.
const MOST_STREAMS: usize = 256;

/// Lists the inputs of the rendering, and the objects of the inventory that are known to be the Kustomization's own. They stay watched also if an attempt fails before
/// the desired objects are known.
pub(super) fn list_tracked(snapshot: &Snapshot) -> Vec<Watched> {
    let inputs = remote_cluster::list_beside(snapshot).into_iter();
    limit_watches(inputs.chain(list_own_entries(snapshot))).0
}

/// Lists the inputs of the rendering, all desired objects, the objects of the inventory that may still exist, and the objects that health depends on.
pub(super) fn list_watched(context: &mut Context<'_>, desired: &Desired) -> Vec<Watched> {
    let reach = context.find_bounds();
    let targets = desired.objects.iter().map(|desired| &desired.target);
    let targets: BTreeSet<&Watched> = targets.filter(|target| is_watchable(&reach, target)).collect();
    let checks = context
        .spec()
        .health_checks
        .iter()
        .filter_map(health_check::find_target);
    let others = list_own_entries(context.snapshot)
        .into_iter()
        .filter(|entry| !desired.contains(&entry.id));
    let inputs = remote_cluster::list_beside(context.snapshot).into_iter();
    let (watched, left_out) = limit_watches(inputs.chain(targets.into_iter().cloned()).chain(checks).chain(others));
    if left_out > 0 {
        context.withhold(
            format!("the watch of {}", count_of(left_out, "object")),
            format!("the objects are of more than {MOST_STREAMS} kinds and namespaces: unwatched objects are read at each interval"),
        );
    }
    watched
}

/// Checks whether an object can be watched with a tenant's rights. Its Namespaces can't: a watch of them needs a right in the whole cluster. They are read at each
/// interval.
fn is_watchable(reach: &Placement, target: &Watched) -> bool {
    !matches!(reach, Placement::Tenant(_)) || !target.id.namespace.is_empty()
}

fn list_own_entries(snapshot: &Snapshot) -> Vec<Watched> {
    let status = snapshot.kustomization.status.as_ref();
    let reach = snapshot.find_bounds();
    prune::list_entries(status.and_then(|status| status.inventory.as_ref()))
        .into_iter()
        .filter(|target| inventory::check_entry(&reach, &target.id).is_ok())
        .filter(|target| is_watchable(&reach, target) && is_known(snapshot, target))
        .collect()
}

/// Checks whether this process knows that an object is this Kustomization's: the object was desired, or was read with the Kustomization's labels.
fn is_known(snapshot: &Snapshot, target: &Watched) -> bool {
    let metadata = &snapshot.kustomization.metadata;
    let (Some(namespace), Some(name)) = (metadata.namespace.as_deref(), metadata.name.as_deref()) else {
        return false;
    };
    let says_so = || match snapshot.live.get(&target.id) {
        Some(Live::Present(live)) => inventory::is_owned(&live.0, namespace, name),
        Some(Live::Absent | Live::Unserved | Live::Failed(_)) | None => false,
    };
    snapshot.memory.settled.contains_key(&target.id) || says_so()
}

/// Returns the objects that fit into the allowed number of streams, sorted and without duplicates, and the number of the others.
fn limit_watches(wanted: impl Iterator<Item = Watched>) -> (Vec<Watched>, usize) {
    let mut streams: BTreeSet<(String, String, String, String)> = BTreeSet::new();
    let mut watched: BTreeSet<Watched> = BTreeSet::new();
    let mut left_out = 0;
    for target in wanted {
        let stream = (
            target.id.group.clone(),
            target.id.kind.clone(),
            target.version.clone(),
            target.id.namespace.clone(),
        );
        if streams.contains(&stream) || streams.len() < MOST_STREAMS {
            streams.insert(stream);
            watched.insert(target);
        } else {
            left_out += 1;
        }
    }
    (watched.into_iter().collect(), left_out)
}
