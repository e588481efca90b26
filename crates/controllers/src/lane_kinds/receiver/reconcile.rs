//! The rounds of one Receiver. The Snapshot stays from round to round. The plan makes every choice.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use tenure_api::{ObjectId, Receiver};
use tenure_cluster::{ClusterError, EventHistory, ServiceAccount};
use tenure_planner::Next;
use tenure_planner::receiver::{Attempt, HookPath, Memory, Snapshot, Step, TokenFailure, find_path, find_token, plan};
use tokio::sync::Semaphore;

use crate::cluster_view::key::Key;
use crate::lane::secret_reader::find_secret;
use crate::lane::{Lane, Shard};
use crate::reconcile_loop::object_loop::Reconciler;
use crate::reconcile_loop::object_writer::ObjectWriter;

/// The reconciler of one Receiver.
pub(super) struct ReceiverReconciler {
    shard: Arc<Shard>,
    key: Key,
    snapshot: Option<Snapshot>,
    event_history: EventHistory,
}

impl ReceiverReconciler {
    pub(super) fn new(shard: Arc<Shard>, key: Key) -> Self {
        Self {
            shard,
            key,
            snapshot: None,
            event_history: EventHistory::default(),
        }
    }

    fn current(&self) -> Option<Arc<Receiver>> {
        self.shard
            .caches
            .get::<Receiver>()
            .get(&self.key.namespace, &self.key.name)
    }

    async fn observe(&mut self, receiver: &Receiver) -> &mut Snapshot {
        let placement = self.shard.read_placement().await;
        let is_outdated = self.shard.receivers.is_outdated(&self.key.name);
        let snapshot = self.snapshot.get_or_insert_with(|| Snapshot {
            receiver: receiver.clone(),
            placement: placement.clone(),
            is_outdated,
            has_listener: self.shard.context.receiver_endpoint.has_listener(),
            attempt: Attempt::new(receiver),
            memory: Memory::default(),
        });
        snapshot.receiver = receiver.clone();
        snapshot.placement = placement;
        snapshot.is_outdated = is_outdated;
        snapshot
    }

    async fn read_path(
        &self,
        lane: &Lane,
        receiver: &Receiver,
        account: Option<&ServiceAccount>,
        secret: &str,
    ) -> Result<HookPath, TokenFailure> {
        let namespace = self.key.namespace.as_str();
        let data = find_secret(lane, namespace, secret, account).await?;
        Ok(find_path(find_token(&data, (namespace, secret))?, receiver))
    }
}

impl Reconciler for ReceiverReconciler {
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
        let Some(receiver) = self.current() else {
            return Ok(None);
        };
        // observe
        let lane = self.shard.lane().await;
        let snapshot = self.observe(&receiver).await;
        // plan
        let work = snapshot.estimate_expression_work();
        let plan = lane.limits.turns.run(work, || plan(snapshot, Timestamp::now())).await;
        tracing::debug!(plan = %plan, "planned");
        snapshot.memory = plan.memory.clone();
        // execute
        let writer = ObjectWriter::new(receiver.as_ref());
        if let Some(change) = &plan.finalizer {
            writer.change_finalizer(&self.shard, change).await?;
        }
        for Step::ReadToken { secret } in &plan.steps {
            self.shard.receivers.clear_outdated(&self.key.name);
            let path = self.read_path(&lane, &receiver, plan.identity.as_ref(), secret).await;
            if let Some(snapshot) = &mut self.snapshot {
                snapshot.attempt.path = Some(path);
            }
        }
        // Before any user can read the path in the status.
        self.shard
            .hub_api
            .set_receiver_path(&self.key, plan.memory.hook_path.as_ref());
        if let Some(status) = &plan.status {
            writer.write_status(&self.shard, status).await?;
        }
        // write
        writer
            .write_events(&self.shard, &mut self.event_history, &plan.events)
            .await;
        Ok(Some(plan.next))
    }

    fn restart(&mut self) {
        match (self.current(), &mut self.snapshot) {
            (Some(receiver), Some(snapshot)) => snapshot.attempt = Attempt::new(receiver.as_ref()),
            _ => self.snapshot = None,
        }
    }

    async fn needs_attempt(&mut self, _changed: &HashSet<ObjectId>) -> bool {
        let (Some(receiver), Some(snapshot)) = (self.current(), &self.snapshot) else {
            return true;
        };
        self.shard.receivers.is_outdated(&self.key.name)
            || snapshot.is_overtaken(receiver.as_ref(), &self.shard.read_placement().await)
    }

    fn forget(&mut self) {
        self.snapshot = None;
        self.shard.receivers.forget(&self.key.name);
        self.shard.hub_api.set_receiver_path(&self.key, None);
    }

    fn exists(&self) -> bool {
        self.current().is_some()
    }
}
