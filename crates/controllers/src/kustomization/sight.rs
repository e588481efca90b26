//! Where a Kustomization may look besides its own namespace: where its references may lead. Owns that nobody looks before `tenancy` has said
//! so; refuses to look at anything else there than what was named.

use std::collections::BTreeSet;
use std::sync::Arc;

use tenure_api::{Bucket, GitRepository, Kustomization, ObjectMeta, OciRepository};
use tenure_planner::kustomization::{FoundDependency, SourceFacts, find_source_namespace};
use tenure_sources::SourceKey;
use tenure_tenancy::{Placement, Referrer, reference};

use super::loan_book::LoanBook;
use crate::key::{Key, Kind};
use crate::lane::{Neighbour, Shard};
use crate::loans::Borrowed;
use crate::reconciled::Reconciled as _;

/// What a Kustomization of this namespace may look at.
#[derive(Clone, Copy)]
pub(super) struct Sight<'a> {
    shard: &'a Arc<Shard>,
    /// Whose the namespace is.
    placement: &'a Placement,
    /// What other lanes' processes have.
    loans: &'a LoanBook,
}

/// The source that a Kustomization names.
pub(super) enum SeenSource {
    /// It is in a namespace of this process, if it is there.
    Here(Arc<Shard>),
    /// There is none, or it may not be named.
    Nothing,
    /// It is another lane's: its key in the own store, and what is known of it.
    Lent(SourceKey, SourceFacts),
    /// It is another lane's, and nothing is known of it.
    Unknown(String),
}

impl<'a> Sight<'a> {
    pub(super) fn new(shard: &'a Arc<Shard>, placement: &'a Placement, loans: &'a LoanBook) -> Self {
        Self {
            shard,
            placement,
            loans,
        }
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

    /// Where the source is that a Kustomization names.
    pub(super) fn find_source(&self, kustomization: &Kustomization) -> SeenSource {
        let source = &kustomization.spec.source_ref;
        if reference::check_source(self.referrer(), &source.kind, source.namespace.as_deref(), &source.name).is_err() {
            return SeenSource::Nothing;
        }
        let namespace = find_source_namespace(kustomization);
        match self.find_shard(namespace) {
            Neighbour::Here(shard) => SeenSource::Here(shard),
            Neighbour::Nothing => SeenSource::Nothing,
            Neighbour::Apart => match find_source_kind(&source.kind) {
                Some(kind) => match self.loans.find(&Key::new(kind, namespace, &source.name)) {
                    Borrowed::Source { source, facts } => SeenSource::Lent(source, facts),
                    Borrowed::Unknown(why) => SeenSource::Unknown(why),
                    Borrowed::Nothing | Borrowed::Kustomization(_) => SeenSource::Nothing,
                },
                None => SeenSource::Nothing,
            },
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
            Neighbour::Apart => match self.loans.find(&Key::new(Kustomization::KIND, namespace, name)) {
                Borrowed::Kustomization(found) => FoundDependency::There(found),
                Borrowed::Unknown(why) => FoundDependency::Unknown(why),
                Borrowed::Nothing | Borrowed::Source { .. } => FoundDependency::Nothing,
            },
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
            foreign.extend(find_source_kind(&source.kind).map(|kind| Key::new(kind, other, &source.name)));
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

/// The kind of a source, by its name.
fn find_source_kind(name: &str) -> Option<&'static Kind> {
    let kinds = [GitRepository::KIND, OciRepository::KIND, Bucket::KIND];
    kinds.into_iter().find(|kind| kind.name == name)
}

/// Whether a reference of an object leads to its own namespace.
pub(super) fn is_beside(metadata: &ObjectMeta, namespace: Option<&str>) -> bool {
    namespace.is_none_or(|namespace| metadata.namespace.as_deref() == Some(namespace))
}
