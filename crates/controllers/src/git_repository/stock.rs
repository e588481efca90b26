//! What is in the store when the controllers start, before anything is fetched.

use std::sync::Arc;

use tenure_api::GitRepository;

use crate::artifacts::key_of_source;
use crate::reconciled::Reconciled as _;
use crate::world::World;

/// Removes the artifacts of sources that were deleted while nobody looked, those whose name another object has taken among
/// them, and charges the others to their lanes.
pub(super) async fn take(world: Arc<World>) {
    let repositories = world.caches.of::<GitRepository>();
    let mut kept = Vec::new();
    for repository in repositories.all() {
        let namespace = repository.metadata.namespace.as_deref().unwrap_or_default();
        let lane = world.lanes.of(&world.place(namespace).await, namespace);
        if let Ok(source) = key_of_source(GitRepository::KIND.name, &repository.metadata) {
            kept.push((source, lane));
        }
    }
    let looking = tokio::task::spawn_blocking(move || {
        let known = |namespace: &str, name: &str, uid: &str| {
            let repository = repositories.get(namespace, name);
            repository.is_some_and(|repository| repository.metadata.uid.as_deref() == Some(uid))
        };
        if let Err(error) = world.artifacts.retain(GitRepository::KIND.name, known) {
            tracing::warn!(%error, "the artifacts of sources that are gone could not be removed");
        }
        for (source, lane) in kept {
            if let Err(error) = world.artifacts.adopt(&source, &lane.name) {
                let (namespace, name) = (source.namespace(), source.name());
                tracing::warn!(%error, namespace, name, "a stored artifact can't be kept; it is fetched again");
            }
        }
    });
    if let Err(error) = looking.await {
        tracing::warn!(%error, "what is stored could not be looked through");
    }
}
