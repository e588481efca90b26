//! The known facts about an ArtifactGenerator: its sources, as far as it may see them, and the stored artifacts of its output.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenure_api::metadata::GENERATOR_LABEL;
use tenure_api::{ArtifactGenerator, ExternalArtifact, ObjectId};
use tenure_planner::artifact_generator::{FoundSource, SourceState, find_generator_cycle, list_visible};
use tenure_planner::external_artifact::find_generator;
use tenure_planner::kustomization::SourceFacts;
use tenure_planner::{Live, Object};
use tenure_remote_requests::artifact::{IncludedArtifact, StoredArtifact};

use crate::artifacts::storage::make_source_key;
use crate::cluster_view::key::Key;
use crate::lane::lane_references::BorrowedObject;
use crate::lane::{Shard, ShardLookup};
use crate::lane_kinds::borrowed_objects::BorrowedObjectTable;
use crate::lane_kinds::reference_lookup::{ReferenceLookup, SourceLookup};
use crate::reconcile_loop::reconciled::Reconciled as _;

/// Returns the generator's sources, by alias.
pub(super) fn observe_sources(
    lookup: ReferenceLookup<'_>,
    borrowed_objects: &BorrowedObjectTable,
    generator: &ArtifactGenerator,
) -> BTreeMap<String, FoundSource> {
    let own = generator.metadata.namespace.as_deref().unwrap_or_default();
    let find = |source: &tenure_api::artifact_generator::ArtifactSource| {
        let state = match lookup.find_source(&source.kind, source.namespace.as_deref(), &source.name) {
            SourceLookup::Nothing => SourceState::NotFound,
            SourceLookup::Apart => find_lent(lookup, borrowed_objects, source),
            SourceLookup::There(shard, key) => match shard.artifacts.record(&key) {
                None => SourceState::Empty,
                Some(stored) => SourceState::Stored {
                    uid: key.uid().to_owned(),
                    artifact: IncludedArtifact::from(&stored),
                },
            },
        };
        let found = FoundSource {
            kind: source.kind.clone(),
            namespace: source.namespace.clone().unwrap_or_else(|| own.to_owned()),
            name: source.name.clone(),
            state,
        };
        (source.alias.clone(), found)
    };
    list_visible(generator, lookup.referrer()).map(find).collect()
}

/// Returns a source borrowed from another lane's process. An artifact of a generator there is refused: a cycle through artifacts of this lane could
/// not be detected.
fn find_lent(
    lookup: ReferenceLookup<'_>,
    borrowed_objects: &BorrowedObjectTable,
    source: &tenure_api::artifact_generator::ArtifactSource,
) -> SourceState {
    if source.kind == ExternalArtifact::KIND.name {
        return SourceState::Apart;
    }
    let Some(key) = lookup.find_foreign(&source.kind, source.namespace.as_deref(), &source.name) else {
        return SourceState::NotFound;
    };
    match borrowed_objects.find(&key) {
        BorrowedObject::Source {
            source,
            facts: SourceFacts::Found {
                artifact: Some(facts), ..
            },
        } => SourceState::Stored {
            uid: source.uid().to_owned(),
            artifact: IncludedArtifact {
                facts,
                ..IncludedArtifact::default()
            },
        },
        BorrowedObject::Source { .. } => SourceState::Empty,
        BorrowedObject::Unknown(why) => SourceState::Unknown(why),
        BorrowedObject::Nothing | BorrowedObject::Kustomization(_) => SourceState::NotFound,
    }
}

/// Returns the generator's sources that other lanes' processes may lend.
pub(super) fn list_lent(lookup: ReferenceLookup<'_>, generator: &ArtifactGenerator) -> BTreeSet<Key> {
    let mut foreign = list_foreign(lookup, generator);
    foreign.retain(|key| key.kind != ExternalArtifact::KIND);
    foreign
}

/// Returns the generator's sources in other namespaces that it may see. The generator listens to them.
pub(super) fn list_foreign(lookup: ReferenceLookup<'_>, generator: &ArtifactGenerator) -> BTreeSet<Key> {
    let foreign = list_visible(generator, lookup.referrer());
    foreign
        .filter_map(|source| lookup.find_foreign(&source.kind, source.namespace.as_deref(), &source.name))
        .collect()
}

/// Returns the cycle of generators that feed the generator's output back to it, over generators that it may see.
pub(super) fn observe_circle(lookup: ReferenceLookup<'_>, generator: &ArtifactGenerator) -> Option<Vec<String>> {
    let feeds = |name: &str| {
        let (namespace, name) = name.split_once('/')?;
        let ShardLookup::Here(shard) = lookup.find_shard(namespace) else {
            return None;
        };
        let fed = shard.caches.get::<ArtifactGenerator>().get(namespace, name)?;
        let visible = list_visible(&fed, lookup.referrer());
        let artifacts = visible.filter(|source| source.kind == ExternalArtifact::KIND.name);
        let makers = artifacts.filter_map(|source| {
            let namespace = source.namespace.as_deref().unwrap_or(namespace);
            let SourceLookup::There(shard, _) = lookup.find_source(&source.kind, Some(namespace), &source.name) else {
                return None;
            };
            let artifact = shard.caches.get::<ExternalArtifact>().get(namespace, &source.name)?;
            Some(format!("{namespace}/{}", find_generator(&artifact)?))
        });
        Some(makers.collect())
    };
    find_generator_cycle(generator, feeds)
}

/// Returns the objects with the generator's label.
pub(super) fn list_children(shard: &Shard, generator: &ArtifactGenerator) -> BTreeMap<ObjectId, Live> {
    let Some(uid) = generator.metadata.uid.as_deref() else {
        return BTreeMap::new();
    };
    let labelled = shard.list_labelled((GENERATOR_LABEL, uid)).into_iter();
    let with_id = |object| Some((ObjectId::from_object(&object).ok()?, Live::Present(Object(object))));
    let mut children: BTreeMap<ObjectId, Live> = labelled.filter_map(with_id).collect();
    children.retain(|id, _| id.kind == ExternalArtifact::KIND.name);
    children
}

/// Returns the stored artifacts of the generator's ExternalArtifacts, by name.
pub(super) fn list_stored(shard: &Arc<Shard>, generator: &ArtifactGenerator) -> BTreeMap<String, StoredArtifact> {
    let (namespace, own) = (shard.namespace.as_str(), generator.metadata.name.as_deref());
    let artifacts = shard.caches.get::<ExternalArtifact>().in_namespace(namespace);
    let made = artifacts
        .iter()
        .filter(|artifact| own.is_some() && find_generator(artifact) == own);
    let stored = made.filter_map(|artifact| {
        let key = make_source_key(ExternalArtifact::KIND.name, &artifact.metadata).ok()?;
        Some((key.name().to_owned(), shard.artifacts.record(&key)?))
    });
    stored.collect()
}
