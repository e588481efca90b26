//! Reconciles sources of any kind: observe → plan → fetch → write. A kind adds its fetch.

mod earlier_artifacts;
mod reconcile;
mod source_kinds;

use kube::core::object::HasStatus;
use tenure_cluster::ServiceAccount;
use tenure_planner::source::{FetchFailure, FetchReason, Fetched, Source};
use tenure_remote_requests::artifact::StoredArtifact;
use tenure_sources::SourceKey;

use crate::lane::{Lane, Shard};
use crate::reconcile_loop::reconciled::Reconciled;

pub(crate) use earlier_artifacts::adopt_earlier_artifacts;
pub(crate) use reconcile::SourceReconciler;
pub(crate) use source_kinds::find_source_kind;

/// A kind of sources that lanes reconcile: adds the fetch to the code that all kinds of sources share.
pub(crate) trait Fetching:
    Reconciled<Home = Shard>
    + Source<Status = <Self as HasStatus>::Status, Request: Send + Sync, RelatedObjects: Send + Sync>
{
    /// Returns the facts about other objects that the source needs.
    fn observe_beside(_shard: &Shard, _source: &Self) -> Self::RelatedObjects {
        Self::RelatedObjects::default()
    }

    /// Executes the fetch that a plan requests. A failure is an answer too: the next plan writes it into the status.
    fn perform_fetch(
        shard: &Shard,
        of: (&SourceKey, &Lane),
        account: Option<&ServiceAccount>,
        request: &Self::Request,
    ) -> impl Future<Output = Result<Fetched, FetchFailure>> + Send;
}

/// Records the stored artifact of a source.
pub(crate) fn record_artifact(
    shard: &Shard,
    source: &SourceKey,
    artifact: &StoredArtifact,
) -> Result<(), FetchFailure> {
    shard
        .artifacts
        .remember(source, artifact)
        .map_err(|error| FetchFailure {
            reason: FetchReason::ArchiveOperationFailed,
            message: format!("artifact storage: can't write the record of {}: {error}", artifact.path),
            terminal: false,
            retry_after: None,
        })
}
