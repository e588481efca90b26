//! The Snapshot of a Receiver, and the one thing that its plan does: read the Secret with the token.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure_api::{Receiver, ReceiverStatus};
use tenure_tenancy::{Placement, ServiceAccount};

use crate::plan::{self, Status};

/// A plan for a Receiver.
pub type Plan = crate::plan::Plan<Step, ServiceAccount, ReceiverStatus, Memory>;

/// What is known when a plan is made.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The Receiver as last read, status included.
    pub receiver: Receiver,
    /// Whose its namespace is.
    pub placement: Placement,
    /// Whether a request has shown that the token is another by now.
    #[serde(default)]
    pub is_outdated: bool,
    /// This attempt, and the answer to its step.
    pub attempt: Attempt,
    /// What the last plan left.
    #[serde(default)]
    pub memory: Memory,
}

impl Snapshot {
    /// Whether something has changed so that another plan could say something else.
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
    /// A new attempt for a Receiver.
    #[must_use]
    pub fn begin(receiver: &Receiver) -> Self {
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
    /// The path as it stands in a request.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why there is no token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenFailure {
    /// What is wrong; nothing of a Secret's content.
    pub message: String,
    /// Whether it is known that there is none; else nobody has answered.
    pub is_known: bool,
}

/// Something to do for a Receiver: nothing but this.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Step {
    /// Read this Secret of the Receiver's namespace. Answer: the attempt's `path`.
    ReadToken {
        /// Its name.
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

/// What the shell carries from plan to plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    /// Where requests are taken: what a status says of it is not believed.
    pub door: Option<HookPath>,
    /// What the Secret was last read for.
    pub read: Option<LastRead>,
    /// How many readings in a row have failed.
    pub failures: u32,
    /// What was found out about the expressions of a generation.
    pub checked: Option<CheckedFilters>,
}

/// What the Secret was last read for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastRead {
    /// When.
    pub at: Timestamp,
    /// For which object.
    pub uid: Option<String>,
    /// For which generation.
    pub generation: Option<i64>,
    /// For which request.
    pub requested_at: Option<String>,
}

/// What was found out about the expressions of a generation, so that they aren't compiled at each look.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckedFilters {
    /// Of which object.
    pub uid: Option<String>,
    /// Of which generation.
    pub generation: Option<i64>,
    /// What is wrong with one of them.
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
