//! The identity of resources: group, version and kind, names and namespaces.

use std::fmt;

use crate::schema::Schema;

/// The namespace that cluster-scoped resources are compared in.
const NO_NAMESPACE: &str = "_non_namespaceable_";

/// Group, version and kind. An empty part of a selector matches any value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Gvk {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
}

impl Gvk {
    /// Splits an apiVersion at its first slash.
    pub(crate) fn new(api_version: &str, kind: &str) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Gvk {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
        }
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Checks whether this selector matches a kind as written in a resource. An empty part of the selector matches any value.
    pub(crate) fn selects(&self, api_version: &str, kind: &str) -> bool {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let fits = |wanted: &str, own: &str| wanted.is_empty() || wanted == own;
        fits(&self.kind, kind) && fits(&self.group, group) && fits(&self.version, version)
    }

    /// Checks whether `selector` selects this kind. An empty part of the selector matches any value.
    pub(crate) fn is_selected(&self, selector: &Gvk) -> bool {
        let fits = |wanted: &str, own: &str| wanted.is_empty() || wanted == own;
        fits(&selector.group, &self.group) && fits(&selector.version, &self.version) && fits(&selector.kind, &self.kind)
    }
}

impl fmt::Display for Gvk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or = |text: &'static str, part: &str| {
            if part.is_empty() {
                text.to_owned()
            } else {
                part.to_owned()
            }
        };
        write!(
            formatter,
            "{}.{}.{}",
            or("[noKind]", &self.kind),
            or("[noVer]", &self.version),
            or("[noGrp]", &self.group)
        )
    }
}

/// The key of an id: kind, name and effective namespace. Equal ids have equal keys.
pub(crate) type Key = (Gvk, String, String);

/// The identity of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ResourceId {
    pub(crate) gvk: Gvk,
    pub(crate) name: String,
    /// The namespace as written; empty if the resource has none.
    pub(crate) namespace: String,
    cluster_scoped: bool,
}

impl ResourceId {
    pub(crate) fn new(schema: &Schema, gvk: Gvk, name: impl Into<String>, namespace: impl Into<String>) -> Self {
        let cluster_scoped = schema.is_cluster_scoped(&gvk);
        ResourceId {
            gvk,
            name: name.into(),
            namespace: namespace.into(),
            cluster_scoped,
        }
    }

    /// Creates the id of a selector, independent of the scope of its kind.
    pub(crate) fn of_selector(gvk: Gvk, name: impl Into<String>, namespace: impl Into<String>) -> Self {
        ResourceId {
            gvk,
            name: name.into(),
            namespace: namespace.into(),
            cluster_scoped: false,
        }
    }

    pub(crate) fn is_cluster_scoped(&self) -> bool {
        self.cluster_scoped
    }

    /// Returns the namespace to compare by: an empty one is `default`.
    pub(crate) fn effective_namespace(&self) -> &str {
        if self.cluster_scoped {
            NO_NAMESPACE
        } else if self.namespace.is_empty() {
            "default"
        } else {
            &self.namespace
        }
    }

    /// Checks for equal kind, name and effective namespace.
    pub(crate) fn same_as(&self, other: &ResourceId) -> bool {
        self.name == other.name && self.gvk == other.gvk && self.effective_namespace() == other.effective_namespace()
    }

    /// Returns the key of the id. Equal ids have equal keys.
    pub(crate) fn into_key(self) -> Key {
        let namespace = self.effective_namespace().to_owned();
        (self.gvk, self.name, namespace)
    }

    /// Checks whether a selector with empty parts selects this id. The function doesn't know the cluster-scoped kinds, which count as in
    /// the default namespace.
    pub(crate) fn is_selected_by(&self, selector: &ResourceId) -> bool {
        let namespace = if self.namespace.is_empty() {
            "default"
        } else {
            &self.namespace
        };
        (selector.name.is_empty() || selector.name == self.name)
            && (selector.namespace.is_empty() || selector.namespace == namespace)
            && self.gvk.is_selected(&selector.gvk)
    }
}

impl fmt::Display for ResourceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.name.is_empty() { "[noName]" } else { &self.name };
        let namespace = if self.namespace.is_empty() {
            "[noNs]"
        } else {
            &self.namespace
        };
        write!(formatter, "{}/{name}.{namespace}", self.gvk)
    }
}
