//! The objects of the cluster that a fetch needs: Secrets, and ServiceAccounts that name Secrets. They are read as the plan's identity, with no other
//! rights. Their values go only into the connection.

use serde_json::{Value, json};
use tenure_api::ObjectView;
use tenure_cluster::{ClusterError, ServiceAccount};
use tenure_planner::receiver::TokenFailure;
use tenure_planner::source::{FetchFailure, FetchReason};
use tenure_sources::SecretData;

use crate::lane::Lane;

/// The limit of Secrets of a ServiceAccount that are read for one fetch.
const PULL_SECRETS: usize = 16;

/// Reads a Secret as an account.
pub(crate) async fn read_secret(
    lane: &Lane,
    namespace: &str,
    name: &str,
    account: Option<&ServiceAccount>,
) -> Result<SecretData, FetchFailure> {
    let secret = read_object(lane, ("Secret", namespace, name), account).await?;
    decode_data(&secret).ok_or_else(|| make_failure(format!("Secret {namespace}/{name} holds data that is not base64")))
}

/// Reads the Secret of a Receiver as an account. The error says whether the Secret certainly can't be read.
pub(crate) async fn find_secret(
    lane: &Lane,
    namespace: &str,
    name: &str,
    account: Option<&ServiceAccount>,
) -> Result<SecretData, TokenFailure> {
    let fail = |(message, is_known)| TokenFailure { message, is_known };
    let secret = find_object(lane, ("Secret", namespace, name), account)
        .await
        .map_err(fail)?;
    decode_data(&secret).ok_or_else(|| fail((format!("Secret {namespace}/{name} holds data that is not base64"), true)))
}

/// Reads the `imagePullSecrets` of a ServiceAccount.
pub(crate) async fn read_pull_secrets(
    lane: &Lane,
    namespace: &str,
    name: &str,
    account: Option<&ServiceAccount>,
) -> Result<Vec<SecretData>, FetchFailure> {
    let service_account = read_object(lane, ("ServiceAccount", namespace, name), account).await?;
    let named = ObjectView::new(&service_account)
        .find("/imagePullSecrets")
        .and_then(Value::as_array);
    let names: Vec<&str> = named
        .into_iter()
        .flatten()
        .filter_map(|secret| secret.get("name")?.as_str())
        .collect();
    if names.len() > PULL_SECRETS {
        let message = format!("ServiceAccount {namespace}/{name} names more than {PULL_SECRETS} imagePullSecrets");
        return Err(make_failure(message));
    }
    let mut secrets = Vec::with_capacity(names.len());
    for secret in names {
        secrets.push(read_secret(lane, namespace, secret, account).await?);
    }
    Ok(secrets)
}

async fn read_object(
    lane: &Lane,
    object: (&str, &str, &str),
    account: Option<&ServiceAccount>,
) -> Result<Value, FetchFailure> {
    let found = find_object(lane, object, account).await;
    found.map_err(|(message, _)| make_failure(message))
}

/// Reads an object. The error has the message, and whether it is an answer of the API server: without an answer, the state is unknown.
async fn find_object(
    lane: &Lane,
    (kind, namespace, name): (&str, &str, &str),
    account: Option<&ServiceAccount>,
) -> Result<Value, (String, bool)> {
    let Some(account) = account else {
        // The plans of sources and Receivers order no read without an account, so only a defect leads here.
        let message = format!(
            "{kind} {namespace}/{name} can't be read: no ServiceAccount may act in namespace {namespace}; check the labels of the namespace, and that its Tenant exists"
        );
        return Err((message, true));
    };
    let refused = |error: ClusterError| {
        let message = format!("{kind} {namespace}/{name} can't be read as {account}: {error}");
        (message, !error.transient() && error.code() != 0)
    };
    let client = lane.act_as(account).await.map_err(refused)?;
    let resource = client.resource("v1", kind).await.map_err(refused)?;
    client.get(&resource, namespace, name).await.map_err(refused)
}

fn make_failure(message: String) -> FetchFailure {
    FetchFailure {
        reason: FetchReason::AuthenticationFailed,
        message,
        terminal: false,
        retry_after: None,
    }
}

fn decode_data(secret: &Value) -> Option<SecretData> {
    let data = ObjectView::new(secret).find_map("/data");
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
