//! The content of the store when the controllers start, before the first fetch.

use std::collections::HashSet;
use std::sync::Arc;

use super::Fetching;
use crate::artifacts::storage::make_source_key;
use crate::context::ControllerContext;
use crate::lane::Shard;

/// Removes the artifacts of sources that were deleted or re-created while no controllers ran, and charges the others to their lanes.
pub(crate) async fn adopt_earlier_artifacts<S: Fetching>(context: Arc<ControllerContext>, shards: Vec<Arc<Shard>>) {
    let mut kept = Vec::new();
    for shard in shards {
        let lane = shard.lane().await;
        for repository in shard.caches.get::<S>().all() {
            if let Ok(source) = make_source_key(S::NAME, repository.metadata()) {
                kept.push((source, Arc::clone(&shard), Arc::clone(&lane)));
            }
        }
    }
    let search = tokio::task::spawn_blocking(move || {
        let known: HashSet<(&str, &str, &str)> = kept
            .iter()
            .map(|(source, ..)| (source.namespace(), source.name(), source.uid()))
            .collect();
        let is_known = |namespace: &str, name: &str, uid: &str| known.contains(&(namespace, name, uid));
        if let Err(error) = context.artifact_storage.retain(S::NAME, is_known) {
            tracing::warn!(%error, "the artifacts of sources that are gone could not be removed");
        }
        for (source, shard, lane) in &kept {
            if let Err(error) = shard.artifacts.adopt(source, &lane.limits.name) {
                let (namespace, name) = (source.namespace(), source.name());
                tracing::warn!(%error, namespace, name, "a stored artifact can't be kept; it is fetched again");
            }
        }
    });
    if let Err(error) = search.await {
        tracing::warn!(%error, "the stored artifacts could not be listed");
    }
}
