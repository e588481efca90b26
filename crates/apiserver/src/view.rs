//! All objects at one revision, as they are stored. Owns how kinds, and rules about a write, look at objects beside the one that
//! is written. Refuses to follow what is written after it, but for what is given out once, of which nobody may give out the same.

use std::sync::Arc;

use serde_json::Value;
use tenure_access::identity::Lookup;
use tenure_kinds::kind::{Allocated, Objects, ServiceRange};
use tenure_store::{Entry, Snapshot};

use crate::holders::Holders;
use crate::keys;
use crate::stored::decode_stored;

/// All objects at one revision, for rules that look at other objects.
#[derive(Debug, Clone)]
pub struct View {
    snapshot: Snapshot,
    services: ServiceRange,
    holders: Arc<Holders>,
}

impl View {
    pub(crate) fn new(snapshot: Snapshot, services: ServiceRange, holders: Arc<Holders>) -> Self {
        Self {
            snapshot,
            services,
            holders,
        }
    }

    /// The revision of this view.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.snapshot.revision()
    }

    /// Where Services get their addresses from.
    pub(crate) fn services(&self) -> ServiceRange {
        self.services
    }

    /// The objects of one resource, in one namespace or everywhere, in the stored version.
    #[must_use]
    pub fn list(&self, group: &str, plural: &str, namespace: Option<&str>) -> Vec<Value> {
        self.snapshot
            .range(&keys::of_resource(group, plural, namespace), None)
            .filter_map(|(_, entry)| decode_stored(entry).ok())
            .collect()
    }

    /// The entries below a prefix of keys, in order.
    pub(crate) fn entries<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a Entry)> {
        self.snapshot.range(prefix, None).map(|(key, entry)| (&**key, &**entry))
    }

    pub(crate) fn exists_key(&self, key: &str) -> bool {
        self.snapshot.get(key).is_some()
    }

    /// Whether an object exists.
    #[must_use]
    pub fn exists(&self, group: &str, plural: &str, namespace: Option<&str>, name: &str) -> bool {
        self.snapshot
            .get(&keys::of_object(group, plural, namespace, name))
            .is_some()
    }
}

impl Lookup for View {
    fn get(&self, group: &str, resource: &str, namespace: Option<&str>, name: &str) -> Option<Arc<Value>> {
        let entry = self.snapshot.get(&keys::of_object(group, resource, namespace, name))?;
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
