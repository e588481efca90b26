//! Errors of fetching an index or a chart, and their reasons as Flux names them.

use tenure_remote_requests::fetch::{FetchFailure, FetchReason};

use crate::budget::OverBudget;
use crate::error::{FetchError, StorageError};
use crate::oci::OciError;

/// Why there is no artifact of an index or a chart. Carries no credential: addresses are shown without user, password and query.
#[derive(Debug, thiserror::Error)]
pub enum ChartError {
    /// The repository's address can't be used.
    #[error("invalid Helm repository URL {url}: {problem}")]
    InvalidUrl {
        /// The URL, as far as it may be shown.
        url: String,
        /// The problem, and the accepted forms.
        problem: String,
    },
    /// A Secret lacks an entry or has one that can't be used.
    #[error("the Secret of {field} can't be used: {problem}")]
    InvalidSecret {
        /// The field that names the Secret.
        field: &'static str,
        /// The entry, and the expected content; never the value.
        problem: String,
    },
    /// The server requires credentials, or rejects the given ones.
    #[error("failed to authenticate with the Helm repository: {0}")]
    Unauthorized(String),
    /// The index could not be fetched.
    #[error("failed to fetch Helm repository index: {0}")]
    IndexFetch(FetchError),
    /// The index could not be read.
    #[error("failed to load Helm repository from index YAML: {0}")]
    Index(String),
    /// There is no such chart, or no such version.
    #[error("invalid chart reference: {0}")]
    Reference(String),
    /// The chart could not be fetched.
    #[error("chart pull error: {0}")]
    Pull(String),
    /// The server failed to deliver the chart.
    #[error("chart pull error: {0}")]
    Fetch(FetchError),
    /// The registry failed to deliver the chart.
    #[error("chart pull error: {0}")]
    Registry(OciError),
    /// No signature is by a trusted key.
    #[error("chart verification error: {0}")]
    Unverified(String),
    /// The version can't get build metadata.
    #[error("chart metadata patch error: {0}")]
    Version(String),
    /// A file of values is missing or can't be read.
    #[error("values files merge error: {0}")]
    ValuesFiles(String),
    /// A dependency is missing, or can't be used.
    #[error("dependency build error: {0}")]
    Dependency(String),
    /// The chart could not be packaged.
    #[error("chart package error: {0}")]
    Package(String),
    /// A budget has no capacity.
    #[error("{0}")]
    OverBudget(#[from] OverBudget),
    /// The artifact could not be stored, or another one not be loaded.
    #[error("artifact storage: {0}")]
    Storage(#[from] StorageError),
    /// The caller no longer waits for the artifact.
    #[error("it was given up")]
    Cancelled,
}

impl ChartError {
    /// Wraps a failed request for a chart.
    pub(super) fn from_chart_request(error: FetchError) -> Self {
        match error {
            FetchError::OverBudget(refused) => Self::OverBudget(refused),
            FetchError::Storage(error) => Self::Storage(error),
            error if error.reason() == FetchReason::AuthenticationFailed => Self::Unauthorized(error.to_string()),
            error => Self::Fetch(error),
        }
    }

    /// Wraps a failed request for an index.
    pub(super) fn from_index_request(error: FetchError) -> Self {
        match Self::from_chart_request(error) {
            Self::Fetch(error) => Self::IndexFetch(error),
            other => other,
        }
    }

    /// Wraps a failed fetch from a registry.
    pub(super) fn from_registry(error: OciError) -> Self {
        match (error.reason(), error) {
            (_, OciError::OverBudget(refused)) => Self::OverBudget(refused),
            (_, OciError::Storage(error)) => Self::Storage(error),
            (_, error @ (OciError::NoMatch { .. } | OciError::InvalidField { .. })) => {
                Self::Reference(error.to_string())
            }
            (FetchReason::AuthenticationFailed, error) => Self::Unauthorized(error.to_string()),
            (FetchReason::VerificationError, error) => Self::Unverified(error.to_string()),
            (_, error) => Self::Registry(error),
        }
    }

    /// Returns the reason of the condition, as Flux's source-controller names it.
    fn reason(&self) -> FetchReason {
        match self {
            Self::InvalidUrl { .. } => FetchReason::UrlInvalid,
            Self::InvalidSecret { .. } | Self::Unauthorized(_) => FetchReason::AuthenticationFailed,
            Self::IndexFetch(_) => FetchReason::Failed,
            Self::Index(_) => FetchReason::IndexationFailed,
            Self::Reference(_) => FetchReason::InvalidChartReference,
            Self::Pull(_) | Self::Fetch(_) | Self::Registry(_) => FetchReason::ChartPullError,
            Self::Unverified(_) => FetchReason::ChartVerificationError,
            Self::Version(_) => FetchReason::MetadataPatchError,
            Self::ValuesFiles(_) => FetchReason::ValuesFilesError,
            Self::Dependency(_) => FetchReason::DependencyBuildError,
            Self::Package(_) | Self::Cancelled => FetchReason::ChartPackageError,
            Self::OverBudget(_) | Self::Storage(_) => FetchReason::ArchiveOperationFailed,
        }
    }

    /// Returns true if only a change of the object, or of its source, can help.
    fn is_stalled(&self) -> bool {
        matches!(
            self,
            Self::InvalidUrl { .. } | Self::Reference(_) | Self::Version(_) | Self::ValuesFiles(_)
        )
    }
}

impl From<&ChartError> for FetchFailure {
    /// Converts the error into the planner's form.
    fn from(error: &ChartError) -> Self {
        let retry_after = match error {
            ChartError::IndexFetch(error) | ChartError::Fetch(error) => error.retry_after().map(|wait| wait.as_secs()),
            ChartError::Registry(error) => FetchFailure::from(error).retry_after,
            _ => None,
        };
        Self {
            reason: error.reason(),
            message: error.to_string(),
            terminal: error.is_stalled(),
            retry_after,
        }
    }
}
