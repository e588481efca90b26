//! Errors of fetching an artifact from a registry, and their reasons as Flux names them.

use std::time::Duration;

use tenure_remote_requests::fetch::{FetchFailure, FetchReason};

use crate::budget::OverBudget;
use crate::error::{FetchError, StorageError, describe_wait};

/// Why a fetch from a registry gave no artifact. Carries no credential: registries are named by host and path alone.
#[derive(Debug, thiserror::Error)]
pub enum OciError {
    /// `spec.url` is not the address of a repository in a registry.
    #[error("invalid URL {url}: {problem}")]
    InvalidUrl {
        /// The URL, as far as it may be shown.
        url: String,
        /// The problem, and the accepted forms.
        problem: String,
    },
    /// A field of the specification has a value that can't be used.
    #[error("invalid {field}: {problem}")]
    InvalidField {
        /// Path of the field, as `spec.ref.semver`.
        field: &'static str,
        /// The problem.
        problem: String,
    },
    /// A Secret lacks a key or holds one that can't be read.
    #[error("the Secret of {field} can't be used: {problem}")]
    InvalidSecret {
        /// The field that names the Secret.
        field: &'static str,
        /// The key, and the expected content; never the value.
        problem: String,
    },
    /// The registry, or its token server, requires credentials, or rejects the given ones.
    #[error("authentication to {host} failed: {problem}")]
    Unauthorized {
        /// The host.
        host: String,
        /// The attempts and the remedy.
        problem: String,
    },
    /// The tag or digest does not exist.
    #[error("{what} not found in {url}: {problem}")]
    NotFound {
        /// As `tag "latest"`.
        what: String,
        /// The repository.
        url: String,
        /// Possible causes.
        problem: &'static str,
    },
    /// No tag is a version in the range.
    #[error("no tag of {url} matches {what}")]
    NoMatch {
        /// The repository.
        url: String,
        /// The range, and the filter if there is one.
        what: String,
    },
    /// The registry answered with a status that isn't success.
    #[error("{url} answered HTTP {status} to a request for {what}{}", describe_wait(*retry_after))]
    HttpStatus {
        /// The repository.
        url: String,
        /// The requested object.
        what: String,
        /// The HTTP status code.
        status: u16,
        /// The wait that the registry requests.
        retry_after: Option<Duration>,
    },
    /// The registry violates its protocol.
    #[error("{url} does not answer as a registry: {problem}")]
    Protocol {
        /// The repository.
        url: String,
        /// The problem, or the expected answer.
        problem: String,
    },
    /// The received bytes have another digest.
    #[error("{what} of {url} has digest {found}, not {expected}")]
    DigestMismatch {
        /// The kind of object.
        what: &'static str,
        /// The repository.
        url: String,
        /// The requested digest.
        expected: String,
        /// The digest of the received bytes.
        found: String,
    },
    /// No artifact can be made of the manifest or the layer.
    #[error("artifact {digest} can't be used: {problem}")]
    InvalidArtifact {
        /// Digest of the manifest.
        digest: String,
        /// The problem.
        problem: String,
    },
    /// No signature is by a trusted key.
    #[error("failed to verify the signature using provider 'cosign': {problem}")]
    Unverified {
        /// The checked signatures, and what is missing.
        problem: String,
    },
    /// A bound was reached.
    #[error(
        "artifact over the size limit: {what} exceed {limit}; make it smaller, or ask an administrator for a larger limit"
    )]
    TooLarge {
        /// What was counted.
        what: &'static str,
        /// The bound, with its unit.
        limit: String,
    },
    /// The budget of the tenant, or of all tenants, has no capacity for it.
    #[error("artifact over a budget: {0}; fetch less with spec.ignore, or ask an administrator to raise the flag")]
    OverBudget(#[from] OverBudget),
    /// The artifact could not be written or read.
    #[error("artifact storage: {0}")]
    Storage(#[from] StorageError),
    /// The connection failed.
    #[error("{0}")]
    Connection(FetchError),
}

impl From<FetchError> for OciError {
    fn from(error: FetchError) -> Self {
        match error {
            FetchError::OverBudget(refused) => Self::OverBudget(refused),
            FetchError::Storage(error) => Self::Storage(error),
            FetchError::TooLarge { what, limit, .. } => Self::TooLarge { what, limit },
            // The TLS settings have a Secret of their own.
            FetchError::InvalidSecret { problem } => Self::InvalidSecret {
                field: "spec.certSecretRef",
                problem,
            },
            other => Self::Connection(other),
        }
    }
}

impl OciError {
    /// Returns the reason of the condition, as Flux's source-controller names it.
    pub fn reason(&self) -> FetchReason {
        match self {
            Self::InvalidUrl { .. } => FetchReason::UrlInvalid,
            Self::InvalidSecret {
                field: "spec.verify.secretRef",
                ..
            }
            | Self::Unverified { .. } => FetchReason::VerificationError,
            Self::Connection(error) if error.reason() == FetchReason::AuthenticationFailed => {
                FetchReason::AuthenticationFailed
            }
            Self::InvalidSecret { .. } | Self::Unauthorized { .. } | Self::HttpStatus { status: 403, .. } => {
                FetchReason::AuthenticationFailed
            }
            Self::NoMatch { .. } => FetchReason::ReadOperationFailed,
            Self::InvalidArtifact { .. } | Self::TooLarge { .. } => FetchReason::OciArtifactLayerOperationFailed,
            Self::Storage(_) => FetchReason::ArchiveOperationFailed,
            Self::InvalidField { .. }
            | Self::NotFound { .. }
            | Self::HttpStatus { .. }
            | Self::Protocol { .. }
            | Self::DigestMismatch { .. }
            | Self::OverBudget(_)
            | Self::Connection(_) => FetchReason::OciArtifactPullFailed,
        }
    }

    /// Returns true if only a change of the object itself can help: the object is `Stalled`.
    pub fn is_stalled(&self) -> bool {
        matches!(self, Self::InvalidUrl { .. } | Self::InvalidField { .. })
    }
}

impl From<&OciError> for FetchFailure {
    /// Converts the error into the planner's form.
    fn from(error: &OciError) -> Self {
        Self {
            reason: error.reason(),
            message: error.to_string(),
            terminal: error.is_stalled(),
            retry_after: match error {
                OciError::HttpStatus { retry_after, .. } => retry_after.map(|wait| wait.as_secs()),
                _ => None,
            },
        }
    }
}
