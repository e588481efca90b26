//! The result of a fetch of any source.

use serde::{Deserialize, Serialize};
use tenure_api::reason;

use crate::artifact::StoredArtifact;

/// The result of a successful fetch: a new artifact, or none because nothing changed.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one of them for a fetch, for a moment"
)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Fetched {
    /// The upstream still has the revision of the known artifact, and all other inputs of the content are unchanged.
    Unchanged {
        /// The revision.
        revision: String,
    },
    /// A new artifact was fetched and stored.
    Stored {
        /// The stored artifact.
        artifact: StoredArtifact,
        /// The upstream's description: the first line of a commit's message.
        #[serde(default)]
        subject: Option<String>,
    },
}

/// The failure of a fetch: its reason and message, and whether and when a retry may help.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FetchFailure {
    /// The reason.
    pub reason: FetchReason,
    /// The message, without credentials.
    pub message: String,
    /// Whether another try is pointless until a user changes the object.
    pub terminal: bool,
    /// The pause that the server asks for, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
}

/// The reason of a failed fetch: all of Flux's reasons that occur.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum FetchReason {
    /// The URL can't be used for a fetch.
    #[serde(rename = "URLInvalid")]
    UrlInvalid,
    /// The Secret could not be read or used, or the server does not accept its content.
    AuthenticationFailed,
    /// The Secret is not of the kind that the provider takes.
    InvalidProviderConfiguration,
    /// Any other failure between a Git repository and the archive.
    #[default]
    GitOperationFailed,
    /// The objects of a bucket could not be listed or fetched.
    BucketOperationFailed,
    /// The artifact could not be composed of its sources' files.
    BuildFailed,
    /// The artifact of another controller could not be fetched.
    SourceFetchFailed,
    /// The content of a registry could not be listed.
    ReadOperationFailed,
    /// An artifact could not be found, or pulled from its registry.
    #[serde(rename = "OCIArtifactPullFailed")]
    OciArtifactPullFailed,
    /// An artifact's manifest or layer has a form that Tenure can't use.
    #[serde(rename = "OCIArtifactLayerOperationFailed")]
    OciArtifactLayerOperationFailed,
    /// A signature could not be verified.
    VerificationError,
    /// The object to verify is not signed.
    InvalidGitObject,
    /// The signature of a tag is not good.
    InvalidTagSignature,
    /// The signature of a commit is not good.
    InvalidCommitSignature,
    /// The content was fetched and could not be stored.
    ArchiveOperationFailed,
    /// The included content could not be put into its folder.
    CopyFailure,
    /// The index of a Helm repository could not be fetched.
    Failed,
    /// The index of a Helm repository could not be read.
    IndexationFailed,
    /// The source has no such chart or version.
    InvalidChartReference,
    /// The chart could not be fetched.
    ChartPullError,
    /// The version of the chart can't have build metadata.
    MetadataPatchError,
    /// A file of values is missing, or can't be read.
    ValuesFilesError,
    /// A chart that the chart needs is missing.
    DependencyBuildError,
    /// The chart could not be packaged.
    ChartPackageError,
    /// The signature of the chart could not be verified.
    ChartVerificationError,
}

impl FetchReason {
    /// Returns the reason as conditions and events show it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UrlInvalid => reason::URL_INVALID,
            Self::AuthenticationFailed => reason::AUTHENTICATION_FAILED,
            Self::InvalidProviderConfiguration => reason::INVALID_PROVIDER_CONFIGURATION,
            Self::GitOperationFailed => reason::GIT_OPERATION_FAILED,
            Self::BucketOperationFailed => reason::BUCKET_OPERATION_FAILED,
            Self::BuildFailed => reason::BUILD_FAILED,
            Self::SourceFetchFailed => reason::SOURCE_FETCH_FAILED,
            Self::ReadOperationFailed => reason::READ_OPERATION_FAILED,
            Self::OciArtifactPullFailed => reason::OCI_ARTIFACT_PULL_FAILED,
            Self::OciArtifactLayerOperationFailed => reason::OCI_ARTIFACT_LAYER_OPERATION_FAILED,
            Self::VerificationError => reason::VERIFICATION_ERROR,
            Self::InvalidGitObject => reason::INVALID_GIT_OBJECT,
            Self::InvalidTagSignature => reason::INVALID_TAG_SIGNATURE,
            Self::InvalidCommitSignature => reason::INVALID_COMMIT_SIGNATURE,
            Self::ArchiveOperationFailed => reason::ARCHIVE_OPERATION_FAILED,
            Self::CopyFailure => reason::COPY_FAILURE,
            Self::Failed => reason::FAILED,
            Self::IndexationFailed => reason::INDEXATION_FAILED,
            Self::InvalidChartReference => reason::INVALID_CHART_REFERENCE,
            Self::ChartPullError => reason::CHART_PULL_ERROR,
            Self::MetadataPatchError => reason::METADATA_PATCH_ERROR,
            Self::ValuesFilesError => reason::VALUES_FILES_ERROR,
            Self::DependencyBuildError => reason::DEPENDENCY_BUILD_ERROR,
            Self::ChartPackageError => reason::CHART_PACKAGE_ERROR,
            Self::ChartVerificationError => reason::CHART_VERIFICATION_ERROR,
        }
    }
}
