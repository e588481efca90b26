//! Reconciles HelmCharts: as all sources, with charts of a repository, of a registry, or of the files of another source.

mod fetch;

use std::sync::Arc;

use tenure_api::helm::{HelmChart, HelmRepository};
use tenure_api::metadata::SOURCE_CONTROLLER_STATUS;
use tenure_api::{Bucket, GitRepository, ObjectMeta};
use tenure_cluster::ServiceAccount;
use tenure_planner::Event;
use tenure_planner::helm_chart::{ChartRequest, ChartSource, find_chart_source};
use tenure_planner::source::{FetchFailure, Fetched};
use tenure_remote_requests::composition::SourceState;
use tenure_sources::SourceKey;

use crate::cluster_view::key::{Key, Kind};
use crate::context::ControllerContext;
use crate::lane::{Lane, Shard};
use crate::lane_kinds::source::{self, Fetching, SourceReconciler, find_source_kind};
use crate::notifications;
use crate::reconcile_loop::object_loop::Reconciler;
use crate::reconcile_loop::reconciled::Reconciled;
use crate::telemetry::metrics::Described;

impl Reconciled for HelmChart {
    type Home = Shard;

    const KIND: &'static Kind = &Kind {
        api_version: "source.toolkit.fluxcd.io/v1",
        name: "HelmChart",
        manager: SOURCE_CONTROLLER_STATUS,
        reporter: "source-controller",
    };

    fn reconciler(shard: Arc<Shard>, key: Key) -> impl Reconciler {
        SourceReconciler::<Self>::new(shard, key)
    }

    async fn send_event(shard: &Shard, metadata: &ObjectMeta, event: &Event) {
        notifications::queue_event::<Self>(shard, metadata, event).await;
    }

    /// Returns the HelmCharts of a changed source.
    fn list_dependents(shard: &Shard, changed: &Key) -> Vec<Key> {
        let kinds = [HelmRepository::KIND, GitRepository::KIND, Bucket::KIND];
        if !kinds.contains(&changed.kind) {
            return Vec::new();
        }
        let beside = shard.caches.get::<Self>().in_namespace(&changed.namespace);
        let is_of = |chart: &Self| {
            let named = &chart.spec.source_ref;
            named.kind == changed.kind.name && named.name == changed.name
        };
        let dependents = beside.iter().filter(|chart| is_of(chart));
        dependents
            .map(|chart| Key::from_metadata(Self::KIND, &chart.metadata))
            .collect()
    }

    fn is_suspended(&self) -> bool {
        self.spec.suspend
    }

    fn describe(&self) -> Described {
        let artifact = self.status.as_ref().and_then(|status| status.artifact.as_ref());
        Described {
            revision: artifact.map(|artifact| artifact.revision.clone()).unwrap_or_default(),
            more: Some(("source_name", self.spec.source_ref.name.clone())),
        }
    }

    async fn prepare_start(context: Arc<ControllerContext>, shards: Vec<Arc<Shard>>) {
        source::adopt_earlier_artifacts::<Self>(context, shards).await;
    }
}

impl Fetching for HelmChart {
    fn observe_beside(shard: &Shard, chart: &Self) -> ChartSource {
        let find_repository = |name: &str| shard.caches.get::<HelmRepository>().get(&shard.namespace, name);
        find_chart_source(chart, find_repository, |kind, name| find_state(shard, kind, name))
    }

    async fn perform_fetch(
        shard: &Shard,
        of: (&SourceKey, &Lane),
        account: Option<&ServiceAccount>,
        request: &ChartRequest,
    ) -> Result<Fetched, FetchFailure> {
        fetch::perform_fetch(shard, of, account, request).await
    }
}

/// Returns whether a source of the namespace exists and has an artifact. The status is no evidence of it.
fn find_state(shard: &Shard, kind: &str, name: &str) -> SourceState {
    let found = find_source_kind(kind).and_then(|kind| (kind.find)(shard, name));
    let Some((key, _)) = found else {
        return SourceState::NotFound;
    };
    match shard.artifacts.record(&key) {
        Some(stored) => SourceState::Stored {
            uid: key.uid().to_owned(),
            artifact: (&stored).into(),
        },
        None => SourceState::Empty,
    }
}
