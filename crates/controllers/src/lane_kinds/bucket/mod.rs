//! Reconciles Buckets: as all sources, with fetches from object stores.

mod fetch;

use std::sync::Arc;

use tenure_api::metadata::SOURCE_CONTROLLER_STATUS;
use tenure_api::{Bucket, ObjectMeta};
use tenure_cluster::ServiceAccount;
use tenure_planner::Event;
use tenure_planner::bucket::FetchRequest;
use tenure_planner::source::{FetchFailure, Fetched};
use tenure_sources::SourceKey;

use crate::cluster_view::key::{Key, Kind};
use crate::context::ControllerContext;
use crate::lane::{Lane, Shard};
use crate::lane_kinds::source::{self, Fetching, SourceReconciler};
use crate::notifications;
use crate::reconcile_loop::object_loop::Reconciler;
use crate::reconcile_loop::reconciled::Reconciled;

impl Reconciled for Bucket {
    type Home = Shard;

    const KIND: &'static Kind = &Kind {
        api_version: "source.toolkit.fluxcd.io/v1",
        name: "Bucket",
        manager: SOURCE_CONTROLLER_STATUS,
        reporter: "source-controller",
    };

    fn reconciler(shard: Arc<Shard>, key: Key) -> impl Reconciler {
        SourceReconciler::<Self>::new(shard, key)
    }

    /// Wakes the objects in other namespaces that use the Bucket: they listen to it.
    fn refresh(shard: &Shard, key: &Key) {
        shard.notify_listeners(key);
    }

    async fn send_event(shard: &Shard, metadata: &ObjectMeta, event: &Event) {
        notifications::queue_event::<Self>(shard, metadata, event).await;
    }

    async fn prepare_start(context: Arc<ControllerContext>, shards: Vec<Arc<Shard>>) {
        source::adopt_earlier_artifacts::<Self>(context, shards).await;
    }
}

impl Fetching for Bucket {
    async fn perform_fetch(
        shard: &Shard,
        of: (&SourceKey, &Lane),
        account: Option<&ServiceAccount>,
        request: &FetchRequest,
    ) -> Result<Fetched, FetchFailure> {
        fetch::perform_fetch(shard, of, account, request).await
    }
}
