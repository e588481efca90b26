//! Asks the API server who shows a token, and what somebody may. Owns the two questions and what their answers look like; refuses to remember
//! any of them, and to decide anything.

use std::collections::BTreeMap;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use serde_json::{Value, json};
use tenure_api::ObjectView;
use tenure_api::metadata::{CONTROLLER_SERVICE_ACCOUNT, PLATFORM_NAMESPACE};

use crate::failure::chain;

/// The longest token that is asked about.
const LONGEST: usize = 8 << 10;

/// Somebody whom the API server knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

/// There was no answer; the log says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unanswered;

/// Asks for one purpose.
pub(crate) struct Reviewer {
    client: kube::Client,
    /// What those come for about whom it asks, in words.
    purpose: &'static str,
    /// What it has to be allowed by.
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

    /// One that is allowed to ask by something else.
    pub(crate) fn needing(self, needs: &'static str) -> Self {
        Self { needs, ..self }
    }

    /// Who shows a token; nobody, if it is none.
    pub(crate) async fn identify(&self, token: &str) -> Result<Option<User>, Unanswered> {
        self.review(json!({"token": token}), |_| true).await
    }

    /// Who shows a token that is for this audience; nobody, if it is none or for others.
    pub(crate) async fn identify_for(&self, audience: &str, token: &str) -> Result<Option<User>, Unanswered> {
        let is_for = |reviewed: ObjectView<'_>| {
            // An API server that doesn't know of audiences answers for its own, and says none.
            let named = reviewed.list("/status/audiences");
            named.iter().any(|named| named == audience)
        };
        self.review(json!({"token": token, "audiences": [audience]}), is_for)
            .await
    }

    async fn review(&self, spec: Value, is_meant: impl Fn(ObjectView<'_>) -> bool) -> Result<Option<User>, Unanswered> {
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec,
        });
        let reviewed = self
            .post("/apis/authentication.k8s.io/v1/tokenreviews", &review)
            .await?;
        let reviewed = ObjectView::of(&reviewed);
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

    /// Whether somebody may do what these attributes of a SubjectAccessReview say.
    pub(crate) async fn is_allowed(&self, user: &User, (kind, attributes): (&str, Value)) -> Result<bool, Unanswered> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra, kind: attributes},
        });
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let reviewed = self.post(path, &review).await?;
        Ok(ObjectView::of(&reviewed).is_true("/status/allowed"))
    }

    async fn post(&self, path: &str, review: &Value) -> Result<Value, Unanswered> {
        let request = http::Request::post(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(review.to_string().into_bytes());
        let Ok(request) = request else {
            return Err(Unanswered);
        };
        self.client.request::<Value>(request).await.map_err(|error| {
            // Its text is the API server's about the review's kind; a token is in none of it.
            let error = match &error {
                kube::Error::Api(status) => status.message.clone(),
                other => chain(other),
            };
            let purpose = self.purpose;
            tracing::warn!(
                error,
                "who asks for {purpose} can't be found out; ServiceAccount {PLATFORM_NAMESPACE}/{CONTROLLER_SERVICE_ACCOUNT} needs {}",
                self.needs
            );
            Unanswered
        })
    }
}

/// The bearer's token that a request shows.
pub(crate) fn read_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= LONGEST).then_some(token)
}
