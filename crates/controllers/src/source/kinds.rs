//! The kinds of sources, as those find them who use what one has: the one list of them.

use tenure_api::{Bucket, Condition, ExternalArtifact, GitRepository, OciRepository};
use tenure_planner::Status as _;
use tenure_planner::source::Source;
use tenure_sources::SourceKey;

use super::Fetching;
use crate::artifacts::make_source_key;
use crate::key::Kind;
use crate::lane::Shard;

/// A kind of sources.
pub(crate) struct SourceKind {
    pub(crate) kind: &'static Kind,
    /// One of a namespace, by name: its key in the artifact store, and its conditions.
    pub(crate) find: fn(&Shard, &str) -> Option<(SourceKey, Vec<Condition>)>,
}

/// All of them.
static KINDS: [SourceKind; 4] = [
    SourceKind::of::<GitRepository>(),
    SourceKind::of::<OciRepository>(),
    SourceKind::of::<Bucket>(),
    SourceKind::of::<ExternalArtifact>(),
];

impl SourceKind {
    const fn of<S: Fetching>() -> Self {
        Self {
            kind: S::KIND,
            find: find::<S>,
        }
    }
}

/// A kind of sources, by its name.
pub(crate) fn find_source_kind(name: &str) -> Option<&'static SourceKind> {
    KINDS.iter().find(|known| known.kind.name == name)
}

fn find<S: Fetching>(shard: &Shard, name: &str) -> Option<(SourceKey, Vec<Condition>)> {
    let source = shard.caches.of::<S>().get(&shard.namespace, name)?;
    let key = make_source_key(S::NAME, source.metadata()).ok()?;
    let status = Source::status(source.as_ref());
    Some((
        key,
        status.map(|status| status.conditions().to_vec()).unwrap_or_default(),
    ))
}
