//! The objects that a Kustomization names, and their namespaces: its source and its dependencies. The module decides their names as keys and in messages. `tenancy`
//! decides whether the Kustomization may name them.

use tenure_api::Kustomization;
use tenure_api::reference::DependencyReference;
use tenure_tenancy::Referrer;

use super::types::Snapshot;

/// Finds the namespace of the source that a Kustomization names.
#[must_use]
pub fn find_source_namespace(kustomization: &Kustomization) -> &str {
    let own = kustomization.metadata.namespace.as_deref().unwrap_or_default();
    kustomization.spec.source_ref.namespace.as_deref().unwrap_or(own)
}

/// Returns kind and name of the source, as the Kustomization's own namespace writes them: with the namespace only if it is another.
#[must_use]
pub fn name_source(kustomization: &Kustomization) -> (String, String) {
    let own = kustomization.metadata.namespace.as_deref().unwrap_or_default();
    let source = &kustomization.spec.source_ref;
    (
        source.kind.clone(),
        name_from(own, source.namespace.as_deref(), &source.name),
    )
}

/// Returns the name of a dependency for a Kustomization in this namespace.
#[must_use]
pub fn name_dependency(own: &str, dependency: &DependencyReference) -> String {
    name_from(own, dependency.namespace.as_deref(), &dependency.name)
}

/// Returns a name as seen from a namespace. No name has a slash in it.
pub(super) fn name_from(own: &str, namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(other) if other != own => format!("{other}/{name}"),
        _ => name.to_owned(),
    }
}

impl Snapshot {
    /// Returns the referrer.
    pub(super) fn referrer(&self) -> Referrer<'_> {
        Referrer {
            namespace: self.kustomization.metadata.namespace.as_deref().unwrap_or_default(),
            placement: &self.placement,
            grants: &self.grants,
        }
    }

    /// Returns the source in the form of Flux's messages.
    pub(super) fn describe_source(&self) -> String {
        let source = &self.kustomization.spec.source_ref;
        format!(
            "{}/{}/{}",
            source.kind,
            find_source_namespace(&self.kustomization),
            source.name
        )
    }
}
