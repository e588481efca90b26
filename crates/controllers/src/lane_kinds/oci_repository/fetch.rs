//! Executes a fetch from a container registry.

use tenure_cluster::ServiceAccount;
use tenure_planner::oci_repository::FetchRequest;
use tenure_planner::source::{FetchFailure, FetchReason, Fetched};
use tenure_sources::{OciError, OciRequest, OciSecrets, SourceKey, fetch_artifact};

use crate::lane::secret_reader::{read_pull_secrets, read_secret};
use crate::lane::{Lane, Shard};
use crate::lane_kinds::source::record_artifact;

/// Fetches as a plan requests.
pub(super) async fn perform_fetch(
    shard: &Shard,
    (source, lane): (&SourceKey, &Lane),
    account: Option<&ServiceAccount>,
    request: &FetchRequest,
) -> Result<Fetched, FetchFailure> {
    let secrets = read_secrets(source.namespace(), lane, account, request).await?;
    let failed = |error: OciError| FetchFailure::from(&error);
    let artifact = OciRequest::read(source.clone(), request.clone(), &secrets).map_err(failed)?;
    let reach = shard.context.reach(request.platform);
    let artifact_storage = &shard.context.artifact_storage;
    let (limits, store, account) = (
        &artifact_storage.limits,
        &artifact_storage.store,
        artifact_storage.account(&lane.limits.name),
    );
    let fetched = fetch_artifact(&artifact, reach, limits, store, &account).await;
    let fetched = fetched.map_err(failed)?;
    if let Fetched::Stored { artifact, .. } = &fetched {
        record_artifact(shard, source, artifact)?;
    }
    Ok(fetched)
}

async fn read_secrets(
    namespace: &str,
    lane: &Lane,
    account: Option<&ServiceAccount>,
    request: &FetchRequest,
) -> Result<OciSecrets, FetchFailure> {
    let mut secrets = OciSecrets::default();
    if let Some(name) = &request.secret {
        secrets
            .credentials
            .push(read_secret(lane, namespace, name, account).await?);
    }
    if let Some(name) = &request.service_account {
        let named = read_pull_secrets(lane, namespace, name, account).await?;
        secrets.credentials.extend(named);
    }
    if let Some(name) = &request.certificates {
        secrets.certificates = Some(read_secret(lane, namespace, name, account).await?);
    }
    if let Some(name) = &request.keys {
        let keys = read_secret(lane, namespace, name, account).await;
        secrets.keys = Some(keys.map_err(|failure| FetchFailure {
            reason: FetchReason::VerificationError,
            ..failure
        })?);
    }
    if let Some(name) = &request.proxy {
        secrets.proxy = Some(read_secret(lane, namespace, name, account).await?);
    }
    Ok(secrets)
}
