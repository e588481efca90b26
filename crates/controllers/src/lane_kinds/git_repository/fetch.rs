//! Executes a fetch from a Git repository.

use tenure_cluster::ServiceAccount;
use tenure_planner::git_repository::FetchRequest;
use tenure_planner::source::{FetchFailure, FetchReason, Fetched};
use tenure_sources::{FetchError, GitRequest, GitSecrets, SourceKey, fetch};

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
    let secrets = read_secrets(source.namespace(), lane, account, request).await?;
    let failed = |error: FetchError| FetchFailure::from(&error);
    let mut git = GitRequest::read(source.clone(), request.clone(), &secrets).map_err(failed)?;
    git.tokens = shard.app_tokens.clone();
    let reach = shard.context.reach(request.platform);
    let artifact_storage = &shard.context.artifact_storage;
    let (limits, store, account) = (
        &artifact_storage.limits,
        &artifact_storage.store,
        artifact_storage.account(&lane.limits.name),
    );
    let fetched = fetch(&git, reach, limits, store, &account).await.map_err(failed)?;
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
) -> Result<GitSecrets, FetchFailure> {
    let mut secrets = GitSecrets::default();
    if let Some(name) = &request.secret {
        secrets.credentials = Some(read_secret(lane, namespace, name, account).await?);
    }
    if let Some(verify) = &request.verify {
        let keys = read_secret(lane, namespace, &verify.secret, account).await;
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
