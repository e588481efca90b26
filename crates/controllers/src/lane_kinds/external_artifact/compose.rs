//! Executes the making of an artifact.

use tenure_planner::external_artifact::ComposeRequest;
use tenure_planner::source::{FetchFailure, Fetched};
use tenure_sources::{ComposeError, SourceKey, compose, count_parts, find_made};
use tokio::time::Instant;

use crate::lane::{Lane, Shard};
use crate::lane_kinds::source::record_artifact;

/// Makes an artifact as a plan requests.
pub(super) async fn compose_artifact(
    shard: &Shard,
    (source, lane): (&SourceKey, &Lane),
    request: &ComposeRequest,
) -> Result<Fetched, FetchFailure> {
    let artifact_storage = &shard.context.artifact_storage;
    if let Some(made) = find_made(source, request, &artifact_storage.store) {
        return Ok(made);
    }
    let failed = |error: ComposeError| FetchFailure::from(&error);
    let bytes = count_parts(request, &artifact_storage.store).map_err(|error| failed(error.into()))?;
    let deadline = Instant::now() + request.timeout / 2;
    let room = artifact_storage
        .take_tree_room(&lane.limits.name, bytes, deadline)
        .await;
    let room = room.map_err(|error| failed(error.into()))?;
    let account = artifact_storage.account(&lane.limits.name);
    let fetched = compose(
        source,
        request,
        room,
        &artifact_storage.limits,
        &artifact_storage.store,
        &account,
    )
    .await;
    let Fetched::Stored { artifact, subject } = fetched.map_err(failed)? else {
        return Err(failed(ComposeError::Cancelled));
    };
    record_artifact(shard, source, &artifact)?;
    let known = request.known.as_ref().map(|known| &known.facts);
    if known.is_some_and(|known| known.digest == artifact.facts.digest && known.revision == artifact.facts.revision) {
        // The sources changed, but the result is the same: no user of the artifact needs to be notified.
        let revision = artifact.facts.revision;
        return Ok(Fetched::Unchanged { revision });
    }
    Ok(Fetched::Stored { artifact, subject })
}
