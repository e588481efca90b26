//! The kinds that are reconciled. The one list of them: a kind that stands here is watched, and driven, and told of what it depends on.

use tenure_api::{GitRepository, Kustomization, Surface, Tenant};

use crate::entry::Entry;

/// All of them.
pub(crate) fn list() -> Vec<Entry> {
    vec![
        Entry::of::<Tenant>(),
        Entry::of::<GitRepository>(),
        Entry::of::<Kustomization>(),
        Entry::of::<Surface>(),
    ]
}

#[cfg(test)]
mod tests;
