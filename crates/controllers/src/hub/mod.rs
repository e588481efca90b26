//! The hub: Tenants, namespaces and Surfaces, and the lane of each namespace. The hub passes the events of watches to lanes, and answers their
//! questions about their surroundings. It does not store the state of lanes: it only knows where the state is.
//!
//! - `access_lookup`: what other modules ask `git_access`.
//! - `cluster_wide_rights`: ClusterRoles and their bindings, as last read.
//! - `endpoint_handlers`: artifacts and requests to Receivers, from the listeners to the lanes.
//! - `lane_fleet`: the processes and Pods of lanes.
//! - `lane_report`: the condition about lanes in the Enforcement.
//! - `lane_rights`: RoleBindings and accounts of lanes.
//! - `package_table`: summaries of Packages and PackageSources.
//! - `placement_cache`: the tenant of each namespace.
//! - `policies`: tenancy's policies and the facts that they read.
//! - `shared_minting`: lanes that may request an administrator's token.
//! - `task_table`: running tasks by Tenant and namespace.
//! - `tenancy_changes`: changes of Tenants and namespaces.

pub(crate) mod access_lookup;
pub(crate) mod cluster_wide_rights;
mod endpoint_handlers;
pub(crate) mod lane_fleet;
pub(crate) mod lane_report;
pub(crate) mod lane_rights;
pub(crate) mod package_table;
pub(crate) mod placement_cache;
pub(crate) mod policies;
pub(crate) mod shared_minting;
pub(crate) mod task_table;
mod tenancy_changes;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Namespace;
use kube::core::DynamicObject;
use kube::{Resource, ResourceExt as _};
use tenure_api::metadata::TENANT_LABEL;
use tenure_api::{Kustomization, ObjectId, Surface};
use tenure_cluster::{Client, ClusterError, LaneAccess};
use tenure_planner::receiver::HookPath;
use tenure_tenancy::lane::{Lane as Whose, decide_lane};
use tenure_tenancy::{AffectedObjects, Holder, Identity, LaneAccount, Placement, Termination, identity};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::cluster_view::cache::{Cache, CacheByKind};
use crate::cluster_view::key::Key;
use crate::cluster_view::mailbox::MailboxTable;
use crate::context::ControllerContext;
use crate::hub::access_lookup::AccessLookup;
use crate::hub::cluster_wide_rights::ClusterWideRights;
use crate::hub::lane_fleet::{HubOverview, LaneFleet};
use crate::hub::package_table::PackageTable;
use crate::hub::placement_cache::PlacementCache;
use crate::hub::shared_minting::SharedMintingTable;
use crate::hub::task_table::TaskTable;
use crate::lane::lane_references::BorrowedObject;
use crate::lane::lane_table::{LaneTable, name_lane};
use crate::lane::{HubApi, Lane, OwnerAnswer, Shard, ShardLookup};
use crate::lane_kinds::kustomization;
use crate::reconcile_loop::kind_entry::KindEntry;
use crate::reconcile_loop::reconciled::{Home, Reconciled as _};
use crate::telemetry::metrics::{Metrics, ObjectSample, StateView};

/// Returns the name of the Tenant whose label the object has.
fn list_tenants<K: Resource>(object: &K) -> Vec<String> {
    object.labels().get(TENANT_LABEL).cloned().into_iter().collect()
}

/// The state of the hub: caches of Tenants, Surfaces and namespaces, the lane of each namespace, and handles of the hub's tasks.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) context: Arc<ControllerContext>,
    /// Tenants, Surfaces, Packages, PackageSources and PackageValues.
    pub(crate) caches: CacheByKind,
    /// The summaries of Packages and PackageSources.
    pub(crate) packages: Arc<PackageTable>,
    pub(crate) namespaces: Cache<Namespace>,
    /// RoleBindings with the label of a Tenant.
    pub(crate) role_bindings: Cache<DynamicObject>,
    /// ServiceAccounts with the label of a Tenant.
    pub(crate) service_accounts: Cache<DynamicObject>,
    /// LimitRanges with the label of a Tenant.
    pub(crate) limit_ranges: Cache<DynamicObject>,
    /// NetworkPolicies with the label of a Tenant.
    pub(crate) network_policies: Cache<DynamicObject>,
    /// ResourceQuotas with the label of a Tenant.
    pub(crate) resource_quotas: Cache<DynamicObject>,
    /// The RoleBindings of lanes.
    pub(crate) lane_bindings: Cache<DynamicObject>,
    /// The accounts of lanes.
    pub(crate) lane_accounts: Cache<DynamicObject>,
    /// Tenancy's policies, if this process keeps them in force.
    pub(crate) policies: Cache<DynamicObject>,
    /// The bindings of these policies.
    pub(crate) policy_bindings: Cache<DynamicObject>,
    /// The Kustomizations that refused hand edits at the last check of the policies, by namespace and name.
    pub(crate) refusing: Mutex<BTreeSet<(String, String)>>,
    /// Notified after a possible change of a policy, or of a fact from which policies follow.
    pub(crate) policy_news: Arc<Notify>,
    /// Whether the API server has applied the current policies to a request.
    policies_in_force: AtomicBool,
    /// Lanes of several namespaces that may request an administrator's token.
    pub(crate) shared_minting: SharedMintingTable,
    /// The cluster-wide bindings, as last read for a Tenant.
    pub(crate) wide_rights: tokio::sync::Mutex<Option<Arc<ClusterWideRights>>>,
    /// The lane that has its rights in each namespace.
    admitted: Mutex<HashMap<String, LaneAccount>>,
    /// The kinds that the hub reconciles.
    pub(crate) kinds: Arc<[KindEntry<Self>]>,
    /// The kinds that are reconciled in lanes.
    pub(crate) lane_kinds: Arc<[KindEntry<Shard>]>,
    lanes: LaneTable,
    /// The lane of each namespace in which something is reconciled.
    lanes_by_namespace: Mutex<HashMap<String, Arc<Lane>>>,
    placements: Arc<PlacementCache>,
    /// The processes of lanes, unless lanes are tasks.
    fleet: OnceLock<Arc<LaneFleet>>,
    /// The objects that a change of Tenants or namespaces concerns, and that are about to be notified.
    pending_wakeups: Arc<Mutex<Option<AffectedObjects>>>,
    /// Whether writers from other namespaces to a created or deleted namespace are about to be notified.
    is_wakeup_pending: Arc<AtomicBool>,
    /// The lookup of approved access, if this process reconciles access.
    access: OnceLock<Weak<dyn AccessLookup>>,
    /// The part that this instance reconciles, if it is one of several.
    task_table: OnceLock<Arc<TaskTable>>,
    /// Shards of the namespaces that this process watches. For a namespace of another instance, no other reference keeps the shard.
    watched_shards: Mutex<HashMap<String, Arc<Shard>>>,
    /// Notified after a possible change of a namespace's tenant.
    tenancy_changed: Arc<Notify>,
}

impl Hub {
    /// Creates a hub. `lane_kinds` are the kinds that its lanes reconcile.
    pub(crate) fn new(
        context: ControllerContext,
        kinds: Arc<[KindEntry<Self>]>,
        lane_kinds: Arc<[KindEntry<Shard>]>,
    ) -> Arc<Self> {
        let context = Arc::new(context);
        Arc::new(Self {
            lanes: LaneTable::new(Arc::clone(&context)),
            placements: Arc::new(PlacementCache::new(context.settings.clone())),
            packages: Arc::new(PackageTable::new(&context)),
            context,
            caches: CacheByKind::default(),
            namespaces: Cache::by_terms(list_tenants),
            role_bindings: Cache::by_terms(list_tenants),
            service_accounts: Cache::by_terms(list_tenants),
            limit_ranges: Cache::by_terms(list_tenants),
            network_policies: Cache::by_terms(list_tenants),
            resource_quotas: Cache::by_terms(list_tenants),
            lane_bindings: Cache::default(),
            lane_accounts: Cache::default(),
            policies: Cache::default(),
            policy_bindings: Cache::default(),
            refusing: Mutex::default(),
            policy_news: Arc::default(),
            policies_in_force: AtomicBool::new(false),
            shared_minting: SharedMintingTable::default(),
            wide_rights: tokio::sync::Mutex::default(),
            admitted: Mutex::default(),
            kinds,
            lane_kinds,
            lanes_by_namespace: Mutex::default(),
            fleet: OnceLock::new(),
            pending_wakeups: Arc::default(),
            is_wakeup_pending: Arc::default(),
            access: OnceLock::new(),
            task_table: OnceLock::new(),
            watched_shards: Mutex::default(),
            tenancy_changed: Arc::default(),
        })
    }

    fn lanes_by_namespace(&self) -> MutexGuard<'_, HashMap<String, Arc<Lane>>> {
        self.lanes_by_namespace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the placement of a namespace (whose it is), from the facts that watches have reported.
    fn find_placement(&self, namespace: &str) -> Placement {
        self.placements.find_placement(namespace)
    }

    /// Returns the tenant that has recorded a namespace.
    pub(crate) fn find_holder(&self, namespace: &str) -> Holder {
        self.placements.find_holder(namespace)
    }

    /// Returns the lane of a namespace, or the platform's lane for an empty name.
    pub(crate) async fn find_lane(&self, namespace: &str) -> Arc<Lane> {
        let namespace = match namespace {
            "" => self.context.settings.platform_namespace.as_str(),
            namespace => namespace,
        };
        self.lanes.find_lane(&self.read_placement(namespace).await, namespace)
    }

    /// Returns the client of a plan's identity, for work in a namespace.
    pub(crate) async fn act_as(&self, who: &Identity, namespace: &str) -> Result<Client, ClusterError> {
        let lane = self.find_lane(namespace).await;
        match who {
            Identity::Controller(_) => Ok(lane.act_as_controller()),
            Identity::Lane(account) => Ok(self.context.clients.for_lane(&LaneAccess {
                account: account.clone(),
                ..lane.access()
            })),
            Identity::ServiceAccount(account) => lane.act_as(account).await,
            Identity::SecretWriter(writer) => self.context.clients.for_secret_writer(writer, &lane.access()).await,
            // This identity has rights only in another cluster.
            Identity::Elsewhere(_) => Err(ClusterError::Unauthorized {
                identity: who.clone(),
                message: "it has no identity in this cluster".to_owned(),
            }),
        }
    }

    /// Checks whether something in a namespace is reconciled. The platform namespace always counts: its lane takes messages that no other lane can
    /// take.
    pub(crate) fn is_worked_in(&self, namespace: &str) -> bool {
        namespace == self.context.settings.platform_namespace
            || self.lanes_by_namespace().contains_key(namespace)
            || !self.caches.get::<Surface>().in_namespace(namespace).is_empty()
    }

    /// Sets the lane that has its rights in a namespace now, or none, and wakes the objects that waited for it.
    pub(crate) fn admit(&self, namespace: &str, lane: Option<&LaneAccount>) {
        let mut admitted = self.admitted.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match lane {
            Some(lane) => admitted.insert(namespace.to_owned(), lane.clone()),
            None => admitted.remove(namespace),
        };
        drop(admitted);
        if before.as_ref() == lane {
            return;
        }
        if lane.is_some() {
            self.context.mailboxes.wake_in(namespace);
            if namespace == self.context.settings.platform_namespace {
                self.context.mailboxes.wake_where(task_table::is_platforms);
            }
        }
        if let Some(fleet) = self.fleet() {
            fleet.assign_namespace(namespace);
        }
    }

    /// Returns the lane's shard of a namespace in which something is reconciled.
    pub(crate) fn find_shard(&self, namespace: &str) -> Option<Arc<Shard>> {
        let lane = self.lanes_by_namespace().get(namespace).cloned();
        lane?.find_shard(namespace)
    }

    /// Returns the shards of all lanes.
    pub(crate) fn list_shards(&self) -> Vec<Arc<Shard>> {
        let lanes_by_namespace: Vec<(String, Arc<Lane>)> = self
            .lanes_by_namespace()
            .iter()
            .map(|(namespace, lane)| (namespace.clone(), Arc::clone(lane)))
            .collect();
        let shards = lanes_by_namespace
            .iter()
            .filter_map(|(namespace, lane)| lane.find_shard(namespace));
        shards.collect()
    }

    /// Returns the lane's shard of a namespace in which something will be reconciled, and creates it if it is missing.
    pub(crate) fn open_shard(self: &Arc<Self>, namespace: &str) -> Arc<Shard> {
        let placement = self.find_placement(namespace);
        let mut lanes_by_namespace = self.lanes_by_namespace();
        let lane = lanes_by_namespace
            .entry(namespace.to_owned())
            .or_insert_with(|| self.lanes.find_lane(&placement, namespace));
        lane.open_shard(namespace, || {
            let hub_api: Arc<dyn HubApi> = Arc::clone(self) as _;
            Shard::new(namespace, &self.lane_kinds, hub_api, &self.context)
        })
    }

    /// Sets the part that this instance reconciles. Called once, before the watches start.
    pub(crate) fn set_task_table(&self, task_table: Arc<TaskTable>) {
        let _set_once = self.task_table.set(task_table);
    }

    /// Stores the shard of a watched namespace while it has objects. A deletion (`has_gone`) may leave it empty.
    pub(crate) fn hold(&self, shard: &Arc<Shard>, has_gone: bool) {
        let is_empty = has_gone && shard.is_empty();
        let mut watched_shards = self.watched_shards.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match is_empty {
            true => watched_shards.remove(&shard.namespace),
            false => watched_shards.insert(shard.namespace.clone(), Arc::clone(shard)),
        };
        drop(watched_shards);
        // Drop outside the lock: the drop closes the namespace, which takes the lock.
        drop(before);
    }

    /// Checks whether this instance works on a namespace.
    fn works_on(&self, namespace: &str) -> bool {
        self.task_table
            .get()
            .is_none_or(|task_table| task_table.has_namespace(namespace))
    }

    /// Returns the notification of possible changes of the namespaces' tenants.
    pub(crate) fn tenancy_changes(&self) -> &Notify {
        &self.tenancy_changed
    }

    /// Sets the lookup of delivered access. Called once, before the watches start.
    pub(crate) fn set_access(&self, lookup: Weak<dyn AccessLookup>) {
        let _set_once = self.access.set(lookup);
    }

    /// Returns the Secret of a namespace with which the project at a URL is fetched, if its access was approved and delivered.
    pub(crate) fn find_access_secret(&self, namespace: &str, url: &str) -> Option<String> {
        self.access()?.find_secret(namespace, url)
    }

    /// Returns the lookup of access, if this process reconciles access.
    pub(crate) fn access(&self) -> Option<Arc<dyn AccessLookup>> {
        self.access.get()?.upgrade()
    }

    /// Sets the fleet that runs the processes of lanes. Called once, before the watches start.
    pub(crate) fn set_fleet(&self, fleet: Arc<LaneFleet>) {
        let _set_once = self.fleet.set(fleet);
    }

    /// Returns the fleet that runs the processes of lanes; `None` if lanes are tasks.
    pub(crate) fn fleet(&self) -> Option<&Arc<LaneFleet>> {
        self.fleet.get()
    }

    /// Returns the reason why the process of a namespace's lane is down, as text.
    pub(crate) fn find_lane_trouble(&self, namespace: &str) -> Option<String> {
        self.fleet()?.find_trouble(namespace)
    }

    /// Wakes the objects of the hub that depend on a changed object of any namespace.
    pub(crate) fn wake_dependents(&self, changed: &Key) {
        for entry in self.kinds.iter() {
            for dependent in (entry.list_dependents)(self, changed) {
                self.context.mailboxes.wake(&dependent);
            }
        }
    }
}

impl HubApi for Hub {
    /// Asks the API server for a namespace that no watch has reported yet, so that objects created right after it are not refused.
    fn read_placement<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Placement> {
        async move {
            let removals = self.namespaces.removals();
            let controller = &self.context.controller;
            if self.namespaces.get("", namespace).is_none()
                && let Ok(resource) = controller.resource("v1", "Namespace").await
                && let Ok(Some(found)) = controller.find(&resource, "", namespace).await
                && let Ok(found) = serde_json::from_value::<Namespace>(found)
            {
                self.namespaces.record_found(found, removals);
                self.take_namespace(namespace);
            }
            self.find_placement(namespace)
        }
        .boxed()
    }

    fn find_lane<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Arc<Lane>> {
        async move {
            let now = self.find_lane(namespace).await;
            if let Some(before) = self.lanes_by_namespace().get_mut(namespace)
                && !Arc::ptr_eq(before, &now)
            {
                now.take_shard(namespace, before);
                *before = Arc::clone(&now);
            }
            now
        }
        .boxed()
    }

    fn find_other_shard(&self, namespace: &str) -> ShardLookup {
        match self.find_shard(namespace) {
            Some(shard) if self.works_on(namespace) => ShardLookup::Here(shard),
            // Another instance has the artifacts of that namespace.
            Some(_) => ShardLookup::Apart,
            None => ShardLookup::Nothing,
        }
    }

    /// Borrows only from namespaces of this instance. For other namespaces the objects are visible here, but their artifacts are not.
    fn borrow<'a>(&'a self, _from: &'a str, key: &'a Key) -> BoxFuture<'a, BorrowedObject> {
        let shard = self.find_shard(&key.namespace).filter(|shard| shard.has(key));
        let borrowed = match shard {
            None => BorrowedObject::Nothing,
            Some(shard) if key.kind == Kustomization::KIND => {
                let found = shard.caches.get::<Kustomization>().get(&key.namespace, &key.name);
                found.map_or(BorrowedObject::Nothing, BorrowedObject::Kustomization)
            }
            Some(_) => BorrowedObject::Unknown(
                "it is in another shard (sharding.fluxcd.io/key), and artifacts are not passed between shards"
                    .to_owned(),
            ),
        };
        std::future::ready(borrowed).boxed()
    }

    fn find_ending(&self, namespace: &str) -> Option<Termination> {
        self.placements.find_ending(namespace)
    }

    fn find_endings<'a>(&'a self, namespaces: &'a BTreeSet<String>) -> BoxFuture<'a, BTreeSet<String>> {
        let is_ending = |namespace: &&String| {
            let found = self.namespaces.get("", namespace);
            found.is_some_and(|found| found.metadata.deletion_timestamp.is_some())
        };
        std::future::ready(namespaces.iter().filter(is_ending).cloned().collect()).boxed()
    }

    fn ask_owner<'a>(
        &'a self,
        (namespace, name): (&'a str, &'a str),
        objects: &'a [ObjectId],
        cluster: Option<&'a str>,
    ) -> BoxFuture<'a, Option<OwnerAnswer>> {
        async move {
            let shard = self.find_shard(namespace)?;
            kustomization::answer_owner(&shard, name, objects, cluster).await
        }
        .boxed()
    }

    fn is_admitted(&self, namespace: &str) -> bool {
        let lane = identity::decide_for_lane(&self.find_placement(namespace), namespace);
        let admitted = self.admitted.lock().unwrap_or_else(PoisonError::into_inner);
        admitted.get(namespace) == Some(&lane)
    }

    fn find_shard(&self, namespace: &str) -> Option<Arc<Shard>> {
        Self::find_shard(self, namespace)
    }

    fn set_receiver_path(&self, receiver: &Key, path: Option<&HookPath>) {
        self.context.receiver_endpoint.set(receiver, path);
    }

    fn close(&self, namespace: &str) {
        let mut lanes_by_namespace = self.lanes_by_namespace();
        if lanes_by_namespace
            .get(namespace)
            .is_some_and(|lane| lane.drop_shard(namespace))
        {
            lanes_by_namespace.remove(namespace);
        }
        drop(lanes_by_namespace);
        self.context.mailboxes.wake(&Key::of_rights(namespace));
    }
}

impl HubOverview for Hub {
    fn has_seen(&self, namespace: &str) -> bool {
        self.namespaces.get("", namespace).is_some()
    }

    fn place_known(&self, namespace: &str) -> Placement {
        self.find_placement(namespace)
    }

    fn list_surfaces(&self, namespace: &str) -> Vec<Key> {
        let there = self.caches.get::<Surface>().in_namespace(namespace);
        let keys = there
            .iter()
            .map(|surface| Key::from_metadata(Surface::KIND, &surface.metadata));
        keys.collect()
    }

    fn find_bookkeeper<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Client> {
        self.bookkeeper_of(namespace).boxed()
    }
}

impl StateView for Hub {
    fn find_owner(&self, namespace: &str) -> String {
        match decide_lane(&self.find_placement(namespace), namespace) {
            Whose::Pool if !namespace.is_empty() => format!("namespace/{namespace}"),
            whose => name_lane(&whose),
        }
    }

    fn find_lane(&self, namespace: &str) -> String {
        match namespace {
            // Cluster-scoped objects belong to the platform.
            "" => name_lane(&Whose::Platform),
            namespace => name_lane(&decide_lane(&self.find_placement(namespace), namespace)),
        }
    }

    fn visit(&self, visit: &mut dyn FnMut(ObjectSample<'_>)) {
        for entry in self.kinds.iter() {
            (entry.visit)(self, visit);
        }
        let mut shards = self.list_shards();
        shards.sort_by(|one, other| one.namespace.cmp(&other.namespace));
        for shard in shards {
            for entry in self.lane_kinds.iter() {
                (entry.visit)(&shard, visit);
            }
        }
    }

    fn list_processes(&self) -> Vec<(String, bool)> {
        self.fleet().map(|fleet| fleet.list_lanes()).unwrap_or_default()
    }
}

impl Home for Hub {
    fn caches(&self) -> &CacheByKind {
        &self.caches
    }

    fn metrics(&self) -> &Metrics {
        &self.context.metrics
    }

    fn mailboxes(&self) -> &MailboxTable {
        &self.context.mailboxes
    }

    fn controller(&self) -> &Client {
        &self.context.controller
    }

    async fn bookkeeper_of(&self, namespace: &str) -> Client {
        let lane = self.find_lane(namespace).await;
        if namespace.is_empty() {
            lane.act_as_controller()
        } else {
            lane.act_as_itself()
        }
    }

    fn platform_namespace(&self) -> &str {
        &self.context.settings.platform_namespace
    }

    fn ready(&self) -> &CancellationToken {
        &self.context.ready
    }
}

#[cfg(test)]
mod tests;
