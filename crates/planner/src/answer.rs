//! What the cluster answered: to reads, dry-runs, writes and deletes. Facts only; what they mean is decided by the planners.

use serde::{Deserialize, Serialize};

use crate::object::Object;

/// A request that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Failure {
    /// HTTP status; 0 when there was no answer at all.
    pub code: u16,
    /// Kubernetes' Status reason: `Forbidden`, `Invalid`, `Conflict`, `NotFound`, `AlreadyExists`, …
    pub reason: String,
    /// Kubernetes' message, or what went wrong on the way.
    pub message: String,
}

impl Failure {
    /// Whether the same request may succeed later without anybody changing anything: no answer, overload, server error.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.code == 0 || self.code == 429 || self.code >= 500
    }
}

/// An object as read from the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Live {
    /// It does not exist.
    Absent,
    /// It exists.
    Present(Object),
    /// It could not be read.
    Failed(Failure),
}

impl Live {
    /// The object, if it exists.
    #[must_use]
    pub fn object(&self) -> Option<&serde_json::Value> {
        match self {
            Self::Present(object) => Some(&object.0),
            Self::Absent | Self::Failed(_) => None,
        }
    }
}

/// The answer to a write or a dry-run of one: the object as it is (or would be) after it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WriteAnswer {
    /// It was done.
    Done(Object),
    /// It was refused or failed.
    Failed(Failure),
}

/// The answer to a delete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DeleteAnswer {
    /// Accepted; the object may linger for its finalizers.
    Accepted,
    /// It did not exist (any more).
    Absent,
    /// It was refused or failed.
    Failed(Failure),
}

/// Whether the cluster serves a kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum KindAnswer {
    /// It does.
    Served(tenure_tenancy::reach::Scope),
    /// It does not.
    Unknown,
    /// It could not be asked.
    Failed(Failure),
}
