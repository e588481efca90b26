//! The AdmissionReview: the request to a webhook, and its answer.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::{Attributes, subject};
use super::hook::{Hook, Phase};
use crate::catalog::Resource;
use crate::http::ApiError;

const KIND: &str = "AdmissionReview";

/// Returns the review of a request.
pub(super) fn make_review(
    attributes: &Attributes<'_>,
    resource: &Resource,
    version: &str,
    uid: &str,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Value {
    let mut request = subject::describe_request(attributes, resource, resource);
    if let Some(map) = request.as_object_mut() {
        map.insert("uid".to_owned(), json!(uid));
        map.insert("object".to_owned(), json!(object));
        map.insert("oldObject".to_owned(), json!(old));
    }
    json!({"kind": KIND, "apiVersion": format!("admission.k8s.io/{version}"), "request": request})
}

/// The checked answer of a webhook, for one request.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) allowed: bool,
    pub(super) status: Value,
    pub(super) patch: Option<Vec<u8>>,
    pub(super) warnings: Vec<String>,
    /// Audit annotations of the webhook.
    pub(super) notes: BTreeMap<String, String>,
}

/// The AdmissionReview that a webhook answers with.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    response: Option<Response>,
}

/// The field `response` of the answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Response {
    uid: String,
    allowed: bool,
    status: Option<Value>,
    patch: Option<String>,
    patch_type: Option<String>,
    warnings: Option<Vec<String>>,
    audit_annotations: Option<BTreeMap<String, String>>,
}

/// Reads an answer. Errors have kube-apiserver's words.
pub(super) fn read(hook: &Hook, version: &str, uid: &str, bytes: &[u8]) -> Result<Answer, String> {
    let invalid = |why: String| format!("received invalid webhook response: {why}");
    let review: Review = serde_json::from_slice(bytes).map_err(|error| format!("failed to call webhook: {error}"))?;
    if version == "v1" && (review.api_version.as_str(), review.kind.as_str()) == ("admission.k8s.io/v1beta1", KIND) {
        return Err(format!(
            "failed to call webhook: converting (v1beta1.{KIND}) to (v1.{KIND}): unknown conversion"
        ));
    }
    let response = review
        .response
        .ok_or_else(|| invalid("webhook response was absent".to_owned()))?;
    let patch = match response.patch.as_deref() {
        None | Some("") => None,
        Some(text) => Some(
            STANDARD
                .decode(text)
                .map_err(|error| format!("failed to call webhook: response.patch is not base64: {error}"))?,
        ),
    };
    if version == "v1" {
        if response.uid != uid {
            return Err(invalid(format!(
                "expected response.uid={uid:?}, got {:?}",
                response.uid
            )));
        }
        let (group, found) = review.api_version.split_once('/').unwrap_or(("", &review.api_version));
        if (group, found, review.kind.as_str()) != ("admission.k8s.io", "v1", KIND) {
            return Err(invalid(format!(
                "expected webhook response of admission.k8s.io/v1, Kind={KIND}, got {group}/{found}, Kind={}",
                review.kind
            )));
        }
        let fault = match (hook.phase, &patch, response.patch_type.as_deref()) {
            (Phase::Mutating, Some(_), None) => "webhook returned response.patch but not response.patchType",
            (Phase::Mutating, None, Some(_)) => "webhook returned response.patchType but not response.patch",
            (Phase::Mutating, Some(_), Some("")) => "webhook returned invalid response.patchType of \"\"",
            (Phase::Validating, Some(_), _) => "validating webhook may not return response.patch",
            (Phase::Validating, None, Some(_)) => "validating webhook may not return response.patchType",
            _ => "",
        };
        if !fault.is_empty() {
            return Err(invalid(fault.to_owned()));
        }
        if let Some(other) = response.patch_type.filter(|found| found != "JSONPatch") {
            return Err(format!("unsupported patch type {other:?}"));
        }
    }
    Ok(Answer {
        allowed: response.allowed,
        status: response.status.unwrap_or_default(),
        patch: patch.filter(|_| hook.phase == Phase::Mutating),
        warnings: response.warnings.unwrap_or_default(),
        notes: response.audit_annotations.unwrap_or_default(),
    })
}

/// Returns the error for a request that a webhook denied.
pub(super) fn make_denial(hook: &Hook, status: Value) -> ApiError {
    let text = |key: &str| status.get(key).and_then(Value::as_str).unwrap_or_default();
    let denied = format!("admission webhook {:?} denied the request", hook.name);
    let message = match (text("message"), text("reason")) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    let code = status.get("code").and_then(Value::as_u64).unwrap_or_default();
    let code = u16::try_from(code).ok().filter(|code| (400..=599).contains(code));
    ApiError {
        code: code.unwrap_or(400),
        reason: Cow::Owned(text("reason").to_owned()),
        message,
        details: status
            .get("details")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_else(Map::new),
    }
}
