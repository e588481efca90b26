//! What is watched with a Kustomization's identity: what is rendered with, what is desired, and of the inventory what is known to be its own.
//!
//! An inventory is part of a status, and whoever may write a status could name anything in it. So an entry alone opens no watch: the
//! object must have been found as desired by this process, or must have been read and say itself whose it is. A watch is of a kind in
//! a namespace, and it is bounded how many of these one Kustomization may have; what is beyond is looked at when its interval is over.

use std::collections::BTreeSet;

use tenure_tenancy::inventory;

use super::context::Context;
use super::desired::Desired;
use super::types::Snapshot;
use super::{elsewhere, health_check, prune};
use crate::answer::Live;
use crate::plan::Watched;

/// How many kinds in namespaces one Kustomization watches.
const MOST_STREAMS: usize = 256;

/// What is rendered with, and what the inventory names and is known to be its own: kept watched also while an attempt fails before it is known what is desired.
pub(super) fn list_tracked(snapshot: &Snapshot) -> Vec<Watched> {
    let inputs = elsewhere::list_beside(snapshot).into_iter();
    bounded(inputs.chain(own_entries(snapshot))).0
}

/// What is rendered with, everything desired, what is in the inventory and may still be, and what its health depends on.
pub(super) fn list_watched(context: &mut Context<'_>, desired: &Desired) -> Vec<Watched> {
    let targets: BTreeSet<&Watched> = desired.objects.iter().map(|desired| &desired.target).collect();
    let checks = context
        .spec()
        .health_checks
        .iter()
        .filter_map(health_check::find_target);
    let others = own_entries(context.snapshot)
        .into_iter()
        .filter(|entry| !desired.contains(&entry.id));
    let inputs = elsewhere::list_beside(context.snapshot).into_iter();
    let (watched, left_out) = bounded(inputs.chain(targets.into_iter().cloned()).chain(checks).chain(others));
    if left_out > 0 {
        context.withhold(
            format!("the watch of {left_out} objects"),
            format!("they are of more than {MOST_STREAMS} kinds and namespaces: changes of them are looked for at each interval"),
        );
    }
    watched
}

fn own_entries(snapshot: &Snapshot) -> Vec<Watched> {
    let status = snapshot.kustomization.status.as_ref();
    let reach = snapshot.reach();
    prune::list_entries(status.and_then(|status| status.inventory.as_ref()))
        .into_iter()
        .filter(|target| inventory::check_entry(&reach, &target.id).is_ok())
        .filter(|target| is_known(snapshot, target))
        .collect()
}

/// Whether this process has seen that an object is this Kustomization's.
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

/// Those that need no more streams than there may be, sorted and each once, and how many are left out.
fn bounded(wanted: impl Iterator<Item = Watched>) -> (Vec<Watched>, usize) {
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
