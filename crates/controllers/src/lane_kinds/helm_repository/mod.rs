//! Reconciles HelmRepositories: as all sources, with fetches of an index.

mod fetch;

use std::sync::Arc;

use tenure_api::ObjectMeta;
use tenure_api::helm::HelmRepository;
use tenure_api::metadata::SOURCE_CONTROLLER_STATUS;
use tenure_cluster::ServiceAccount;
use tenure_planner::Event;
use tenure_planner::helm_repository::IndexRequest;
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

pub(crate) use fetch::read_secrets;

impl Reconciled for HelmRepository {
    type Home = Shard;

    const KIND: &'static Kind = &Kind {
        api_version: "source.toolkit.fluxcd.io/v1",
        name: "HelmRepository",
        manager: SOURCE_CONTROLLER_STATUS,
        reporter: "source-controller",
    };

    fn reconciler(shard: Arc<Shard>, key: Key) -> impl Reconciler {
        SourceReconciler::<Self>::new(shard, key)
    }

    async fn send_event(shard: &Shard, metadata: &ObjectMeta, event: &Event) {
        notifications::queue_event::<Self>(shard, metadata, event).await;
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

    async fn prepare_start(context: Arc<ControllerContext>, shards: Vec<Arc<Shard>>) {
        source::adopt_earlier_artifacts::<Self>(context, shards).await;
    }
}

impl Fetching for HelmRepository {
    async fn perform_fetch(
        shard: &Shard,
        of: (&SourceKey, &Lane),
        account: Option<&ServiceAccount>,
        request: &IndexRequest,
    ) -> Result<Fetched, FetchFailure> {
        fetch::perform_fetch(shard, of, account, request).await
    }
}
