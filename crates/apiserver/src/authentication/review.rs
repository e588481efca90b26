//! Reviews about identity: SelfSubjectReview and TokenReview, as functions from the request's object to the
//! response's. A TokenReview without a token is refused. An invalid token is a normal answer, not an error.

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tenure_auth::authorization::Refusal;
use tenure_auth::identity::{ObjectLookup, UserInfo};

use super::{ServiceAccountTokens, join_reasons};

/// Returns `now` in the API's time format: UTC, whole seconds.
pub(crate) fn api_time(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Answers `POST selfsubjectreviews`: the caller's identity.
#[must_use]
pub fn self_subject_review(user: &UserInfo, now: Timestamp) -> Value {
    json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "SelfSubjectReview",
        "metadata": { "creationTimestamp": api_time(now) },
        "status": { "userInfo": user.to_value() },
    })
}

/// Answers `POST tokenreviews`: the user of the token in the object.
///
/// # Errors
/// A 400 if the object holds no token.
pub fn token_review(
    review: &Value,
    tokens: &ServiceAccountTokens,
    lookup: &dyn ObjectLookup,
    now: Timestamp,
) -> Result<Value, Refusal> {
    let token = review
        .pointer("/spec/token")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if token.is_empty() {
        return Err(Refusal::bad_request(
            "token is required for TokenReview in authentication".to_owned(),
        ));
    }
    let asked: Vec<String> = review
        .pointer("/spec/audiences")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let wanted = if asked.is_empty() {
        tokens.audiences()
    } else {
        asked.as_slice()
    };
    let mut status = Map::new();
    match tokens.authenticate(token, wanted, lookup, now) {
        Ok(authenticated) => {
            status.insert("authenticated".to_owned(), json!(true));
            status.insert("user".to_owned(), authenticated.user.to_value());
            status.insert("audiences".to_owned(), json!(authenticated.audiences));
        }
        Err(reasons) => {
            status.insert("user".to_owned(), json!({}));
            status.insert("error".to_owned(), json!(join_reasons(&reasons)));
        }
    }
    let mut answer = review.clone();
    if let Some(fields) = answer.as_object_mut() {
        fields.insert("status".to_owned(), Value::Object(status));
    }
    Ok(answer)
}
