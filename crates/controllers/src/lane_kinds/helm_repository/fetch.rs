//! Executes the fetch of an index.

use tenure_cluster::ServiceAccount;
use tenure_planner::helm_repository::{IndexRequest, RepositoryAccess};
use tenure_planner::source::{FetchFailure, Fetched};
use tenure_sources::{ChartError, HelmSecrets, IndexFetch, SourceKey, fetch_index};

use crate::lane::secret_reader::read_secret;
use crate::lane::{Lane, Shard};
use crate::lane_kinds::source::record_artifact;

/// Fetches as a plan requests.
pub(super) async fn perform_fetch(
    shard: &Shard,
    (source, lane): (&SourceKey, &Lane),
    account: Option<&ServiceAccount>,
    request: &IndexRequest,
) -> Result<Fetched, FetchFailure> {
    let failed = |error: ChartError| FetchFailure::from(&error);
    let secrets = read_secrets(source.namespace(), lane, account, &request.repository).await?;
    let index = IndexFetch::read(source.clone(), request.clone(), &secrets).map_err(failed)?;
    let reach = shard.context.reach(request.platform);
    let artifact_storage = &shard.context.artifact_storage;
    let (limits, store, account) = (
        &artifact_storage.limits,
        &artifact_storage.store,
        artifact_storage.account(&lane.limits.name),
    );
    let fetched = fetch_index(&index, reach, limits, store, &account).await;
    let fetched = fetched.map_err(failed)?;
    if let Fetched::Stored { artifact, .. } = &fetched {
        record_artifact(shard, source, artifact)?;
    }
    Ok(fetched)
}

/// Reads the Secrets for a repository.
pub(crate) async fn read_secrets(
    namespace: &str,
    lane: &Lane,
    account: Option<&ServiceAccount>,
    access: &RepositoryAccess,
) -> Result<HelmSecrets, FetchFailure> {
    let mut secrets = HelmSecrets::default();
    if let Some(name) = &access.secret {
        secrets.credentials = Some(read_secret(lane, namespace, name, account).await?);
    }
    if let Some(name) = &access.certificates {
        secrets.certificates = Some(read_secret(lane, namespace, name, account).await?);
    }
    Ok(secrets)
}
