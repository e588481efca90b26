//! Executes the fetch of a chart.

use tenure_cluster::ServiceAccount;
use tenure_planner::helm_chart::{ChartOrigin, ChartRequest};
use tenure_planner::source::{FetchFailure, FetchReason, Fetched};
use tenure_sources::{ChartError, ChartFetch, HelmSecrets, SourceKey, count_files, fetch_chart};
use tokio::time::Instant;

use crate::lane::secret_reader::read_secret;
use crate::lane::{Lane, Shard};
use crate::lane_kinds::helm_repository;
use crate::lane_kinds::source::record_artifact;

/// Fetches as a plan requests.
pub(super) async fn perform_fetch(
    shard: &Shard,
    (source, lane): (&SourceKey, &Lane),
    account: Option<&ServiceAccount>,
    request: &ChartRequest,
) -> Result<Fetched, FetchFailure> {
    let failed = |error: ChartError| FetchFailure::from(&error);
    let secrets = read_secrets(source.namespace(), lane, account, request).await?;
    let chart = ChartFetch::read(source.clone(), request.clone(), &secrets).map_err(failed)?;
    let artifact_storage = &shard.context.artifact_storage;
    let bytes = count_files(&chart, &artifact_storage.store).map_err(|error| failed(error.into()))?;
    let room = match bytes {
        0 => None,
        bytes => {
            let deadline = Instant::now() + request.timeout / 2;
            let room = artifact_storage.take_tree_room(&lane.limits.name, bytes, deadline);
            Some(room.await.map_err(|error| failed(error.into()))?)
        }
    };
    let reach = shard.context.reach(request.platform);
    let account = artifact_storage.account(&lane.limits.name);
    let (limits, store) = (&artifact_storage.limits, &artifact_storage.store);
    let fetched = fetch_chart(&chart, room, reach, limits, store, &account).await;
    let Fetched::Stored { artifact, subject } = fetched.map_err(failed)? else {
        let known = request.known.as_ref();
        let revision = known.map(|known| known.facts.revision.clone()).unwrap_or_default();
        return Ok(Fetched::Unchanged { revision });
    };
    record_artifact(shard, source, &artifact)?;
    let known = request.known.as_ref().map(|known| &known.facts);
    if known == Some(&artifact.facts) {
        // The source changed, but the chart is the same: no user of the artifact needs to be notified.
        let revision = artifact.facts.revision;
        return Ok(Fetched::Unchanged { revision });
    }
    Ok(Fetched::Stored { artifact, subject })
}

async fn read_secrets(
    namespace: &str,
    lane: &Lane,
    account: Option<&ServiceAccount>,
    request: &ChartRequest,
) -> Result<HelmSecrets, FetchFailure> {
    let (repository, keys) = match &request.origin {
        ChartOrigin::Index { repository, .. } => (repository, None),
        ChartOrigin::Registry { repository, keys, .. } => (repository, keys.as_ref()),
        ChartOrigin::Files(_) => return Ok(HelmSecrets::default()),
    };
    let mut secrets = helm_repository::read_secrets(namespace, lane, account, repository).await?;
    if let Some(name) = keys {
        let keys = read_secret(lane, namespace, name, account).await;
        secrets.keys = Some(keys.map_err(|failure| FetchFailure {
            reason: FetchReason::ChartVerificationError,
            ..failure
        })?);
    }
    Ok(secrets)
}
