//! The staging Secrets of an AccessProvider: a value is there between the host's answer and the namespaces, and until it is seen in use. They are read and written
//! as the account that the AccessProvider names for its authoriser, one key for each credential.
//!
//! A Secret holds a mebibyte. The next Secret takes the values that find no room in the ones before.

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

/// The most staging Secrets of an AccessProvider.
const MOST: usize = 16;
/// The most bytes of one: Kubernetes takes a mebibyte, and several values may come at once.
const MOST_BYTES: usize = 900 << 10;
/// The room that a value is sure to find.
const VALUE_BYTES: usize = 4 << 10;

/// The name of a staging Secret of an AccessProvider: an administrator names it in a Role.
fn name_staging(provider: &str, number: usize) -> String {
    match number {
        0 => format!("tenure-access-{provider}-staging"),
        number => format!("tenure-access-{provider}-staging-{number}"),
    }
}

/// What is seen of a staging Secret. One that isn't there is empty.
struct Shard {
    name: String,
    bytes: usize,
    entry: Option<Zeroizing<Vec<u8>>>,
}

/// Reads the staging Secrets, up to the first that isn't there, or that the account may not read.
async fn read_shards(client: &Client, namespace: &str, provider: &str, key: &str) -> Result<Vec<Shard>, String> {
    let mut shards = Vec::new();
    for number in 0..MOST {
        let name = name_staging(provider, number);
        let found = match find(client, namespace, &name).await {
            Ok(found) => found,
            Err(ClusterError::Forbidden { .. }) if number > 0 => break,
            Err(error) => return Err(explain_staging(client, namespace, &name, &error)),
        };
        let is_last = found.is_none();
        let mut found = found.unwrap_or_default();
        shards.push(Shard {
            name,
            bytes: count_bytes(&found),
            entry: read_entry(&found, key),
        });
        wipe(&mut found);
        if is_last {
            break;
        }
    }
    Ok(shards)
}

/// The bytes of all keys and values, as Kubernetes counts them against its limit.
fn count_bytes(secret: &Value) -> usize {
    let entries = secret.get("data").and_then(Value::as_object);
    let sizes = entries.into_iter().flatten().map(|(key, value)| {
        let encoded = value.as_str().map_or(0, str::len);
        key.len().saturating_add(encoded / 4 * 3)
    });
    sizes.fold(0, usize::saturating_add)
}

/// The staging Secret for a value: the one that has it, or the first with room.
fn choose_shard(shards: &[Shard]) -> Option<&Shard> {
    let holds = shards.iter().find(|shard| shard.entry.is_some());
    holds.or_else(|| {
        shards
            .iter()
            .find(|shard| shard.bytes.saturating_add(VALUE_BYTES) <= MOST_BYTES)
    })
}

fn explain_full(client: &Client, namespace: &str, (provider, count): (&str, usize)) -> String {
    let next = name_staging(provider, count);
    if count >= MOST {
        return format!(
            "the {MOST} staging Secrets of AccessProvider {provider} are full: look for sources that never fetch with what was delivered"
        );
    }
    format!(
        "the staging Secrets of AccessProvider {provider} are full: make an empty Secret {namespace}/{next}, and give {} get and patch on it, by its name",
        client.identity()
    )
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
    let shards = read_shards(client, namespace, provider, key).await?;
    let found = shards.into_iter().find_map(|shard| Some((shard.name, shard.entry?)));
    let Some((name, bytes)) = found else { return Ok(None) };
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
    let shards = read_shards(client, namespace, provider, key).await?;
    let chosen = choose_shard(&shards).ok_or_else(|| explain_full(client, namespace, (provider, shards.len())))?;
    change_staging(client, namespace, &chosen.name, (key, json!(STANDARD.encode(&*bytes)))).await
}

/// Takes a value out of the staging Secret.
pub(super) async fn clear(client: &Client, namespace: &str, provider: &str, key: &str) -> Result<(), WriteFailure> {
    let shards = read_shards(client, namespace, provider, key).await;
    let shards = shards.map_err(WriteFailure::Unknown)?;
    let Some(name) = shards.into_iter().find_map(|shard| shard.entry.map(|_| shard.name)) else {
        return Ok(());
    };
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
    name: &str,
    (key, value): (&str, Value),
) -> Result<(), String> {
    let explained = |error: &ClusterError| explain_staging(client, namespace, name, error);
    for _ in 0..2 {
        match patch_staging(client, namespace, name, (key, value.clone())).await {
            Ok(()) => return Ok(()),
            Err(ClusterError::NotFound { .. }) => {}
            Err(error) => return Err(explained(&error)),
        }
        match client.create(&write_staging(namespace, name), TENURE_CONTROLLER).await {
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

/// Tries whether a value could be staged.
pub(super) async fn try_staging(client: &Client, namespace: &str, provider: &str, key: &str) -> Result<(), String> {
    let shards = read_shards(client, namespace, provider, key).await?;
    let chosen = choose_shard(&shards).ok_or_else(|| explain_full(client, namespace, (provider, shards.len())))?;
    let tried = try_apply(client, &write_staging(namespace, &chosen.name)).await;
    tried.map_err(|error| explain_staging(client, namespace, &chosen.name, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_stays_where_it_is_and_a_new_one_goes_where_room_is() {
        let shard = |name: &str, bytes: usize, has_it: bool| Shard {
            name: name.to_owned(),
            bytes,
            entry: has_it.then(Zeroizing::default),
        };
        let choose = |shards: &[Shard]| choose_shard(shards).map(|shard| shard.name.clone());
        let full = MOST_BYTES - VALUE_BYTES + 1;
        assert_eq!(choose(&[shard("a", full - 1, false)]).as_deref(), Some("a"));
        assert_eq!(
            choose(&[shard("a", full, false), shard("b", 0, false)]).as_deref(),
            Some("b")
        );
        assert_eq!(
            choose(&[shard("a", 0, false), shard("b", full, true)]).as_deref(),
            Some("b")
        );
        assert_eq!(choose(&[shard("a", full, false), shard("b", usize::MAX, false)]), None);
        let secret = json!({ "data": { "key": STANDARD.encode([0; 300]), "odd": 5 } });
        assert_eq!(count_bytes(&secret), 3 + 300 + 3);
        assert_eq!(name_staging("work", 0), "tenure-access-work-staging");
        assert_eq!(name_staging("work", 1), "tenure-access-work-staging-1");
    }
}
