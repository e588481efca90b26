//! Reconciles GitRepositories: as all sources, with fetches from Git.

mod fetch;
mod included_repositories;

use std::sync::Arc;

use tenure_api::metadata::SOURCE_CONTROLLER_STATUS;
use tenure_api::{GitRepository, ObjectMeta};
use tenure_cluster::ServiceAccount;
use tenure_planner::Event;
use tenure_planner::git_repository::{FetchRequest, IncludedRepositories};
use tenure_planner::source::{FetchFailure, Fetched};
use tenure_sources::SourceKey;

use crate::cluster_view::key::{Key, Kind};
use crate::context::ControllerContext;
use crate::lane::{Lane, Shard};
use crate::lane_kinds::source::{self, Fetching, SourceReconciler};
use crate::notifications;
use crate::reconcile_loop::object_loop::Reconciler;
use crate::reconcile_loop::reconciled::Reconciled;
use crate::telemetry::metrics::Described;

impl Reconciled for GitRepository {
    type Home = Shard;

    const KIND: &'static Kind = &Kind {
        api_version: "source.toolkit.fluxcd.io/v1",
        name: "GitRepository",
        manager: SOURCE_CONTROLLER_STATUS,
        reporter: "source-controller",
    };

    fn reconciler(shard: Arc<Shard>, key: Key) -> impl Reconciler {
        SourceReconciler::<Self>::new(shard, key)
    }

    async fn send_event(shard: &Shard, metadata: &ObjectMeta, event: &Event) {
        notifications::queue_event::<Self>(shard, metadata, event).await;
    }

    /// Returns the repositories that include a changed one.
    fn list_dependents(shard: &Shard, changed: &Key) -> Vec<Key> {
        if changed.kind != Self::KIND {
            return Vec::new();
        }
        let includes = |repository: &Self| {
            let mut named = repository.spec.include.iter();
            named.any(|include| include.repository.name == changed.name)
        };
        let beside = shard.caches.get::<Self>().in_namespace(&changed.namespace);
        let dependents = beside.iter().filter(|repository| includes(repository));
        dependents
            .map(|repository| Key::from_metadata(Self::KIND, &repository.metadata))
            .collect()
    }

    fn is_suspended(&self) -> bool {
        self.spec.suspend
    }

    fn describe(&self) -> Described {
        let artifact = self.status.as_ref().and_then(|status| status.artifact.as_ref());
        Described {
            revision: artifact.map(|artifact| artifact.revision.clone()).unwrap_or_default(),
            more: Some(("url", self.spec.url.shown())),
        }
    }

    /// Wakes the objects in other namespaces that use the GitRepository: they listen to it.
    fn refresh(shard: &Shard, key: &Key) {
        shard.notify_listeners(key);
    }

    async fn prepare_start(context: Arc<ControllerContext>, shards: Vec<Arc<Shard>>) {
        source::adopt_earlier_artifacts::<Self>(context, shards).await;
    }
}

impl Fetching for GitRepository {
    fn observe_beside(shard: &Shard, repository: &Self) -> IncludedRepositories {
        included_repositories::observe_beside(shard, repository)
    }

    async fn perform_fetch(
        shard: &Shard,
        of: (&SourceKey, &Lane),
        account: Option<&ServiceAccount>,
        request: &FetchRequest,
    ) -> Result<Fetched, FetchFailure> {
        fetch::perform_fetch(shard, of, account, request).await
    }
}
