//! The errors of a request. The API server's `Status` answers are mapped to them, and keep the server's own words.

use std::time::Duration;

use serde_json::Value;
use tenure_api::ObjectView;

use tenure_planner::refusal::{Cause, CauseKind, Failure, Reason};
use tenure_tenancy::Identity;

/// The reason why a request failed. The message is the API server's, if it sent one.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClusterError {
    /// The identity may not do this (403).
    #[error("{message}")]
    Forbidden {
        /// The API server's message, which names user, verb, resource and namespace.
        message: String,
        /// Further causes in the answer, such as a namespace that is being deleted.
        causes: Vec<Cause>,
    },
    /// The API server does not accept the token (401).
    #[error("the API server does not accept the credentials of {identity}: {message}")]
    Unauthorized {
        /// The identity of the request.
        identity: Identity,
        /// The API server's message.
        message: String,
    },
    /// The ServiceAccount to act as does not exist.
    #[error(
        "ServiceAccount {name:?} does not exist in namespace {namespace:?}; nothing is read or written for it until then: create it, or name another"
    )]
    IdentityMissing {
        /// The namespace of the account.
        namespace: String,
        /// The name of the account.
        name: String,
    },
    /// The object, or its namespace, does not exist: the API server's answer names it (404).
    #[error("{message}")]
    NotFound {
        /// The API server's message.
        message: String,
    },
    /// The API server does not serve the kind: complete and fresh discovery lacks it.
    #[error(
        "no matches for kind {kind:?} in version {api_version:?}: the API server does not serve it; a CustomResourceDefinition may be missing"
    )]
    NoKindMatch {
        /// `group/version`, or `version` of the core group; only a group if any version was allowed.
        api_version: String,
        /// The kind.
        kind: String,
    },
    /// Discovery can't tell whether the kind is served: the server that serves its group does not answer.
    #[error("discovery can't tell whether kind {kind:?} is served: its data about group {group:?} is stale")]
    DiscoveryIncomplete {
        /// The group.
        group: String,
        /// The kind.
        kind: String,
    },
    /// The path that discovery gave for the kind is no longer served. The next look-up reads discovery again, and only discovery says whether another version is
    /// served.
    #[error("kind {kind:?} is not served as {api_version:?} any more")]
    PathGone {
        /// `group/version`, or `version` of the core group.
        api_version: String,
        /// The kind.
        kind: String,
    },
    /// The object changed meanwhile, or differs from the expected one (409).
    #[error("{message}")]
    Conflict {
        /// The API server's message.
        message: String,
        /// Causes in the answer, such as a different uid.
        causes: Vec<Cause>,
    },
    /// Another field manager owns fields that an apply without force would change (409), so the apply is refused.
    #[error("{message}")]
    ApplyConflict {
        /// The API server's message.
        message: String,
        /// The causes, one for each field.
        causes: Vec<Cause>,
    },
    /// An object of this name exists already (409).
    #[error("{message}")]
    AlreadyExists {
        /// The API server's message.
        message: String,
    },
    /// The object is not valid (422), or the request is not (400).
    #[error("{message}")]
    Invalid {
        /// The HTTP status code.
        code: u16,
        /// The API server's message.
        message: String,
        /// The causes, one for each field.
        causes: Vec<Cause>,
    },
    /// The revision from which a watch or list should continue is compacted (410).
    #[error("{message}")]
    Expired {
        /// The API server's message.
        message: String,
    },
    /// The API server asks to wait (429).
    #[error("{message}")]
    Throttled {
        /// The API server's message.
        message: String,
        /// The waiting time, if the server named one.
        retry_after: Option<Duration>,
    },
    /// The server did not answer.
    #[error("the API server can't be reached: {problem}")]
    Unreachable {
        /// The message of the transport.
        problem: String,
    },
    /// The server did not answer in time.
    #[error("the API server did not answer within {} s", .after.as_secs())]
    Timeout {
        /// The time that the client waited.
        after: Duration,
    },
    /// The answer breaks the API's contract.
    #[error("the API server's answer to {what} can't be read: {problem}")]
    Decode {
        /// The request.
        what: String,
        /// The problem of the answer.
        problem: String,
    },
    /// The answer is longer than the limit.
    #[error("the API server's answer to {what} is longer than {longest} bytes")]
    TooLong {
        /// The request.
        what: String,
        /// The limit in bytes.
        longest: usize,
    },
    /// The object can't be addressed or sent.
    #[error("the request for {what} can't be made: {problem}")]
    Request {
        /// The request.
        what: String,
        /// The problem.
        problem: String,
    },
    /// Any other refusal.
    #[error("{message}")]
    Refused {
        /// The HTTP status code.
        code: u16,
        /// The reason in Kubernetes' words, such as `InternalError`.
        reason: Reason,
        /// The API server's message.
        message: String,
        /// Further causes in the answer.
        causes: Vec<Cause>,
        /// The waiting time, if the server named one.
        retry_after: Option<Duration>,
    },
}

impl ClusterError {
    /// Whether the same request may succeed later without any change.
    #[must_use]
    pub fn transient(&self) -> bool {
        match self {
            Self::Throttled { .. }
            | Self::Unreachable { .. }
            | Self::Timeout { .. }
            | Self::Expired { .. }
            | Self::DiscoveryIncomplete { .. }
            | Self::PathGone { .. } => true,
            Self::Refused { code, .. } => *code >= 500,
            _ => false,
        }
    }

    /// Returns the HTTP status code; 0 without a readable answer.
    #[must_use]
    pub fn code(&self) -> u16 {
        match self {
            Self::Forbidden { .. } => 403,
            Self::Unauthorized { .. } => 401,
            Self::IdentityMissing { .. } | Self::NotFound { .. } | Self::NoKindMatch { .. } => 404,
            Self::Conflict { .. } | Self::ApplyConflict { .. } | Self::AlreadyExists { .. } => 409,
            Self::Invalid { code, .. } | Self::Refused { code, .. } => *code,
            Self::Expired { .. } => 410,
            Self::Throttled { .. } => 429,
            Self::DiscoveryIncomplete { .. } | Self::PathGone { .. } => 503,
            Self::Request { .. } => 400,
            Self::Unreachable { .. } | Self::Timeout { .. } | Self::Decode { .. } | Self::TooLong { .. } => 0,
        }
    }

    /// Returns the reason in one word.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Forbidden { .. } => Reason::Forbidden,
            Self::Unauthorized { .. } => Reason::Unauthorized,
            Self::IdentityMissing { .. } => Reason::IdentityMissing,
            Self::NotFound { .. } => Reason::NotFound,
            Self::NoKindMatch { .. } => Reason::NoKindMatch,
            Self::DiscoveryIncomplete { .. } | Self::PathGone { .. } => Reason::DiscoveryIncomplete,
            Self::Conflict { .. } | Self::ApplyConflict { .. } => Reason::Conflict,
            Self::AlreadyExists { .. } => Reason::AlreadyExists,
            Self::Invalid { code: 422, .. } => Reason::Invalid,
            Self::Invalid { .. } => Reason::BadRequest,
            Self::Expired { .. } => Reason::Expired,
            Self::Throttled { .. } => Reason::TooManyRequests,
            Self::Refused { reason, .. } => reason.clone(),
            Self::Request { .. } => Reason::BadObject,
            Self::Unreachable { .. } => Reason::Unreachable,
            Self::Timeout { .. } => Reason::Unanswered,
            Self::Decode { .. } | Self::TooLong { .. } => Reason::BadAnswer,
        }
    }

    /// Returns the causes in the API server's answer.
    #[must_use]
    pub fn causes(&self) -> &[Cause] {
        match self {
            Self::Forbidden { causes, .. }
            | Self::Conflict { causes, .. }
            | Self::ApplyConflict { causes, .. }
            | Self::Invalid { causes, .. }
            | Self::Refused { causes, .. } => causes,
            _ => &[],
        }
    }

    /// Returns the waiting time, if the API server named one.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Throttled { retry_after, .. } | Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Whether the object is known to be missing. An unserved or unknown kind is a different answer.
    #[must_use]
    pub fn absent(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// Maps an answer with a status code of 400 or more.
    pub(crate) fn from_answer(identity: &Identity, code: u16, retry_after: Option<Duration>, body: &[u8]) -> Self {
        let status: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let status = ObjectView::new(&status);
        let text = |path: &str| status.read_text(path);
        let mut message = text("/message").to_owned();
        if message.is_empty() {
            message = String::from_utf8_lossy(body).trim().chars().take(500).collect();
        }
        if message.is_empty() {
            message = format!("the API server answered {code}");
        }
        let reason = Reason::from(text("/reason"));
        let causes: Vec<Cause> = status.list_views("/details/causes").map(read_cause).collect();
        let seconds = status.find("/details/retryAfterSeconds").and_then(Value::as_u64);
        let retry_after = retry_after.or(seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs));
        match code {
            401 => Self::Unauthorized {
                identity: identity.clone(),
                message,
            },
            403 => Self::Forbidden { message, causes },
            // A proxy on the way can answer 404, so the object is missing only if the answer names it.
            404 if !text("/details/name").is_empty() => Self::NotFound { message },
            409 if reason == Reason::AlreadyExists => Self::AlreadyExists { message },
            409 if causes.iter().any(|cause| cause.kind == CauseKind::FieldManagerConflict) => {
                Self::ApplyConflict { message, causes }
            }
            409 => Self::Conflict { message, causes },
            410 => Self::Expired { message },
            400 | 422 => Self::Invalid { code, message, causes },
            429 => Self::Throttled { message, retry_after },
            _ => Self::Refused {
                code,
                reason,
                message,
                causes,
                retry_after,
            },
        }
    }
}

impl From<&ClusterError> for Failure {
    fn from(error: &ClusterError) -> Self {
        Self {
            code: error.code(),
            reason: error.reason(),
            causes: error.causes().to_vec(),
            retry_after: error.retry_after().map(|pause| pause.as_secs()),
            message: error.to_string(),
        }
    }
}

fn read_cause(cause: ObjectView<'_>) -> Cause {
    Cause {
        kind: CauseKind::from(cause.read_text("/reason")),
        message: cause.read_text("/message").to_owned(),
        field: cause.read_text("/field").to_owned(),
    }
}

/// Returns an error and its causes in one line, because the transport's own text alone says "client error (Connect)".
pub(crate) fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(code: u16, body: &Value) -> Failure {
        let error = ClusterError::from_answer(
            &crate::identities::controller(),
            code,
            None,
            body.to_string().as_bytes(),
        );
        Failure::from(&error)
    }

    #[test]
    fn a_status_becomes_a_typed_refusal() {
        let status = |reason: &str, details: Value| json!({ "kind": "Status", "message": "no", "reason": reason, "details": details });
        for (code, reason, details, expected) in [
            (401, "Unauthorized", json!({}), Reason::Unauthorized),
            (403, "Forbidden", json!({ "name": "a" }), Reason::Forbidden),
            (404, "NotFound", json!({ "name": "a" }), Reason::NotFound),
            (409, "AlreadyExists", json!({ "name": "a" }), Reason::AlreadyExists),
            (409, "Conflict", json!({ "name": "a" }), Reason::Conflict),
            (410, "Expired", json!({}), Reason::Expired),
            (400, "BadRequest", json!({}), Reason::BadRequest),
            (422, "Invalid", json!({ "name": "a" }), Reason::Invalid),
            (
                429,
                "TooManyRequests",
                json!({ "retryAfterSeconds": 7 }),
                Reason::TooManyRequests,
            ),
            (500, "InternalError", json!({}), Reason::InternalError),
            (504, "Timeout", json!({ "retryAfterSeconds": 7 }), Reason::Timeout),
            (418, "Teapot", json!({}), Reason::Other("Teapot".to_owned())),
        ] {
            let failure = answer(code, &status(reason, details.clone()));
            assert_eq!((failure.code, &failure.reason), (code, &expected), "{reason}");
            assert!(failure.message.ends_with("no"), "{reason}: {}", failure.message);
            let pause = details.get("retryAfterSeconds").and_then(Value::as_u64);
            assert_eq!(failure.retry_after, pause, "{reason}");
        }
    }

    #[test]
    fn causes_keep_their_field_and_their_type() {
        let causes = json!([{ "reason": "FieldValueInvalid", "message": "Invalid value: 1: field is immutable", "field": "spec.a" }, {}]);
        let failure = answer(
            422,
            &json!({ "message": "no", "reason": "Invalid", "details": { "causes": causes } }),
        );
        let first = Cause {
            kind: CauseKind::Invalid,
            field: "spec.a".to_owned(),
            message: "Invalid value: 1: field is immutable".to_owned(),
        };
        assert_eq!(failure.causes, [first, Cause::default()]);
    }

    #[test]
    fn only_404_that_names_object_means_absence() {
        let absent = |body: &str| {
            ClusterError::from_answer(&crate::identities::controller(), 404, None, body.as_bytes()).absent()
        };
        assert!(absent(
            r#"{"kind":"Status","reason":"NotFound","details":{"name":"a","kind":"configmaps"}}"#
        ));
        assert!(!absent("404 page not found"));
        assert!(!absent("<html>no route</html>"));
        assert!(!absent(
            r#"{"kind":"Status","reason":"NotFound","message":"the server could not find the requested resource","details":{}}"#
        ));
    }
}
