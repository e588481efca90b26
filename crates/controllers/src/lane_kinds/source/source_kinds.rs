//! The only list of source kinds, for code that uses any source.

use tenure_api::helm::{HelmChart, HelmRepository};
use tenure_api::{Bucket, Condition, ExternalArtifact, GitRepository, OciRepository};
use tenure_planner::Status as _;
use tenure_planner::source::Source;
use tenure_sources::SourceKey;

use super::Fetching;
use crate::artifacts::storage::make_source_key;
use crate::cluster_view::key::Kind;
use crate::lane::Shard;

/// A source: its key in the artifact store, and its conditions.
type Found = (SourceKey, Vec<Condition>);

/// A kind of sources.
pub(crate) struct SourceKind {
    pub(crate) kind: &'static Kind,
    /// Finds a source of a namespace by name.
    pub(crate) find: fn(&Shard, &str) -> Option<Found>,
}

/// The source kinds.
static KINDS: [SourceKind; 6] = [
    SourceKind::new::<GitRepository>(),
    SourceKind::new::<OciRepository>(),
    SourceKind::new::<Bucket>(),
    SourceKind::new::<ExternalArtifact>(),
    SourceKind::new::<HelmRepository>(),
    SourceKind::new::<HelmChart>(),
];

impl SourceKind {
    const fn new<S: Fetching>() -> Self {
        Self {
            kind: S::KIND,
            find: find_source::<S>,
        }
    }
}

/// Returns a source kind by its name.
pub(crate) fn find_source_kind(name: &str) -> Option<&'static SourceKind> {
    KINDS.iter().find(|known| known.kind.name == name)
}

fn find_source<S: Fetching>(shard: &Shard, name: &str) -> Option<Found> {
    let source = shard.caches.get::<S>().get(&shard.namespace, name)?;
    let key = make_source_key(S::NAME, source.metadata()).ok()?;
    let status = Source::status(source.as_ref());
    Some((
        key,
        status.map(|status| status.conditions().to_vec()).unwrap_or_default(),
    ))
}
