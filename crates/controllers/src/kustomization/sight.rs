//! What a Kustomization may look at besides its own namespace: where its references may lead.

use std::collections::BTreeSet;

use tenure_api::{Kustomization, ObjectMeta};
use tenure_planner::kustomization::FoundDependency;
use tenure_tenancy::reference;

use crate::key::Key;
use crate::lane::Neighbour;
use crate::reconciled::Reconciled as _;
use crate::sight::{FoundKey, Sight};

/// The source that a Kustomization names.
pub(super) fn find_source(sight: Sight<'_>, kustomization: &Kustomization) -> FoundKey {
    let source = &kustomization.spec.source_ref;
    sight.find_source(&source.kind, source.namespace.as_deref(), &source.name)
}

/// A Kustomization that is depended on.
pub(super) fn find_dependency(sight: Sight<'_>, namespace: &str, name: &str) -> FoundDependency {
    if reference::check_dependency(sight.referrer(), Some(namespace), name).is_err() {
        return FoundDependency::Nothing;
    }
    match sight.find_shard(namespace) {
        Neighbour::Here(shard) => {
            let found = shard.caches.of::<Kustomization>().get(namespace, name);
            found.map_or(FoundDependency::Nothing, FoundDependency::There)
        }
        Neighbour::Nothing => FoundDependency::Nothing,
        Neighbour::Apart => FoundDependency::Apart,
    }
}

/// What a Kustomization names in other namespaces, as far as it may.
pub(super) fn list_foreign(sight: Sight<'_>, kustomization: &Kustomization) -> BTreeSet<Key> {
    let spec = &kustomization.spec;
    let source = &spec.source_ref;
    let foreign = sight.find_foreign(&source.kind, source.namespace.as_deref(), &source.name);
    let mut foreign: BTreeSet<Key> = foreign.into_iter().collect();
    for dependency in &spec.depends_on {
        let other = dependency.namespace.as_deref().filter(|other| !sight.is_own(other));
        let is_allowed = || reference::check_dependency(sight.referrer(), other, &dependency.name).is_ok();
        if let Some(other) = other.filter(|_| is_allowed()) {
            foreign.insert(Key::new(Kustomization::KIND, other, &dependency.name));
        }
    }
    foreign
}

/// Whether a reference of an object leads to its own namespace.
pub(super) fn is_beside(metadata: &ObjectMeta, namespace: Option<&str>) -> bool {
    namespace.is_none_or(|namespace| metadata.namespace.as_deref() == Some(namespace))
}
