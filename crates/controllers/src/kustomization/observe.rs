//! What is known about a Kustomization: from caches, from the artifact store, and from watches as its own identity.

use std::collections::BTreeMap;

use tenure_api::Kustomization;
use tenure_planner::kustomization::{ArtifactFacts, DependencyFacts, SourceFacts};
use tenure_sources::SourceKey;

use crate::world::{World, git_source};

/// The artifact store's key of the source that a Kustomization names, if it names one of its own namespace.
pub(super) fn source_key(kustomization: &Kustomization) -> Option<SourceKey> {
    let namespace = kustomization.metadata.namespace.as_deref()?;
    let reference = &kustomization.spec.source_ref;
    let own = reference.namespace.as_deref().is_none_or(|other| other == namespace);
    if reference.kind != "GitRepository" || !own {
        return None;
    }
    git_source(namespace, &reference.name).ok()
}

/// What is known of the source.
pub(super) fn source(world: &World, kustomization: &Kustomization) -> SourceFacts {
    let Some(key) = source_key(kustomization) else {
        return SourceFacts::NotFound;
    };
    let Some(repository) = world.repositories.get(key.namespace(), key.name()) else {
        return SourceFacts::NotFound;
    };
    let artifact = world.artifacts.record(&key).map(|record| ArtifactFacts {
        revision: record.stored.revision,
        digest: record.stored.digest,
    });
    let conditions = repository
        .status
        .as_ref()
        .map(|status| status.conditions.clone())
        .unwrap_or_default();
    SourceFacts::Found { artifact, conditions }
}

/// What is known of the Kustomizations that it depends on: those of its own namespace only.
pub(super) fn dependencies(world: &World, kustomization: &Kustomization) -> BTreeMap<String, DependencyFacts> {
    let namespace = kustomization.metadata.namespace.as_deref().unwrap_or_default();
    kustomization
        .spec
        .depends_on
        .iter()
        .map(|dependency| {
            let found = world.kustomizations.get(namespace, &dependency.name);
            let facts = found.map_or(DependencyFacts::NotFound, |found| DependencyFacts::from(found.as_ref()));
            (dependency.name.clone(), facts)
        })
        .collect()
}

/// Whether a source changed so that another attempt could end otherwise: its conditions matter only while it has no artifact.
pub(super) fn source_changed(before: &SourceFacts, now: &SourceFacts) -> bool {
    match (before, now) {
        (
            SourceFacts::Found {
                artifact: Some(before), ..
            },
            SourceFacts::Found {
                artifact: Some(now), ..
            },
        ) => before != now,
        (before, now) => before != now,
    }
}
