//! How a GitRepository is reconciled: asked at its interval, fetched with a Secret that is read as the namespace's identity.

mod types;

pub use types::{Attempt, FetchFailure, FetchOutcome, FetchRequest, Memory, Snapshot, StoredArtifact};

/// A plan for a GitRepository.
pub type Plan = crate::plan::Plan<Memory>;
