//! The Snapshot of a GitRepository: everything that its plan may depend on.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure_api::git_repository::GitRepositoryRef;
use tenure_api::{GitRepository, SourceUrl};
use tenure_tenancy::Placement;

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
    pub fn take(&mut self, outcome: FetchOutcome) {
        self.attempt.fetched = Some(outcome);
    }

    /// Whether something has changed so that another plan could say something else.
    #[must_use]
    pub fn is_overtaken(&self, repository: &GitRepository, placement: &Placement) -> bool {
        let metadata = &repository.metadata;
        self.attempt.generation != metadata.generation
            || self.attempt.requested_at != crate::requested_at(metadata)
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
    pub fetched: Option<FetchOutcome>,
}

impl Attempt {
    /// A new attempt for a GitRepository.
    #[must_use]
    pub fn begin(now: Timestamp, repository: &GitRepository) -> Self {
        Self {
            started: now,
            generation: repository.metadata.generation,
            requested_at: crate::requested_at(&repository.metadata),
            fetched: None,
        }
    }
}

/// What to fetch.
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
    /// How long it may take, in milliseconds.
    pub timeout_milliseconds: u64,
    /// Revision that is stored already and was made the same way: nothing is fetched when the upstream still has it.
    pub known_revision: Option<String>,
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

/// How a fetch ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FetchOutcome {
    /// The upstream still has the known revision.
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
    /// It failed.
    Failed(FetchFailure),
}

/// What is in the artifact store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StoredArtifact {
    /// Revision in Flux's form.
    pub revision: String,
    /// Digest, `sha256:<hex>`.
    pub digest: String,
    /// Size in bytes.
    pub size: u64,
    /// Path within the store.
    pub path: String,
    /// When it was stored.
    pub stored_at: Option<Timestamp>,
    /// `spec.ignore` that it was made with.
    pub ignore: Option<String>,
}

/// Why a fetch failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FetchFailure {
    /// Flux's reason: `GitOperationFailed`, `AuthenticationFailed`, `URLInvalid`, …
    pub reason: String,
    /// What went wrong, without credentials.
    pub message: String,
    /// Whether trying again is pointless until somebody changes the object.
    pub terminal: bool,
    /// Whether storing failed, not fetching.
    pub storage: bool,
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
