//! The rounds of one PackageSource. The Snapshot stays from round to round. The plan makes every choice.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use tenure_api::{ObjectId, PackageSource};
use tenure_cluster::{ClusterError, EventHistory};
use tenure_planner::Next;
use tenure_planner::package_source::{Attempt, Memory, Snapshot, plan};
use tokio::sync::Semaphore;

use crate::cluster_view::key::Key;
use crate::hub::Hub;
use crate::hub_kinds::recorded_objects::{RecordedObjects, carry_out, drop_objects, make_proof, wait_for_randomness};
use crate::lane::HubApi as _;
use crate::reconcile_loop::object_loop::Reconciler;
use crate::reconcile_loop::reconciled::Home as _;

/// The reconciler of one PackageSource.
pub(crate) struct PackageSourceReconciler {
    hub: Arc<Hub>,
    key: Key,
    snapshot: Option<Snapshot>,
    event_history: EventHistory,
    objects: RecordedObjects,
    creation_proof: Option<String>,
}

impl PackageSourceReconciler {
    pub(crate) fn new(hub: Arc<Hub>, key: Key) -> Self {
        Self {
            objects: RecordedObjects::new(Arc::clone(&hub.packages.live), key.clone()),
            hub,
            key,
            snapshot: None,
            event_history: EventHistory::default(),
            creation_proof: make_proof(),
        }
    }

    fn current(&self) -> Option<Arc<PackageSource>> {
        self.hub.caches.get::<PackageSource>().get("", &self.key.name)
    }

    fn observe(&mut self, source: &PackageSource, creation_proof: String) -> Snapshot {
        let (attempt, memory) = match self.snapshot.take() {
            Some(snapshot) => (snapshot.attempt, snapshot.memory),
            None => (Attempt::begin(Timestamp::now(), &source.metadata), Memory::default()),
        };
        Snapshot {
            source: source.clone(),
            claimed: self.hub.packages.find_claimed(&self.key.name),
            settings: self.hub.context.packages.clone(),
            live: self.objects.observe(),
            creation_proof,
            attempt,
            memory,
        }
    }
}

impl Reconciler for PackageSourceReconciler {
    fn key(&self) -> &Key {
        &self.key
    }

    fn is_admitted(&self) -> bool {
        // The lane of the platform namespace requests the tokens of the account for Packages.
        self.hub.packages.is_complete() && self.hub.is_admitted(self.hub.platform_namespace())
    }

    async fn permits(&self) -> Arc<Semaphore> {
        Arc::clone(&self.hub.find_lane(&self.key.namespace).await.limits.work)
    }

    async fn run_round(&mut self) -> Result<Option<Next>, ClusterError> {
        let Some(source) = self.current() else { return Ok(None) };
        let Some(proof) = self.creation_proof.clone().or_else(make_proof) else {
            return Ok(Some(wait_for_randomness(&self.key)));
        };
        self.creation_proof = Some(proof.clone());
        // observe
        let snapshot = self.observe(&source, proof);
        let snapshot = self.snapshot.insert(snapshot);
        // plan
        let plan = plan(snapshot, Timestamp::now());
        tracing::debug!(plan = %plan, "planned");
        let next = plan.next.clone();
        // execute and write
        let memory = &mut snapshot.memory;
        let records = (&mut self.objects, &mut snapshot.attempt);
        let remember = |planned| *memory = planned;
        let history = &mut self.event_history;
        if !carry_out(&self.hub, source.as_ref(), plan, records, history, remember).await? {
            return Ok(None);
        }
        let next = self.objects.check_end(next);
        if matches!(next, Next::Done(_)) {
            snapshot.live.clear();
            drop_objects(&mut snapshot.attempt, &source.metadata);
        }
        Ok(Some(next))
    }

    fn restart(&mut self) {
        self.objects.begin_attempt();
        match (self.current(), &mut self.snapshot) {
            (Some(source), Some(snapshot)) => {
                snapshot.attempt = Attempt::begin(Timestamp::now(), &source.metadata);
            }
            _ => self.snapshot = None,
        }
    }

    async fn needs_attempt(&mut self, changed: &HashSet<ObjectId>) -> bool {
        let (Some(source), Some(snapshot)) = (self.current(), &self.snapshot) else {
            return true;
        };
        let claimed = self.hub.packages.find_claimed(&self.key.name);
        snapshot.is_overtaken(&source, &claimed) || self.objects.has_news(changed)
    }

    fn forget(&mut self) {
        self.snapshot = None;
        self.objects.release();
    }

    fn exists(&self) -> bool {
        self.current().is_some()
    }
}
