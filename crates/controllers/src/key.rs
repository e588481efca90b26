//! Which object a reconciler is for.

use std::fmt;

/// The kinds that are reconciled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum OwnKind {
    GitRepository,
    Kustomization,
    Surface,
    Tenant,
}

impl OwnKind {
    /// The `apiVersion` that it is watched and written with.
    pub(crate) fn api_version(self) -> &'static str {
        match self {
            Self::GitRepository => "source.toolkit.fluxcd.io/v1",
            Self::Kustomization => "kustomize.toolkit.fluxcd.io/v1",
            Self::Surface => "tenure.dev/v1alpha1",
            Self::Tenant => "capsule.clastix.io/v1beta2",
        }
    }

    /// The kind.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::GitRepository => "GitRepository",
            Self::Kustomization => "Kustomization",
            Self::Surface => "Surface",
            Self::Tenant => "Tenant",
        }
    }
}

/// An object that is reconciled. The namespace is empty for cluster-scoped kinds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) kind: OwnKind,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(kind: OwnKind, namespace: &str, name: &str) -> Self {
        Self {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(formatter, "{}/{}", self.kind.kind(), self.name)
        } else {
            write!(formatter, "{}/{}/{}", self.kind.kind(), self.namespace, self.name)
        }
    }
}
