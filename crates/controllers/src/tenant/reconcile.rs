//! One Tenant's rounds. Keeps the Snapshot from round to round; every choice is the plan's.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::core::DynamicObject;
use serde_json::Value;
use tenure_api::metadata::TENANT_LABEL;
use tenure_api::{ObjectId, Tenant};
use tenure_cluster::ClusterError;
use tenure_planner::tenant::{Attempt, Snapshot, plan};
use tenure_planner::{Live, Next, Object, WriteAnswer};
use tenure_tenancy::Realm;
use tokio::sync::Semaphore;

use crate::cache::Cache;
use crate::drive::Reconciler;
use crate::execute::{Answer, execute};
use crate::key::Key;
use crate::own::Own;
use crate::world::World;

/// One Tenant's reconciler.
pub(crate) struct TenantReconciler {
    world: Arc<World>,
    key: Key,
    snapshot: Option<Snapshot>,
    /// What this attempt read or wrote and no watch has told of yet.
    answered: BTreeMap<ObjectId, Live>,
    /// What the last attempt saw when it ended.
    seen: Option<(Arc<Realm>, BTreeMap<ObjectId, Live>)>,
}

impl TenantReconciler {
    pub(crate) fn new(world: Arc<World>, key: Key) -> Self {
        Self {
            world,
            key,
            snapshot: None,
            answered: BTreeMap::new(),
            seen: None,
        }
    }

    fn current(&self) -> Option<Arc<Tenant>> {
        self.world.tenants.get("", &self.key.name)
    }

    /// The RoleBindings and ServiceAccounts that bear its label.
    fn labelled(&self) -> BTreeMap<ObjectId, Live> {
        let labelled = |cache: &Cache<DynamicObject>| {
            let objects = cache.all().into_iter();
            let objects = objects.filter(|object| object.labels().get(TENANT_LABEL) == Some(&self.key.name));
            objects
                .filter_map(|object| {
                    let object = serde_json::to_value(object.as_ref()).ok()?;
                    Some((ObjectId::of(&object).ok()?, Live::Present(Object(object))))
                })
                .collect::<Vec<_>>()
        };
        let mut found = labelled(&self.world.role_bindings);
        found.extend(labelled(&self.world.service_accounts));
        found.into_iter().collect()
    }

    fn observe(&mut self, tenant: &Tenant) -> &mut Snapshot {
        let realm = self.world.realm();
        let labelled = self.labelled();
        let mut live = labelled.clone();
        for (id, answer) in &self.answered {
            live.entry(id.clone()).or_insert_with(|| answer.clone());
        }
        self.seen = Some((Arc::clone(&realm), labelled));
        let snapshot = self.snapshot.get_or_insert_with(|| Snapshot {
            tenant: tenant.clone(),
            realm: Realm::default(),
            live: BTreeMap::new(),
            attempt: Attempt::begin(Timestamp::now(), tenant),
        });
        snapshot.tenant = tenant.clone();
        snapshot.realm = realm.as_ref().clone();
        snapshot.live = live;
        snapshot
    }

    fn take(&mut self, answer: Answer) {
        let Some(snapshot) = &mut self.snapshot else { return };
        match answer {
            Answer::Live(id, answer) => {
                self.answered.insert(id, answer);
            }
            Answer::Applied(id, answer) => {
                if let WriteAnswer::Done(object) = &answer {
                    self.answered.insert(id.clone(), Live::Present(object.clone()));
                }
                snapshot.attempt.applied.insert(id, answer);
            }
            Answer::Deleted(id, answer) => {
                snapshot.attempt.deleted.insert(id, answer);
            }
            Answer::Kind(..) | Answer::DryRun(..) | Answer::TakenOver(..) => {}
        }
    }
}

impl Reconciler for TenantReconciler {
    fn key(&self) -> &Key {
        &self.key
    }

    async fn permits(&self) -> Arc<Semaphore> {
        Arc::clone(&self.world.lanes.platform().work)
    }

    async fn round(&mut self) -> Result<Option<Next>, ClusterError> {
        let Some(tenant) = self.current() else { return Ok(None) };
        // observe
        let snapshot = self.observe(&tenant);
        // plan
        let plan = plan(snapshot, Timestamp::now());
        tracing::debug!(plan = %plan, "planned");
        // execute
        let status = serde_json::to_value(&tenant.status).unwrap_or(Value::Null);
        let own = Own::new(&self.key, &tenant.metadata, status);
        if let Some(change) = &plan.finalizer {
            own.change_finalizer(&self.world, change).await?;
        }
        if let (false, Some(identity)) = (plan.steps.is_empty(), &plan.identity) {
            let client = self.world.clients.for_identity(identity).await?;
            for answer in execute(&self.world.clients, &client, &plan.steps).await {
                self.take(answer);
            }
        }
        // write
        if let Some(status) = &plan.status {
            own.write_status(&self.world, status).await?;
        }
        own.write_events(&self.world, &plan.events).await;
        Ok(Some(plan.next))
    }

    fn restart(&mut self) {
        self.answered.clear();
        match (self.current(), &mut self.snapshot) {
            (Some(tenant), Some(snapshot)) => snapshot.attempt = Attempt::begin(Timestamp::now(), &tenant),
            _ => self.snapshot = None,
        }
    }

    async fn triggered(&mut self, _changed: &HashSet<ObjectId>) -> bool {
        let (Some(tenant), Some(snapshot)) = (self.current(), &self.snapshot) else {
            return true;
        };
        let Some((realm, labelled)) = &self.seen else {
            return true;
        };
        snapshot.attempt.generation != tenant.metadata.generation
            || snapshot.tenant.metadata.uid != tenant.metadata.uid
            || snapshot.tenant.metadata.annotations != tenant.metadata.annotations
            || snapshot.tenant.metadata.deletion_timestamp != tenant.metadata.deletion_timestamp
            || **realm != *self.world.realm()
            || *labelled != self.labelled()
    }

    fn forget(&mut self) {
        self.snapshot = None;
        self.answered.clear();
        self.seen = None;
    }

    fn exists(&self) -> bool {
        self.current().is_some()
    }
}
