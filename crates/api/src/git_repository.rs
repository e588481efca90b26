//! `GitRepository` (source.toolkit.fluxcd.io/v1) with all of Flux's fields. The planner decides which of them are implemented.

#![expect(
    clippy::duplicated_attributes,
    reason = "every printer column has a type, and several are strings"
)]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::artifact::Artifact;
use crate::condition::Condition;
use crate::duration::DurationText;
use crate::kustomization::is_false;
use crate::reference::LocalObjectReference;
use crate::source_url::SourceUrl;

/// Git repository and revision to fetch, with the interval and the credentials.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "source.toolkit.fluxcd.io",
    version = "v1",
    kind = "GitRepository",
    plural = "gitrepositories",
    shortname = "gitrepo",
    namespaced,
    status = "GitRepositoryStatus",
    derive = "PartialEq",
    doc = "GitRepository fetches a revision of a Git repository.",
    printcolumn(name = "URL", type_ = "string", json_path = ".spec.url"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct GitRepositorySpec {
    /// Patterns of files to leave out, in the format of `.gitignore`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore: Option<String>,
    /// Other GitRepositories whose files are added to the artifact, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<GitRepositoryInclude>,
    /// Time between two checks of the repository, such as `5m`.
    pub interval: DurationText,
    /// Type of the credentials: `generic` (default), or `github` for a GitHub App with a `secretRef` and an https URL. `aws` and `azure` are not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["generic", "aws", "azure", "github"]))]
    pub provider: Option<String>,
    /// Secret with the `address` of a proxy, and its `username` and `password`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<LocalObjectReference>,
    /// Fetches submodules, and their submodules, too. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub recurse_submodules: bool,
    /// Revision to fetch. Default: the branch `master`.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<GitRepositoryRef>,
    /// Secret with the credentials: `username` and `password`, or `bearerToken`; for ssh `identity` and `known_hosts`. With `provider: github`, the data of the GitHub
    /// App.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// ServiceAccount for credentials of a cloud provider. Not supported yet: a GitRepository with this field is Stalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Folders or files to fetch, at most 100. Default: all files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sparse_checkout: Vec<String>,
    /// Stops fetching while true. Default: false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
    /// Time limit of one fetch, at most 1h. Default: 60s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<DurationText>,
    /// Address of the repository: `http://`, `https://` or `ssh://`.
    #[schemars(with = "String", regex(pattern = r"^(http|https|ssh)://.*$"))]
    pub url: SourceUrl,
    /// Verification of Git signatures. Default: signatures are not verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<GitRepositoryVerification>,
}

/// Another GitRepository whose files are added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct GitRepositoryInclude {
    /// Folder or file of the included GitRepository. Default: all its files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_path: Option<String>,
    /// GitRepository to include, in the same namespace.
    pub repository: LocalObjectReference,
    /// Target path in the artifact. Default: the name of the included GitRepository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_path: Option<String>,
}

/// Revision to fetch. If several fields are set, the first of these counts: `commit`, `name`, `semver`, `tag`, `branch`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct GitRepositoryRef {
    /// Branch to fetch. Default if no field is set: `master`; for a source of a Surface `main`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Commit to fetch, as a full hash of 40 or 64 hex digits. If the server refuses the hash, the history of `branch`, or of all branches, is fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Full name of a Git reference, such as `refs/pull/1/head`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Range of semantic versions. The tag with the highest version in this range is fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semver: Option<String>,
    /// Tag to fetch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// Verification of Git signatures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct GitRepositoryVerification {
    /// Objects that must be signed: `HEAD` (default) for the commit, `Tag` for the tag that `ref` selects, `TagAndHEAD` for both. `head` means `HEAD`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["head", "HEAD", "Tag", "TagAndHEAD"]))]
    pub mode: Option<String>,
    /// Secret with the public keys (OpenPGP or SSH) of the trusted authors.
    pub secret_ref: LocalObjectReference,
}

/// State of the GitRepository and of its artifact.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitRepositoryStatus {
    /// Artifact that was fetched last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    /// Conditions: Ready, ArtifactInStorage, FetchFailed, StorageOperationFailed, IncludeUnavailable, SourceVerified, Reconciling and Stalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Artifacts of the included GitRepositories that the current artifact contains.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub included_artifacts: Vec<Artifact>,
    /// Last value of the annotation `reconcile.fluxcd.io/requestedAt` that the controller handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// The `metadata.generation` that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Value of `spec.ignore` when the artifact was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_ignore: Option<String>,
    /// Value of `spec.include` when the artifact was made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observed_include: Vec<GitRepositoryInclude>,
    /// Value of `spec.recurseSubmodules` when the artifact was made.
    #[serde(default, skip_serializing_if = "is_false")]
    pub observed_recurse_submodules: bool,
    /// Value of `spec.sparseCheckout` when the artifact was made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observed_sparse_checkout: Vec<String>,
    /// Objects whose signatures were verified for the artifact: `HEAD`, `Tag` or `TagAndHEAD`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_verification_mode: Option<String>,
}
