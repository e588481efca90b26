//! Asks the API server for the user of a token, and for the rights of a user. The module defines both questions and reads their answers. It caches and decides nothing.

use std::collections::BTreeMap;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use serde_json::{Value, json};
use tenure_api::ObjectView;
use tenure_api::metadata::{CONTROLLER_SERVICE_ACCOUNT, PLATFORM_NAMESPACE};

use crate::failure::write_chain;

/// The longest token that is sent in a review.
const LONGEST: usize = 8 << 10;

/// A user that the API server knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

/// The API server gave no answer; the log has the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoReviewAnswer;

/// A client that sends TokenReviews and SubjectAccessReviews for one purpose, which log messages name.
pub(crate) struct Reviewer {
    client: kube::Client,
    /// The purpose of the users' requests, in words.
    purpose: &'static str,
    /// The role that the reviewer needs.
    needs: &'static str,
}

impl Reviewer {
    pub(crate) fn new(client: kube::Client, purpose: &'static str) -> Self {
        Self {
            client,
            purpose,
            needs: "ClusterRole system:auth-delegator",
        }
    }

    /// Sets another role that the reviewer needs.
    pub(crate) fn needing(self, needs: &'static str) -> Self {
        Self { needs, ..self }
    }

    /// Returns the user of a token; `None` for an invalid token.
    pub(crate) async fn identify(&self, token: &str) -> Result<Option<User>, NoReviewAnswer> {
        self.review(json!({"token": token}), |_| true).await
    }

    /// Returns the user of a token for this audience; `None` for an invalid token or another audience.
    pub(crate) async fn identify_for(&self, audience: &str, token: &str) -> Result<Option<User>, NoReviewAnswer> {
        let is_for = |reviewed: ObjectView<'_>| {
            // An API server without support for audiences answers for its own, and names none.
            let named = reviewed.list("/status/audiences");
            named.iter().any(|named| named == audience)
        };
        self.review(json!({"token": token, "audiences": [audience]}), is_for)
            .await
    }

    async fn review(
        &self,
        spec: Value,
        is_meant: impl Fn(ObjectView<'_>) -> bool,
    ) -> Result<Option<User>, NoReviewAnswer> {
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec,
        });
        let reviewed = self
            .post("/apis/authentication.k8s.io/v1/tokenreviews", &review)
            .await?;
        let reviewed = ObjectView::new(&reviewed);
        if !reviewed.is_true("/status/authenticated") || !is_meant(reviewed) {
            return Ok(None);
        }
        let read = |path: &str| reviewed.find(path).cloned().unwrap_or(Value::Null);
        Ok(Some(User {
            name: reviewed.read_text("/status/user/username").to_owned(),
            uid: reviewed.read_text("/status/user/uid").to_owned(),
            groups: serde_json::from_value(read("/status/user/groups")).unwrap_or_default(),
            extra: serde_json::from_value(read("/status/user/extra")).unwrap_or_default(),
        }))
    }

    /// Checks whether a user may do the action in these attributes of a SubjectAccessReview.
    pub(crate) async fn is_allowed(
        &self,
        user: &User,
        (kind, attributes): (&str, Value),
    ) -> Result<bool, NoReviewAnswer> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra, kind: attributes},
        });
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let reviewed = self.post(path, &review).await?;
        Ok(ObjectView::new(&reviewed).is_true("/status/allowed"))
    }

    async fn post(&self, path: &str, review: &Value) -> Result<Value, NoReviewAnswer> {
        let request = http::Request::post(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(review.to_string().into_bytes());
        let Ok(request) = request else {
            return Err(NoReviewAnswer);
        };
        self.client.request::<Value>(request).await.map_err(|error| {
            // The API server's message is about the review's kind, and never has the token.
            let error = match &error {
                kube::Error::Api(status) => status.message.clone(),
                other => write_chain(other),
            };
            let purpose = self.purpose;
            tracing::warn!(
                error,
                "the user who asks for {purpose} can't be found out; ServiceAccount {PLATFORM_NAMESPACE}/{CONTROLLER_SERVICE_ACCOUNT} needs {}",
                self.needs
            );
            NoReviewAnswer
        })
    }
}

/// Reads the bearer token of a request.
pub(crate) fn read_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= LONGEST).then_some(token)
}
