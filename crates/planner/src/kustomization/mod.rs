//! How a Kustomization is reconciled.
//!
//! The phases, each a file, in the order in which a plan passes them; the first that has something to do ends the plan:
//! admit (may it, by whom, is everything set implemented) → source and dependencies → render → resolve kinds → apply, stage by
//! stage → prune → health → status.

mod types;

pub use types::{
    ArtifactFacts, Attempt, BackOff, DependencyFacts, Memory, RenderFailure, Rendered, Reversal, ServiceAccountFacts,
    Settled, Snapshot, SourceFacts, requested_at,
};

/// A plan for a Kustomization.
pub type Plan = crate::plan::Plan<Memory>;
