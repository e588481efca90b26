//! TokenRequest: a new token for a ServiceAccount, bound to it and, on request, to a Pod, Secret or Node. Lifetimes
//! under ten minutes are refused. Bindings to missing objects or objects with another UID are refused, and so are
//! Pods that run as another ServiceAccount.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenure_auth::authorization::{FieldError, Refusal, quote};
use tenure_auth::identity::claims::{Kubernetes, Reference, uid_of};
use tenure_auth::identity::{ObjectLookup, service_account_user_name};

use super::review::api_time;
use super::token::{ServiceAccountTokens, TokenError};

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";
const DEFAULT_SECONDS: i64 = 3600;
const SHORTEST_SECONDS: i64 = 600;
const LONGEST_SECONDS: i64 = 1 << 32;

/// A granted TokenRequest. `Debug` does not show the token.
pub struct TokenRequested {
    /// The response object, with the token in `status.token`.
    pub response: Value,
    /// The token's `jti`, which identifies the token where it is used.
    pub id: String,
}

impl std::fmt::Debug for TokenRequested {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TokenRequested").finish_non_exhaustive()
    }
}

/// Handles `POST namespaces/NAMESPACE/serviceaccounts/NAME/token`. Creates a token of at least ten minutes and by
/// default an hour, for the requested audiences or else for this server.
///
/// # Errors
/// A 404 for a missing ServiceAccount or bound object, a 409 for one with another UID, a 422 or 400 for an invalid
/// request, a 500 if signing fails.
pub fn request_token(
    tokens: &ServiceAccountTokens,
    namespace: &str,
    name: &str,
    request: &Value,
    lookup: &dyn ObjectLookup,
    now: Timestamp,
) -> Result<TokenRequested, Refusal> {
    let text = |path: &str| request.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let (given_name, given_namespace) = (text("/metadata/name"), text("/metadata/namespace"));
    if !given_namespace.is_empty() && given_namespace != namespace {
        return Err(Refusal::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request".to_owned(),
        ));
    }
    if !given_name.is_empty() && given_name != name {
        let why = "must match the service account name if specified";
        let error = FieldError::invalid("metadata.name", &quote(given_name), why);
        return Err(Refusal::invalid(GROUP, KIND, name, &[error]));
    }
    let account = lookup
        .get("", "serviceaccounts", Some(namespace), name)
        .ok_or_else(|| Refusal::not_found("", "serviceaccounts", name))?;
    let uid = uid_of(&account);
    let meant = text("/metadata/uid");
    if !meant.is_empty() && meant != uid {
        let why =
            format!("the UID in the token request ({meant}) does not match the UID of the service account ({uid})");
        return Err(Refusal::conflict(GROUP, KIND, name, &why));
    }

    let mut audiences: Vec<String> = request
        .pointer("/spec/audiences")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    if audiences.is_empty() {
        audiences = tokens.audiences().to_vec();
    }
    let seconds = request
        .pointer("/spec/expirationSeconds")
        .and_then(Value::as_i64)
        .unwrap_or(DEFAULT_SECONDS);
    validate_lifetime(seconds)?;

    let reference = request
        .pointer("/spec/boundObjectRef")
        .filter(|reference| !reference.is_null());
    let mut kubernetes = Kubernetes {
        namespace: namespace.to_owned(),
        serviceaccount: Reference {
            name: name.to_owned(),
            uid: uid.to_owned(),
        },
        ..Kubernetes::default()
    };
    if let Some(reference) = reference {
        bind_token(&mut kubernetes, reference, lookup)?;
    }

    let subject = service_account_user_name(namespace, name);
    let (token, id) = tokens
        .mint(subject, audiences.clone(), kubernetes, seconds, now)
        .map_err(|error| Refusal::internal(&format!("failed to generate token: {error}")))?;
    let expires = now
        .checked_add(SignedDuration::from_secs(seconds))
        .unwrap_or(Timestamp::MAX);
    let mut metadata = json!({
        "name": name,
        "namespace": namespace,
        "uid": uid,
        "creationTimestamp": api_time(now),
    });
    if let (Some(map), Some(owners)) = (metadata.as_object_mut(), request.pointer("/metadata/managedFields")) {
        map.insert("managedFields".to_owned(), owners.clone());
    }
    Ok(TokenRequested {
        id,
        response: json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": KIND,
            "metadata": metadata,
            "spec": {
                "audiences": audiences,
                "expirationSeconds": seconds,
                "boundObjectRef": reference,
            },
            "status": { "token": token, "expirationTimestamp": api_time(expires) },
        }),
    })
}

/// Sets the default lifetime of an hour in a TokenRequest without a lifetime.
pub(crate) fn default_lifetime(request: &mut Value) {
    if let Some(spec) = request.get_mut("spec").and_then(Value::as_object_mut) {
        let seconds = spec.entry("expirationSeconds").or_insert(Value::Null);
        if seconds.is_null() {
            *seconds = Value::from(DEFAULT_SECONDS);
        }
    }
}

fn validate_lifetime(seconds: i64) -> Result<(), Refusal> {
    let why = if seconds < SHORTEST_SECONDS {
        "may not specify a duration less than 10 minutes"
    } else if seconds > LONGEST_SECONDS {
        "may not specify a duration larger than 2^32 seconds"
    } else {
        return Ok(());
    };
    let error = FieldError::invalid("spec.expirationSeconds", &seconds.to_string(), why);
    Err(Refusal::invalid(GROUP, KIND, "", &[error]))
}

/// Writes the bound object into the claims, after checking its UID.
fn bind_token(kubernetes: &mut Kubernetes, reference: &Value, lookup: &dyn ObjectLookup) -> Result<(), Refusal> {
    let field = |key: &str| reference.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind, name) = (field("apiVersion"), field("kind"), field("name"));
    let namespace = Some(kubernetes.namespace.as_str());
    // A reference without a version means the core group, as in kube-apiserver; the version itself does not matter.
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let (resource, scope) = match (group, kind) {
        ("", "Pod") => ("pods", namespace),
        ("", "Secret") => ("secrets", namespace),
        ("", "Node") => ("nodes", None),
        _ => {
            let shown = if group.is_empty() {
                format!("/{version}")
            } else {
                format!("{group}/{version}")
            };
            return Err(Refusal::bad_request(format!(
                "cannot bind token to object of type {shown}, Kind={kind}"
            )));
        }
    };
    let object = lookup
        .get("", resource, scope, name)
        .ok_or_else(|| Refusal::not_found("", resource, name))?;
    let uid = uid_of(&object);
    let bound = Reference {
        name: name.to_owned(),
        uid: uid.to_owned(),
    };
    match kind {
        "Pod" => {
            let pod_text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
            let account = &kubernetes.serviceaccount.name;
            if pod_text("/spec/serviceAccountName") != account {
                return Err(Refusal::bad_request(format!(
                    "cannot bind token for serviceaccount {} to pod running with different serviceaccount name.",
                    quote(account)
                )));
            }
            let node = pod_text("/spec/nodeName");
            if !node.is_empty() {
                let found = lookup.get("", "nodes", None, node);
                kubernetes.node = Some(Reference {
                    name: node.to_owned(),
                    uid: found.as_deref().map(uid_of).unwrap_or_default().to_owned(),
                });
            }
            kubernetes.pod = Some(bound);
        }
        "Secret" => kubernetes.secret = Some(bound),
        _ => kubernetes.node = Some(bound),
    }
    let meant = field("uid");
    if !meant.is_empty() && meant != uid {
        let why = format!(
            "the UID in the bound object reference ({meant}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(Refusal::conflict("", kind, name, &why));
    }
    Ok(())
}

/// Creates the token of a Secret of type `kubernetes.io/service-account-token`. The token names the Secret and never
/// expires. It is valid as long as the Secret holds exactly this token.
///
/// # Errors
/// [`TokenError`] if signing fails.
pub fn secret_token(tokens: &ServiceAccountTokens, account: &Value, secret_name: &str) -> Result<String, TokenError> {
    let text = |path: &str| account.pointer(path).and_then(Value::as_str).unwrap_or_default();
    tokens.mint_legacy(
        text("/metadata/namespace"),
        text("/metadata/name"),
        text("/metadata/uid"),
        secret_name,
    )
}
