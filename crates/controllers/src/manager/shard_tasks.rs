//! The manager's part for one of several instances: begins and ends the tasks of a Tenant or a namespace, in this process or in a lane's process. The
//! choice is made elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::json;
use tenure_api::metadata::{LANE_BINDING, PLATFORM_NAMESPACE, SHARDING_KEY};
use tenure_api::{ArtifactGenerator, ObjectView, Tenant};
use tenure_cluster::{EventHistory, EventRecorder};
use tenure_planner::sharding::Progress;
use tenure_planner::{Event, EventKind, EventPlace};
use tenure_sources::SourceKey;
use tenure_tenancy::{ShardUnit, TenancyFacts};

use crate::cluster_view::key::Key;
use crate::hub::task_table::is_platforms;
use crate::lane::Shard;
use crate::lane_kinds::source::find_source_kind;
use crate::manager::Manager;
use crate::reconcile_loop::object_writer::describe_event;
use crate::reconcile_loop::reconciled::{Home as _, Reconciled as _};
use crate::sharding::ShardWork;

impl ShardWork for Manager {
    fn read_tenancy(&self) -> (Progress, Arc<TenancyFacts>, Progress) {
        let known = self.seen.known();
        let tenancy = Arc::new(self.hub.copy_facts().to_tenancy_facts());
        (known, tenancy, self.seen.last_change())
    }

    fn wait_for_change(&self) -> BoxFuture<'_, ()> {
        self.hub.tenancy_changes().notified().boxed()
    }

    fn begin_unit(&self, unit: &ShardUnit) {
        self.task_table.add_unit(unit);
        let hub = &self.hub;
        let is_on = |kind: &str| hub.context.enabled_kinds.is_on(kind);
        for entry in hub.kinds.iter().filter(|entry| is_on(entry.kind.name)) {
            let is_its = |key: &Key| match unit {
                ShardUnit::Tenant(name) => key.kind == Tenant::KIND && key.name == *name,
                ShardUnit::Namespace(namespace) => {
                    key.namespace == *namespace || (*namespace == PLATFORM_NAMESPACE && is_platforms(key))
                }
            };
            for key in (entry.list_keys)(hub).into_iter().filter(is_its) {
                self.start_one(hub, entry, &key, false);
            }
        }
        let ShardUnit::Namespace(namespace) = unit else {
            return;
        };
        if let Some(shard) = hub.find_shard(namespace) {
            for entry in hub.lane_kinds.iter() {
                for key in (entry.list_keys)(&shard) {
                    match hub.fleet() {
                        Some(fleet) => self.notify_process(fleet, &shard, &key, None),
                        None if is_on(entry.kind.name) => self.start_one(&shard, entry, &key, false),
                        None => {}
                    }
                }
            }
        }
        if hub.is_worked_in(namespace) || hub.lane_bindings.get(namespace, LANE_BINDING).is_some() {
            self.keep_rights(namespace);
        }
    }

    fn leave<'a>(&'a self, unit: &'a ShardUnit) -> BoxFuture<'a, ()> {
        async move {
            self.task_table.leave(unit).await;
            let hub = &self.hub;
            let namespace = match unit {
                ShardUnit::Tenant(name) => {
                    hub.context
                        .mailboxes
                        .remove_unless(&Key::new(Tenant::KIND, "", name), || false);
                    return;
                }
                ShardUnit::Namespace(namespace) => namespace,
            };
            if let Some(fleet) = hub.fleet() {
                fleet.release_namespace(namespace).await;
            }
            let surfaces = hub.kinds.iter().flat_map(|entry| (entry.list_keys)(hub));
            let is_its =
                |key: &Key| key.namespace == *namespace || (*namespace == PLATFORM_NAMESPACE && is_platforms(key));
            let mut keys: Vec<Key> = surfaces.filter(is_its).collect();
            keys.push(Key::of_rights(namespace));
            if let Some(shard) = hub.find_shard(namespace) {
                keys.extend(shard.list_keys());
                forget_artifacts(&shard).await;
                for key in shard.list_keys() {
                    shard.turnover_reports.forget(&key);
                    if key.kind == ArtifactGenerator::KIND {
                        shard.generator_reports.forget(&key.name);
                    }
                }
            }
            for key in &keys {
                hub.context.mailboxes.remove_unless(key, || false);
                hub.context.change_subscriptions.listen(key, BTreeSet::new());
                hub.context.receiver_endpoint.set(key, None);
            }
            hub.admit(namespace, None);
        }
        .boxed()
    }

    fn report_unserved_parts<'a>(&'a self, keys: &'a [String]) -> BoxFuture<'a, ()> {
        async move {
            let event = Event {
                kind: EventKind::Warning,
                reason: "ShardNotServed".to_owned(),
                message: format!(
                    "no instance of the controllers reconciles Tenants and namespaces with {SHARDING_KEY}={}: start one with \
                     --watch-label-selector, or change the label",
                    keys.join(", ")
                ),
                annotations: BTreeMap::new(),
                place: EventPlace::Platform,
            };
            let platform = self.hub.platform_namespace().to_owned();
            let metadata = json!({ "namespace": platform, "name": platform });
            let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata });
            let recorder = EventRecorder::new(self.hub.bookkeeper_of(&platform).await, "tenure-controller");
            let mut event_history = EventHistory::default();
            recorder.record(&mut event_history, &object, &describe_event(&event, None)).await;
        }
        .boxed()
    }
}

/// Removes the artifacts of a namespace. The next instance fetches them itself.
async fn forget_artifacts(shard: &Arc<Shard>) {
    let shard = Arc::clone(shard);
    let removing = tokio::task::spawn_blocking(move || {
        let is_source = |key: &&Key| find_source_kind(key.kind.name).is_some();
        for key in shard.list_keys().iter().filter(is_source) {
            let uid = shard.write_object(key);
            let uid = uid.map(|object| ObjectView::new(&object).read_text("/metadata/uid").to_owned());
            let source = SourceKey::new(key.kind.name, &key.namespace, &key.name, &uid.unwrap_or_default());
            let removed = source.and_then(|source| shard.artifacts.remove(&source));
            if let Err(error) = removed {
                tracing::warn!(source = %key, %error, "the artifacts for another instance's source could not be removed");
            }
        }
    });
    if let Err(error) = removing.await {
        tracing::warn!(%error, "the fetched artifacts could not be removed");
    }
}
