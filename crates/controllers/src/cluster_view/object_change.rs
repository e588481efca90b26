//! A watch event about one object, for its caches.

use kube::Resource;
use serde::de::DeserializeOwned;
use tenure_cluster::RawObject;

use crate::cluster_view::cache::{Cache, Change};

/// A watch event.
pub(crate) enum ObjectChange<'a> {
    /// The object exists in this version.
    Changed(&'a RawObject),
    /// The object, by namespace and name, was deleted at a revision.
    Gone((&'a str, &'a str), &'a str),
}

impl ObjectChange<'_> {
    /// Returns the namespace of the object.
    pub(crate) fn namespace(&self) -> &str {
        match self {
            Self::Changed(object) => &object.namespace,
            Self::Gone((namespace, _), _) => namespace,
        }
    }

    /// Returns the name of the object.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Changed(object) => &object.name,
            Self::Gone((_, name), _) => name,
        }
    }

    /// Applies the change to a cache. Returns `None` if the new version of the object can't be read.
    pub(crate) fn apply_to<K: Resource + DeserializeOwned>(&self, cache: &Cache<K>) -> Option<Change<K>> {
        match self {
            Self::Changed(object) => cache.take_seen(object),
            Self::Gone((namespace, name), revision) => Some(cache.take_gone(namespace, name, revision)),
        }
    }
}
