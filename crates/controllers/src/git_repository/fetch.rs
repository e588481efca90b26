//! Executes a fetch: reads the Secret as the plan's identity, asks the upstream, remembers what was stored.
//! The Secret is read with no other rights, and its values go nowhere but into the connection.

use serde_json::{Value, json};
use tenure_api::ObjectView;
use tenure_cluster::{ClusterError, ServiceAccount};
use tenure_planner::git_repository::{FetchFailure, FetchReason, FetchRequest, Fetched};
use tenure_sources::{FetchError, GitRequest, SecretData, SourceKey, fetch};

use crate::lane::{Lane, Shard};

/// Fetches what a plan asks for. A failure is part of the answer: it becomes a status.
pub(super) async fn perform_fetch(
    shard: &Shard,
    (source, lane): (&SourceKey, &Lane),
    account: Option<&ServiceAccount>,
    request: &FetchRequest,
) -> Result<Fetched, FetchFailure> {
    let secret = match &request.secret {
        Some(name) => Some(read_secret(lane, source.namespace(), name, account).await?),
        None => None,
    };
    let failed = |error: FetchError| FetchFailure::from(&error);
    let git = GitRequest::read(source.clone(), request.clone(), secret.as_ref()).map_err(failed)?;
    let policy = if request.platform {
        &shard.means.platform_sources
    } else {
        &shard.means.tenant_sources
    };
    let depot = &shard.means.depot;
    let (limits, store, account) = (&depot.limits, &depot.store, depot.account(&lane.bounds.name));
    let fetched = fetch(&git, policy, limits, store, &account).await.map_err(failed)?;
    if let Fetched::Stored { artifact, .. } = &fetched {
        shard
            .artifacts
            .remember(source, artifact)
            .map_err(|error| FetchFailure {
                reason: FetchReason::ArchiveOperationFailed,
                message: format!("artifact storage: can't write the record of {}: {error}", artifact.path),
                terminal: false,
            })?;
    }
    Ok(fetched)
}

async fn read_secret(
    lane: &Lane,
    namespace: &str,
    name: &str,
    account: Option<&ServiceAccount>,
) -> Result<SecretData, FetchFailure> {
    let failure = |message: String| FetchFailure {
        reason: FetchReason::AuthenticationFailed,
        message,
        terminal: false,
    };
    let Some(account) = account else {
        return Err(failure(format!(
            "Secret {namespace}/{name} can't be read: nobody may act in this namespace"
        )));
    };
    let refused =
        |error: ClusterError| failure(format!("Secret {namespace}/{name} can't be read as {account}: {error}"));
    let client = lane.act_as(account).await.map_err(refused)?;
    let resource = client.resource("v1", "Secret").await.map_err(refused)?;
    let secret = client.get(&resource, namespace, name).await.map_err(refused)?;
    data(&secret).ok_or_else(|| failure(format!("Secret {namespace}/{name} holds data that is not base64")))
}

fn data(secret: &Value) -> Option<SecretData> {
    let data = ObjectView::of(secret).find_map("/data");
    data.into_iter()
        .flatten()
        .map(|(key, value)| Some((key.clone(), decode_base64(value.as_str()?)?)))
        .collect()
}

/// Standard base64 with padding, as Kubernetes writes it.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let value: k8s_openapi::ByteString = serde_json::from_value(json!(text)).ok()?;
    Some(value.0)
}
