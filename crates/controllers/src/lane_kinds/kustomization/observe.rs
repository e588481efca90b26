//! The known facts about a Kustomization: from caches, from the artifact store, and from watches as its own identity.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenure_api::{Kustomization, ObjectId};
use tenure_planner::kustomization::SurveyRequest;
use tenure_planner::kustomization::{
    DependencyFacts, FoundDependency, ObjectTurnover, OngoingDeletions, Sibling, SourceFacts, Survey, find_cycle,
    find_dependencies, find_owner_cycle, name_source, survey_siblings,
};
use tenure_sources::SourceKey;

use super::referenced_objects::{ReferencedObjects, ReferencedSource, is_in_own_namespace};
use crate::cluster_view::key::Key;
use crate::lane::Shard;
use crate::lane_kinds::source::find_source_kind;
use crate::reconcile_loop::reconciled::Reconciled as _;

/// Returns the source that a Kustomization names, if it exists and the reference is allowed: the shard with its artifact, and its key in the store
/// there.
pub(super) fn find_source(
    own: &Arc<Shard>,
    references: ReferencedObjects<'_>,
    kustomization: &Kustomization,
) -> Option<(Arc<Shard>, SourceKey)> {
    match references.find_source(kustomization) {
        ReferencedSource::Here(shard, key) => Some((shard, key)),
        ReferencedSource::Lent(source, _) => Some((Arc::clone(own), source)),
        ReferencedSource::Nothing | ReferencedSource::Unknown(_) => None,
    }
}

/// Returns the facts about the source.
pub(super) fn observe_source(references: ReferencedObjects<'_>, kustomization: &Kustomization) -> SourceFacts {
    let (shard, key) = match references.find_source(kustomization) {
        ReferencedSource::Here(shard, key) => (shard, key),
        ReferencedSource::Nothing => return SourceFacts::NotFound,
        ReferencedSource::Lent(_, facts) => return facts,
        ReferencedSource::Unknown(why) => return SourceFacts::Unknown(why),
    };
    let kind = find_source_kind(&kustomization.spec.source_ref.kind);
    let Some((_, conditions)) = kind.and_then(|kind| (kind.find)(&shard, key.name())) else {
        return SourceFacts::NotFound;
    };
    let artifact = shard.artifacts.record(&key).map(|stored| stored.facts);
    SourceFacts::Found { artifact, conditions }
}

/// Returns the facts about its dependencies.
pub(super) fn observe_dependencies(
    references: ReferencedObjects<'_>,
    kustomization: &Kustomization,
) -> BTreeMap<String, DependencyFacts> {
    find_dependencies(kustomization, |namespace, name| {
        references.find_dependency(namespace, name)
    })
}

/// Returns the cycle of dependencies that leads back to it, if one exists, over Kustomizations that it may name itself.
pub(super) fn observe_cycle(references: ReferencedObjects<'_>, kustomization: &Kustomization) -> Option<Vec<String>> {
    find_cycle(kustomization, |namespace, name| find_known(references, namespace, name))
}

/// Returns a Kustomization that another one may name, if it is known here.
fn find_known(references: ReferencedObjects<'_>, namespace: &str, name: &str) -> Option<Arc<Kustomization>> {
    match references.find_dependency(namespace, name) {
        FoundDependency::There(found) => Some(found),
        FoundDependency::Nothing | FoundDependency::Unknown(_) => None,
    }
}

/// Returns the state of the other Kustomizations of the same source: which ones have not reached a revision, and which ones want objects.
pub(super) fn observe_siblings(shard: &Shard, kustomization: &Kustomization, request: &SurveyRequest) -> Survey {
    let namespace = kustomization.metadata.namespace.as_deref().unwrap_or_default();
    let own = kustomization.metadata.name.as_deref().unwrap_or_default();
    let all = shard.caches.get::<Kustomization>().in_namespace(namespace);
    let dependents = list_depending(&all, own);
    let others: BTreeMap<&str, (&Arc<Kustomization>, Option<Arc<ObjectTurnover>>)> = all
        .iter()
        .filter_map(|other| {
            let name = other.metadata.name.as_deref()?;
            let key = Key::new(Kustomization::KIND, namespace, name);
            // A Kustomization for another cluster wants no object of this one.
            let is_in_own_namespace = other.spec.kube_config == kustomization.spec.kube_config;
            (name != own && is_in_own_namespace && name_source(other) == name_source(kustomization))
                .then(|| (name, (other, shard.turnover_reports.find_report(&key))))
        })
        .collect();
    let mut claims: BTreeMap<ObjectId, BTreeSet<String>> = BTreeMap::new();
    for id in &request.ids {
        let named = shard.inventory_index.naming(id);
        let named = named
            .iter()
            .filter(|key| key.namespace == namespace && others.contains_key(key.name.as_str()));
        claims.insert(id.clone(), named.map(|key| key.name.clone()).collect());
    }
    for (name, (_, turnover)) in &others {
        for id in turnover.iter().flat_map(|turnover| &turnover.gains) {
            if let Some(claim) = claims.get_mut(id) {
                claim.insert((*name).to_owned());
            }
        }
    }
    let siblings = others.iter().map(|(name, (kustomization, turnover))| Sibling {
        kustomization: kustomization.as_ref(),
        turnover: turnover.as_deref(),
        waits_for_us: dependents.contains(*name),
    });
    survey_siblings(&request.revision, &claims, siblings)
}

/// Returns the Kustomizations that depend on one, directly or indirectly.
pub(super) fn list_depending(all: &[Arc<Kustomization>], on: &str) -> BTreeSet<String> {
    let mut direct: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for kustomization in all {
        let name = kustomization.metadata.name.as_deref().unwrap_or_default();
        let depends_on = kustomization.spec.depends_on.iter();
        for dependency in depends_on.filter(|on| is_in_own_namespace(&kustomization.metadata, on.namespace.as_deref()))
        {
            direct.entry(dependency.name.as_str()).or_default().push(name);
        }
    }
    let mut found = BTreeSet::new();
    let mut next = vec![on];
    while let Some(name) = next.pop() {
        for dependent in direct.get(name).into_iter().flatten() {
            if found.insert((*dependent).to_owned()) {
                next.push(*dependent);
            }
        }
    }
    found
}

/// Returns the deletions that affect a Kustomization. Read only while the Kustomization itself is being deleted.
pub(super) async fn observe_endings(
    shard: &Shard,
    references: ReferencedObjects<'_>,
    kustomization: &Kustomization,
) -> OngoingDeletions {
    if kustomization.metadata.deletion_timestamp.is_none() {
        return OngoingDeletions::default();
    }
    let namespace = kustomization.metadata.namespace.as_deref().unwrap_or_default();
    let status = kustomization.status.as_ref();
    let inventory = status.and_then(|status| status.inventory.as_ref());
    let named: BTreeSet<String> = inventory
        .into_iter()
        .flat_map(|inventory| &inventory.entries)
        .filter_map(|entry| Some(entry.id.parse::<ObjectId>().ok()?.namespace))
        .collect();
    OngoingDeletions {
        own: shard.hub_api.find_ending(namespace),
        namespaces: shard.hub_api.find_endings(&named).await,
        cycle: find_owner_cycle(kustomization, |namespace, name| find_known(references, namespace, name)),
    }
}
