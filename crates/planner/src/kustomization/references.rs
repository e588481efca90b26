//! What a Kustomization names besides itself, and in which namespaces: its source, and those that it depends on. Owns how these are called, as
//! keys and in messages. Whether it may name them is `tenancy`'s.

use tenure_api::Kustomization;
use tenure_api::reference::DependencyReference;
use tenure_tenancy::Referrer;

use super::types::Snapshot;

/// The namespace of the source that a Kustomization names.
#[must_use]
pub fn find_source_namespace(kustomization: &Kustomization) -> &str {
    let own = kustomization.metadata.namespace.as_deref().unwrap_or_default();
    kustomization.spec.source_ref.namespace.as_deref().unwrap_or(own)
}

/// Kind and name of the source, as those of the Kustomization's own namespace call it: with its namespace only if that is another.
#[must_use]
pub fn name_source(kustomization: &Kustomization) -> (String, String) {
    let own = kustomization.metadata.namespace.as_deref().unwrap_or_default();
    let source = &kustomization.spec.source_ref;
    (
        source.kind.clone(),
        name_from(own, source.namespace.as_deref(), &source.name),
    )
}

/// What a dependency is called among those of a Kustomization in this namespace.
#[must_use]
pub fn name_dependency(own: &str, dependency: &DependencyReference) -> String {
    name_from(own, dependency.namespace.as_deref(), &dependency.name)
}

/// A name as seen from a namespace. No name has a slash in it.
pub(super) fn name_from(own: &str, namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(other) if other != own => format!("{other}/{name}"),
        _ => name.to_owned(),
    }
}

impl Snapshot {
    /// Who refers.
    pub(super) fn referrer(&self) -> Referrer<'_> {
        Referrer {
            namespace: self.kustomization.metadata.namespace.as_deref().unwrap_or_default(),
            placement: &self.placement,
            grants: &self.grants,
        }
    }

    /// The source, as Flux's messages have it.
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
