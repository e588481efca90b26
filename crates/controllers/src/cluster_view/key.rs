//! The key of a reconciled object, and the static facts of its kind.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use tenure_api::metadata::TENURE_CONTROLLER;

/// The static facts of a reconciled kind, for watches, writes and messages. Each kind has one value, in the kind's folder.
#[derive(Debug)]
pub(crate) struct Kind {
    /// The `apiVersion` of watches and writes.
    pub(crate) api_version: &'static str,
    /// The kind.
    pub(crate) name: &'static str,
    /// The field manager of writes to the object itself: its status and its finalizers.
    pub(crate) manager: &'static str,
    /// The reporter of events about the object, under the name that its users know.
    pub(crate) reporter: &'static str,
}

impl Kind {
    fn identify(&self) -> (&str, &str) {
        (self.name, self.api_version)
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.identify() == other.identify()
    }
}

impl Eq for Kind {}

impl PartialOrd for Kind {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Kind {
    fn cmp(&self, other: &Self) -> Ordering {
        self.identify().cmp(&other.identify())
    }
}

impl Hash for Kind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identify().hash(state);
    }
}

/// The kind in the keys of lanes' rights. The name in such a key is the namespace of the rights.
const RIGHTS: &Kind = &Kind {
    api_version: "v1",
    name: "Namespace",
    manager: TENURE_CONTROLLER,
    reporter: "tenure-controller",
};

/// The key of a reconciled object. The namespace is empty for cluster-scoped kinds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) kind: &'static Kind,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(kind: &'static Kind, namespace: &str, name: &str) -> Self {
        Self {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Returns the key for a lane's rights in a namespace.
    pub(crate) fn of_rights(namespace: &str) -> Self {
        Self::new(RIGHTS, "", namespace)
    }

    /// Returns the namespace of the object, or the namespace of a lane's rights; `None` for a Tenant.
    pub(crate) fn find_namespace(&self) -> Option<&str> {
        match self.namespace.as_str() {
            "" => (self.kind == RIGHTS).then_some(self.name.as_str()),
            namespace => Some(namespace),
        }
    }

    /// Returns the key of the object with this metadata.
    pub(crate) fn from_metadata(kind: &'static Kind, metadata: &tenure_api::ObjectMeta) -> Self {
        Self {
            kind,
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(formatter, "{}/{}", self.kind.name, self.name)
        } else {
            write!(formatter, "{}/{}/{}", self.kind.name, self.namespace, self.name)
        }
    }
}
