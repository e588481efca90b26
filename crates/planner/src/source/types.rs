//! The Snapshot of a source: everything that its plan may depend on; and what a kind of sources has to say of itself.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tenure_api::artifact::Artifact;
use tenure_api::reference::LocalObjectReference;
use tenure_api::{DurationText, ObjectMeta, condition, reason};
use tenure_tenancy::Placement;

use super::{Refusal, RequestBasis};
use crate::artifact::StoredArtifact;
use crate::artifact_address::ArtifactBase;
use crate::plan::{self, Status};

/// A kind of sources.
pub trait Source: Clone + fmt::Debug + Serialize + DeserializeOwned {
    /// Its status.
    type Status: SourceStatus;
    /// What is fetched for one: the one form of it, from the plan to the connection.
    type Request: FetchStep;
    /// What of the other objects of its namespace a plan for one depends on.
    type Beside: Clone + fmt::Debug + Default + PartialEq + Serialize + DeserializeOwned;

    /// Its name.
    const NAME: &'static str;
    /// The condition that says that another object has to be there first.
    const UNAVAILABLE: &'static str = condition::INCLUDE_UNAVAILABLE;

    /// Metadata of the object.
    fn metadata(&self) -> &ObjectMeta;

    /// Its status, if it has one.
    fn status(&self) -> Option<&Self::Status>;

    /// The fields that all kinds have.
    fn timing(&self) -> TimingFields<'_>;

    /// The fields that are set and not implemented.
    fn list_unimplemented(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// The value of the annotation that asks for a reconciliation now, of kinds that tell in their status that they have.
    fn requested_at(&self) -> Option<String> {
        crate::read_requested_at(self.metadata())
    }

    /// Whether its status is Tenure's to write: what somebody else makes tells of itself.
    fn has_own_status(&self, _beside: &Self::Beside) -> bool {
        true
    }

    /// Why nothing is done with it for now, whatever its own fields say.
    fn find_suspension(&self, _beside: &Self::Beside) -> Option<String> {
        None
    }

    /// How long it waits after it was fetched until another change beside it makes it fetch again: two that make each other change would
    /// take all the time there is.
    fn pause_beside(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether what is set can be fetched.
    ///
    /// # Errors
    /// A [`Refusal`], which stalls the object.
    fn check(&self) -> Result<(), Refusal>;

    /// What is read of the cluster for a fetch, by field.
    fn list_references(&self) -> Vec<SourceReference<'_>> {
        Vec::new()
    }

    /// Whether the other objects that it needs are there.
    ///
    /// # Errors
    /// An [`Obstacle`]: something to wait for, or a mistake.
    fn check_beside(&self, _beside: &Self::Beside) -> Result<(), Obstacle> {
        Ok(())
    }

    /// A text that is another one whenever something else of the other objects would be fetched with.
    fn mark_beside(_beside: &Self::Beside) -> String {
        String::new()
    }

    /// What is to be fetched, with what there is of other objects.
    fn write_request(&self, basis: RequestBasis, beside: &Self::Beside) -> Self::Request;

    /// Whether what is stored was verified.
    fn is_verified(&self) -> bool {
        false
    }

    /// What the condition about signatures says of what is stored.
    fn describe_verified(stored: &StoredArtifact) -> String {
        format!("verified signature of revision {}", stored.facts.revision)
    }

    /// What Ready says of what is stored.
    fn describe_stored(stored: &StoredArtifact) -> String;

    /// What the event about a new artifact says; `subject` is what the upstream says of it, and may be empty.
    fn describe_new(&self, stored: &StoredArtifact, subject: &str) -> String;

    /// Notes what of this kind's own fields the artifact was made with.
    fn note_observed(&self, _status: &mut Self::Status, _stored: &StoredArtifact) {}
}

/// The fields that all kinds of sources have.
pub struct TimingFields<'a> {
    /// `spec.suspend`.
    pub suspend: bool,
    /// `spec.interval`.
    pub interval: &'a DurationText,
    /// `spec.timeout`.
    pub timeout: Option<&'a DurationText>,
    /// `spec.ignore`.
    pub ignore: Option<&'a str>,
}

/// An object beside a source that a fetch needs.
pub struct SourceReference<'a> {
    /// The field that names it.
    pub field: &'static str,
    /// Its kind.
    pub kind: &'static str,
    /// Its name.
    pub name: &'a str,
}

/// What keeps a source from being fetched that is not its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Nothing will do until somebody changes an object.
    Refused(Refusal),
    /// Another object has to be there first.
    Unavailable {
        /// A word for it, as it stands in conditions.
        reason: &'static str,
        /// What is waited for.
        message: String,
    },
}

/// The status of a source.
pub trait SourceStatus: Status {
    /// What all kinds have, to be changed.
    fn parts(&mut self) -> StatusParts<'_>;

    /// The generation that it is about.
    fn observed_generation(&self) -> Option<i64>;

    /// The last request that was handled.
    fn last_handled(&self) -> Option<&str>;
}

/// What the statuses of all sources have besides conditions.
pub struct StatusParts<'a> {
    /// What was fetched last.
    pub artifact: &'a mut Option<Artifact>,
    /// What was acted on, in kinds that tell of it besides their conditions.
    pub observed: Option<ObservedParts<'a>>,
}

/// What a status says it was made for.
pub struct ObservedParts<'a> {
    /// Generation that the status is about.
    pub generation: &'a mut Option<i64>,
    /// `ignore` as it was when the artifact was made.
    pub ignore: &'a mut Option<String>,
    /// The last request that was handled.
    pub last_handled: &'a mut Option<String>,
}

/// Implements [`Status`] and [`SourceStatus`] for a status whose fields are called as Flux calls them.
macro_rules! implement_source_status {
    ($status:ty) => {
        impl crate::plan::Status for $status {
            fn conditions(&self) -> &[tenure_api::Condition] {
                &self.conditions
            }

            fn conditions_mut(&mut self) -> &mut Vec<tenure_api::Condition> {
                &mut self.conditions
            }
        }

        impl crate::source::SourceStatus for $status {
            fn parts(&mut self) -> crate::source::StatusParts<'_> {
                crate::source::StatusParts {
                    artifact: &mut self.artifact,
                    observed: Some(crate::source::ObservedParts {
                        generation: &mut self.observed_generation,
                        ignore: &mut self.observed_ignore,
                        last_handled: &mut self.last_handled_reconcile_at,
                    }),
                }
            }

            fn observed_generation(&self) -> Option<i64> {
                self.observed_generation
            }

            fn last_handled(&self) -> Option<&str> {
                self.last_handled_reconcile_at.as_deref()
            }
        }
    };
}
pub(crate) use implement_source_status;

/// What of [`Source`] is the same for kinds whose fields are called as Flux calls them.
macro_rules! implement_source_parts {
    () => {
        fn metadata(&self) -> &tenure_api::ObjectMeta {
            &self.metadata
        }

        fn status(&self) -> Option<&Self::Status> {
            self.status.as_ref()
        }

        fn timing(&self) -> crate::source::TimingFields<'_> {
            crate::source::TimingFields {
                suspend: self.spec.suspend,
                interval: &self.spec.interval,
                timeout: self.spec.timeout.as_ref(),
                ignore: self.spec.ignore.as_deref(),
            }
        }
    };
}
pub(crate) use implement_source_parts;

/// The Secrets that fields name.
pub(crate) fn name_secrets<'a>(
    named: impl IntoIterator<Item = (&'static str, Option<&'a LocalObjectReference>)>,
) -> impl Iterator<Item = SourceReference<'a>> {
    named.into_iter().filter_map(|(field, reference)| {
        Some(SourceReference {
            field,
            kind: "Secret",
            name: &reference?.name,
        })
    })
}

/// What is known when a plan is made.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", bound = "")]
pub struct Snapshot<S: Source> {
    /// The source as last read, status included.
    pub repository: S,
    /// Whose its namespace is.
    pub placement: Placement,
    /// What the artifact store holds for it; the status is not believed.
    #[serde(default)]
    pub stored: Option<StoredArtifact>,
    /// What is known of the other objects that it needs.
    #[serde(default)]
    pub beside: S::Beside,
    /// This attempt, and the answer to its step.
    pub attempt: Attempt,
    /// What the last plan left.
    #[serde(default)]
    pub memory: Memory,
    /// Where artifacts are served to others, if they are.
    #[serde(default)]
    pub advertised: Option<ArtifactBase>,
    /// The shortest interval that counts here; a second at least, whatever this is.
    #[serde(default)]
    pub least_interval: Duration,
}

impl<S: Source> Snapshot<S> {
    /// Takes the answer to the step of this attempt.
    pub fn take(&mut self, answer: Result<Fetched, FetchFailure>) {
        self.attempt.fetched = Some(answer);
    }

    /// Whether something has changed so that another plan could say something else.
    #[must_use]
    pub fn is_overtaken(&self, repository: &S, placement: &Placement, beside: &S::Beside) -> bool {
        let metadata = repository.metadata();
        let known = self.repository.metadata();
        self.attempt.generation != metadata.generation
            || self.attempt.requested_at != repository.requested_at()
            || known.uid != metadata.uid
            || known.deletion_timestamp != metadata.deletion_timestamp
            || self.placement != *placement
            || self.memory.beside != S::mark_beside(beside)
    }
}

/// One attempt: from a trigger until [`crate::Next::Done`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// When it began.
    pub started: Timestamp,
    /// Generation of the source when it began.
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
    /// A new attempt for a source.
    #[must_use]
    pub fn begin<S: Source>(now: Timestamp, repository: &S) -> Self {
        Self {
            started: now,
            generation: repository.metadata().generation,
            requested_at: repository.requested_at(),
            fetched: None,
        }
    }
}

/// What to fetch.
pub trait FetchStep: Clone + fmt::Debug + PartialEq + Serialize {
    /// Whether nothing of the cluster is read for it.
    fn is_public(&self) -> bool;

    /// Where from, as far as it may be shown.
    fn describe(&self) -> String;
}

/// Something to do for a source: nothing but this.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Step<R> {
    /// Fetch, with Secrets read as the plan's identity if any are named. Answer: the attempt's `fetched`.
    Fetch(Box<R>),
}

impl<R: FetchStep> plan::Step for Step<R> {
    fn is_public(&self) -> bool {
        let Self::Fetch(request) = self;
        request.is_public()
    }
}

impl<R: FetchStep> fmt::Display for Step<R> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Fetch(request) = self;
        write!(formatter, "fetch {}", request.describe())
    }
}

/// What a fetch found.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one of them for a fetch, for a moment"
)]
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
        /// What the upstream says of it: the first line of a commit's message.
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
    /// How long the server asks to be left alone, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
}

/// What failed of a fetch: Flux's reasons, all that occur.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum FetchReason {
    /// The URL can't be fetched from.
    #[serde(rename = "URLInvalid")]
    UrlInvalid,
    /// The Secret could not be read or used, or the server does not accept what is in it.
    AuthenticationFailed,
    /// The Secret is not of the kind that the provider takes.
    InvalidProviderConfiguration,
    /// Anything else between a Git repository and the archive.
    #[default]
    GitOperationFailed,
    /// The objects of a bucket could not be listed or fetched.
    BucketOperationFailed,
    /// It could not be made of what its sources have.
    BuildFailed,
    /// What somebody else made could not be fetched.
    SourceFetchFailed,
    /// What a registry has could not be listed.
    ReadOperationFailed,
    /// An artifact could not be found, or pulled from its registry.
    #[serde(rename = "OCIArtifactPullFailed")]
    OciArtifactPullFailed,
    /// An artifact's manifest or layer is not what can be worked with.
    #[serde(rename = "OCIArtifactLayerOperationFailed")]
    OciArtifactLayerOperationFailed,
    /// A signature could not be verified.
    VerificationError,
    /// What is to be verified is not signed.
    InvalidGitObject,
    /// The signature of a tag is not good.
    InvalidTagSignature,
    /// The signature of a commit is not good.
    InvalidCommitSignature,
    /// It was fetched and could not be stored.
    ArchiveOperationFailed,
    /// What is to be included could not be put where it belongs.
    CopyFailure,
}

impl FetchReason {
    /// The word as it stands in conditions and events.
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
    /// Until when the server asked to be left alone.
    pub not_before: Option<Timestamp>,
    /// The generation that the last of them was for.
    pub failed_generation: Option<i64>,
    /// The mark of what was known of other objects when it was last asked, or had to wait.
    pub beside: String,
}
