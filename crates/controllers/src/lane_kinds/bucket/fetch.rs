//! Executes a fetch from an object store.

use tenure_cluster::ServiceAccount;
use tenure_planner::bucket::FetchRequest;
use tenure_planner::source::{FetchFailure, Fetched};
use tenure_sources::{BucketError, BucketRequest, BucketSecrets, SourceKey, fetch_bucket};

use crate::lane::secret_reader::read_secret;
use crate::lane::{Lane, Shard};
use crate::lane_kinds::source::record_artifact;

/// Fetches as a plan requests.
pub(super) async fn perform_fetch(
    shard: &Shard,
    (source, lane): (&SourceKey, &Lane),
    account: Option<&ServiceAccount>,
    request: &FetchRequest,
) -> Result<Fetched, FetchFailure> {
    let mut secrets = BucketSecrets::default();
    let namespace = source.namespace();
    if let Some(name) = &request.secret {
        secrets.credentials = Some(read_secret(lane, namespace, name, account).await?);
    }
    if let Some(name) = &request.certificates {
        secrets.certificates = Some(read_secret(lane, namespace, name, account).await?);
    }
    if let Some(name) = &request.proxy {
        secrets.proxy = Some(read_secret(lane, namespace, name, account).await?);
    }
    let failed = |error: BucketError| FetchFailure::from(&error);
    let bucket = BucketRequest::read(source.clone(), request.clone(), &secrets).map_err(failed)?;
    let reach = shard.context.reach(request.platform);
    let artifact_storage = &shard.context.artifact_storage;
    let (limits, store, account) = (
        &artifact_storage.limits,
        &artifact_storage.store,
        artifact_storage.account(&lane.limits.name),
    );
    let fetched = fetch_bucket(&bucket, reach, limits, store, &account).await;
    let fetched = fetched.map_err(failed)?;
    if let Fetched::Stored { artifact, .. } = &fetched {
        record_artifact(shard, source, artifact)?;
    }
    Ok(fetched)
}
