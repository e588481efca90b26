//! The Snapshot of a GitRepository: everything that its plan may depend on.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure_api::git_repository::GitRepositoryRef;
use tenure_api::{GitRepository, SourceUrl, reason};
use tenure_tenancy::Placement;

use crate::artifact::StoredArtifact;
use crate::plan;

/// What is known when a plan is made.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The GitRepository as last read, status included.
    pub repository: GitRepository,
    /// Whose its namespace is.
    pub placement: Placement,
    /// What the artifact store holds for it; the status is not believed.
    #[serde(default)]
    pub stored: Option<StoredArtifact>,
    /// This attempt, and the answer to its step.
    pub attempt: Attempt,
    /// What the last plan left.
    #[serde(default)]
    pub memory: Memory,
}

impl Snapshot {
    /// Takes the answer to the step of this attempt.
    pub fn take(&mut self, answer: Result<Fetched, FetchFailure>) {
        self.attempt.fetched = Some(answer);
    }

    /// Whether something has changed so that another plan could say something else.
    #[must_use]
    pub fn is_overtaken(&self, repository: &GitRepository, placement: &Placement) -> bool {
        let metadata = &repository.metadata;
        self.attempt.generation != metadata.generation
            || self.attempt.requested_at != crate::read_requested_at(metadata)
            || self.repository.metadata.uid != metadata.uid
            || self.repository.metadata.deletion_timestamp != metadata.deletion_timestamp
            || self.placement != *placement
    }
}

/// One attempt: from a trigger until [`crate::Next::Done`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// When it began.
    pub started: Timestamp,
    /// Generation of the GitRepository when it began.
    #[serde(default)]
    pub generation: Option<i64>,
    /// Value of the annotation `reconcile.fluxcd.io/requestedAt` when it began.
    #[serde(default)]
    pub requested_at: Option<String>,
    /// Answer to the fetch.
    #[serde(default)]
    pub fetched: Option<Result<Fetched, FetchFailure>>,
}

impl Attempt {
    /// A new attempt for a GitRepository.
    #[must_use]
    pub fn begin(now: Timestamp, repository: &GitRepository) -> Self {
        Self {
            started: now,
            generation: repository.metadata.generation,
            requested_at: crate::read_requested_at(&repository.metadata),
            fetched: None,
        }
    }
}

/// What to fetch: the one form of it, from the plan to the connection. `sources` reads its address and its reference, and the Secret's
/// data beside it, and keeps what it read to itself, because that holds credentials.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FetchRequest {
    /// Address. A plan that is printed, as text or as data, holds no more of it than may be shown.
    #[serde(serialize_with = "SourceUrl::serialize_shown")]
    pub url: SourceUrl,
    /// Which revision, Flux's precedence: commit, name, semver, tag, branch (`master`).
    pub reference: GitRepositoryRef,
    /// Secret with the credentials, in the repository's namespace, read as the plan's identity.
    pub secret: Option<String>,
    /// Patterns of files to leave out.
    pub ignore: Option<String>,
    /// How long it may take.
    pub timeout: Duration,
    /// What is stored already and was made the same way: nothing is fetched when the upstream still has its revision.
    pub known: Option<StoredArtifact>,
    /// Whether the platform asks: a tenant's request is bound to the addresses that an administrator allows to tenants.
    pub platform: bool,
}

/// Something to do for a GitRepository: nothing but this.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Step {
    /// Fetch, with a Secret read as the plan's identity if one is named. Answer: the attempt's `fetched`.
    Fetch(Box<FetchRequest>),
}

impl plan::Step for Step {
    fn is_public(&self) -> bool {
        let Self::Fetch(request) = self;
        request.secret.is_none()
    }
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Fetch(request) = self;
        write!(formatter, "fetch {}", request.url)
    }
}

/// What a fetch found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Fetched {
    /// The upstream still has the known artifact's revision, and everything else that decides the content is as it was.
    Unchanged {
        /// The revision.
        revision: String,
    },
    /// Another revision was fetched and stored.
    Stored {
        /// What is stored.
        artifact: StoredArtifact,
        /// First line of the commit's message.
        #[serde(default)]
        subject: Option<String>,
    },
}

/// Why a fetch failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FetchFailure {
    /// What failed.
    pub reason: FetchReason,
    /// What went wrong, without credentials.
    pub message: String,
    /// Whether trying again is pointless until somebody changes the object.
    pub terminal: bool,
}

/// What failed of a fetch: Flux's reasons, all that occur.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum FetchReason {
    /// The URL can't be fetched from.
    #[serde(rename = "URLInvalid")]
    UrlInvalid,
    /// The Secret could not be read or used, or the server does not accept what is in it.
    AuthenticationFailed,
    /// Anything else between the upstream and the archive.
    #[default]
    GitOperationFailed,
    /// It was fetched and could not be stored.
    ArchiveOperationFailed,
}

impl FetchReason {
    /// The word as it stands in conditions and events.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UrlInvalid => reason::URL_INVALID,
            Self::AuthenticationFailed => reason::AUTHENTICATION_FAILED,
            Self::GitOperationFailed => reason::GIT_OPERATION_FAILED,
            Self::ArchiveOperationFailed => reason::ARCHIVE_OPERATION_FAILED,
        }
    }
}

/// What the shell carries from plan to plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    /// When the upstream was last asked.
    pub last_asked: Option<Timestamp>,
    /// How many fetches in a row have failed.
    pub failures: u32,
    /// The generation that the last of them was for.
    pub failed_generation: Option<i64>,
}
