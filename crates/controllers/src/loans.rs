//! What an object refers to in another lane's process, as it goes over the lines: who refers to what, and what the hub says of it. Owns no
//! decision: whether a reference leads anywhere is `tenancy`'s to say, and the hub asks it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure_api::{Condition, Kustomization};
use tenure_planner::artifact::ArtifactFacts;
use tenure_planner::kustomization::SourceFacts;
use tenure_sources::SourceKey;

/// The longest name of anything in Kubernetes.
const LONGEST_NAME: usize = 253;

/// A namespace's reference to an object of another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reference {
    /// Who refers.
    pub(crate) from: String,
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Reference {
    /// Whether no name is longer than there are.
    pub(crate) fn is_short(&self) -> bool {
        let names = [&self.from, &self.kind, &self.namespace, &self.name];
        names.iter().all(|name| name.len() <= LONGEST_NAME)
    }
}

/// What the hub says of it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum Loan {
    /// There is none, or it may not be referred to: which, is not told.
    Nothing,
    /// It is the lane's own, which hears of it by itself.
    Own,
    /// Nothing is known of it here, and why.
    Unknown(String),
    /// A source, and what was fetched.
    Source {
        uid: String,
        artifact: Option<ArtifactFacts>,
        conditions: Vec<Condition>,
    },
    /// A Kustomization.
    Kustomization(Value),
}

/// What a lane has of it.
#[derive(Clone, Debug)]
pub(crate) enum Borrowed {
    /// There is none, or it may not be referred to.
    Nothing,
    /// What was fetched is in the own store, under this key.
    Source { source: SourceKey, facts: SourceFacts },
    /// It is there.
    Kustomization(Arc<Kustomization>),
    /// Nothing is known of it, and why.
    Unknown(String),
}
