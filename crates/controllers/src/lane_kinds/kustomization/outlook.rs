//! The objects that a Kustomization may see: targets of its references in this process, and targets that other lanes' processes lend. `tenancy`
//! decides where a reference may lead, and the hub decides what is lent.

use std::collections::BTreeSet;
use std::sync::Arc;

use tenure_api::{Kustomization, ObjectMeta};
use tenure_planner::kustomization::{FoundDependency, SourceFacts, find_source_namespace};
use tenure_sources::SourceKey;
use tenure_tenancy::{Placement, reference};

use crate::cluster_view::key::Key;
use crate::lane::lane_references::Borrowed;
use crate::lane::{Neighbour, Shard};
use crate::lane_kinds::borrowed_objects::LoanBook;
use crate::lane_kinds::reference_lookup::{FoundKey, Sight};
use crate::lane_kinds::source::find_source_kind;
use crate::reconcile_loop::reconciled::Reconciled as _;

/// The objects that a Kustomization of one namespace may see.
#[derive(Clone, Copy)]
pub(super) struct Outlook<'a> {
    sight: Sight<'a>,
    /// Objects of other lanes' processes.
    loans: &'a LoanBook,
}

/// The source that a Kustomization names.
pub(super) enum SeenSource {
    /// The shard of its namespace, and its key in the artifact store there.
    Here(Arc<Shard>, SourceKey),
    /// The source is missing, or the reference is not allowed.
    Nothing,
    /// The source of another lane: its key in the own store, and its facts.
    Lent(SourceKey, SourceFacts),
    /// The source of another lane, in an unknown state.
    Unknown(String),
}

impl<'a> Outlook<'a> {
    pub(super) fn new(shard: &'a Arc<Shard>, placement: &'a Placement, loans: &'a LoanBook) -> Self {
        Self {
            sight: Sight::new(shard, placement),
            loans,
        }
    }

    /// Returns the source that a Kustomization names.
    pub(super) fn find_source(&self, kustomization: &Kustomization) -> SeenSource {
        let source = &kustomization.spec.source_ref;
        match self
            .sight
            .find_source(&source.kind, source.namespace.as_deref(), &source.name)
        {
            FoundKey::There(shard, key) => SeenSource::Here(shard, key),
            FoundKey::Nothing => SeenSource::Nothing,
            FoundKey::Apart => match find_source_kind(&source.kind) {
                Some(known) => {
                    let key = Key::new(known.kind, find_source_namespace(kustomization), &source.name);
                    match self.loans.find(&key) {
                        Borrowed::Source { source, facts } => SeenSource::Lent(source, facts),
                        Borrowed::Unknown(why) => SeenSource::Unknown(why),
                        Borrowed::Nothing | Borrowed::Kustomization(_) => SeenSource::Nothing,
                    }
                }
                None => SeenSource::Nothing,
            },
        }
    }

    /// Returns a dependency.
    pub(super) fn find_dependency(&self, namespace: &str, name: &str) -> FoundDependency {
        if reference::check_dependency(self.sight.referrer(), Some(namespace), name).is_err() {
            return FoundDependency::Nothing;
        }
        match self.sight.find_shard(namespace) {
            Neighbour::Here(shard) => {
                let found = shard.caches.of::<Kustomization>().get(namespace, name);
                found.map_or(FoundDependency::Nothing, FoundDependency::There)
            }
            Neighbour::Nothing => FoundDependency::Nothing,
            Neighbour::Apart => match self.loans.find(&Key::new(Kustomization::KIND, namespace, name)) {
                Borrowed::Kustomization(found) => FoundDependency::There(found),
                Borrowed::Unknown(why) => FoundDependency::Unknown(why),
                Borrowed::Nothing | Borrowed::Source { .. } => FoundDependency::Nothing,
            },
        }
    }

    /// Returns the objects in other namespaces that a Kustomization names and may see.
    pub(super) fn list_foreign(&self, kustomization: &Kustomization) -> BTreeSet<Key> {
        let spec = &kustomization.spec;
        let source = &spec.source_ref;
        let foreign = self
            .sight
            .find_foreign(&source.kind, source.namespace.as_deref(), &source.name);
        let mut foreign: BTreeSet<Key> = foreign.into_iter().collect();
        for dependency in &spec.depends_on {
            let other = dependency
                .namespace
                .as_deref()
                .filter(|other| !self.sight.is_own(other));
            let is_allowed = || reference::check_dependency(self.sight.referrer(), other, &dependency.name).is_ok();
            if let Some(other) = other.filter(|_| is_allowed()) {
                foreign.insert(Key::new(Kustomization::KIND, other, &dependency.name));
            }
        }
        foreign
    }
}

/// Checks whether a reference of an object leads to its own namespace.
pub(super) fn is_beside(metadata: &ObjectMeta, namespace: Option<&str>) -> bool {
    namespace.is_none_or(|namespace| metadata.namespace.as_deref() == Some(namespace))
}
