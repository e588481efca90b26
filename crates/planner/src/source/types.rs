//! The Snapshot of a source, with everything that its plan may depend on, and the trait that each kind of sources implements.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tenure_api::artifact::Artifact;
use tenure_api::reference::LocalObjectReference;
use tenure_api::{DurationText, ObjectMeta, condition, reason};
use tenure_remote_requests::fetch::{FetchFailure, Fetched};
use tenure_tenancy::Placement;

use super::{RequestBasis, SourceRefusal};
use crate::artifact_address::ArtifactBase;
use crate::plan::{self, Status};
use tenure_remote_requests::artifact::StoredArtifact;

/// A kind of sources, such as GitRepository: the fields and checks by which the common planner handles it.
pub trait Source: Clone + fmt::Debug + Serialize + DeserializeOwned {
    /// The status of the kind.
    type Status: SourceStatus;
    /// The fetch request of the kind, which the plan creates and the fetcher executes.
    type Request: FetchStep;
    /// The facts about other objects of the namespace that a plan for this kind depends on, such as included repositories.
    type RelatedObjects: Clone + fmt::Debug + Default + PartialEq + Serialize + DeserializeOwned;

    /// The name of the kind.
    const NAME: &'static str;
    /// The condition type for another object that must exist first.
    const UNAVAILABLE: &'static str = condition::INCLUDE_UNAVAILABLE;

    /// Returns the metadata of the object.
    fn metadata(&self) -> &ObjectMeta;

    /// Returns the status of the object, if it has one.
    fn status(&self) -> Option<&Self::Status>;

    /// Returns the fields that all kinds have.
    fn timing(&self) -> TimingFields<'_>;

    /// Lists the fields that are set and not implemented.
    fn list_unimplemented(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Reads the annotation that requests a reconciliation now, for kinds whose status reports the handled request.
    fn requested_at(&self) -> Option<String> {
        crate::read_requested_at(self.metadata())
    }

    /// Checks whether Tenure may write the status: another controller writes the status of its own objects.
    fn has_own_status(&self, _beside: &Self::RelatedObjects) -> bool {
        true
    }

    /// Checks whether the object only names an upstream, which other objects fetch from: then it has no artifact and no status.
    fn is_static(&self) -> bool {
        false
    }

    /// Returns the reason why the object is not reconciled for now, independent of its own `spec.suspend`.
    fn find_suspension(&self, _beside: &Self::RelatedObjects) -> Option<String> {
        None
    }

    /// Returns the time after a fetch until a change of other objects causes the next fetch. Two objects that change each other would otherwise fetch without end.
    fn pause_beside(&self) -> Duration {
        Duration::ZERO
    }

    /// Checks whether the spec can be fetched.
    ///
    /// # Errors
    /// A [`SourceRefusal`], which stalls the object.
    fn check(&self) -> Result<(), SourceRefusal>;

    /// Lists the objects of the cluster that a fetch reads, by field.
    fn list_references(&self) -> Vec<SourceReference<'_>> {
        Vec::new()
    }

    /// Lists the objects of the cluster that a fetch reads because another object names them, by field of that object.
    fn list_references_beside(_beside: &Self::RelatedObjects) -> Vec<SourceReference<'_>> {
        Vec::new()
    }

    /// Checks whether the other objects that the source needs exist.
    ///
    /// # Errors
    /// An [`Obstacle`]: something to wait for, or a mistake.
    fn check_beside(&self, _beside: &Self::RelatedObjects) -> Result<(), Obstacle> {
        Ok(())
    }

    /// Writes a text that changes when the other objects change in a way that requires another fetch.
    fn mark_beside(_beside: &Self::RelatedObjects) -> String {
        String::new()
    }

    /// Writes the request of the fetch, with the existing other objects.
    fn write_request(&self, basis: RequestBasis, beside: &Self::RelatedObjects) -> Self::Request;

    /// Checks whether the stored artifact was verified.
    fn is_verified(&self) -> bool {
        false
    }

    /// Describes the stored artifact for the condition about signatures.
    fn describe_verified(stored: &StoredArtifact) -> String {
        format!("verified signature of revision {}", stored.facts.revision)
    }

    /// Describes the stored artifact for the condition Ready.
    fn describe_stored(stored: &StoredArtifact) -> String;

    /// Returns the reasons of the condition Ready and of the event, if the artifact is stored.
    fn name_success(_stored: &StoredArtifact) -> SuccessReasons {
        SuccessReasons {
            ready: reason::SUCCEEDED,
            event: reason::NEW_ARTIFACT,
        }
    }

    /// Describes a new artifact for its event; `subject` is the upstream's description, and may be empty.
    fn describe_new(&self, stored: &StoredArtifact, subject: &str) -> String;

    /// Writes the fields of this kind with which the artifact was made into the status.
    fn note_observed(&self, _status: &mut Self::Status, _stored: &StoredArtifact, _beside: &Self::RelatedObjects) {}
}

/// The reasons for a stored artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuccessReasons {
    /// The reason of the conditions.
    pub ready: &'static str,
    /// The reason of the event about a new artifact.
    pub event: &'static str,
}

/// The fields about timing and content that all kinds of sources have.
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

/// A reference from a source to an object that a fetch reads, such as a Secret.
pub struct SourceReference<'a> {
    /// The field that names the object.
    pub field: &'static str,
    /// The kind of the object.
    pub kind: &'static str,
    /// The name of the object.
    pub name: &'a str,
}

/// The reason why the other objects of the namespace don't allow a fetch now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The fetch is pointless until a user changes an object.
    Refused(SourceRefusal),
    /// Another object must exist first.
    Unavailable {
        /// The reason, as conditions show it.
        reason: &'static str,
        /// The object or state that the source waits for.
        message: String,
    },
}

/// The status of a kind of sources: the parts that the common planner reads and writes.
pub trait SourceStatus: Status {
    /// Returns the parts that all kinds have, for changes.
    fn parts(&mut self) -> StatusParts<'_>;

    /// Returns the generation that the status is about.
    fn observed_generation(&self) -> Option<i64>;

    /// Returns the last request that was handled.
    fn last_handled(&self) -> Option<&str>;
}

/// The parts of the statuses of all sources besides conditions.
pub struct StatusParts<'a> {
    /// The last fetched artifact.
    pub artifact: &'a mut Option<Artifact>,
    /// The inputs of the artifact, for kinds whose status reports them besides conditions.
    pub observed: Option<ObservedParts<'a>>,
}

/// The status fields that report the inputs of the artifact, for changes.
pub struct ObservedParts<'a> {
    /// Generation that the status is about.
    pub generation: &'a mut Option<i64>,
    /// `ignore` as it was when the artifact was made, for kinds that have it.
    pub ignore: Option<&'a mut Option<String>>,
    /// The last request that was handled.
    pub last_handled: &'a mut Option<String>,
}

/// Implements [`Status`] and [`SourceStatus`] for a status whose fields have Flux's names; `without ignore` for a kind that has no patterns of files.
macro_rules! implement_source_status {
    ($status:ty) => {
        crate::source::implement_source_status!($status, |status| Some(&mut status.observed_ignore));
    };
    ($status:ty, without ignore) => {
        crate::source::implement_source_status!($status, |status| None);
    };
    ($status:ty, |$own:ident| $ignore:expr) => {
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
                let $own = self;
                crate::source::StatusParts {
                    artifact: &mut $own.artifact,
                    observed: Some(crate::source::ObservedParts {
                        generation: &mut $own.observed_generation,
                        ignore: $ignore,
                        last_handled: &mut $own.last_handled_reconcile_at,
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

/// Implements the part of [`Source`] that is equal for kinds whose fields have Flux's names.
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

/// Lists the Secrets that fields name.
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

/// The input of a plan for a source of kind `S`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", bound = "")]
pub struct Snapshot<S: Source> {
    /// The source as last read, status included.
    pub repository: S,
    /// The owner of the source's namespace.
    pub placement: Placement,
    /// The artifact in the artifact store. The status is no evidence of it.
    #[serde(default)]
    pub stored: Option<StoredArtifact>,
    /// The known facts about the other objects that the source needs.
    #[serde(default)]
    pub beside: S::RelatedObjects,
    /// The current attempt, and the answer to its step.
    pub attempt: Attempt,
    /// The state that the last plan left.
    #[serde(default)]
    pub memory: Memory,
    /// The base URL at which artifacts are served to other clients, if they are served.
    #[serde(default)]
    pub advertised: Option<ArtifactBase>,
    /// The shortest effective interval. It is at least one second, even if this value is shorter.
    #[serde(default)]
    pub least_interval: Duration,
}

impl<S: Source> Snapshot<S> {
    /// Takes the answer to the step of this attempt.
    pub fn record_answer(&mut self, answer: Result<Fetched, FetchFailure>) {
        self.attempt.fetched = Some(answer);
    }

    /// Checks whether something has changed so that another plan could differ.
    #[must_use]
    pub fn is_overtaken(&self, repository: &S, placement: &Placement, beside: &S::RelatedObjects) -> bool {
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
    /// The start of the attempt.
    pub started: Timestamp,
    /// Generation of the source at the start.
    #[serde(default)]
    pub generation: Option<i64>,
    /// Value of the annotation `reconcile.fluxcd.io/requestedAt` at the start.
    #[serde(default)]
    pub requested_at: Option<String>,
    /// The answer to the fetch.
    #[serde(default)]
    pub fetched: Option<Result<Fetched, FetchFailure>>,
}

impl Attempt {
    /// Starts a new attempt for a source.
    #[must_use]
    pub fn new<S: Source>(now: Timestamp, repository: &S) -> Self {
        Self {
            started: now,
            generation: repository.metadata().generation,
            requested_at: repository.requested_at(),
            fetched: None,
        }
    }
}

/// The request of a fetch.
pub trait FetchStep: Clone + fmt::Debug + PartialEq + Serialize {
    /// Checks whether the fetch reads nothing in the cluster.
    fn is_public(&self) -> bool;

    /// Describes the address, without confidential parts.
    fn describe(&self) -> String;
}

/// The only step for a source.
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

/// The state that the shell carries from plan to plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    /// The time of the last request to the upstream.
    pub last_asked: Option<Timestamp>,
    /// The number of failed fetches in a row.
    pub failures: u32,
    /// The end of the pause that the server asked for.
    pub not_before: Option<Timestamp>,
    /// The generation that the last failed fetch was for.
    pub failed_generation: Option<i64>,
    /// [`Source::mark_beside`] at the last fetch, or at the last wait.
    pub beside: String,
}
