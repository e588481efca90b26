//! The staging Secret of an AccessProvider: there a value is between the host's answer and the namespaces, and until it is seen in use. It is read and written
//! as the account that the AccessProvider names for its authoriser, one key for each credential.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tenure_api::metadata::TENURE_CONTROLLER;
use tenure_cluster::{Client, ClusterError};
use tenure_planner::access::rotation::{StagedFacts, StagingSeen, WriteFailure};
use tenure_sources::Hidden;
use zeroize::{Zeroize as _, Zeroizing};

use super::secrets::{SECRET, explain, find, id, read_entry, try_apply, wipe};

/// A value between the host and its Secret.
#[derive(Clone, Debug)]
pub(super) struct StagedValue {
    pub(super) facts: StagedFacts,
    pub(super) username: Option<String>,
    pub(super) value: Hidden,
    /// Of a key, its public half.
    pub(super) public: Option<String>,
}

/// How it is written down.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    nonce: String,
    is_minted: bool,
    id: Option<u64>,
    fingerprint: String,
    expires_at: Option<Timestamp>,
    username: Option<String>,
    value: String,
    public: Option<String>,
}

impl Drop for Written {
    fn drop(&mut self) {
        self.value.zeroize();
    }
}

/// What the staging Secret of an AccessProvider is called: an administrator names it in a Role.
pub(super) fn name_staging(provider: &str) -> String {
    format!("tenure-access-{provider}-staging")
}

/// The key of a credential in it.
pub(super) fn name_staged(request_uid: &str, namespace: &str) -> String {
    format!("{request_uid}.{namespace}")
}

/// Looks at what is staged of a credential.
pub(super) async fn look_at_staging(client: &Client, namespace: &str, provider: &str, key: &str) -> StagingSeen {
    match read_staged(client, namespace, provider, key).await {
        Ok(Some(staged)) => StagingSeen::Present(staged.facts),
        Ok(None) => StagingSeen::Absent,
        Err(why) => StagingSeen::Unknown(why),
    }
}

/// Reads what is staged of a credential.
pub(super) async fn read_staged(
    client: &Client,
    namespace: &str,
    provider: &str,
    key: &str,
) -> Result<Option<StagedValue>, String> {
    let name = name_staging(provider);
    let found = find(client, namespace, &name).await;
    let mut found = match found {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(None),
        Err(error) => return Err(explain_staging(client, namespace, &name, &error)),
    };
    let bytes = read_entry(&found, key);
    wipe(&mut found);
    let Some(bytes) = bytes else { return Ok(None) };
    let written: Written = serde_json::from_slice(&bytes).map_err(|_| {
        format!("what is staged in Secret {namespace}/{name} under {key} can't be read: delete that key")
    })?;
    Ok(Some(StagedValue {
        facts: StagedFacts {
            nonce: written.nonce.clone(),
            is_minted: written.is_minted,
            id: written.id,
            fingerprint: written.fingerprint.clone(),
            expires_at: written.expires_at,
        },
        username: written.username.clone(),
        value: Hidden::new(written.value.as_str()),
        public: written.public.clone(),
    }))
}

fn explain_staging(client: &Client, namespace: &str, name: &str, error: &ClusterError) -> String {
    match error {
        ClusterError::Forbidden { .. } => format!(
            "{} may not do that with Secret {namespace}/{name}, or a policy forbids it: bind it a Role in {namespace} with get and patch on this Secret, by its \
             name, and with create on secrets, or make the Secret yourself, empty",
            client.identity()
        ),
        error => explain(client, &id(SECRET, namespace, name), error),
    }
}

/// Puts a value into the staging Secret.
pub(super) async fn stage(
    client: &Client,
    namespace: &str,
    provider: &str,
    key: &str,
    staged: &StagedValue,
) -> Result<(), String> {
    let written = Written {
        nonce: staged.facts.nonce.clone(),
        is_minted: staged.facts.is_minted,
        id: staged.facts.id,
        fingerprint: staged.facts.fingerprint.clone(),
        expires_at: staged.facts.expires_at,
        username: staged.username.clone(),
        value: staged.value.reveal().to_owned(),
        public: staged.public.clone(),
    };
    let bytes = Zeroizing::new(serde_json::to_vec(&written).map_err(|_| "it can't be written down".to_owned())?);
    change_staging(client, namespace, provider, (key, json!(STANDARD.encode(&*bytes)))).await
}

/// Takes a value out of the staging Secret.
pub(super) async fn clear(client: &Client, namespace: &str, provider: &str, key: &str) -> Result<(), WriteFailure> {
    let name = name_staging(provider);
    let cleared = patch_staging(client, namespace, &name, (key, Value::Null)).await;
    match cleared {
        Ok(()) | Err(ClusterError::NotFound { .. }) => Ok(()),
        Err(error) if error.transient() || error.code() == 0 => {
            Err(WriteFailure::Unknown(explain_staging(client, namespace, &name, &error)))
        }
        Err(error) => Err(WriteFailure::Refused(explain_staging(client, namespace, &name, &error))),
    }
}

async fn patch_staging(
    client: &Client,
    namespace: &str,
    name: &str,
    (key, value): (&str, Value),
) -> Result<(), ClusterError> {
    let resource = client.resource("v1", SECRET).await?;
    let mut patch = json!({ "data": { key: value } });
    let patched = client
        .merge_patch(&resource, (namespace, name), None, TENURE_CONTROLLER, &patch)
        .await;
    wipe(&mut patch);
    let mut stored = patched?.object;
    wipe(&mut stored);
    Ok(())
}

async fn change_staging(
    client: &Client,
    namespace: &str,
    provider: &str,
    (key, value): (&str, Value),
) -> Result<(), String> {
    let name = name_staging(provider);
    let explained = |error: &ClusterError| explain_staging(client, namespace, &name, error);
    for _ in 0..2 {
        match patch_staging(client, namespace, &name, (key, value.clone())).await {
            Ok(()) => return Ok(()),
            Err(ClusterError::NotFound { .. }) => {}
            Err(error) => return Err(explained(&error)),
        }
        match client.create(&write_staging(namespace, &name), TENURE_CONTROLLER).await {
            Ok(_) | Err(ClusterError::AlreadyExists { .. }) => {}
            Err(error) => return Err(explained(&error)),
        }
    }
    Err(format!("Secret {namespace}/{name} comes and goes"))
}

fn write_staging(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": SECRET, "type": "Opaque",
        "metadata": { "name": name, "namespace": namespace, "labels": { tenure_api::metadata::MANAGED_BY: tenure_api::metadata::MANAGED_BY_TENURE } },
    })
}

/// Tries whether the staging Secret could be written.
pub(super) async fn try_staging(client: &Client, namespace: &str, provider: &str) -> Result<(), String> {
    let name = name_staging(provider);
    let tried = try_apply(client, &write_staging(namespace, &name)).await;
    tried.map_err(|error| explain_staging(client, namespace, &name, &error))
}
