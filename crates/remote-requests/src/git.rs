//! The request to fetch a Git repository.

use std::time::Duration;

use serde::Serialize;
use tenure_api::SourceUrl;
use tenure_api::git_repository::GitRepositoryRef;

use crate::artifact::{IncludedArtifact, StoredArtifact};

/// A request to fetch a Git repository, as the planner makes it. It names Secrets and never contains their data: the crate `sources` adds the credentials.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FetchRequest {
    /// Address of the repository. A printed or serialized request contains only the part of it that may be shown.
    #[serde(serialize_with = "SourceUrl::serialize_shown")]
    pub url: SourceUrl,
    /// The revision, with Flux's precedence: commit, name, semver, tag, branch (`master`).
    pub reference: GitRepositoryRef,
    /// The kind of the credentials in the Secret.
    pub provider: Provider,
    /// Secret with the credentials, in the repository's namespace, read as the plan's identity.
    pub secret: Option<String>,
    /// Folders or files to fetch, each without `./` in front and `/` at the end. An empty list means everything.
    pub sparse: Vec<String>,
    /// Whether submodules are fetched, and theirs.
    pub submodules: bool,
    /// Files of other repositories that are added.
    pub include: Vec<IncludeRequest>,
    /// Secret with the address of a proxy, and credentials for it.
    pub proxy: Option<String>,
    /// The objects that must be signed, and the trusted keys.
    pub verify: Option<VerifyRequest>,
    /// Patterns of files to leave out.
    pub ignore: Option<String>,
    /// The time limit.
    pub timeout: Duration,
    /// The stored artifact that was made in the same way. Nothing is fetched if the upstream still has its revision.
    pub known: Option<StoredArtifact>,
    /// Whether the platform asks: a tenant's request is bound to the addresses that an administrator allows to tenants.
    pub platform: bool,
}

/// The kind of credentials in the Secret of a Git repository: `spec.provider`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Provider {
    /// Credentials that a Git server accepts unchanged.
    #[default]
    Generic,
    /// A GitHub App, which gets tokens of GitHub.
    GitHub,
}

/// The objects that must be signed, and the trusted keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VerifyRequest {
    /// The objects that must be signed.
    pub mode: VerifyMode,
    /// Secret with the trusted public keys, in the repository's namespace, read as the plan's identity.
    pub secret: String,
}

/// The objects of a repository that a trusted key must have signed: the commit, the tag, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum VerifyMode {
    /// The commit.
    #[serde(rename = "HEAD")]
    Head,
    /// The tag that the spec names.
    Tag,
    /// The commit and the tag.
    #[serde(rename = "TagAndHEAD")]
    TagAndHead,
}

impl VerifyMode {
    /// Returns the mode as the spec and the status write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Head => "HEAD",
            Self::Tag => "Tag",
            Self::TagAndHead => "TagAndHEAD",
        }
    }

    /// Checks whether the commit has to be signed.
    #[must_use]
    pub fn needs_commit(self) -> bool {
        self != Self::Tag
    }

    /// Checks whether the tag has to be signed.
    #[must_use]
    pub fn needs_tag(self) -> bool {
        self != Self::Head
    }
}

/// Files of another repository that go into an artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IncludeRequest {
    /// Name of the repository, in the same namespace.
    pub name: String,
    /// The uid of the repository.
    pub uid: String,
    /// The stored artifact of the included repository.
    pub artifact: IncludedArtifact,
    /// Folder or file that is taken; all when empty.
    pub from: String,
    /// The target folder; empty for the root.
    pub to: String,
}
