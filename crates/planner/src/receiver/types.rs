//! The Snapshot of a Receiver, and the only step of its plan: a read of the Secret with the token.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure_api::{Receiver, ReceiverStatus};
use tenure_tenancy::{Placement, ServiceAccount};

use crate::plan::{self, Status};

/// A plan for a Receiver.
pub type Plan = crate::plan::Plan<Step, ServiceAccount, ReceiverStatus, Memory>;

/// The input of a plan for a Receiver.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The Receiver as last read, status included.
    pub receiver: Receiver,
    /// The owner of the Receiver's namespace.
    pub placement: Placement,
    /// Whether a request has shown that the Secret now has another token.
    #[serde(default)]
    pub is_outdated: bool,
    /// Whether a listener takes requests for Receivers.
    pub has_listener: bool,
    /// The current attempt, and the answer to its step.
    pub attempt: Attempt,
    /// The state that the last plan left.
    #[serde(default)]
    pub memory: Memory,
}

impl Snapshot {
    /// Checks whether the Receiver or its tenancy has changed since the last plan, so that another plan could differ.
    #[must_use]
    pub fn is_overtaken(&self, receiver: &Receiver, placement: &Placement) -> bool {
        let (metadata, known) = (&receiver.metadata, &self.receiver.metadata);
        self.attempt.generation != metadata.generation
            || self.attempt.requested_at != crate::read_requested_at(metadata)
            || known.uid != metadata.uid
            || known.deletion_timestamp != metadata.deletion_timestamp
            || self.placement != *placement
    }
}

/// One attempt: from a trigger until [`crate::Next::Done`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// Generation of the Receiver when it began.
    #[serde(default)]
    pub generation: Option<i64>,
    /// Value of the annotation `reconcile.fluxcd.io/requestedAt` when it began.
    #[serde(default)]
    pub requested_at: Option<String>,
    /// Answer to the step: the path that follows from the token.
    #[serde(default)]
    pub path: Option<Result<HookPath, TokenFailure>>,
}

impl Attempt {
    /// Starts a new attempt for a Receiver.
    #[must_use]
    pub fn new(receiver: &Receiver) -> Self {
        Self {
            generation: receiver.metadata.generation,
            requested_at: crate::read_requested_at(&receiver.metadata),
            path: None,
        }
    }
}

/// The path of a Receiver's requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HookPath(pub(super) String);

impl HookPath {
    /// Returns the path as it appears in a request.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The reason why a token is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenFailure {
    /// The problem, without any content of a Secret.
    pub message: String,
    /// True if the Secret or its key is known to be missing. Otherwise the API server gave no answer.
    pub is_known: bool,
}

/// The only step of a plan for a Receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Step {
    /// Read this Secret of the Receiver's namespace. Answer: the attempt's `path`.
    ReadToken {
        /// The name of the Secret.
        secret: String,
    },
}

impl plan::Step for Step {
    fn is_public(&self) -> bool {
        false
    }
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::ReadToken { secret } = self;
        write!(formatter, "read the token of Secret {secret}")
    }
}

/// The state that the shell carries from plan to plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    /// The path for requests. The path in a status is no evidence of it.
    #[serde(rename = "door")]
    pub hook_path: Option<HookPath>,
    /// The input of the last read of the Secret.
    pub read: Option<LastRead>,
    /// The number of failed reads in a row.
    pub failures: u32,
    /// The check of the expressions of one generation.
    pub checked: Option<CheckedFilters>,
}

/// The input of the last read of the Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastRead {
    /// The time of the read.
    pub at: Timestamp,
    /// The uid of the Receiver.
    pub uid: Option<String>,
    /// The generation of the Receiver.
    pub generation: Option<i64>,
    /// The `requestedAt` of the Receiver.
    pub requested_at: Option<String>,
}

/// The check of the expressions of one generation. It is stored so that they aren't compiled at each look.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckedFilters {
    /// The uid of the Receiver.
    pub uid: Option<String>,
    /// The generation of the Receiver.
    pub generation: Option<i64>,
    /// The problem of an expression, if there is one.
    pub problem: Option<String>,
}

impl Status for ReceiverStatus {
    fn conditions(&self) -> &[tenure_api::Condition] {
        &self.conditions
    }

    fn conditions_mut(&mut self) -> &mut Vec<tenure_api::Condition> {
        &mut self.conditions
    }
}
