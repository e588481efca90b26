//! References into another lane's process, and the hub's answers to them, in the form in which they go over the lines. The hub asks `tenancy` whether
//! a reference may lead to its target.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure_api::{Condition, Kustomization};
use tenure_planner::kustomization::SourceFacts;
use tenure_remote_requests::artifact::ArtifactFacts;
use tenure_sources::SourceKey;

/// The length limit of a name in Kubernetes.
const LONGEST_NAME: usize = 253;

/// A namespace's reference to an object of another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reference {
    /// The namespace of the referring object.
    pub(crate) from: String,
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Reference {
    /// Checks whether all names are within the length limit.
    pub(crate) fn is_short(&self) -> bool {
        let names = [&self.from, &self.kind, &self.namespace, &self.name];
        names.iter().all(|name| name.len() <= LONGEST_NAME)
    }
}

/// The hub's answer to a reference.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum ReferenceAnswer {
    /// The target is missing, or the reference is not allowed. The lane does not learn which.
    Nothing,
    /// The target belongs to the lane itself, which has it already.
    Own,
    /// The target's state is unknown here, for this reason.
    Unknown(String),
    /// A source, and its fetched artifact.
    Source {
        uid: String,
        artifact: Option<ArtifactFacts>,
        conditions: Vec<Condition>,
    },
    /// A Kustomization.
    Kustomization(Value),
}

/// The lane's copy of a borrowed object.
#[derive(Clone, Debug)]
pub(crate) enum BorrowedObject {
    /// The target is missing, or the reference is not allowed.
    Nothing,
    /// The artifact is in the lane's own store, under this key.
    Source { source: SourceKey, facts: SourceFacts },
    /// The Kustomization exists.
    Kustomization(Arc<Kustomization>),
    /// The target's state is unknown, for this reason.
    Unknown(String),
}
