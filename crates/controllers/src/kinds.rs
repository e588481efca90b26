//! The kinds that are reconciled. The one list of them: a kind that stands here is watched, and driven, and told of what it depends on.

use tenure_api::{GitRepository, Kustomization, Surface, Tenant};

use crate::entry::Entry;
use crate::hub::Hub;
use crate::lane::Shard;

/// The kinds of the hub, and those of lanes.
pub(crate) struct KindTable {
    pub(crate) hub: Vec<Entry<Hub>>,
    pub(crate) lane: Vec<Entry<Shard>>,
}

/// All of them.
pub(crate) fn list_kinds() -> KindTable {
    KindTable {
        hub: vec![Entry::of::<Tenant>(), Entry::of::<Surface>()],
        lane: vec![Entry::of::<GitRepository>(), Entry::of::<Kustomization>()],
    }
}

#[cfg(test)]
mod tests;
