//! The rounds of one Tenant. The Snapshot stays from round to round. The plan makes every choice.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use kube::Resource;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::Serialize;
use tenure_api::{ObjectId, Tenant};
use tenure_cluster::{ClusterError, EventHistory};
use tenure_planner::tenant::{Attempt, Memory, Snapshot, account_access, plan};
use tenure_planner::{KnownObjects, Live, Next, Object};
use tokio::sync::Semaphore;

use crate::cluster_view::cache::Cache;
use crate::cluster_view::key::Key;
use crate::hub::Hub;
use crate::hub_kinds::plan_steps::carry_out;
use crate::hub_kinds::tenant::other_accounts;
use crate::reconcile_loop::object_loop::Reconciler;

/// The reconciler of one Tenant.
pub(crate) struct TenantReconciler {
    hub: Arc<Hub>,
    key: Key,
    snapshot: Option<Snapshot>,
    event_history: EventHistory,
    answered: KnownObjects,
}

impl TenantReconciler {
    pub(crate) fn new(hub: Arc<Hub>, key: Key) -> Self {
        Self {
            hub,
            key,
            snapshot: None,
            event_history: EventHistory::default(),
            answered: KnownObjects::default(),
        }
    }

    fn current(&self) -> Option<Arc<Tenant>> {
        self.hub.caches.get::<Tenant>().get("", &self.key.name)
    }

    /// Returns the namespaces and the objects that have the Tenant's label. The Tenant may have created these objects.
    fn list_labelled(&self) -> BTreeMap<ObjectId, Live> {
        let hub = &self.hub;
        let mut found = BTreeMap::new();
        for cache in [
            &hub.role_bindings,
            &hub.service_accounts,
            &hub.limit_ranges,
            &hub.network_policies,
        ] {
            self.collect(cache, false, &mut found);
        }
        self.collect(&hub.resource_quotas, hub.shares_quotas(&self.key.name), &mut found);
        self.collect(&hub.namespaces, false, &mut found);
        found
    }

    /// Collects objects. The status is left out if the plan does not use it: the status of a quota changes with each Pod.
    fn collect<K: Resource + Serialize>(
        &self,
        cache: &Cache<K>,
        with_status: bool,
        into: &mut BTreeMap<ObjectId, Live>,
    ) {
        for object in cache.find(&self.key.name) {
            let Ok(mut object) = serde_json::to_value(object.as_ref()) else {
                continue;
            };
            if let Some(fields) = object.as_object_mut()
                && !with_status
            {
                fields.remove("status");
            }
            if let Ok(id) = ObjectId::from_object(&object) {
                into.insert(id, Live::Present(Object(object)));
            }
        }
    }

    fn observe(&mut self, tenant: &Tenant) -> &mut Snapshot {
        let tenancy = self.hub.extract_tenancy(tenant);
        let labelled = self.list_labelled();
        let live = self.answered.merge_watched(labelled);
        let snapshot = self.snapshot.get_or_insert_with(|| Snapshot {
            tenant: tenant.clone(),
            tenancy: Arc::clone(&tenancy),
            live: BTreeMap::new(),
            access_findings: None,
            creation_proof: make_proof(),
            are_policies_in_force: false,
            attempt: Attempt::new(Timestamp::now(), &tenant.metadata),
            memory: Memory::default(),
        });
        snapshot.tenant = tenant.clone();
        snapshot.tenancy = tenancy;
        snapshot.are_policies_in_force = self.hub.are_policies_in_force();
        snapshot.live = live;
        snapshot
    }
}

/// Returns 128 random bits. Without randomness the proof is empty: a namespace whose record is lost by a crash then waits for an administrator.
fn make_proof() -> String {
    let mut bytes = [0_u8; 16];
    match SystemRandom::new().fill(&mut bytes) {
        Ok(()) => hex::encode(bytes),
        Err(_) => String::new(),
    }
}

impl Reconciler for TenantReconciler {
    fn key(&self) -> &Key {
        &self.key
    }

    async fn permits(&self) -> Arc<Semaphore> {
        Arc::clone(&self.hub.find_lane(&self.key.namespace).await.limits.work)
    }

    async fn run_round(&mut self) -> Result<Option<Next>, ClusterError> {
        let Some(tenant) = self.current() else { return Ok(None) };
        // observe
        let snapshot = self.observe(&tenant);
        let due = account_access::find_due(
            &tenant,
            &snapshot.tenancy,
            snapshot.access_findings.as_ref(),
            Timestamp::now(),
        );
        if let Some(place) = due {
            let witness = other_accounts::read_findings(&self.hub, place).await?;
            self.observe(&tenant).access_findings = Some(witness);
        }
        let Some(snapshot) = &mut self.snapshot else {
            return Ok(None);
        };
        // plan
        let plan = plan(snapshot, Timestamp::now());
        tracing::debug!(plan = %plan, "planned");
        snapshot.memory = plan.memory.clone();
        // execute and write
        let take = |answer| {
            if let Some(snapshot) = &mut self.snapshot {
                self.answered.record_answer(&mut snapshot.attempt, answer);
            }
        };
        let event_history = &mut self.event_history;
        carry_out(&self.hub, tenant.as_ref(), &plan, event_history, take).await?;
        let Some(snapshot) = &self.snapshot else {
            return Ok(None);
        };
        let now = Timestamp::now();
        Ok(Some(self.answered.check_end(plan.next, &snapshot.attempt, now)))
    }

    fn restart(&mut self) {
        self.answered.clear();
        match (self.current(), &mut self.snapshot) {
            (Some(tenant), Some(snapshot)) => snapshot.attempt = Attempt::new(Timestamp::now(), &tenant.metadata),
            _ => self.snapshot = None,
        }
    }

    async fn needs_attempt(&mut self, _changed: &HashSet<ObjectId>) -> bool {
        let (Some(tenant), Some(snapshot)) = (self.current(), &self.snapshot) else {
            return true;
        };
        snapshot.are_policies_in_force != self.hub.are_policies_in_force()
            || snapshot.is_overtaken(&tenant, &self.hub.extract_tenancy(&tenant))
            || self.answered.has_news(&self.list_labelled())
    }

    fn forget(&mut self) {
        self.snapshot = None;
        self.answered.forget();
    }

    fn exists(&self) -> bool {
        self.current().is_some()
    }
}
