//! The objects of every namespace, namely its ServiceAccount `default` and the CA's certificate, and the tokens in
//! Secrets of type `kubernetes.io/service-account-token`. This module is pure. A token Secret for a missing account
//! is deleted, as by Kubernetes' controller.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::object_name::{get_text, is_deleting};

/// The ConfigMap that holds the CA's certificate in every namespace.
pub(crate) const ROOT_CA: &str = "kube-root-ca.crt";
/// The type of Secrets that hold a token.
pub(crate) const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT_NAME: &str = "/metadata/annotations/kubernetes.io~1service-account.name";
const ACCOUNT_UID: &str = "/metadata/annotations/kubernetes.io~1service-account.uid";

/// Returns the ServiceAccount that each namespace gets.
#[must_use]
pub(crate) fn default_account(namespace: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default", "namespace": namespace } })
}

/// Returns the ConfigMap with the CA's certificate, new or corrected; `None` if it is correct.
#[must_use]
pub(crate) fn root_ca(namespace: &str, live: Option<&Value>, ca_pem: &str) -> Option<Value> {
    let data = json!({ "ca.crt": ca_pem });
    let Some(live) = live else {
        return Some(json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": ROOT_CA,
                "namespace": namespace,
                "annotations": {
                    "kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.",
                },
            },
            "data": data,
        }));
    };
    if live.get("data") == Some(&data) {
        return None;
    }
    let mut object = live.clone();
    object.as_object_mut()?.insert("data".to_owned(), data);
    Some(object)
}

/// Returns the ServiceAccount of a token Secret.
#[must_use]
pub(crate) fn account_of(secret: &Value) -> Option<&str> {
    (get_text(secret, "/type") == TOKEN_TYPE).then(|| get_text(secret, ACCOUNT_NAME))
}

/// The action of the token controller for a Secret.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TokenSecret {
    /// Nothing.
    Keep,
    /// Delete the Secret: its account is missing or has another UID.
    Delete,
    /// Store this Secret with the missing fields filled in.
    Fill(Value),
}

/// Decides about a token Secret. `token` creates a token, and is called only if one is missing.
///
/// # Errors
/// The errors of `token`.
pub(crate) fn decide_token_secret<E>(
    secret: &Value,
    account: Option<&Value>,
    ca_pem: &str,
    token: impl FnOnce() -> Result<String, E>,
) -> Result<TokenSecret, E> {
    if account_of(secret).is_none() || is_deleting(secret) {
        return Ok(TokenSecret::Keep);
    }
    let Some(account) = account else {
        return Ok(TokenSecret::Delete);
    };
    let uid = get_text(account, "/metadata/uid");
    let held = get_text(secret, ACCOUNT_UID);
    if !held.is_empty() && held != uid {
        return Ok(TokenSecret::Delete);
    }
    let mut filled = secret.clone();
    let Some(fields) = filled.as_object_mut() else {
        return Ok(TokenSecret::Keep);
    };
    let data = fields.entry("data").or_insert_with(|| json!({}));
    if let Some(data) = data.as_object_mut() {
        data.insert("ca.crt".to_owned(), json!(STANDARD.encode(ca_pem)));
        data.insert(
            "namespace".to_owned(),
            json!(STANDARD.encode(get_text(secret, "/metadata/namespace"))),
        );
        if get_text(secret, "/data/token").is_empty() {
            data.insert("token".to_owned(), json!(STANDARD.encode(token()?)));
        }
    }
    if let Some(annotations) = filled
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.insert("kubernetes.io/service-account.uid".to_owned(), json!(uid));
    }
    Ok(if filled == *secret {
        TokenSecret::Keep
    } else {
        TokenSecret::Fill(filled)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(uid: &str) -> Value {
        let mut annotations = json!({ "kubernetes.io/service-account.name": "bot" });
        if !uid.is_empty() {
            annotations["kubernetes.io/service-account.uid"] = json!(uid);
        }
        json!({ "type": TOKEN_TYPE, "metadata": { "name": "t", "namespace": "shop", "annotations": annotations } })
    }

    fn judge_secret(secret: &Value, account: Option<&Value>) -> TokenSecret {
        decide_token_secret(secret, account, "CA", || Ok::<_, ()>("tok".to_owned())).unwrap_or(TokenSecret::Keep)
    }

    #[test]
    fn a_token_secret_is_filled_once() {
        let account = json!({ "metadata": { "uid": "u1" } });
        let TokenSecret::Fill(filled) = judge_secret(&secret(""), Some(&account)) else {
            unreachable!("a Secret without a token is filled");
        };
        assert_eq!(
            filled["data"],
            json!({ "ca.crt": "Q0E=", "namespace": "c2hvcA==", "token": "dG9r" })
        );
        assert_eq!(get_text(&filled, ACCOUNT_UID), "u1");
        assert_eq!(judge_secret(&filled, Some(&account)), TokenSecret::Keep);
        assert_eq!(judge_secret(&filled, None), TokenSecret::Delete);
        assert_eq!(judge_secret(&secret("u0"), Some(&account)), TokenSecret::Delete);
        assert_eq!(judge_secret(&json!({ "type": "Opaque" }), None), TokenSecret::Keep);
    }

    #[test]
    fn outdated_root_ca_is_replaced() {
        let made = root_ca("shop", None, "PEM").unwrap_or_default();
        assert_eq!(root_ca("shop", Some(&made), "PEM"), None);
        let renewed = root_ca("shop", Some(&made), "NEW").unwrap_or_default();
        assert_eq!(renewed["data"]["ca.crt"], "NEW");
        assert_eq!(renewed["metadata"], made["metadata"]);
    }
}
