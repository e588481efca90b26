//! The kinds for which the objects of a cluster are complete.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::kinds::{ReadKind, SOURCES, is_custom};
use crate::object::{read_group, read_text};

/// The kinds that could not be read. Objects of all other kinds are complete, so a missing one does
/// not exist.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    /// Kinds that could not be read, as `nodes` or `roles.rbac.authorization.k8s.io`.
    pub unread: BTreeSet<String>,
    /// The name of a guard inside the API server that validates tenants' writes, if the API server
    /// has one.
    pub guard: Option<String>,
}

impl Coverage {
    /// Returns the coverage of files: a kind without a single object may have been left out.
    #[must_use]
    pub fn of_files(objects: &[Value]) -> Self {
        let found: BTreeSet<(&str, &str)> = objects
            .iter()
            .map(|object| (read_group(object), read_text(object, "/kind")))
            .collect();
        let missing = SOURCES
            .iter()
            .filter(|source| !is_custom(source) && !found.contains(&(source.group, source.kind)));
        Self {
            unread: missing.map(name_source).collect(),
            guard: None,
        }
    }

    /// Checks whether the objects of a kind are complete. `resource` has the form of
    /// [`name_source`].
    pub(crate) fn has(&self, resource: &str) -> bool {
        !self.unread.contains(resource)
    }
}

/// Returns the name of a kind in messages: `pods`, `roles.rbac.authorization.k8s.io`.
#[must_use]
pub fn name_source(source: &ReadKind) -> String {
    if source.group.is_empty() {
        source.resource.to_owned()
    } else {
        format!("{}.{}", source.resource, source.group)
    }
}
