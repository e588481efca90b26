//! The staging Secrets of an AccessProvider. A value is there from the host's answer until it is in its namespace and seen in use. They are read and
//! written as the account that the AccessProvider names for its authoriser, with one key for each credential.
//!
//! A Secret holds a mebibyte. The next Secret takes the values that do not fit into the previous ones.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tenure_api::ObjectView;
use tenure_api::metadata::{STAGING_SECRETS_ANNOTATION, TENURE_CONTROLLER};
use tenure_cluster::{Client, ClusterError};
use tenure_git_access::rotation::{StagedFacts, StagingState, WriteFailure};
use tenure_sources::SecretBytes;
use zeroize::{Zeroize as _, Zeroizing};

use super::secrets::{SECRET, explain_failure, find_secret, make_id, read_entry, try_apply, wipe_values};

/// A credential in the staging Secret: its value, and the public facts about it.
#[derive(Clone, Debug)]
pub(super) struct StagedValue {
    pub(super) facts: StagedFacts,
    pub(super) username: Option<String>,
    pub(super) value: SecretBytes,
    /// The public key, if the value is a private key.
    pub(super) public: Option<String>,
}

/// A staged credential in the JSON form that the staging Secret stores.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct StoredValue {
    nonce: String,
    is_minted: bool,
    id: Option<u64>,
    fingerprint: String,
    expires_at: Option<Timestamp>,
    username: Option<String>,
    value: String,
    public: Option<String>,
}

impl Drop for StoredValue {
    fn drop(&mut self) {
        self.value.zeroize();
    }
}

/// The limit of staging Secrets of an AccessProvider.
const MOST: usize = 16;
/// The size limit of a staging Secret in bytes: Kubernetes takes a mebibyte, and several values may be written at once.
const MOST_BYTES: usize = 900 << 10;
/// The bytes that must be free in a staging Secret before a value is written into it.
const VALUE_BYTES: usize = 4 << 10;

/// The limit of attempts to record how many staging Secrets are in use.
const ATTEMPTS: usize = 5;

/// Returns the name of a staging Secret of an AccessProvider. An administrator names it in a Role.
fn name_staging(provider: &str, number: usize) -> String {
    match number {
        0 => format!("tenure-access-{provider}-staging"),
        number => format!("tenure-access-{provider}-staging-{number}"),
    }
}

/// A staging Secret's name, its size in bytes, and its entry for the credential that is being staged or read. A missing Secret counts as empty.
#[derive(Debug)]
struct StagingSecret {
    name: String,
    bytes: usize,
    entry: Option<Zeroizing<Vec<u8>>>,
}

/// The staging Secrets in use, in their order.
struct Staging {
    seen: Vec<StagingSecret>,
    /// The number in the record of the first one, if it has a record.
    recorded: Option<usize>,
    /// The version of the first one, if it exists.
    version: Option<String>,
}

/// The staging Secret into which a value is written.
#[derive(Debug, PartialEq, Eq)]
enum StagingSlot {
    /// Into the Secret at this index, which is in use.
    Among(usize),
    /// Into the next Secret, which is not in use yet.
    Next(usize),
    /// Into no Secret: all allowed ones are full.
    Nowhere,
}

impl Staging {
    /// Chooses the staging Secret for a value: the Secret that already has an entry for the credential, or else the first Secret with space.
    fn choose(&self) -> StagingSlot {
        let has_room = |shard: &StagingSecret| shard.bytes.saturating_add(VALUE_BYTES) <= MOST_BYTES;
        let holder = self.seen.iter().position(|shard| shard.entry.is_some());
        match holder.or_else(|| self.seen.iter().position(has_room)) {
            Some(number) => StagingSlot::Among(number),
            None if self.seen.len() < MOST => StagingSlot::Next(self.seen.len()),
            None => StagingSlot::Nowhere,
        }
    }
}

/// Reads the staging Secrets in use. The first one records their number, so that an unreadable one is not taken for a missing one.
async fn read_staging(client: &Client, namespace: &str, provider: &str, key: &str) -> Result<Staging, String> {
    let explained = |name: &str, error: &ClusterError| explain_staging(client, namespace, name, error);
    let name = name_staging(provider, 0);
    let first = find_secret(client, namespace, &name)
        .await
        .map_err(|error| explained(&name, &error))?;
    let recorded = first.as_ref().and_then(read_record);
    let version = first
        .as_ref()
        .map(|first| ObjectView::new(first).read_text("/metadata/resourceVersion").to_owned());
    let mut seen = vec![take_staging_secret(name, first, key)];
    for number in 1..recorded.unwrap_or(MOST) {
        let name = name_staging(provider, number);
        let found = match (find_secret(client, namespace, &name).await, recorded) {
            (Ok(found), Some(_)) => found,
            // The record is missing, or was deleted with the first Secret. Then the existing ones count as in use.
            (Ok(Some(found)), None) => Some(found),
            (Ok(None) | Err(ClusterError::Forbidden { .. }), None) => break,
            (Err(error), _) => return Err(explained(&name, &error)),
        };
        seen.push(take_staging_secret(name, found, key));
    }
    Ok(Staging {
        seen,
        recorded,
        version,
    })
}

/// Returns the number of staging Secrets in use, from the first one's record.
fn read_record(first: &Value) -> Option<usize> {
    let annotation = ObjectView::new(first).find_annotation(STAGING_SECRETS_ANNOTATION)?;
    annotation.parse().ok().filter(|count| (1..=MOST).contains(count))
}

/// Returns one credential's data from a staging Secret, and wipes the rest.
fn take_staging_secret(name: String, found: Option<Value>, key: &str) -> StagingSecret {
    let mut found = found.unwrap_or_default();
    let shard = StagingSecret {
        name,
        bytes: count_bytes(&found),
        entry: read_entry(&found, key),
    };
    wipe_values(&mut found);
    shard
}

/// Finds the Secret for a value, and the number of Secrets in use with it.
async fn find_place(
    client: &Client,
    namespace: &str,
    provider: &str,
    staging: &Staging,
) -> Result<(String, usize), String> {
    let in_use = staging.seen.len();
    match staging.choose() {
        StagingSlot::Among(number) => Ok((name_staging(provider, number), in_use)),
        StagingSlot::Next(number) => {
            let next = name_staging(provider, number);
            match find_secret(client, namespace, &next).await {
                Ok(found) => {
                    wipe_values(&mut found.unwrap_or_default());
                    Ok((next, in_use.saturating_add(1)))
                }
                Err(ClusterError::Forbidden { .. }) => Err(format!(
                    "the staging Secrets of AccessProvider {provider} are full: make an empty Secret {namespace}/{next}, and give {} get and patch on it, by its \
                     name",
                    client.identity()
                )),
                Err(error) => Err(explain_staging(client, namespace, &next, &error)),
            }
        }
        StagingSlot::Nowhere => Err(format!(
            "the {MOST} staging Secrets of AccessProvider {provider} are full: look for sources that never fetch with the delivered credential"
        )),
    }
}

/// Counts the bytes of all keys and values, as Kubernetes counts them for its limit.
fn count_bytes(secret: &Value) -> usize {
    let entries = secret.get("data").and_then(Value::as_object);
    let sizes = entries.into_iter().flatten().map(|(key, value)| {
        let encoded = value.as_str().map_or(0, str::len);
        key.len().saturating_add(encoded / 4 * 3)
    });
    sizes.fold(0, usize::saturating_add)
}

/// Returns the key of a credential in the staging Secret.
pub(super) fn name_staged(request_uid: &str, namespace: &str) -> String {
    format!("{request_uid}.{namespace}")
}

/// Returns the public facts of a staged credential.
pub(super) async fn look_at_staging(client: &Client, namespace: &str, provider: &str, key: &str) -> StagingState {
    match read_staged(client, namespace, provider, key).await {
        Ok(Some(staged)) => StagingState::Present(staged.facts),
        Ok(None) => StagingState::Absent,
        Err(why) => StagingState::Unknown(why),
    }
}

/// Reads a staged credential.
pub(super) async fn read_staged(
    client: &Client,
    namespace: &str,
    provider: &str,
    key: &str,
) -> Result<Option<StagedValue>, String> {
    let staging = read_staging(client, namespace, provider, key).await?;
    let mut staging = staging.seen.into_iter();
    let found = staging.find_map(|shard| Some((shard.name, shard.entry?)));
    let Some((name, bytes)) = found else { return Ok(None) };
    let written: StoredValue = serde_json::from_slice(&bytes)
        .map_err(|_| format!("the value in Secret {namespace}/{name} under {key} can't be read: delete that key"))?;
    Ok(Some(StagedValue {
        facts: StagedFacts {
            nonce: written.nonce.clone(),
            is_minted: written.is_minted,
            id: written.id,
            fingerprint: written.fingerprint.clone(),
            expires_at: written.expires_at,
        },
        username: written.username.clone(),
        value: SecretBytes::new(written.value.as_str()),
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
        error => explain_failure(client, &make_id(SECRET, namespace, name), error),
    }
}

/// Writes a value into the staging Secret.
pub(super) async fn stage_value(
    client: &Client,
    namespace: &str,
    provider: &str,
    key: &str,
    staged: &StagedValue,
) -> Result<(), String> {
    let written = StoredValue {
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
    let chosen = claim_place(client, namespace, provider, key).await?;
    let mut value = json!({ "data": { key: STANDARD.encode(&*bytes) } });
    let changed = change_staging(client, namespace, &chosen, &value).await;
    wipe_values(&mut value);
    changed
}

/// Finds the Secret for a value, and records it as in use before a value is written into it.
async fn claim_place(client: &Client, namespace: &str, provider: &str, key: &str) -> Result<String, String> {
    let first = name_staging(provider, 0);
    for _ in 0..ATTEMPTS {
        let staging = read_staging(client, namespace, provider, key).await?;
        let (chosen, in_use) = find_place(client, namespace, provider, &staging).await?;
        if staging.recorded == Some(in_use) {
            return Ok(chosen);
        }
        let Some(version) = staging.version else {
            let created = client
                .create(&write_staging(namespace, &first), TENURE_CONTROLLER)
                .await;
            match created {
                Ok(_) | Err(ClusterError::AlreadyExists { .. }) => continue,
                Err(error) => return Err(explain_staging(client, namespace, &first, &error)),
            }
        };
        let annotations = json!({ STAGING_SECRETS_ANNOTATION: in_use.to_string() });
        let record = json!({ "metadata": { "resourceVersion": version, "annotations": annotations } });
        match patch_staging(client, namespace, &first, record).await {
            Ok(()) => return Ok(chosen),
            // Another credential's value was written meanwhile, perhaps with a record.
            Err(ClusterError::Conflict { .. } | ClusterError::NotFound { .. }) => {}
            Err(error) => return Err(explain_staging(client, namespace, &first, &error)),
        }
    }
    Err(format!(
        "Secret {namespace}/{first} changes too often: it is tried again"
    ))
}

/// Removes a value from the staging Secret.
pub(super) async fn clear_value(
    client: &Client,
    namespace: &str,
    provider: &str,
    key: &str,
) -> Result<(), WriteFailure> {
    let staging = read_staging(client, namespace, provider, key).await;
    let staging = staging.map_err(WriteFailure::Unknown)?;
    let mut staging = staging.seen.into_iter();
    let Some(name) = staging.find_map(|shard| shard.entry.map(|_| shard.name)) else {
        return Ok(());
    };
    let cleared = patch_staging(client, namespace, &name, json!({ "data": { key: null } })).await;
    match cleared {
        Ok(()) | Err(ClusterError::NotFound { .. }) => Ok(()),
        Err(error) if error.transient() || error.code() == 0 => {
            Err(WriteFailure::Unknown(explain_staging(client, namespace, &name, &error)))
        }
        Err(error) => Err(WriteFailure::Refused(explain_staging(client, namespace, &name, &error))),
    }
}

async fn patch_staging(client: &Client, namespace: &str, name: &str, mut patch: Value) -> Result<(), ClusterError> {
    let resource = client.resource("v1", SECRET).await?;
    let patched = client
        .merge_patch(&resource, (namespace, name), None, TENURE_CONTROLLER, &patch)
        .await;
    wipe_values(&mut patch);
    let mut stored = patched?.object;
    wipe_values(&mut stored);
    Ok(())
}

async fn change_staging(client: &Client, namespace: &str, name: &str, patch: &Value) -> Result<(), String> {
    let explained = |error: &ClusterError| explain_staging(client, namespace, name, error);
    for _ in 0..2 {
        match patch_staging(client, namespace, name, patch.clone()).await {
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

/// Tries with a dry-run whether a value could be staged.
pub(super) async fn try_staging(client: &Client, namespace: &str, provider: &str, key: &str) -> Result<(), String> {
    let staging = read_staging(client, namespace, provider, key).await?;
    let (chosen, _) = find_place(client, namespace, provider, &staging).await?;
    let tried = try_apply(client, &write_staging(namespace, &chosen)).await;
    tried.map_err(|error| explain_staging(client, namespace, &chosen, &error))
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod choices {
    use super::*;

    /// A value that a staging Secret already contains stays in that Secret.
    #[test]
    fn new_value_is_staged_in_secret_with_room() {
        let choose = |seen: Vec<StagingSecret>| {
            let staging = Staging {
                seen,
                recorded: None,
                version: None,
            };
            staging.choose()
        };
        let shard = |name: &str, bytes: usize, has_it: bool| StagingSecret {
            name: name.to_owned(),
            bytes,
            entry: has_it.then(Zeroizing::default),
        };
        let full = MOST_BYTES - VALUE_BYTES + 1;
        assert_eq!(choose(vec![shard("a", full - 1, false)]), StagingSlot::Among(0));
        let with_room = vec![shard("a", full, false), shard("b", 0, false)];
        assert_eq!(choose(with_room), StagingSlot::Among(1));
        let with_value = vec![shard("a", 0, false), shard("b", full, true)];
        assert_eq!(choose(with_value), StagingSlot::Among(1));
        assert_eq!(choose(vec![shard("a", full, false)]), StagingSlot::Next(1));
        let all_full = (0..MOST).map(|_| shard("a", usize::MAX, false)).collect();
        assert_eq!(choose(all_full), StagingSlot::Nowhere);
        let secret = json!({ "data": { "key": STANDARD.encode([0; 300]), "odd": 5 } });
        assert_eq!(count_bytes(&secret), 3 + 300 + 3);
        let record = |count: &str| json!({ "metadata": { "annotations": { STAGING_SECRETS_ANNOTATION: count } } });
        for (count, known) in [("3", Some(3)), ("0", None), ("99", None), ("many", None)] {
            assert_eq!(read_record(&record(count)), known, "{count}");
        }
        assert_eq!(read_record(&json!({})), None);
        assert_eq!(name_staging("work", 0), "tenure-access-work-staging");
        assert_eq!(name_staging("work", 1), "tenure-access-work-staging-1");
    }
}
