//! The kinds that are reconciled. The one list of them: a kind that stands here is watched, and driven, and told of what it depends on.

use tenure_api::access::{AccessProvider, FluxAccessRequest};
use tenure_api::{
    Alert, ArtifactGenerator, Bucket, ExternalArtifact, GitRepository, Kustomization, OciRepository, Provider,
    Receiver, Surface, Tenant,
};

use crate::access::Desk;
use crate::entry::Entry;
use crate::hub::Hub;
use crate::lane::Shard;
use crate::reconciled::Reconciled as _;
use crate::switches::{SwitchError, Switches};

/// The kinds of the hub, those of lanes, and those of access to hosts of repositories.
pub(crate) struct KindTable {
    pub(crate) hub: Vec<Entry<Hub>>,
    pub(crate) lane: Vec<Entry<Shard>>,
    pub(crate) access: Vec<Entry<Desk>>,
}

/// All of them.
pub(crate) fn list_kinds() -> KindTable {
    KindTable {
        hub: vec![Entry::of::<Tenant>(), Entry::of::<Surface>()],
        lane: vec![
            Entry::of::<GitRepository>(),
            Entry::of::<OciRepository>(),
            Entry::of::<Bucket>(),
            Entry::of::<ArtifactGenerator>(),
            Entry::of::<ExternalArtifact>(),
            Entry::of::<Kustomization>(),
            Entry::of::<Receiver>(),
            Entry::of::<Provider>(),
            Entry::of::<Alert>(),
        ],
        access: vec![Entry::of::<AccessProvider>(), Entry::of::<FluxAccessRequest>()],
    }
}

/// What each of the first can do nothing without: a Kustomization applies what the same process has fetched, and an ArtifactGenerator has
/// what it makes made. Who wants nothing from registries, or from stores of objects, may leave OCIRepositories and Buckets out.
const NEEDS: [(&str, &str); 3] = [
    (Kustomization::KIND.name, GitRepository::KIND.name),
    (ArtifactGenerator::KIND.name, ExternalArtifact::KIND.name),
    (ExternalArtifact::KIND.name, ArtifactGenerator::KIND.name),
];

/// Reads which kinds are reconciled, such as `*,-tenant` (see [`Switches`]).
///
/// # Errors
/// [`SwitchError`], which names the kinds that there are.
pub fn read_switches(text: &str) -> Result<Switches, SwitchError> {
    let KindTable { hub, lane, .. } = list_kinds();
    let hub = hub.iter().map(|entry| entry.kind.name);
    // All of access, or nothing of it.
    let access = [AccessProvider::KIND.name];
    let known = hub
        .chain(lane.iter().map(|entry| entry.kind.name))
        .chain(access)
        .collect();
    Switches::read(text, &known, &NEEDS)
}

#[cfg(test)]
mod tests;
