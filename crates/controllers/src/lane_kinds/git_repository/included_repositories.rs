//! The repositories that a repository includes, as the cache and the store have them: only of its own namespace.

use tenure_api::GitRepository;
use tenure_planner::git_repository::{IncludedRepositories, find_included};

use crate::artifacts::storage::make_source_key;
use crate::lane::Shard;
use crate::reconcile_loop::reconciled::Reconciled as _;

/// Returns the facts about the repositories that `repository` includes.
pub(super) fn observe_beside(shard: &Shard, repository: &GitRepository) -> IncludedRepositories {
    if repository.spec.include.is_empty() {
        return IncludedRepositories::default();
    }
    let namespace = repository.metadata.namespace.as_deref().unwrap_or_default();
    let get = |name: &str| shard.caches.get::<GitRepository>().get(namespace, name);
    let stored = |repository: &GitRepository| {
        let key = make_source_key(GitRepository::KIND.name, &repository.metadata).ok()?;
        shard.artifacts.record(&key)
    };
    find_included(repository, get, stored)
}
