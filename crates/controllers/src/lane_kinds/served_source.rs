//! Resolves the address of an artifact to its object in the namespace, and checks what of it is served. The keeper of the archives finds the archive
//! itself.

use jiff::Timestamp;
use tenure_api::ObjectView;
use tenure_api::artifact::Artifact;
use tenure_planner::artifact_address::{ArtifactAddress, is_served};
use tenure_remote_requests::artifact::StoredArtifact;
use tenure_sources::SourceKey;

use crate::cluster_view::key::Key;
use crate::lane::Shard;
use crate::lane_kinds::source::find_source_kind;

/// The source of an address: its key in the store, and the facts in its status.
#[derive(Debug)]
pub(crate) struct ServedSource {
    pub(crate) source: SourceKey,
    is_deleted: bool,
    artifact: Option<Artifact>,
}

impl ServedSource {
    /// Finds the source in the shard of its namespace; `None` if it is missing.
    pub(crate) fn find(shard: &Shard, address: &ArtifactAddress) -> Option<Self> {
        let kind = find_source_kind(address.kind)?.kind;
        let object = shard.write_object(&Key::new(kind, &address.namespace, &address.name))?;
        let view = ObjectView::new(&object);
        let uid = view.read_text("/metadata/uid");
        let artifact = object.pointer("/status/artifact").cloned();
        Some(Self {
            source: SourceKey::new(address.kind, &address.namespace, &address.name, uid).ok()?,
            is_deleted: view.has("/metadata/deletionTimestamp"),
            artifact: artifact.and_then(|artifact| serde_json::from_value(artifact).ok()),
        })
    }

    /// Returns the time when the requested artifact was stored, if known; `None` if it is not served.
    pub(crate) fn check(
        &self,
        address: &ArtifactAddress,
        stored: Option<&StoredArtifact>,
    ) -> Option<Option<Timestamp>> {
        let is_last = |stored: &&StoredArtifact| stored.facts.digest == address.digest;
        let last = stored.filter(is_last);
        is_served(address, self.is_deleted, self.artifact.as_ref(), stored).then(|| last?.stored_at)
    }
}
