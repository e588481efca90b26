//! The only list of reconciled kinds. A kind in this list is watched, driven, and notified of changes on which it depends.

use tenure_api::access::{AccessProvider, FluxAccessRequest};
use tenure_api::helm::{HelmChart, HelmRepository};
use tenure_api::{
    Alert, ArtifactGenerator, Bucket, ExternalArtifact, GitRepository, Kustomization, OciRepository, Package,
    PackageSource, PackageValues, Provider, Receiver, Surface, Tenant,
};

use crate::context::enabled_kinds::{EnabledKinds, EnabledKindsError};
use crate::git_access::AccessHub;
use crate::hub::Hub;
use crate::lane::Shard;
use crate::reconcile_loop::kind_entry::KindEntry;
use crate::reconcile_loop::reconciled::Reconciled as _;

/// The table of reconciled kinds: the kinds of the hub, the kinds of lanes, and the kinds of access to Git hosts and registries.
pub(crate) struct KindTable {
    pub(crate) hub: Vec<KindEntry<Hub>>,
    pub(crate) lane: Vec<KindEntry<Shard>>,
    pub(crate) access: Vec<KindEntry<AccessHub>>,
}

/// Returns all kinds.
pub(crate) fn list_kinds() -> KindTable {
    KindTable {
        hub: vec![
            KindEntry::new::<Tenant>(),
            KindEntry::new::<Surface>(),
            KindEntry::new::<PackageSource>(),
            KindEntry::new::<Package>(),
            KindEntry::new::<PackageValues>(),
        ],
        lane: vec![
            KindEntry::new::<GitRepository>(),
            KindEntry::new::<OciRepository>(),
            KindEntry::new::<Bucket>(),
            KindEntry::new::<ArtifactGenerator>(),
            KindEntry::new::<ExternalArtifact>(),
            KindEntry::new::<HelmRepository>(),
            KindEntry::new::<HelmChart>(),
            KindEntry::new::<Kustomization>(),
            KindEntry::new::<Receiver>(),
            KindEntry::new::<Provider>(),
            KindEntry::new::<Alert>(),
        ],
        access: vec![
            KindEntry::new::<AccessProvider>(),
            KindEntry::new::<FluxAccessRequest>(),
        ],
    }
}

/// Pairs of kinds, of which the first can't work without the second. A Kustomization applies only artifacts that the same process has fetched. An
/// ArtifactGenerator needs the ExternalArtifacts to be made. A HelmChart may be of a HelmRepository. OCIRepositories and Buckets are optional for users without registries and object stores.
const NEEDS: [(&str, &str); 4] = [
    (Kustomization::KIND.name, GitRepository::KIND.name),
    (ArtifactGenerator::KIND.name, ExternalArtifact::KIND.name),
    (ExternalArtifact::KIND.name, ArtifactGenerator::KIND.name),
    (HelmChart::KIND.name, HelmRepository::KIND.name),
];

/// Reads the reconciled kinds from a text such as `*,-tenant` (see [`EnabledKinds`]).
///
/// # Errors
/// [`EnabledKindsError`], which names the existing kinds.
pub fn read_switches(text: &str) -> Result<EnabledKinds, EnabledKindsError> {
    let KindTable { hub, lane, .. } = list_kinds();
    let hub = hub.iter().map(|entry| entry.kind.name);
    // One name switches all kinds of access on or off.
    let access = [AccessProvider::KIND.name];
    let known = hub
        .chain(lane.iter().map(|entry| entry.kind.name))
        .chain(access)
        .collect();
    EnabledKinds::read(text, &known, &NEEDS)
}

#[cfg(test)]
mod tests;
