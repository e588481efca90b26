//! The claims of a ServiceAccount token, in the current and in the legacy form, and the check of the objects in them.
//! Tokens are refused if their ServiceAccount, Secret, Pod or Node is deleted, replaced or being deleted.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::ObjectLookup;
use super::user::{AUTHENTICATED, CREDENTIAL_ID, UserInfo, service_account_user_name, split_service_account};

/// Largest difference between the clocks of issuer and verifier.
pub const LEEWAY_SECONDS: i64 = 60;
/// The issuer in tokens from Secrets of type `kubernetes.io/service-account-token`.
pub const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";
/// The label that the cleaner of unused legacy tokens puts on their Secrets.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

/// An audience claim: RFC 7519 allows one string as well as a list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Audience {
    /// No audience.
    #[default]
    Absent,
    /// One audience.
    One(String),
    /// Any number of audiences.
    Many(Vec<String>),
}

impl Audience {
    /// Returns all audiences.
    #[must_use]
    pub fn to_vec(&self) -> Vec<String> {
        match self {
            Self::Absent => Vec::new(),
            Self::One(one) => vec![one.clone()],
            Self::Many(many) => many.clone(),
        }
    }

    fn is_absent(&self) -> bool {
        *self == Self::Absent
    }
}

/// The name and the UID of an object in a token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    /// Its name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its UID.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// The private claim `kubernetes.io`: the ServiceAccount of a token, and the objects to which the token is bound.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kubernetes {
    /// The namespace of the ServiceAccount.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The Node of the token: the token is bound to it, or to a Pod on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Reference>,
    /// The Pod to which the token is bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Reference>,
    /// The Secret to which the token is bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Reference>,
    /// The ServiceAccount.
    #[serde(default)]
    pub serviceaccount: Reference,
}

/// The supported claims of a ServiceAccount token; times are Unix seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Claims {
    /// The token's audience.
    #[serde(default, skip_serializing_if = "Audience::is_absent")]
    pub aud: Audience,
    /// The token's expiry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exp: Option<f64>,
    /// The time of issue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iat: Option<f64>,
    /// The issuer.
    #[serde(default)]
    pub iss: String,
    /// The token's id.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub jti: String,
    /// The objects to which the token is bound.
    #[serde(rename = "kubernetes.io", default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<Kubernetes>,
    /// The start of the token's validity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nbf: Option<f64>,
    /// The token's subject.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sub: String,
    /// Of a token from a Secret: the namespace.
    #[serde(
        rename = "kubernetes.io/serviceaccount/namespace",
        default,
        skip_serializing_if = "String::is_empty"
    )]
    pub legacy_namespace: String,
    /// Of a token from a Secret: the Secret.
    #[serde(
        rename = "kubernetes.io/serviceaccount/secret.name",
        default,
        skip_serializing_if = "String::is_empty"
    )]
    pub legacy_secret: String,
    /// Of a token from a Secret: the ServiceAccount.
    #[serde(
        rename = "kubernetes.io/serviceaccount/service-account.name",
        default,
        skip_serializing_if = "String::is_empty"
    )]
    pub legacy_name: String,
    /// Of a token from a Secret: the UID of the ServiceAccount.
    #[serde(
        rename = "kubernetes.io/serviceaccount/service-account.uid",
        default,
        skip_serializing_if = "String::is_empty"
    )]
    pub legacy_uid: String,
}

/// Returns the audiences of `held` that are among `wanted`, in `held`'s order.
#[must_use]
pub fn intersect_audiences(held: &[String], wanted: &[String]) -> Vec<String> {
    held.iter()
        .filter(|audience| wanted.contains(audience))
        .cloned()
        .collect()
}

/// Returns the user of a bound token, if all its objects still exist.
///
/// # Errors
/// The reason for the refusal, in kube-apiserver's words.
pub fn validate_bound(claims: &Claims, lookup: &dyn ObjectLookup, now: Timestamp) -> Result<UserInfo, String> {
    check_times(claims, now)?;
    let bound = claims.kubernetes.clone().unwrap_or_default();
    let namespace = bound.namespace.as_str();
    let account_name = bound.serviceaccount.name.as_str();
    let account = lookup
        .get("", "serviceaccounts", Some(namespace), account_name)
        .ok_or_else(|| format!("serviceaccounts \"{account_name}\" not found"))?;
    let uid = uid_of(&account);
    if uid != bound.serviceaccount.uid {
        return Err(format!(
            "service account UID ({uid}) does not match claim ({})",
            bound.serviceaccount.uid
        ));
    }
    if deleted_before(&account, now, LEEWAY_SECONDS) {
        return Err(format!("service account {namespace}/{account_name} has been deleted"));
    }

    let mut user = UserInfo::service_account(namespace, account_name, uid);
    if !claims.jti.is_empty() {
        user.extra
            .insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={}", claims.jti)]);
    }
    let mut note = |key: &str, value: &str| {
        if !value.is_empty() {
            user.extra
                .insert(format!("authentication.kubernetes.io/{key}"), vec![value.to_owned()]);
        }
    };
    if let Some(secret) = &bound.secret {
        check_bound(lookup, "secrets", "secret", Some(namespace), secret, now)?;
    }
    if let Some(pod) = &bound.pod {
        check_bound(lookup, "pods", "pod", Some(namespace), pod, now)?;
        note("pod-name", &pod.name);
        note("pod-uid", &pod.uid);
    }
    if let Some(node) = &bound.node {
        if bound.pod.is_none() {
            check_bound(lookup, "nodes", "node", None, node, now)?;
        }
        note("node-name", &node.name);
        note("node-uid", &node.uid);
    }
    Ok(user)
}

/// Checks expiry and start, with the leeway of a minute.
fn check_times(claims: &Claims, now: Timestamp) -> Result<(), String> {
    #[expect(
        clippy::cast_precision_loss,
        reason = "seconds since 1970 are exact in a double for the next 285 million years"
    )]
    let (now, leeway) = (now.as_second() as f64, LEEWAY_SECONDS as f64);
    if claims.nbf.is_some_and(|start| now + leeway < start) {
        return Err("service account token is not valid yet".to_owned());
    }
    if claims.exp.is_some_and(|end| now - leeway > end) {
        return Err("service account token has expired".to_owned());
    }
    if claims.iat.is_some_and(|issued| now + leeway < issued) {
        return Err("service account token is issued in the future".to_owned());
    }
    Ok(())
}

/// Checks that the object to which a token is bound exists, has the same UID, and was not deleted longer ago than the
/// leeway.
fn check_bound(
    lookup: &dyn ObjectLookup,
    resource: &str,
    word: &str,
    namespace: Option<&str>,
    reference: &Reference,
    now: Timestamp,
) -> Result<(), String> {
    let invalidated = || "service account token has been invalidated".to_owned();
    let object = lookup
        .get("", resource, namespace, &reference.name)
        .ok_or_else(invalidated)?;
    let uid = uid_of(&object);
    if uid != reference.uid {
        return Err(format!(
            "{word} UID ({uid}) does not match service account {word} ref claim ({})",
            reference.uid
        ));
    }
    if deleted_before(&object, now, LEEWAY_SECONDS) {
        return Err(invalidated());
    }
    Ok(())
}

/// Returns the user of a legacy token, if its Secret still holds exactly this token.
///
/// # Errors
/// The reason for the refusal, in kube-apiserver's words.
pub fn validate_legacy(
    token: &str,
    claims: &Claims,
    lookup: &dyn ObjectLookup,
    now: Timestamp,
) -> Result<UserInfo, String> {
    let namespace = claims.legacy_namespace.as_str();
    let name = claims.legacy_name.as_str();
    for (claim, value) in [
        ("sub", &claims.sub),
        ("namespace", &claims.legacy_namespace),
        ("secretName", &claims.legacy_secret),
        ("serviceAccountName", &claims.legacy_name),
        ("serviceAccountUID", &claims.legacy_uid),
    ] {
        if value.is_empty() {
            return Err(format!("{claim} claim is missing"));
        }
    }
    if split_service_account(&claims.sub) != Some((namespace, name)) {
        return Err("sub claim is invalid".to_owned());
    }
    let secret = lookup
        .get("", "secrets", Some(namespace), &claims.legacy_secret)
        .filter(|secret| secret.pointer("/metadata/deletionTimestamp").is_none())
        .ok_or_else(|| "Token has been invalidated".to_owned())?;
    let stored = secret
        .pointer("/data/token")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if !same_base64(stored, token) {
        return Err("Token does not match server's copy".to_owned());
    }
    if secret
        .pointer("/metadata/labels")
        .is_some_and(|labels| labels.get(INVALID_SINCE).is_some())
    {
        return Err(format!(
            "the token in secret {namespace}/{} for service account {namespace}/{name} has been marked invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the '{INVALID_SINCE}' label from the secret to temporarily allow use of this token",
            claims.legacy_secret
        ));
    }
    let account = lookup
        .get("", "serviceaccounts", Some(namespace), name)
        .ok_or_else(|| format!("serviceaccounts \"{name}\" not found"))?;
    if deleted_before(&account, now, 0) {
        return Err(format!("ServiceAccount {namespace}/{name} has been deleted"));
    }
    let uid = uid_of(&account);
    if uid != claims.legacy_uid {
        return Err(format!(
            "ServiceAccount UID ({uid}) does not match claim ({})",
            claims.legacy_uid
        ));
    }
    let mut user = UserInfo::service_account(namespace, name, uid);
    debug_assert_eq!(user.name, service_account_user_name(namespace, name));
    user.ensure_group(AUTHENTICATED);
    Ok(user)
}

/// Checks whether `stored` is the base64 of `token`. The time of the check does not depend on the number of equal
/// bytes.
fn same_base64(stored: &str, token: &str) -> bool {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let Ok(stored) = STANDARD.decode(stored) else {
        return false;
    };
    // Hashes are compared: the time of their comparison reveals nothing about the token.
    Sha256::digest(&stored) == Sha256::digest(token.as_bytes())
}

/// Returns the object's UID, or an empty string.
#[must_use]
pub fn uid_of(object: &Value) -> &str {
    object
        .pointer("/metadata/uid")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Checks whether the object was deleted more than `leeway` seconds before `now` and only waits for its finalizers.
fn deleted_before(object: &Value, now: Timestamp, leeway: i64) -> bool {
    object
        .pointer("/metadata/deletionTimestamp")
        .and_then(Value::as_str)
        .and_then(|time| time.parse::<Timestamp>().ok())
        .is_some_and(|deleted| {
            now.checked_sub(SignedDuration::from_secs(leeway))
                .is_ok_and(|limit| deleted < limit)
        })
}

impl From<Vec<String>> for Audience {
    fn from(audiences: Vec<String>) -> Self {
        Self::Many(audiences)
    }
}
