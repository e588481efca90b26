//! Where a Kustomization may look besides its own namespace: where its references may lead. Owns that nobody looks before `tenancy` has said
//! so; refuses to look at anything else there than what was named.

use std::collections::BTreeSet;
use std::sync::Arc;

use tenure_api::{Bucket, GitRepository, Kustomization, ObjectMeta, OciRepository};
use tenure_planner::kustomization::{FoundDependency, find_source_namespace};
use tenure_tenancy::{Placement, Referrer, reference};

use crate::key::Key;
use crate::lane::{Neighbour, Shard};
use crate::reconciled::Reconciled as _;

/// What a Kustomization of this namespace may look at.
#[derive(Clone, Copy)]
pub(super) struct Sight<'a> {
    shard: &'a Arc<Shard>,
    /// Whose the namespace is.
    placement: &'a Placement,
}

impl<'a> Sight<'a> {
    pub(super) fn new(shard: &'a Arc<Shard>, placement: &'a Placement) -> Self {
        Self { shard, placement }
    }

    fn referrer(&self) -> Referrer<'a> {
        Referrer {
            namespace: &self.shard.namespace,
            placement: self.placement,
            grants: &self.shard.means.settings.reference_grants,
        }
    }

    fn find_shard(&self, namespace: &str) -> Neighbour {
        if namespace == self.shard.namespace {
            return Neighbour::Here(Arc::clone(self.shard));
        }
        self.shard.surroundings.find_neighbour(namespace)
    }

    /// What is held for the namespace of the source that a Kustomization names.
    pub(super) fn find_source_shard(&self, kustomization: &Kustomization) -> Neighbour {
        let source = &kustomization.spec.source_ref;
        match reference::check_source(self.referrer(), &source.kind, source.namespace.as_deref(), &source.name) {
            Ok(()) => self.find_shard(find_source_namespace(kustomization)),
            Err(_) => Neighbour::Nothing,
        }
    }

    /// A Kustomization that is depended on.
    pub(super) fn find_dependency(&self, namespace: &str, name: &str) -> FoundDependency {
        if reference::check_dependency(self.referrer(), Some(namespace), name).is_err() {
            return FoundDependency::Nothing;
        }
        match self.find_shard(namespace) {
            Neighbour::Here(shard) => {
                let found = shard.caches.of::<Kustomization>().get(namespace, name);
                found.map_or(FoundDependency::Nothing, FoundDependency::There)
            }
            Neighbour::Nothing => FoundDependency::Nothing,
            Neighbour::Apart => FoundDependency::Apart,
        }
    }

    /// What a Kustomization names in other namespaces, as far as it may.
    pub(super) fn list_foreign(&self, kustomization: &Kustomization) -> BTreeSet<Key> {
        let (own, spec) = (self.shard.namespace.as_str(), &kustomization.spec);
        let mut foreign = BTreeSet::new();
        let source = &spec.source_ref;
        if let Some(other) = source.namespace.as_deref().filter(|other| *other != own)
            && reference::check_source(self.referrer(), &source.kind, Some(other), &source.name).is_ok()
        {
            let kinds = [GitRepository::KIND, OciRepository::KIND, Bucket::KIND];
            let kind = kinds.into_iter().find(|kind| kind.name == source.kind);
            foreign.extend(kind.map(|kind| Key::new(kind, other, &source.name)));
        }
        for dependency in &spec.depends_on {
            let other = dependency.namespace.as_deref().filter(|other| *other != own);
            let is_allowed = || reference::check_dependency(self.referrer(), other, &dependency.name).is_ok();
            if let Some(other) = other.filter(|_| is_allowed()) {
                foreign.insert(Key::new(Kustomization::KIND, other, &dependency.name));
            }
        }
        foreign
    }
}

/// Whether a reference of an object leads to its own namespace.
pub(super) fn is_beside(metadata: &ObjectMeta, namespace: Option<&str>) -> bool {
    namespace.is_none_or(|namespace| metadata.namespace.as_deref() == Some(namespace))
}
