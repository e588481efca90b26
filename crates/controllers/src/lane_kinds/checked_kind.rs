//! Reconciles objects that are only checked, of any kind: observe → plan → write. A kind adds its plan.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use kube::core::object::HasStatus;
use tenure_api::ObjectId;
use tenure_cluster::{ClusterError, EventHistory};
use tenure_planner::Next;
use tenure_planner::validation_plan::ValidationPlan;
use tenure_tenancy::Placement;
use tokio::sync::Semaphore;

use crate::cluster_view::key::Key;
use crate::lane::{Lane, Shard};
use crate::reconcile_loop::object_loop::Reconciler;
use crate::reconcile_loop::object_writer::ObjectWriter;
use crate::reconcile_loop::reconciled::Reconciled;

/// A kind whose plans only set the status, without steps in the cluster: Alerts and Providers.
pub(crate) trait CheckedKind: Reconciled<Home = Shard> {
    /// The facts for a plan that are read for each attempt.
    type Facts: Send;

    /// Reads the facts for a plan.
    fn observe(&self, lane: &Lane, shard: &Shard, placement: &Placement) -> impl Future<Output = Self::Facts> + Send;

    /// Makes the plan from the known facts of the namespace.
    fn make_plan(
        &self,
        shard: &Shard,
        placement: Placement,
        facts: Self::Facts,
        now: Timestamp,
    ) -> ValidationPlan<<Self as HasStatus>::Status>;

    /// Called in each attempt, and after the object is gone.
    fn follow_events(_lane: &Arc<Lane>, _shard: &Shard, _placement: &Placement) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Returns the text size for which the plan is counted, in bytes.
    fn estimate_work(&self) -> usize {
        0
    }
}

/// The reconciler of one object.
pub(crate) struct CheckedKindReconciler<K: CheckedKind> {
    shard: Arc<Shard>,
    key: Key,
    event_history: EventHistory,
    kind: std::marker::PhantomData<fn() -> K>,
}

impl<K: CheckedKind> CheckedKindReconciler<K> {
    pub(crate) fn new(shard: Arc<Shard>, key: Key) -> Self {
        Self {
            shard,
            key,
            event_history: EventHistory::default(),
            kind: std::marker::PhantomData,
        }
    }

    fn current(&self) -> Option<Arc<K>> {
        self.shard.caches.get::<K>().get(&self.key.namespace, &self.key.name)
    }
}

impl<K: CheckedKind> Reconciler for CheckedKindReconciler<K> {
    fn key(&self) -> &Key {
        &self.key
    }

    fn is_admitted(&self) -> bool {
        self.shard.is_admitted()
    }

    async fn permits(&self) -> Arc<Semaphore> {
        Arc::clone(&self.shard.lane().await.limits.work)
    }

    async fn run_round(&mut self) -> Result<Option<Next>, ClusterError> {
        let lane = self.shard.lane().await;
        let placement = self.shard.read_placement().await;
        K::follow_events(&lane, &self.shard, &placement).await;
        let Some(object) = self.current() else {
            return Ok(None);
        };
        // observe
        let facts = object.observe(&lane, &self.shard, &placement).await;
        // plan
        let make = || object.make_plan(&self.shard, placement, facts, Timestamp::now());
        let plan = lane.limits.turns.run(object.estimate_work(), make).await;
        tracing::debug!(plan = %plan, "planned");
        // write
        let writer = ObjectWriter::new(object.as_ref());
        if let Some(change) = &plan.finalizer {
            writer.change_finalizer(&self.shard, change).await?;
        }
        if let Some(status) = &plan.status {
            writer.write_status(&self.shard, status).await?;
        }
        writer
            .write_events(&self.shard, &mut self.event_history, &plan.events)
            .await;
        Ok(Some(plan.next))
    }

    fn restart(&mut self) {}

    async fn needs_attempt(&mut self, _changed: &HashSet<ObjectId>) -> bool {
        true
    }

    fn forget(&mut self) {}

    fn exists(&self) -> bool {
        self.current().is_some()
    }
}
