//! Reconciles ExternalArtifacts: as all sources, but made from the files of other artifacts instead of fetched.

mod compose;

use std::sync::Arc;

use tenure_api::metadata::SOURCE_WATCHER;
use tenure_api::{ArtifactGenerator, ExternalArtifact, ObjectMeta};
use tenure_cluster::ServiceAccount;
use tenure_planner::Event;
use tenure_planner::external_artifact::{ArtifactMaker, DownloadRequest, FetchRequest, find_generator, find_maker};
use tenure_planner::source::{FetchFailure, Fetched};
use tenure_sources::{DownloadError, SourceKey, download};

use crate::cluster_view::key::{Key, Kind};
use crate::context::ControllerContext;
use crate::lane::{Lane, Shard};
use crate::lane_kinds::source::{self, Fetching, SourceReconciler};
use crate::notifications;
use crate::reconcile_loop::object_loop::Reconciler;
use crate::reconcile_loop::reconciled::Reconciled;
use crate::telemetry::metrics::Described;

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

    async fn send_event(shard: &Shard, metadata: &ObjectMeta, event: &Event) {
        notifications::queue_event::<Self>(shard, metadata, event).await;
    }

    /// Returns the ExternalArtifacts of a changed generator. They are woken separately after a report of the generator (`generator_reports`).
    fn list_dependents(shard: &Shard, changed: &Key) -> Vec<Key> {
        if changed.kind != ArtifactGenerator::KIND {
            return Vec::new();
        }
        let beside = shard.caches.get::<Self>().in_namespace(&changed.namespace);
        let made = beside
            .iter()
            .filter(|artifact| find_generator(artifact) == Some(&changed.name));
        made.map(|artifact| Key::from_metadata(Self::KIND, &artifact.metadata))
            .collect()
    }

    fn describe(&self) -> Described {
        let artifact = self.status.as_ref().and_then(|status| status.artifact.as_ref());
        let named = self.spec.source_ref.as_ref();
        Described {
            revision: artifact.map(|artifact| artifact.revision.clone()).unwrap_or_default(),
            more: named.map(|named| ("source_name", named.name.clone())),
        }
    }

    /// Wakes the objects in other namespaces that use the ExternalArtifact: they listen to it.
    fn refresh(shard: &Shard, key: &Key) {
        shard.notify_listeners(key);
    }

    async fn prepare_start(context: Arc<ControllerContext>, shards: Vec<Arc<Shard>>) {
        source::adopt_earlier_artifacts::<Self>(context, shards).await;
    }
}

/// Fetches an artifact that another controller has made.
async fn perform_download(
    shard: &Shard,
    (key, lane): (&SourceKey, &Lane),
    request: &DownloadRequest,
) -> Result<Fetched, FetchFailure> {
    let artifact_storage = &shard.context.artifact_storage;
    let reach = shard.context.reach(request.platform);
    let account = artifact_storage.account(&lane.limits.name);
    let fetched = download(
        key,
        request,
        reach,
        &artifact_storage.limits,
        &artifact_storage.store,
        &account,
    )
    .await;
    let fetched = fetched.map_err(|error: DownloadError| FetchFailure::from(&error))?;
    if let Fetched::Stored { artifact, .. } = &fetched {
        source::record_artifact(shard, key, artifact)?;
    }
    Ok(fetched)
}

impl Fetching for ExternalArtifact {
    fn observe_beside(shard: &Shard, artifact: &Self) -> ArtifactMaker {
        let exists = |name: &str| {
            shard
                .caches
                .get::<ArtifactGenerator>()
                .get(&shard.namespace, name)
                .is_some()
        };
        let grants = &shard.context.settings.external_grants;
        find_maker(artifact, grants, exists, |name| {
            shard.generator_reports.find_report(name)
        })
    }

    async fn perform_fetch(
        shard: &Shard,
        of: (&SourceKey, &Lane),
        _account: Option<&ServiceAccount>,
        request: &FetchRequest,
    ) -> Result<Fetched, FetchFailure> {
        match request {
            FetchRequest::Compose(request) => compose::compose_artifact(shard, of, request).await,
            FetchRequest::Download(request) => perform_download(shard, of, request).await,
        }
    }
}
