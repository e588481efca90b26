//! What the cluster answered: to reads, dry-runs, writes and deletes. Facts only; what they mean is decided by the planners.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tenure_api::ObjectId;

use crate::object::Object;
use crate::plan::KindReference;

pub use crate::refusal::{Cause, CauseKind, Failure, Reason};

/// An object as read from the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Live {
    /// It does not exist: the API server knows its kind, and answered that there is no such object.
    Absent,
    /// No version of its kind is served, by discovery that was whole and fresh: what defined it is gone, and it with that.
    Unserved,
    /// It exists.
    Present(Object),
    /// It could not be read, so nothing is known of it.
    Failed(Failure),
}

impl Live {
    /// The object, if it exists.
    #[must_use]
    pub fn object(&self) -> Option<&serde_json::Value> {
        match self {
            Self::Present(object) => Some(&object.0),
            Self::Absent | Self::Unserved | Self::Failed(_) => None,
        }
    }

    /// Whether it is known that there is none.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Absent | Self::Unserved)
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
    /// It was not deleted: it is not the object, or not the version of it, that was looked at.
    Changed {
        /// The version that was looked at.
        resource_version: Option<String>,
        /// How often that happened in this attempt.
        times: u32,
        /// Whether the object was read since: what is known of it now is not from before the change. When it is the same as
        /// before, something else was in the way of the deletion.
        #[serde(default)]
        looked_again: bool,
    },
    /// It was refused or failed.
    Failed(Failure),
}

impl DeleteAnswer {
    /// Puts an answer among those of an attempt; how often an object had changed is counted.
    pub fn put(answers: &mut BTreeMap<ObjectId, Self>, id: ObjectId, mut answer: Self) {
        if let (Self::Changed { times, .. }, Some(Self::Changed { times: before, .. })) =
            (&mut answer, answers.get(&id))
        {
            *times = before.saturating_add(*times);
        }
        answers.insert(id, answer);
    }

    /// Notes that an object was read, after it may have been found changed.
    pub fn look_again(answers: &mut BTreeMap<ObjectId, Self>, id: &ObjectId) {
        if let Some(Self::Changed { looked_again, .. }) = answers.get_mut(id) {
            *looked_again = true;
        }
    }
}

/// The answer to one step that is a request to the cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// To [`Request::ResolveKinds`](crate::Request::ResolveKinds), for each kind.
    Kind(KindReference, KindAnswer),
    /// To [`Request::Read`](crate::Request::Read).
    Live(ObjectId, Live),
    /// To [`Request::DryRun`](crate::Request::DryRun).
    DryRun(ObjectId, WriteAnswer),
    /// To [`Request::Try`](crate::Request::Try).
    Tried(ObjectId, WriteAnswer),
    /// To [`Request::Apply`](crate::Request::Apply).
    Applied(ObjectId, WriteAnswer),
    /// To [`Request::TakeOver`](crate::Request::TakeOver).
    TakenOver(ObjectId, WriteAnswer),
    /// To [`Request::Disown`](crate::Request::Disown). `Null` stands for an object that is gone.
    Disowned(ObjectId, WriteAnswer),
    /// To [`Request::Release`](crate::Request::Release). `Null` stands for an object that is gone.
    Released(ObjectId, WriteAnswer),
    /// To [`Request::FindClaims`](crate::Request::FindClaims), for the namespace.
    Claims(String, ClaimsAnswer),
    /// To [`Request::TryDelete`](crate::Request::TryDelete).
    TriedDelete(ObjectId, DeleteAnswer),
    /// To [`Request::Delete`](crate::Request::Delete).
    Deleted(ObjectId, DeleteAnswer),
}

/// The owners of the PersistentVolumeClaims of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ClaimsAnswer {
    /// The claims were listed.
    Found {
        /// The owners that they name, each once.
        owners: Vec<ClaimOwner>,
        /// Whether there are more than were taken.
        more: bool,
    },
    /// They could not be listed.
    Failed(Failure),
}

/// An entry of `ownerReferences`. The owner is in the namespace of the object that names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimOwner {
    /// `group/version`, or `version` for the core group.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
}

/// What an answer tells of an object besides: as what it is now to be looked at, until a watch tells something newer.
pub type Told = Option<(ObjectId, Live)>;

/// Whether the cluster serves a kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum KindAnswer {
    /// It does.
    Served(tenure_tenancy::reach::Scope),
    /// It does not, by discovery that was whole and fresh.
    Unknown,
    /// Discovery could not tell.
    Failed(Failure),
}
