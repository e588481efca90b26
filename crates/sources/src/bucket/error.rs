//! Errors of fetching a bucket, and their reasons as Flux names them.

use std::time::Duration;

use tenure_remote_requests::fetch::{FetchFailure, FetchReason};

use crate::budget::OverBudget;
use crate::error::{FetchError, StorageError, describe_wait};

/// Why a fetch of a bucket gave no artifact. Carries no credential: a store is named by host and bucket alone.
#[derive(Debug, thiserror::Error)]
pub enum BucketError {
    /// `spec.endpoint` is not the address of a store.
    #[error("invalid spec.endpoint: it must be host or host:port, such as store.example.com:9000")]
    InvalidEndpoint,
    /// A Secret lacks a key or holds one that can't be used.
    #[error("the Secret of {field} can't be used: {problem}")]
    InvalidSecret {
        /// The field that names the Secret.
        field: &'static str,
        /// The key, and the expected content; never the value.
        problem: String,
    },
    /// The store requires credentials, or rejects the given ones.
    #[error("{url} refused to give {what}: {problem}")]
    Refused {
        /// The store and the bucket.
        url: String,
        /// The requested object or page.
        what: String,
        /// The store's answer, and what to do.
        problem: String,
    },
    /// The bucket does not exist.
    #[error("bucket '{bucket}' not found in {url}")]
    NoBucket {
        /// Its name.
        bucket: String,
        /// The store.
        url: String,
    },
    /// The object does not exist.
    #[error("{what} is not in {url}")]
    NoObject {
        /// The store and the bucket.
        url: String,
        /// The requested object.
        what: String,
    },
    /// The bucket is at another address.
    #[error(
        "{url} redirects requests for the bucket{problem}; name the endpoint, and the region, that the bucket is in"
    )]
    Elsewhere {
        /// The store and the bucket.
        url: String,
        /// The target of the redirect, as far as the store names it.
        problem: String,
    },
    /// The store answered with a status that isn't success.
    #[error("{url} answered HTTP {status}{code} to a request for {what}{}", describe_wait(*retry_after))]
    HttpStatus {
        /// The store and the bucket.
        url: String,
        /// The requested object or page.
        what: String,
        /// The HTTP status code.
        status: u16,
        /// The store's code for the error, in parentheses, or nothing.
        code: String,
        /// The wait that the store requests.
        retry_after: Option<Duration>,
    },
    /// The store violates the protocol.
    #[error("{url} does not answer as a store that speaks S3: {problem}")]
    Protocol {
        /// The store and the bucket.
        url: String,
        /// The problem, or the expected answer.
        problem: String,
    },
    /// The key of an object can't be the path of a file.
    #[error(
        "the object {key} can't be a file of an artifact: its key {problem}; rename it, or leave it out by spec.ignore"
    )]
    InvalidKey {
        /// The key, quoted, and cut if it is long.
        key: String,
        /// The problem.
        problem: String,
    },
    /// The ignore file, or all patterns together, can't be used.
    #[error("the patterns of .sourceignore and spec.ignore can't be used: {problem}")]
    InvalidIgnore {
        /// What is wrong.
        problem: &'static str,
    },
    /// A bound was reached.
    #[error(
        "bucket over the size limit: {what} exceed {limit}; leave objects out by spec.prefix or spec.ignore, or ask an administrator for a larger limit"
    )]
    TooLarge {
        /// What was counted.
        what: &'static str,
        /// The bound, with its unit.
        limit: String,
    },
    /// The budget of the tenant, or of all tenants, has no capacity for it.
    #[error(
        "bucket over a budget: {0}; fetch less with spec.prefix or spec.ignore, or ask an administrator to raise the flag"
    )]
    OverBudget(#[from] OverBudget),
    /// The artifact could not be written or read.
    #[error("artifact storage: {0}")]
    Storage(#[from] StorageError),
    /// The connection failed.
    #[error("{0}")]
    Connection(FetchError),
}

impl From<FetchError> for BucketError {
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

impl BucketError {
    /// Returns the reason of the condition, as Flux's source-controller names it.
    pub fn reason(&self) -> FetchReason {
        match self {
            Self::InvalidEndpoint => FetchReason::UrlInvalid,
            Self::InvalidSecret { .. } => FetchReason::AuthenticationFailed,
            Self::Storage(_) => FetchReason::ArchiveOperationFailed,
            Self::Refused { .. }
            | Self::NoBucket { .. }
            | Self::NoObject { .. }
            | Self::Elsewhere { .. }
            | Self::HttpStatus { .. }
            | Self::Protocol { .. }
            | Self::InvalidKey { .. }
            | Self::InvalidIgnore { .. }
            | Self::TooLarge { .. }
            | Self::OverBudget(_)
            | Self::Connection(_) => FetchReason::BucketOperationFailed,
        }
    }

    /// Returns the wait that the store, or a proxy before it, requests.
    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::HttpStatus { retry_after, .. } => *retry_after,
            Self::Connection(error) => error.retry_after(),
            _ => None,
        }
    }

    /// Returns true if only a change of the object itself can help: the object is `Stalled`.
    pub fn is_stalled(&self) -> bool {
        matches!(self, Self::InvalidEndpoint)
    }
}

impl From<&BucketError> for FetchFailure {
    /// Converts the error into the planner's form.
    fn from(error: &BucketError) -> Self {
        Self {
            reason: error.reason(),
            message: error.to_string(),
            terminal: error.is_stalled(),
            retry_after: error.retry_after().map(|wait| wait.as_secs()),
        }
    }
}
