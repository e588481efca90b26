//! Executes a fetch: reads the Secret as the plan's identity, asks the upstream, remembers what was stored.
//! The Secret is read with no other rights, and its values go nowhere but into the connection.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_cluster::{ClusterError, ServiceAccount};
use tenure_planner::git_repository::{FetchFailure, FetchOutcome, FetchRequest, StoredArtifact};
use tenure_sources::{FetchError, Fetched, GitRequest, SecretData, SourceKey, fetch};

use crate::artifacts::Record;
use crate::lane::{Lane, Shard};

/// Fetches what a plan asks for. A failure is part of the answer: it becomes a status.
pub(super) async fn perform(
    shard: &Shard,
    (source, lane): (&SourceKey, &Lane),
    account: Option<&ServiceAccount>,
    request: &FetchRequest,
) -> FetchOutcome {
    match attempt(shard, (source, lane), account, request).await {
        Ok(outcome) => outcome,
        Err(failure) => FetchOutcome::Failed(failure),
    }
}

async fn attempt(
    shard: &Shard,
    (source, lane): (&SourceKey, &Lane),
    account: Option<&ServiceAccount>,
    request: &FetchRequest,
) -> Result<FetchOutcome, FetchFailure> {
    let secret = match &request.secret {
        Some(name) => Some(read_secret(lane, source.namespace(), name, account).await?),
        None => None,
    };
    let git = GitRequest::new(source.clone(), &request.url, &request.reference, secret.as_ref());
    let git = GitRequest {
        ignore: request.ignore.clone(),
        timeout: Duration::from_millis(request.timeout_milliseconds),
        ..git.map_err(|error| failed(&error))?
    };
    let policy = if request.platform {
        &shard.means.platform_sources
    } else {
        &shard.means.tenant_sources
    };
    let previous = shard
        .artifacts
        .record(source)
        .filter(|record| request.known_revision.as_ref() == Some(&record.stored.revision))
        .map(|record| record.artifact);
    let depot = &shard.means.depot;
    let (limits, store, account) = (&depot.limits, &depot.store, depot.account(&lane.bounds.name));
    let fetched = fetch(&git, policy, limits, store, previous.as_ref(), &account).await;
    match fetched.map_err(|error| failed(&error))? {
        Fetched::Unchanged { revision } => Ok(FetchOutcome::Unchanged { revision }),
        Fetched::New { artifact, commit } => {
            let stored = StoredArtifact {
                revision: artifact.revision.clone(),
                digest: artifact.digest.clone(),
                size: artifact.size,
                path: artifact.path.clone(),
                stored_at: Some(Timestamp::now()),
                ignore: request.ignore.clone(),
            };
            let record = Record {
                stored: stored.clone(),
                artifact,
            };
            shard
                .artifacts
                .remember(source, &record)
                .map_err(|error| FetchFailure {
                    reason: "ArchiveOperationFailed".to_owned(),
                    message: format!("artifact storage: can't write the record of {}: {error}", stored.path),
                    terminal: false,
                    storage: true,
                })?;
            Ok(FetchOutcome::Stored {
                artifact: stored,
                subject: Some(commit.subject),
            })
        }
    }
}

async fn read_secret(
    lane: &Lane,
    namespace: &str,
    name: &str,
    account: Option<&ServiceAccount>,
) -> Result<SecretData, FetchFailure> {
    let failure = |message: String| FetchFailure {
        reason: tenure_api::reason::AUTHENTICATION_FAILED.to_owned(),
        message,
        terminal: false,
        storage: false,
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
    let Some(data) = secret.get("data").and_then(Value::as_object) else {
        return Some(SecretData::new());
    };
    data.iter()
        .map(|(key, value)| Some((key.clone(), decode_base64(value.as_str()?)?)))
        .collect()
}

/// Standard base64 with padding, as Kubernetes writes it.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let value: k8s_openapi::ByteString = serde_json::from_value(json!(text)).ok()?;
    Some(value.0)
}

fn failed(error: &FetchError) -> FetchFailure {
    FetchFailure {
        reason: error.reason().to_owned(),
        message: error.to_string(),
        terminal: error.stalled(),
        storage: matches!(error, FetchError::Storage(_)),
    }
}
