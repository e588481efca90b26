//! The other Kustomizations that have wanted objects, and their answers. If they live in other lanes, those lanes are asked.

use std::collections::{BTreeMap, BTreeSet};

use tenure_api::{Kustomization, ObjectId};
use tenure_planner::Live;
use tenure_planner::kustomization::{
    ObjectTurnover, OtherOwner, find_applied_revision, find_other_cluster, is_idle, name_source,
};
use tenure_tenancy::{Placement, owner};

use super::observe::list_depending;
use crate::cluster_view::key::Key;
use crate::lane::{OwnerAnswer, Shard};
use crate::reconcile_loop::reconciled::Reconciled as _;

/// Returns the objects whose labels name another Kustomization: its namespace and name.
pub(crate) fn list_labelled(key: &Key, live: &BTreeMap<ObjectId, Live>) -> BTreeMap<ObjectId, (String, String)> {
    let other = |(id, live): (&ObjectId, &Live)| {
        let (namespace, name) = live.object().and_then(owner::read_owner_labels)?;
        let is_own = namespace == key.namespace && name == key.name;
        (!is_own).then(|| (id.clone(), (namespace.to_owned(), name.to_owned())))
    };
    live.iter().filter_map(other).collect()
}

/// Asks the Kustomizations that these objects' labels name. Returns the objects that are in their inventories, and the answers of these
/// Kustomizations.
pub(super) async fn ask_owners(
    shard: &Shard,
    key: &Key,
    labelled: &BTreeMap<ObjectId, (String, String)>,
    cluster: Option<&str>,
) -> (BTreeMap<ObjectId, String>, BTreeMap<String, OtherOwner>) {
    let mut wanted: BTreeMap<(&str, &str), Vec<ObjectId>> = BTreeMap::new();
    for (id, (namespace, name)) in labelled {
        wanted
            .entry((namespace.as_str(), name.as_str()))
            .or_default()
            .push(id.clone());
    }
    let (mut owners, mut rivals) = (BTreeMap::new(), BTreeMap::new());
    let mut dependents: Option<BTreeSet<String>> = None;
    for ((namespace, name), objects) in wanted {
        let Some(answer) = shard.hub_api.ask_owner((namespace, name), &objects, cluster).await else {
            continue;
        };
        let beside = || shard.caches.get::<Kustomization>().in_namespace(&key.namespace);
        let mut rival = answer.rival;
        rival.waits_for_us = namespace == key.namespace
            && dependents
                .get_or_insert_with(|| list_depending(&beside(), &key.name))
                .contains(name);
        let label = format!("{namespace}/{name}");
        owners.extend(answer.has.into_iter().map(|id| (id, label.clone())));
        rivals.insert(label, rival);
    }
    (owners, rivals)
}

/// Returns the answer of the Kustomization `name` to another one that wants these objects; `None` if its inventory has none of them, or is of another
/// cluster.
pub(crate) async fn answer_owner(
    shard: &Shard,
    name: &str,
    objects: &[ObjectId],
    cluster: Option<&str>,
) -> Option<OwnerAnswer> {
    let key = Key::new(Kustomization::KIND, &shard.namespace, name);
    let has: Vec<ObjectId> = objects
        .iter()
        .filter(|id| shard.inventory_index.names(&key, id))
        .cloned()
        .collect();
    if has.is_empty() {
        return None;
    }
    let kustomization = shard.caches.get::<Kustomization>().get(&key.namespace, name)?;
    if find_other_cluster(&kustomization).as_deref() != cluster {
        return None;
    }
    let turnover = shard.turnover_reports.find_report(&key);
    let turnover = turnover.filter(|turnover| turnover.is_present(&kustomization));
    let rival = describe_rival(
        &kustomization,
        shard.read_placement().await,
        turnover.as_deref().cloned(),
    );
    Some(OwnerAnswer { rival, has })
}

/// Returns a Kustomization's answer from its object, its placement, and its reported turnover.
pub(crate) fn describe_rival(
    kustomization: &Kustomization,
    placement: Placement,
    turnover: Option<ObjectTurnover>,
) -> OtherOwner {
    let metadata = &kustomization.metadata;
    OtherOwner {
        placement,
        uid: metadata.uid.clone().unwrap_or_default(),
        source: name_source(kustomization),
        idle: is_idle(kustomization),
        // Only a Kustomization in the same namespace knows this.
        waits_for_us: false,
        applied: find_applied_revision(kustomization).map(str::to_owned),
        leaving: metadata.deletion_timestamp.is_some(),
        turnover,
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
    }
}
