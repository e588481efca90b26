//! Executes a fetch: reads the Secret as the plan's identity, asks the upstream, remembers what was stored.
//! The Secret is read with no other rights, and its values go nowhere but into the connection.

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tenure_cluster::{ClusterError, Identity};
use tenure_planner::gitrepository::{FetchFailure, FetchOutcome, FetchRequest, StoredArtifact};
use tenure_sources::{FetchError, Fetched, GitRequest, SecretData, SourceKey, fetch};

use crate::artifacts::Record;
use crate::world::World;

/// Fetches what a plan asks for. A failure is part of the answer: it becomes a status.
pub(super) async fn perform(
    world: &World,
    (source, lane): (&SourceKey, &str),
    identity: Option<&Identity>,
    request: &FetchRequest,
) -> FetchOutcome {
    match attempt(world, (source, lane), identity, request).await {
        Ok(outcome) => outcome,
        Err(failure) => FetchOutcome::Failed(failure),
    }
}

async fn attempt(
    world: &World,
    (source, lane): (&SourceKey, &str),
    identity: Option<&Identity>,
    request: &FetchRequest,
) -> Result<FetchOutcome, FetchFailure> {
    let secret = match &request.secret {
        Some(name) => Some(read_secret(world, source.namespace(), name, identity).await?),
        None => None,
    };
    let git = GitRequest::from_spec(source.clone(), &spec(request), secret.as_ref()).map_err(|error| failed(&error))?;
    let policy = if request.platform {
        &world.platform_sources
    } else {
        &world.tenant_sources
    };
    let previous = world
        .artifacts
        .record(source)
        .filter(|record| request.known_revision.as_ref() == Some(&record.stored.revision))
        .map(|record| record.artifact);
    let artifacts = &world.artifacts;
    let (limits, store, account) = (&artifacts.limits, &artifacts.store, artifacts.account(lane));
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
            artifacts.remember(source, &record).map_err(|error| FetchFailure {
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

/// The request as the spec of a GitRepository: sources reads nothing else.
fn spec(request: &FetchRequest) -> Value {
    let mut spec = Map::new();
    spec.insert("url".to_owned(), json!(request.url.reveal()));
    spec.insert("ref".to_owned(), json!(request.reference));
    spec.insert(
        "timeout".to_owned(),
        json!(format!("{}ms", request.timeout_milliseconds)),
    );
    if let Some(ignore) = &request.ignore {
        spec.insert("ignore".to_owned(), json!(ignore));
    }
    if let Some(secret) = &request.secret {
        spec.insert("secretRef".to_owned(), json!({ "name": secret }));
    }
    Value::Object(spec)
}

async fn read_secret(
    world: &World,
    namespace: &str,
    name: &str,
    identity: Option<&Identity>,
) -> Result<SecretData, FetchFailure> {
    let failure = |message: String| FetchFailure {
        reason: tenure_api::reason::AUTHENTICATION_FAILED.to_owned(),
        message,
        terminal: false,
        storage: false,
    };
    let Some(identity) = identity else {
        return Err(failure(format!(
            "Secret {namespace}/{name} can't be read: nobody may act in this namespace"
        )));
    };
    let refused = |error: ClusterError| {
        failure(format!(
            "Secret {namespace}/{name} can't be read as {identity}: {error}"
        ))
    };
    let lane = world.lane(namespace).await;
    let client = world
        .clients
        .for_identity(identity, &lane.turns)
        .await
        .map_err(refused)?;
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
