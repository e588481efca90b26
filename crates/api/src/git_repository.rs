//! `GitRepository` (source.toolkit.fluxcd.io/v1) with all of Flux's fields. Which of them are implemented is the planner's to say.

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

/// Which repository to fetch, which revision, how often and with which credentials.
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
    /// Patterns of files to leave out, in the form of `.gitignore`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore: Option<String>,
    /// Other repositories whose files are added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<GitRepositoryInclude>,
    /// How often the upstream is asked.
    pub interval: DurationText,
    /// How to authenticate; `generic` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["generic", "aws", "azure", "github"]))]
    pub provider: Option<String>,
    /// Secret with a proxy's address and credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<LocalObjectReference>,
    /// Fetch submodules too.
    #[serde(default, skip_serializing_if = "is_false")]
    pub recurse_submodules: bool,
    /// Which revision; branch `master` when absent.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<GitRepositoryRef>,
    /// Secret with the credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// ServiceAccount that authenticates to a cloud provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Folders to fetch; all when absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sparse_checkout: Vec<String>,
    /// Do nothing until this is false again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
    /// How long a Git operation may take; 60 s when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<DurationText>,
    /// Address of the repository: http, https or ssh.
    #[schemars(with = "String", regex(pattern = r"^(http|https|ssh)://.*$"))]
    pub url: SourceUrl,
    /// Verification of signatures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<GitRepositoryVerification>,
}

/// Another repository whose files are added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct GitRepositoryInclude {
    /// Folder to take; the root when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_path: Option<String>,
    /// The GitRepository, in the same namespace.
    pub repository: LocalObjectReference,
    /// Folder to put it in; named like the repository when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_path: Option<String>,
}

/// Which revision. Precedence: commit, name, semver, tag, branch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct GitRepositoryRef {
    /// Branch; `master` when nothing is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Commit. With a branch, that branch is fetched shallowly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Full name of a reference, such as `refs/pull/1/head`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Range of versions; the newest tag within it is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semver: Option<String>,
    /// Tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// Verification of signatures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct GitRepositoryVerification {
    /// What is verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["head", "HEAD", "Tag", "TagAndHEAD"]))]
    pub mode: Option<String>,
    /// Secret with the public keys of trusted authors.
    pub secret_ref: LocalObjectReference,
}

/// What was observed and fetched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitRepositoryStatus {
    /// What was fetched last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    /// Conditions: Ready, ArtifactInStorage, FetchFailed, Reconciling and Stalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// What was fetched for `include`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub included_artifacts: Vec<Artifact>,
    /// The last value of the annotation `reconcile.fluxcd.io/requestedAt` that was acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// Generation that the status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `ignore` as it was when the artifact was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_ignore: Option<String>,
    /// `include` as it was when the artifact was made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observed_include: Vec<GitRepositoryInclude>,
    /// `recurseSubmodules` as it was when the artifact was made.
    #[serde(default, skip_serializing_if = "is_false")]
    pub observed_recurse_submodules: bool,
    /// `sparseCheckout` as it was when the artifact was made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observed_sparse_checkout: Vec<String>,
    /// What was verified of the artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_verification_mode: Option<String>,
}
