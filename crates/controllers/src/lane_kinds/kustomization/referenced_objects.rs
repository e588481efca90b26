//! The objects that a Kustomization may see: targets of its references in this process, and targets that other lanes' processes lend. `tenancy`
//! decides where a reference may lead, and the hub decides what is lent.

use std::collections::BTreeSet;
use std::sync::Arc;

use tenure_api::{Kustomization, ObjectMeta};
use tenure_planner::kustomization::{FoundDependency, SourceFacts, find_source_namespace};
use tenure_sources::SourceKey;
use tenure_tenancy::{Placement, reference};

use crate::cluster_view::key::Key;
use crate::lane::lane_references::BorrowedObject;
use crate::lane::{Shard, ShardLookup};
use crate::lane_kinds::borrowed_objects::BorrowedObjectTable;
use crate::lane_kinds::reference_lookup::{ReferenceLookup, SourceLookup};
use crate::lane_kinds::source::find_source_kind;
use crate::reconcile_loop::reconciled::Reconciled as _;

/// The objects that a Kustomization of one namespace may see.
#[derive(Clone, Copy)]
pub(super) struct ReferencedObjects<'a> {
    lookup: ReferenceLookup<'a>,
    /// Objects of other lanes' processes.
    borrowed_objects: &'a BorrowedObjectTable,
}

/// The source that a Kustomization names.
pub(super) enum ReferencedSource {
    /// The shard of its namespace, and its key in the artifact store there.
    Here(Arc<Shard>, SourceKey),
    /// The source is missing, or the reference is not allowed.
    Nothing,
    /// The source of another lane: its key in the own store, and its facts.
    Lent(SourceKey, SourceFacts),
    /// The source of another lane, in an unknown state.
    Unknown(String),
}

impl<'a> ReferencedObjects<'a> {
    pub(super) fn new(
        shard: &'a Arc<Shard>,
        placement: &'a Placement,
        borrowed_objects: &'a BorrowedObjectTable,
    ) -> Self {
        Self {
            lookup: ReferenceLookup::new(shard, placement),
            borrowed_objects,
        }
    }

    /// Returns the source that a Kustomization names.
    pub(super) fn find_source(&self, kustomization: &Kustomization) -> ReferencedSource {
        let source = &kustomization.spec.source_ref;
        match self
            .lookup
            .find_source(&source.kind, source.namespace.as_deref(), &source.name)
        {
            SourceLookup::There(shard, key) => ReferencedSource::Here(shard, key),
            SourceLookup::Nothing => ReferencedSource::Nothing,
            SourceLookup::Apart => match find_source_kind(&source.kind) {
                Some(known) => {
                    let key = Key::new(known.kind, find_source_namespace(kustomization), &source.name);
                    match self.borrowed_objects.find(&key) {
                        BorrowedObject::Source { source, facts } => ReferencedSource::Lent(source, facts),
                        BorrowedObject::Unknown(why) => ReferencedSource::Unknown(why),
                        BorrowedObject::Nothing | BorrowedObject::Kustomization(_) => ReferencedSource::Nothing,
                    }
                }
                None => ReferencedSource::Nothing,
            },
        }
    }

    /// Returns a dependency.
    pub(super) fn find_dependency(&self, namespace: &str, name: &str) -> FoundDependency {
        if reference::check_dependency(self.lookup.referrer(), Some(namespace), name).is_err() {
            return FoundDependency::Nothing;
        }
        match self.lookup.find_shard(namespace) {
            ShardLookup::Here(shard) => {
                let found = shard.caches.get::<Kustomization>().get(namespace, name);
                found.map_or(FoundDependency::Nothing, FoundDependency::There)
            }
            ShardLookup::Nothing => FoundDependency::Nothing,
            ShardLookup::Apart => match self
                .borrowed_objects
                .find(&Key::new(Kustomization::KIND, namespace, name))
            {
                BorrowedObject::Kustomization(found) => FoundDependency::There(found),
                BorrowedObject::Unknown(why) => FoundDependency::Unknown(why),
                BorrowedObject::Nothing | BorrowedObject::Source { .. } => FoundDependency::Nothing,
            },
        }
    }

    /// Returns the objects in other namespaces that a Kustomization names and may see.
    pub(super) fn list_foreign(&self, kustomization: &Kustomization) -> BTreeSet<Key> {
        let spec = &kustomization.spec;
        let source = &spec.source_ref;
        let foreign = self
            .lookup
            .find_foreign(&source.kind, source.namespace.as_deref(), &source.name);
        let mut foreign: BTreeSet<Key> = foreign.into_iter().collect();
        for dependency in &spec.depends_on {
            let other = dependency
                .namespace
                .as_deref()
                .filter(|other| !self.lookup.is_own(other));
            let is_allowed = || reference::check_dependency(self.lookup.referrer(), other, &dependency.name).is_ok();
            if let Some(other) = other.filter(|_| is_allowed()) {
                foreign.insert(Key::new(Kustomization::KIND, other, &dependency.name));
            }
        }
        foreign
    }
}

/// Checks whether a reference of an object leads to its own namespace.
pub(super) fn is_in_own_namespace(metadata: &ObjectMeta, namespace: Option<&str>) -> bool {
    namespace.is_none_or(|namespace| metadata.namespace.as_deref() == Some(namespace))
}
