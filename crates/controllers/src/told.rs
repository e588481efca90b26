//! What a watch told of one object, for whoever keeps it.

use kube::Resource;
use serde::de::DeserializeOwned;
use tenure_cluster::Seen;

use crate::cache::{Cache, Change};

/// What a watch told.
pub(crate) enum Told<'a> {
    /// An object is there, as it is now.
    Changed(&'a Seen),
    /// An object, by namespace and name, is gone at a revision.
    Gone((&'a str, &'a str), &'a str),
}

impl Told<'_> {
    /// Where the object is.
    pub(crate) fn namespace(&self) -> &str {
        match self {
            Self::Changed(object) => &object.namespace,
            Self::Gone((namespace, _), _) => namespace,
        }
    }

    /// What the object is called.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Changed(object) => &object.name,
            Self::Gone((_, name), _) => name,
        }
    }

    /// Brings a cache up to date.
    pub(crate) fn take<K: Resource + DeserializeOwned>(&self, cache: &Cache<K>) -> Option<Change<K>> {
        match self {
            Self::Changed(object) => cache.take_seen(object),
            Self::Gone((namespace, name), revision) => Some(cache.take_gone(namespace, name, revision)),
        }
    }
}
