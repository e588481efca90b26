//! Where an object may look besides its own namespace: where its references may lead. Owns that nobody looks before `tenancy` has said so;
//! refuses to look at anything else there than what was named.

use std::sync::Arc;

use tenure_sources::SourceKey;
use tenure_tenancy::{Placement, Referrer, reference};

use crate::key::Key;
use crate::lane::{Neighbour, Shard};
use crate::source::find_source_kind;

/// What an object of this namespace may look at.
#[derive(Clone, Copy)]
pub(crate) struct Sight<'a> {
    shard: &'a Arc<Shard>,
    /// Whose the namespace is.
    placement: &'a Placement,
}

/// A source that was named.
pub(crate) enum FoundKey {
    /// There is none, or it may not be looked at.
    Nothing,
    /// It is another lane's, and that is in another process.
    Apart,
    /// What is held for its namespace, and its key in the artifact store.
    There(Arc<Shard>, SourceKey),
}

impl<'a> Sight<'a> {
    pub(crate) fn new(shard: &'a Arc<Shard>, placement: &'a Placement) -> Self {
        Self { shard, placement }
    }

    /// Who looks.
    pub(crate) fn referrer(&self) -> Referrer<'a> {
        Referrer {
            namespace: &self.shard.namespace,
            placement: self.placement,
            grants: &self.shard.means.settings.reference_grants,
        }
    }

    /// Whether a namespace is its own.
    pub(crate) fn is_own(&self, namespace: &str) -> bool {
        namespace == self.shard.namespace
    }

    /// What is held for a namespace. To be asked once it is known that what is named there may be.
    pub(crate) fn find_shard(&self, namespace: &str) -> Neighbour {
        if self.is_own(namespace) {
            return Neighbour::Here(Arc::clone(self.shard));
        }
        self.shard.surroundings.find_neighbour(namespace)
    }

    /// A source, by kind, namespace and name, if it is there and may be named.
    pub(crate) fn find_source(&self, kind: &str, namespace: Option<&str>, name: &str) -> FoundKey {
        if reference::check_source(self.referrer(), kind, namespace, name).is_err() {
            return FoundKey::Nothing;
        }
        let shard = match self.find_shard(namespace.unwrap_or(&self.shard.namespace)) {
            Neighbour::Here(shard) => shard,
            Neighbour::Nothing => return FoundKey::Nothing,
            Neighbour::Apart => return FoundKey::Apart,
        };
        let found = find_source_kind(kind).and_then(|kind| (kind.find)(&shard, name));
        match found {
            Some((key, _)) => FoundKey::There(shard, key),
            None => FoundKey::Nothing,
        }
    }

    /// A source of another namespace, if it may be named: whom to listen to.
    pub(crate) fn find_foreign(&self, kind: &str, namespace: Option<&str>, name: &str) -> Option<Key> {
        let other = namespace.filter(|other| !self.is_own(other))?;
        reference::check_source(self.referrer(), kind, Some(other), name).ok()?;
        Some(Key::new(find_source_kind(kind)?.kind, other, name))
    }
}
