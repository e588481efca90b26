//! Reconciles ExternalArtifacts: as all sources, made of the files of others instead of fetched.

mod compose;

use std::sync::Arc;

use tenure_api::metadata::SOURCE_WATCHER;
use tenure_api::{ArtifactGenerator, ExternalArtifact};
use tenure_cluster::ServiceAccount;
use tenure_planner::external_artifact::{Beside, ComposeRequest, find_generator, find_maker};
use tenure_planner::source::{FetchFailure, Fetched};
use tenure_sources::SourceKey;

use crate::drive::Reconciler;
use crate::figures::Described;
use crate::key::{Key, Kind};
use crate::lane::{Lane, Shard};
use crate::means::Means;
use crate::reconciled::Reconciled;
use crate::source::{self, Fetching, SourceReconciler};

impl Reconciled for ExternalArtifact {
    type Home = Shard;

    const KIND: &'static Kind = &Kind {
        api_version: "source.toolkit.fluxcd.io/v1",
        name: "ExternalArtifact",
        manager: SOURCE_WATCHER,
        reporter: SOURCE_WATCHER,
    };

    fn reconciler(shard: Arc<Shard>, key: Key) -> impl Reconciler {
        SourceReconciler::<Self>::new(shard, key)
    }

    /// Those that a generator makes; what it tells, it tells them itself.
    fn list_dependents(shard: &Shard, changed: &Key) -> Vec<Key> {
        if changed.kind != ArtifactGenerator::KIND {
            return Vec::new();
        }
        let beside = shard.caches.of::<Self>().in_namespace(&changed.namespace);
        let made = beside
            .iter()
            .filter(|artifact| find_generator(artifact) == Some(&changed.name));
        made.map(|artifact| Key::of(Self::KIND, &artifact.metadata)).collect()
    }

    fn describe(&self) -> Described {
        let artifact = self.status.as_ref().and_then(|status| status.artifact.as_ref());
        let named = self.spec.source_ref.as_ref();
        Described {
            revision: artifact.map(|artifact| artifact.revision.clone()).unwrap_or_default(),
            more: named.map(|named| ("source_name", named.name.clone())),
        }
    }

    /// Those that use it in other namespaces listen to it.
    fn refresh(shard: &Shard, key: &Key) {
        shard.tell_listeners(key);
    }

    async fn take_stock(means: Arc<Means>, shards: Vec<Arc<Shard>>) {
        source::take_stock::<Self>(means, shards).await;
    }
}

impl Fetching for ExternalArtifact {
    fn observe_beside(shard: &Shard, artifact: &Self) -> Beside {
        let exists = |name: &str| {
            shard
                .caches
                .of::<ArtifactGenerator>()
                .get(&shard.namespace, name)
                .is_some()
        };
        find_maker(artifact, exists, |name| shard.recipes.of(name))
    }

    async fn perform_fetch(
        shard: &Shard,
        of: (&SourceKey, &Lane),
        _account: Option<&ServiceAccount>,
        request: &ComposeRequest,
    ) -> Result<Fetched, FetchFailure> {
        compose::perform(shard, of, request).await
    }
}
