//! Reconciles ArtifactGenerators: observe → plan → execute → report to the ExternalArtifacts what they are made of.

mod observe;
mod reconcile;

use std::sync::Arc;

use tenure_api::metadata::SOURCE_WATCHER;
use tenure_api::{ArtifactGenerator, ExternalArtifact, ObjectMeta};
use tenure_planner::Event;
use tenure_planner::external_artifact::find_generator;

use crate::cluster_view::key::{Key, Kind};
use crate::lane::Shard;
use crate::notifications;
use crate::reconcile_loop::object_loop::Reconciler;
use crate::reconcile_loop::reconciled::Reconciled;

impl Reconciled for ArtifactGenerator {
    type Home = Shard;

    const KIND: &'static Kind = &Kind {
        api_version: "source.extensions.fluxcd.io/v1beta1",
        name: "ArtifactGenerator",
        manager: SOURCE_WATCHER,
        reporter: SOURCE_WATCHER,
    };

    fn reconciler(shard: Arc<Shard>, key: Key) -> impl Reconciler {
        reconcile::GeneratorReconciler::new(shard, key)
    }

    async fn send_event(shard: &Shard, metadata: &ObjectMeta, event: &Event) {
        notifications::queue_event::<Self>(shard, metadata, event).await;
    }

    /// Returns the generators that take files of a source, those that make an ExternalArtifact, and those that another generator may feed.
    fn list_dependents(shard: &Shard, changed: &Key) -> Vec<Key> {
        let takes = |generator: &Self| {
            let own = generator.metadata.namespace.as_deref();
            let mut sources = generator.spec.sources.iter();
            sources.any(|source| {
                let is_in_own_namespace = source.namespace.is_none() || source.namespace.as_deref() == own;
                let is_named = source.kind == changed.kind.name && source.name == changed.name && is_in_own_namespace;
                // A cycle of generators depends on both of them.
                let is_fed = changed.kind == Self::KIND && source.kind == ExternalArtifact::KIND.name;
                is_named || is_fed
            })
        };
        let is_artifact = changed.kind == ExternalArtifact::KIND;
        let mut makers = if is_artifact {
            shard.generator_reports.list_makers(&changed.name)
        } else {
            Vec::new()
        };
        if is_artifact
            && let Some(artifact) = shard
                .caches
                .get::<ExternalArtifact>()
                .get(&changed.namespace, &changed.name)
        {
            makers.extend(find_generator(&artifact).map(str::to_owned));
        }
        let makes = |generator: &Self| {
            generator
                .metadata
                .name
                .as_ref()
                .is_some_and(|name| makers.contains(name))
        };
        let beside = shard.caches.get::<Self>().in_namespace(&changed.namespace);
        let dependents = beside.iter().filter(|generator| takes(generator) || makes(generator));
        dependents
            .map(|generator| Key::from_metadata(Self::KIND, &generator.metadata))
            .collect()
    }
}
