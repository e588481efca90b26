//! The cluster's answers to reads, dry-runs, writes and deletions. This module holds facts only; planners decide their meaning.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tenure_api::ObjectId;

use crate::object::Object;
use crate::plan::KindReference;

pub use crate::refusal::{Cause, CauseKind, Failure, Reason};

/// The result of a read of an object: the object, its absence, or the failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Live {
    /// The object does not exist: the API server knows the kind, and answered that there is no such object.
    Absent,
    /// The cluster serves no version of the object's kind, by a complete and fresh discovery: the definition is gone, and its objects with it.
    Unserved,
    /// The object exists.
    Present(Object),
    /// The object could not be read, so nothing is known of it.
    Failed(Failure),
}

impl Live {
    /// Returns the object, if it exists.
    #[must_use]
    pub fn object(&self) -> Option<&serde_json::Value> {
        match self {
            Self::Present(object) => Some(&object.0),
            Self::Absent | Self::Unserved | Self::Failed(_) => None,
        }
    }

    /// Checks whether the object is known not to exist.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Absent | Self::Unserved)
    }
}

/// The answer to a write or its dry-run: the object as it is (or would be) afterwards.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WriteAnswer {
    /// The write was done.
    Done(Object),
    /// The write was refused or failed.
    Failed(Failure),
}

/// The answer to a delete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DeleteAnswer {
    /// Accepted; the object may linger for its finalizers.
    Accepted,
    /// The object did not exist, or does not exist any more.
    Absent,
    /// The object was not deleted: it is not the observed object, or not its observed version.
    Changed {
        /// The version of the observed object.
        resource_version: Option<String>,
        /// The number of such answers in this attempt.
        times: u32,
        /// Whether the object was read since, so that its known state is newer than the change. If the version is unchanged, the deletion failed for another reason.
        #[serde(default)]
        looked_again: bool,
    },
    /// The deletion was refused or failed.
    Failed(Failure),
}

impl DeleteAnswer {
    /// Stores the answer to a delete. For [`DeleteAnswer::Changed`], adds the number of earlier such answers about the object.
    pub fn insert_counted(answers: &mut BTreeMap<ObjectId, Self>, id: ObjectId, mut answer: Self) {
        if let (Self::Changed { times, .. }, Some(Self::Changed { times: before, .. })) =
            (&mut answer, answers.get(&id))
        {
            *times = before.saturating_add(*times);
        }
        answers.insert(id, answer);
    }

    /// Sets `looked_again` after a read of the object, if the last answer about it is [`DeleteAnswer::Changed`].
    pub fn look_again(answers: &mut BTreeMap<ObjectId, Self>, id: &ObjectId) {
        if let Some(Self::Changed { looked_again, .. }) = answers.get_mut(id) {
            *looked_again = true;
        }
    }
}

/// The answer to a [`Request`](crate::Request) of a plan, one variant for each kind of request.
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
    /// To [`Request::Create`](crate::Request::Create).
    Created(ObjectId, WriteAnswer),
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
        /// True if the namespace has more owners than the bound allows to list.
        more: bool,
    },
    /// The claims could not be listed.
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

/// The state of an object that an answer to a request shows. It is used until a watch reports a newer state.
pub type ImpliedState = Option<(ObjectId, Live)>;

/// The answer of API discovery about one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum KindAnswer {
    /// The cluster serves the kind, with this scope.
    Served(tenure_tenancy::write_scope::Scope),
    /// The cluster doesn't serve the kind, by a complete and fresh discovery.
    Unknown,
    /// Discovery failed, so it is unknown whether the cluster serves the kind.
    Failed(Failure),
}
