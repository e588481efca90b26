//! What a request can come back with. Owns the mapping of the API server's `Status` answers; keeps the server's own words.

use std::time::Duration;

use serde_json::Value;

use tenure_tenancy::Identity;

/// One field that the API server names as a cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Kubernetes' word, as `FieldValueInvalid` or `FieldManagerConflict`.
    pub reason: String,
    /// What is wrong.
    pub message: String,
    /// The field, as `.spec.replicas`; empty when none is named.
    pub field: String,
}

/// Why a request had no success. The messages are the API server's where it gave one.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClusterError {
    /// The identity may not do this (403).
    #[error("{message}")]
    Forbidden {
        /// The API server's message; it names user, verb, resource and namespace.
        message: String,
    },
    /// The API server does not accept the token (401).
    #[error("the API server does not accept the credentials of {identity}: {message}")]
    Unauthorized {
        /// Who the request was made as.
        identity: Identity,
        /// The API server's message.
        message: String,
    },
    /// The ServiceAccount to act as does not exist.
    #[error(
        "ServiceAccount {name:?} does not exist in namespace {namespace:?}; nothing is read or written for it until it does: create it, or name another"
    )]
    IdentityMissing {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// The object, or its namespace, does not exist (404).
    #[error("{message}")]
    NotFound {
        /// The API server's message.
        message: String,
    },
    /// The API server knows no such kind.
    #[error("no matches for kind {kind:?} in version {api_version:?}: its CustomResourceDefinition is not installed")]
    NoKindMatch {
        /// `group/version`, or `version` of the core group; only a group when any version would do.
        api_version: String,
        /// The kind.
        kind: String,
    },
    /// The object changed meanwhile, or is another one than expected (409).
    #[error("{message}")]
    Conflict {
        /// The API server's message.
        message: String,
    },
    /// Another field manager owns fields that an apply without force would change (409).
    #[error("{message}")]
    ApplyConflict {
        /// The API server's message.
        message: String,
        /// One cause a field.
        causes: Vec<Cause>,
    },
    /// An object of that name exists already (409).
    #[error("{message}")]
    AlreadyExists {
        /// The API server's message.
        message: String,
    },
    /// A field that can't change was changed (422, or as a webhook words it).
    #[error("{message}")]
    Immutable {
        /// The API server's message.
        message: String,
        /// One cause a field.
        causes: Vec<Cause>,
    },
    /// The object is not valid (400, 422).
    #[error("{message}")]
    Invalid {
        /// The API server's message.
        message: String,
        /// One cause a field.
        causes: Vec<Cause>,
    },
    /// The revision that a watch or list should go on from is compacted (410).
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
        /// How long, if it said so.
        retry_after: Option<Duration>,
    },
    /// No answer came.
    #[error("the API server can't be reached: {problem}")]
    Unreachable {
        /// What the transport said.
        problem: String,
    },
    /// No answer came in time.
    #[error("the API server did not answer within {} s", .after.as_secs())]
    Timeout {
        /// How long was waited.
        after: Duration,
    },
    /// The answer is not what the API promises.
    #[error("the API server's answer to {what} can't be read: {problem}")]
    Decode {
        /// The request.
        what: String,
        /// What is wrong with the answer.
        problem: String,
    },
    /// The object can't be addressed or sent.
    #[error("the request for {what} can't be made: {problem}")]
    Request {
        /// The request.
        what: String,
        /// What is wrong.
        problem: String,
    },
    /// Any other refusal.
    #[error("{message}")]
    Refused {
        /// The HTTP status code.
        code: u16,
        /// Kubernetes' word, as `InternalError`.
        reason: String,
        /// The API server's message.
        message: String,
    },
}

impl ClusterError {
    /// Whether the same request may succeed later without anybody changing anything.
    #[must_use]
    pub fn transient(&self) -> bool {
        match self {
            Self::Throttled { .. } | Self::Unreachable { .. } | Self::Timeout { .. } | Self::Expired { .. } => true,
            Self::Refused { code, .. } => *code >= 500,
            _ => false,
        }
    }

    /// The HTTP status code; 0 when there was no answer that could be read.
    #[must_use]
    pub fn code(&self) -> u16 {
        match self {
            Self::Forbidden { .. } => 403,
            Self::Unauthorized { .. } => 401,
            Self::IdentityMissing { .. } | Self::NotFound { .. } | Self::NoKindMatch { .. } => 404,
            Self::Conflict { .. } | Self::ApplyConflict { .. } | Self::AlreadyExists { .. } => 409,
            Self::Immutable { .. } | Self::Invalid { .. } => 422,
            Self::Expired { .. } => 410,
            Self::Throttled { .. } => 429,
            Self::Refused { code, .. } => *code,
            Self::Request { .. } => 400,
            Self::Unreachable { .. } | Self::Timeout { .. } | Self::Decode { .. } => 0,
        }
    }

    /// Kubernetes' word for what happened, as it stands in a `Status`.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::Forbidden { .. } => "Forbidden",
            Self::Unauthorized { .. } => "Unauthorized",
            Self::IdentityMissing { .. } | Self::NotFound { .. } => "NotFound",
            Self::NoKindMatch { .. } => "NoKindMatch",
            Self::Conflict { .. } | Self::ApplyConflict { .. } => "Conflict",
            Self::AlreadyExists { .. } => "AlreadyExists",
            Self::Immutable { .. } | Self::Invalid { .. } => "Invalid",
            Self::Expired { .. } => "Expired",
            Self::Throttled { .. } => "TooManyRequests",
            Self::Refused { reason, .. } => reason,
            Self::Request { .. } => "BadRequest",
            Self::Unreachable { .. } => "Unreachable",
            Self::Timeout { .. } => "Timeout",
            Self::Decode { .. } => "BadAnswer",
        }
    }

    /// Whether the object, or its kind, is not there.
    #[must_use]
    pub fn absent(&self) -> bool {
        matches!(self, Self::NotFound { .. } | Self::NoKindMatch { .. })
    }

    /// Maps an answer with a status code of 400 or more.
    pub(crate) fn from_answer(identity: &Identity, code: u16, retry_after: Option<Duration>, body: &[u8]) -> Self {
        let status: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let text = |key: &str| status.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut message = text("message");
        if message.is_empty() {
            message = String::from_utf8_lossy(body).trim().chars().take(500).collect();
        }
        if message.is_empty() {
            message = format!("the API server answered {code}");
        }
        let reason = text("reason");
        let causes: Vec<Cause> = status
            .pointer("/details/causes")
            .and_then(Value::as_array)
            .map(|causes| causes.iter().map(cause).collect())
            .unwrap_or_default();
        // Flux's test: a change that is refused for ever says "immutable", whatever the code (webhooks choose their own).
        let immutable = matches!(code, 409 | 422) && message.contains("immutable");
        match (code, reason.as_str()) {
            (_, _) if immutable => Self::Immutable { message, causes },
            (401, _) => Self::Unauthorized {
                identity: identity.clone(),
                message,
            },
            (403, _) => Self::Forbidden { message },
            (404, _) => Self::NotFound { message },
            (409, "AlreadyExists") => Self::AlreadyExists { message },
            (409, _) if causes.iter().any(|cause| cause.reason == "FieldManagerConflict") => {
                Self::ApplyConflict { message, causes }
            }
            (409, _) => Self::Conflict { message },
            (410, _) => Self::Expired { message },
            (400 | 422, _) => Self::Invalid { message, causes },
            (429, _) => Self::Throttled { message, retry_after },
            _ => Self::Refused { code, reason, message },
        }
    }
}

fn cause(cause: &Value) -> Cause {
    let text = |key: &str| cause.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    Cause {
        reason: text("reason"),
        message: text("message"),
        field: text("field"),
    }
}
