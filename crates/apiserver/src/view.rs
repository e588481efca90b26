//! All objects at one revision, in their stored form. Kinds and admission rules read other objects than the written
//! one through this view. Later writes are invisible, except in the index of unique values, which must never be given
//! out twice.

use std::sync::Arc;

use serde_json::Value;
use tenure_auth::identity::ObjectLookup;
use tenure_kinds::kind::{Allocated, Objects, ServiceRange};
use tenure_store::{Entry, Snapshot};

use crate::keys;
use crate::stored::{decode_metadata, decode_stored};
use crate::unique_values::UniqueValueIndex;

/// The objects of a cluster at one revision, in their stored form.
#[derive(Debug, Clone)]
pub struct View {
    snapshot: Snapshot,
    services: ServiceRange,
    holders: Arc<UniqueValueIndex>,
}

impl View {
    pub(crate) fn new(snapshot: Snapshot, services: ServiceRange, holders: Arc<UniqueValueIndex>) -> Self {
        Self {
            snapshot,
            services,
            holders,
        }
    }

    /// Returns the revision of this view.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.snapshot.revision()
    }

    /// Returns the range from which Services get their addresses.
    pub(crate) fn services(&self) -> ServiceRange {
        self.services
    }

    /// Returns the objects of one resource, in one namespace or everywhere, in the stored version.
    #[must_use]
    pub fn list(&self, group: &str, plural: &str, namespace: Option<&str>) -> Vec<Value> {
        self.snapshot
            .range(&keys::resource_prefix(group, plural, namespace), None)
            .filter_map(|(_, entry)| decode_stored(entry).ok())
            .collect()
    }

    /// Returns an object with its metadata only. The rest may be large, and is not decoded.
    pub(crate) fn get_metadata(&self, group: &str, plural: &str, namespace: Option<&str>, name: &str) -> Option<Value> {
        let key = keys::object_key(group, plural, namespace, name);
        decode_metadata(self.snapshot.get(&key)?).ok()
    }

    /// Returns the objects of one resource with their metadata only.
    pub(crate) fn list_metadata(&self, group: &str, plural: &str, namespace: Option<&str>) -> Vec<Value> {
        self.snapshot
            .range(&keys::resource_prefix(group, plural, namespace), None)
            .filter_map(|(_, entry)| decode_metadata(entry).ok())
            .collect()
    }

    /// Returns the entries below a prefix of keys, in order.
    pub(crate) fn entries<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a Entry)> {
        self.snapshot.range(prefix, None).map(|(key, entry)| (&**key, &**entry))
    }

    pub(crate) fn exists_key(&self, key: &str) -> bool {
        self.snapshot.get(key).is_some()
    }

    /// Checks whether an object exists.
    #[must_use]
    pub fn exists(&self, group: &str, plural: &str, namespace: Option<&str>, name: &str) -> bool {
        self.snapshot
            .get(&keys::object_key(group, plural, namespace, name))
            .is_some()
    }
}

impl ObjectLookup for View {
    fn get(&self, group: &str, resource: &str, namespace: Option<&str>, name: &str) -> Option<Arc<Value>> {
        let entry = self.snapshot.get(&keys::object_key(group, resource, namespace, name))?;
        decode_stored(entry).ok().map(Arc::new)
    }
}

impl Objects for View {
    fn list(&self, group: &str, plural: &str, namespace: Option<&str>) -> Vec<Value> {
        Self::list(self, group, plural, namespace)
    }

    fn count_holders(&self, allocated: Allocated) -> usize {
        self.holders.count(allocated)
    }
}
