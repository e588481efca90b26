//! Executes a fetch from a Git repository.

use tenure_cluster::ServiceAccount;
use tenure_planner::git_repository::FetchRequest;
use tenure_planner::source::{FetchFailure, Fetched};
use tenure_sources::{FetchError, GitRequest, SourceKey, fetch};

use crate::lane::{Lane, Shard};
use crate::source::{read_secret, remember};

/// Fetches what a plan asks for.
pub(super) async fn perform_fetch(
    shard: &Shard,
    (source, lane): (&SourceKey, &Lane),
    account: Option<&ServiceAccount>,
    request: &FetchRequest,
) -> Result<Fetched, FetchFailure> {
    let secret = match &request.secret {
        Some(name) => Some(read_secret(lane, source.namespace(), name, account).await?),
        None => None,
    };
    let failed = |error: FetchError| FetchFailure::from(&error);
    let git = GitRequest::read(source.clone(), request.clone(), secret.as_ref()).map_err(failed)?;
    let reach = shard.means.reach(request.platform);
    let depot = &shard.means.depot;
    let (limits, store, account) = (&depot.limits, &depot.store, depot.account(&lane.bounds.name));
    let fetched = fetch(&git, reach, limits, store, &account).await.map_err(failed)?;
    if let Fetched::Stored { artifact, .. } = &fetched {
        remember(shard, source, artifact)?;
    }
    Ok(fetched)
}
