//! The rounds of one PackageValues. The plan makes every choice.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use tenure_api::{ObjectId, Package, PackageSource, PackageValues};
use tenure_cluster::{ClusterError, EventHistory};
use tenure_planner::Next;
use tenure_planner::package_values::{Snapshot, plan};
use tokio::sync::Semaphore;

use crate::cluster_view::key::Key;
use crate::hub::Hub;
use crate::reconcile_loop::object_loop::Reconciler;
use crate::reconcile_loop::object_writer::ObjectWriter;

/// The reconciler of one PackageValues.
pub(crate) struct PackageValuesReconciler {
    hub: Arc<Hub>,
    key: Key,
    event_history: EventHistory,
}

impl PackageValuesReconciler {
    pub(crate) fn new(hub: Arc<Hub>, key: Key) -> Self {
        Self {
            hub,
            key,
            event_history: EventHistory::default(),
        }
    }

    fn current(&self) -> Option<Arc<PackageValues>> {
        self.hub.caches.get::<PackageValues>().get("", &self.key.name)
    }
}

impl Reconciler for PackageValuesReconciler {
    fn key(&self) -> &Key {
        &self.key
    }

    fn is_admitted(&self) -> bool {
        self.hub.packages.is_complete()
    }

    async fn permits(&self) -> Arc<Semaphore> {
        Arc::clone(&self.hub.find_lane(&self.key.namespace).await.limits.work)
    }

    async fn run_round(&mut self) -> Result<Option<Next>, ClusterError> {
        let Some(values) = self.current() else { return Ok(None) };
        // observe
        let caches = &self.hub.caches;
        let snapshot = Snapshot {
            values: values.as_ref().clone(),
            package: caches.get::<Package>().get("", &self.key.name).as_deref().cloned(),
            settings: self.hub.context.packages.clone(),
            source: caches
                .get::<PackageSource>()
                .get("", &self.key.name)
                .as_deref()
                .cloned(),
        };
        // plan
        let plan = plan(&snapshot, Timestamp::now());
        tracing::debug!(plan = %plan, "planned");
        // write
        let writer = ObjectWriter::new(values.as_ref());
        if let Some(status) = &plan.status {
            writer.write_status(&self.hub, status).await?;
        }
        writer
            .write_events(&self.hub, &mut self.event_history, &plan.events)
            .await;
        Ok(Some(plan.next))
    }

    fn restart(&mut self) {}

    /// A report without news writes nothing, so each change may start one.
    async fn needs_attempt(&mut self, _: &HashSet<ObjectId>) -> bool {
        true
    }

    fn forget(&mut self) {}

    fn exists(&self) -> bool {
        self.current().is_some()
    }
}
