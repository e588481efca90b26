//! One fetch from beginning to end: list the references, stop if nothing changed, else receive, verify and store.

use crate::artifact::{Artifact, ArtifactStore};
use crate::error::FetchError;
use crate::limits::Limits;
use crate::policy::Policy;
use crate::request::GitRequest;

/// What a fetch found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fetched {
    /// The remote revision and everything else that decides the content are those of the previous artifact.
    Unchanged {
        /// The revision, as in the previous artifact.
        revision: String,
    },
    /// A new artifact was stored.
    New {
        /// What to write into `status.artifact`.
        artifact: Artifact,
        /// The commit it was made from.
        commit: Commit,
    },
}

/// What people want to know about a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// The id in hex.
    pub id: String,
    /// The author's name and address, `Name <address>`.
    pub author: String,
    /// The first line of the message.
    pub subject: String,
    /// When it was committed, in seconds since 1970 (UTC).
    pub time: i64,
}

/// Fetches what the request names, if it isn't the previous artifact already.
///
/// Cancel it by dropping the future: connections close and work on other threads stops.
///
/// # Errors
/// A [`FetchError`] that says what failed and what to do; [`FetchError::reason`] is the condition's reason and
/// [`FetchError::transient`] says whether trying again may help.
pub async fn fetch(
    request: &GitRequest,
    policy: &Policy,
    limits: &Limits,
    store: &ArtifactStore,
    previous: Option<&Artifact>,
) -> Result<Fetched, FetchError> {
    let _ = (policy, limits, store, previous);
    Err(FetchError::Protocol {
        url: request.url.to_string(),
        problem: "the transport is not connected yet".to_owned(),
    })
}
