//! The rounds of one Package. The Snapshot stays from round to round. The plan makes every choice.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use tenure_api::metadata::TENANT_LABEL;
use tenure_api::{ObjectId, Package, PackageSource};
use tenure_cluster::{ClusterError, EventHistory};
use tenure_planner::Next;
use tenure_planner::package::{Attempt, Memory, Snapshot, plan};
use tenure_tenancy::Placement;
use tokio::sync::Semaphore;

use crate::cluster_view::key::Key;
use crate::hub::Hub;
use crate::hub_kinds::recorded_objects::{RecordedObjects, carry_out, drop_objects, make_proof, wait_for_randomness};
use crate::lane::HubApi as _;
use crate::reconcile_loop::object_loop::Reconciler;
use crate::reconcile_loop::reconciled::Home as _;

/// The reconciler of one Package.
pub(crate) struct PackageReconciler {
    hub: Arc<Hub>,
    key: Key,
    snapshot: Option<Snapshot>,
    event_history: EventHistory,
    objects: RecordedObjects,
    creation_proof: Option<String>,
}

impl PackageReconciler {
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

    fn current(&self) -> Option<Arc<Package>> {
        self.hub.caches.get::<Package>().get("", &self.key.name)
    }

    fn find_source(&self) -> Option<Arc<PackageSource>> {
        self.hub.caches.get::<PackageSource>().get("", &self.key.name)
    }

    /// Returns the Tenants of the namespaces that it wants releases in. A namespace that a Tenant claims counts as its own.
    fn list_tenants(&self) -> BTreeMap<String, String> {
        let hub = &self.hub;
        let find_tenant = |namespace: String| {
            let tenant = match hub.place_seen(&namespace) {
                Placement::Tenant(tenant) => tenant.tenant.to_string(),
                Placement::Disputed { .. } => {
                    let found = hub.namespaces.get("", &namespace);
                    let labels = found.as_ref().and_then(|found| found.metadata.labels.as_ref());
                    let named = labels.and_then(|labels| labels.get(TENANT_LABEL).cloned());
                    named.unwrap_or_else(|| "unknown".to_owned())
                }
                Placement::Platform { .. } | Placement::Unclaimed { .. } => return None,
            };
            Some((namespace, tenant))
        };
        let namespaces = hub.packages.list_namespaces(&self.key.name);
        namespaces.into_iter().filter_map(find_tenant).collect()
    }

    fn observe(&mut self, package: &Package, creation_proof: String) -> Snapshot {
        let source = self.find_source();
        let before = self.snapshot.take();
        let (attempt, memory) = match before {
            Some(snapshot) => (snapshot.attempt, snapshot.memory),
            None => (Attempt::begin(Timestamp::now(), &package.metadata), Memory::default()),
        };
        Snapshot {
            package: package.clone(),
            source: source.as_deref().cloned(),
            overrides: self.hub.find_overrides(&self.key.name),
            neighbours: self.hub.packages.find_neighbours(&self.key.name),
            settings: self.hub.context.packages.clone(),
            tenants: self.list_tenants(),
            live: self.objects.observe(),
            creation_proof,
            attempt,
            memory,
        }
    }
}

impl Reconciler for PackageReconciler {
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
        let Some(package) = self.current() else { return Ok(None) };
        let Some(proof) = self.creation_proof.clone().or_else(make_proof) else {
            return Ok(Some(wait_for_randomness(&self.key)));
        };
        self.creation_proof = Some(proof.clone());
        // observe
        let snapshot = self.observe(&package, proof);
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
        if !carry_out(&self.hub, package.as_ref(), plan, records, history, remember).await? {
            return Ok(None);
        }
        let next = self.objects.check_end(next);
        if matches!(next, Next::Done(_)) {
            snapshot.live.clear();
            drop_objects(&mut snapshot.attempt, &package.metadata);
        }
        Ok(Some(next))
    }

    fn restart(&mut self) {
        self.objects.begin_attempt();
        match (self.current(), &mut self.snapshot) {
            (Some(package), Some(snapshot)) => {
                snapshot.attempt = Attempt::begin(Timestamp::now(), &package.metadata);
            }
            _ => self.snapshot = None,
        }
    }

    async fn needs_attempt(&mut self, changed: &HashSet<ObjectId>) -> bool {
        let (Some(package), Some(snapshot)) = (self.current(), &self.snapshot) else {
            return true;
        };
        let neighbours = self.hub.packages.find_neighbours(&self.key.name);
        let overrides = self.hub.find_overrides(&self.key.name);
        snapshot.is_overtaken(&package, self.find_source().as_deref(), overrides.as_ref(), &neighbours)
            || snapshot.tenants != self.list_tenants()
            || self.objects.has_news(changed)
    }

    fn forget(&mut self) {
        self.snapshot = None;
        self.objects.release();
    }

    fn exists(&self) -> bool {
        self.current().is_some()
    }
}
