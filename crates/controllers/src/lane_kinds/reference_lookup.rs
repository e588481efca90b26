//! The objects outside its own namespace that an object may see: targets of its references. No lookup happens before `tenancy` has allowed the
//! reference, and only the named object is looked up.

use std::sync::Arc;

use tenure_sources::SourceKey;
use tenure_tenancy::{Placement, Referrer, reference};

use crate::cluster_view::key::Key;
use crate::lane::{Shard, ShardLookup};
use crate::lane_kinds::source::find_source_kind;

/// The objects that an object of this namespace may see.
#[derive(Clone, Copy)]
pub(crate) struct ReferenceLookup<'a> {
    shard: &'a Arc<Shard>,
    /// The placement of the namespace.
    placement: &'a Placement,
}

/// The result of a lookup of a source.
pub(crate) enum SourceLookup {
    /// The source is missing, or the reference is not allowed.
    Nothing,
    /// The source belongs to another lane in another process.
    Apart,
    /// The shard of its namespace, and its key in the artifact store.
    There(Arc<Shard>, SourceKey),
}

impl<'a> ReferenceLookup<'a> {
    pub(crate) fn new(shard: &'a Arc<Shard>, placement: &'a Placement) -> Self {
        Self { shard, placement }
    }

    /// Returns the referrer.
    pub(crate) fn referrer(&self) -> Referrer<'a> {
        Referrer {
            namespace: &self.shard.namespace,
            placement: self.placement,
            grants: &self.shard.context.settings.reference_grants,
        }
    }

    /// Checks whether a namespace is the object's own.
    pub(crate) fn is_own(&self, namespace: &str) -> bool {
        namespace == self.shard.namespace
    }

    /// Returns the shard of a namespace. The caller must have checked that the reference is allowed.
    pub(crate) fn find_shard(&self, namespace: &str) -> ShardLookup {
        if self.is_own(namespace) {
            return ShardLookup::Here(Arc::clone(self.shard));
        }
        self.shard.hub_api.find_other_shard(namespace)
    }

    /// Returns a source by kind, namespace and name, if it exists and the reference is allowed.
    pub(crate) fn find_source(&self, kind: &str, namespace: Option<&str>, name: &str) -> SourceLookup {
        if reference::check_source(self.referrer(), kind, namespace, name).is_err() {
            return SourceLookup::Nothing;
        }
        let shard = match self.find_shard(namespace.unwrap_or(&self.shard.namespace)) {
            ShardLookup::Here(shard) => shard,
            ShardLookup::Nothing => return SourceLookup::Nothing,
            ShardLookup::Apart => return SourceLookup::Apart,
        };
        let found = find_source_kind(kind).and_then(|kind| (kind.find)(&shard, name));
        match found {
            Some((key, _)) => SourceLookup::There(shard, key),
            None => SourceLookup::Nothing,
        }
    }

    /// Returns the key of a source of another namespace, if the reference is allowed: the object to listen to.
    pub(crate) fn find_foreign(&self, kind: &str, namespace: Option<&str>, name: &str) -> Option<Key> {
        let other = namespace.filter(|other| !self.is_own(other))?;
        reference::check_source(self.referrer(), kind, Some(other), name).ok()?;
        Some(Key::new(find_source_kind(kind)?.kind, other, name))
    }
}
