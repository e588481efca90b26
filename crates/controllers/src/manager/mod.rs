//! Starts everything: the watches of the reconciled kinds as the controller, a task for every object, and their orderly end.
//!
//! - `election`: runs the controllers while this process leads.
//! - `lease_name`: the name of a Lease.
//! - `shard_tasks`: begins and ends the tasks of one of several instances.
//! - `watches`: the watches of the hub.

pub(crate) mod election;
pub(crate) mod lease_name;
pub(crate) mod shard_tasks;
mod watches;

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use kube::core::DynamicObject;
use serde_json::Value;
use tenure_api::access::AccessProvider;
use tenure_api::metadata::{LANE_BINDING, LANE_LABEL, LANE_PREFIX, PLATFORM_NAMESPACE, TENANT_LABEL};
use tenure_api::{Tenant, installation};
use tenure_planner::policies::is_managed_policy;
use tenure_sources::StorageError;
use tenure_tenancy::Instance;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::watches::OpenedWatch;
use crate::cluster_view::cache::Cache;
use crate::cluster_view::key::Key;
use crate::cluster_view::object_change::ObjectChange;
use crate::context::ControllerContext;
use crate::context::config::Config;
use crate::context::lane_settings::LANE_FOLDERS;
use crate::endpoints::artifact_endpoint::ArtifactKeeper;
use crate::endpoints::receiver_endpoint::RequestForwarder;
use crate::git_access::AccessHub;
use crate::hub::Hub;
use crate::hub::access_lookup::AccessLookup;
use crate::hub::lane_fleet::{HubOverview, LaneFleet, remove_folder};
use crate::hub::lane_report;
use crate::hub::lane_rights;
use crate::hub::policies;
use crate::hub::task_table::TaskTable;
use crate::kind_table::{self, KindTable};
use crate::lane::Shard;
use crate::manager::lease_name::LeaseName;
use crate::reconcile_loop::kind_entry::KindEntry;
use crate::reconcile_loop::reconciled::{Home, Reconciled as _};
use crate::sharding::{self, ShardPeers, ShardWork, WatchProgress};
use crate::telemetry::metrics::{AccessView, StateView};

/// The time limit for the tasks to end.
const FAREWELL: Duration = Duration::from_secs(20);
/// The interval at which unused file trees are dropped.
const SWEEP: Duration = Duration::from_secs(15);

/// Why the controllers could not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The folder for artifacts can't be used.
    #[error("the folder for artifacts can't be used: {0}")]
    Artifacts(#[from] StorageError),
    /// Another process leads, or may lead.
    #[error(
        "another process may lead now: the Lease was taken, or could not be renewed in time; everything has stopped here"
    )]
    Deposed,
    /// A program other than Tenure began to reconcile the same kinds.
    #[error(
        "Lease {} in namespace {} is held by {holder}, which reconciles the same kinds: these controllers have stopped. Scale the Deployment of that controller to 0",
        .lease.name,
        .lease.namespace
    )]
    OtherController {
        /// The Lease of that program.
        lease: LeaseName,
        /// The holder's name in the Lease.
        holder: String,
    },
}

/// Runs all controllers until `shutdown`. Running work then has at most twenty seconds to end.
///
/// The controllers wait for the kinds that everything needs (`watches::NEEDED_BY_ALL`). Any other unserved kind stops only its own reconcilers and
/// the objects that refer to it. The controllers watch a kind as soon as the API server serves it.
///
/// # Errors
/// [`RunError`] when they can't start.
pub fn run(config: Config, shutdown: CancellationToken) -> BoxFuture<'static, Result<(), RunError>> {
    Box::pin(run_kinds(kind_table::list_kinds(), config, shutdown))
}

/// Runs the controllers of these kinds.
pub(crate) async fn run_kinds(kinds: KindTable, config: Config, shutdown: CancellationToken) -> Result<(), RunError> {
    let given = config.clone();
    let hub = Hub::new(ControllerContext::new(config)?, kinds.hub.into(), kinds.lane.into());
    let access_hub = AccessHub::new(Arc::clone(&hub), kinds.access);
    let end = shutdown.child_token();
    // Dropping this future also ends everything that it started.
    let _end = end.clone().drop_guard();
    let tasks = TaskTracker::new();
    let shard_peers = given.shards.clone();
    let is_only = shard_peers
        .as_ref()
        .is_none_or(|shard_peers| shard_peers.instance == Instance::Only);
    let task_table = Arc::new(TaskTable::new(is_only, &tasks, &end));
    hub.set_task_table(Arc::clone(&task_table));
    hub.set_access(Arc::downgrade(&access_hub) as Weak<dyn AccessLookup>);
    hub.context
        .metrics
        .set_access(Arc::downgrade(&access_hub) as Weak<dyn AccessView>);
    let manager = Manager {
        hub: Arc::clone(&hub),
        access_hub,
        tasks,
        task_table,
        seen: Arc::default(),
        end,
    };
    hub.context
        .metrics
        .set_view(Arc::downgrade(&hub) as Weak<dyn StateView>);
    let overview = Arc::downgrade(&hub) as Weak<dyn HubOverview>;
    hub.context
        .receiver_endpoint
        .set_forwarder(Arc::downgrade(&hub) as Weak<dyn RequestForwarder>);
    given
        .artifact_endpoint
        .set_keeper(Arc::downgrade(&hub) as Weak<dyn ArtifactKeeper>);
    match LaneFleet::from_config(
        &given,
        (overview, &hub.context, &hub.lane_kinds),
        &manager.tasks,
        (&manager.end, &shutdown),
    ) {
        Some(fleet) => {
            let beyond = Arc::downgrade(&fleet);
            hub.context.mailboxes.set_beyond(move |key| {
                if let Some(fleet) = beyond.upgrade() {
                    fleet.wake(key);
                }
            });
            hub.set_fleet(fleet);
        }
        // Artifacts from an earlier run with lane processes are useless here.
        None => drop(remove_folder(&given.artifacts.join(LANE_FOLDERS))),
    }
    let _whether_it_was_ended = manager.end.run_until_cancelled(manager.start(shard_peers)).await;
    let mut sweep = tokio::time::interval(SWEEP);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => break,
            _ = sweep.tick() => hub.context.artifact_storage.sweep(),
        }
    }
    manager.tasks.close();
    if tokio::time::timeout(FAREWELL, manager.tasks.wait()).await.is_err() {
        tracing::warn!("some reconciliations were still in progress at the end");
    }
    Ok(())
}

/// Returns the hub's cache for objects of a kind.
type CacheOfHub = fn(&Hub) -> &Cache<DynamicObject>;

/// A Tenant's objects in its namespaces: version, kind and cache.
const TENANT_OBJECTS: [(&str, &str, CacheOfHub); 5] = [
    ("rbac.authorization.k8s.io/v1", "RoleBinding", |hub| &hub.role_bindings),
    ("v1", "ServiceAccount", |hub| &hub.service_accounts),
    ("v1", "LimitRange", |hub| &hub.limit_ranges),
    ("networking.k8s.io/v1", "NetworkPolicy", |hub| &hub.network_policies),
    ("v1", "ResourceQuota", |hub| &hub.resource_quotas),
];

/// Passes the events of all watches to the hub and the lanes, and starts a task for each reconciled object.
#[derive(Clone)]
pub(crate) struct Manager {
    pub(crate) hub: Arc<Hub>,
    /// The watched objects of access to Git hosts.
    access_hub: Arc<AccessHub>,
    tasks: TaskTracker,
    /// The part that this instance reconciles.
    pub(crate) task_table: Arc<TaskTable>,
    pub(crate) seen: Arc<WatchProgress>,
    end: CancellationToken,
}

impl Manager {
    /// Opens the watches, and starts the reconcilers after all existing objects have been seen: with half of the Tenants, the tenant of a namespace
    /// is unknown.
    async fn start(&self, shard_peers: Option<Arc<ShardPeers>>) {
        let is_on = |kind: &str| self.hub.context.enabled_kinds.is_on(kind);
        // A kind that no reconciler reads is not watched: the controllers have no right to read it either.
        let is_watched = |kind: &str| installation::is_watched(kind, &is_on);
        let mut synced = vec![
            self.watch(("v1", "Namespace", None), Self::take_namespace),
            self.watch(
                ("rbac.authorization.k8s.io/v1", "RoleBinding", Some(LANE_LABEL)),
                Self::take_lane_binding,
            ),
            self.watch(("v1", "ServiceAccount", Some(LANE_LABEL)), Self::take_lane_account),
        ];
        if is_on(Tenant::KIND.name) {
            for (api_version, kind, cache) in TENANT_OBJECTS {
                synced.push(
                    self.watch((api_version, kind, Some(TENANT_LABEL)), move |manager, change| {
                        manager.take_tenant_object(cache, change);
                    }),
                );
            }
        }
        let keeps_policies = self.keeps_policies(shard_peers.as_deref());
        if keeps_policies && self.hub.context.settings.has_policies {
            synced.push(
                self.watch((policies::POLICY.0, policies::POLICY.1, None), |manager, change| {
                    manager.take_policy(|hub| &hub.policies, change);
                }),
            );
            synced.push(
                self.watch((policies::BINDING.0, policies::BINDING.1, None), |manager, change| {
                    manager.take_policy(|hub| &hub.policy_bindings, change);
                }),
            );
        }
        self.keep_rights(&self.hub.context.settings.platform_namespace);
        let mut packages = Vec::new();
        for (at, entry) in self.hub.kinds.iter().enumerate() {
            if !is_watched(entry.kind.name) {
                continue;
            }
            let watched = (entry.kind.api_version, entry.kind.name, None);
            let opened = self.watch(watched, move |manager, change| {
                if let Some(entry) = manager.hub.kinds.get(at) {
                    manager.take_own(&manager.hub, entry, change);
                }
            });
            // Most clusters don't serve the kinds of Packages, so nothing else waits for them.
            match watches::OPTIONAL.contains(&entry.kind.name) {
                true => packages.push(opened),
                false => synced.push(opened),
            }
        }
        for (at, entry) in self.hub.lane_kinds.iter().enumerate() {
            if !is_watched(entry.kind.name) {
                continue;
            }
            let watched = (entry.kind.api_version, entry.kind.name, None);
            synced.push(self.watch(watched, move |manager, change| {
                if let Some(entry) = manager.hub.lane_kinds.get(at) {
                    manager.take_of_lane(entry, change);
                }
            }));
        }
        let mut access = Vec::new();
        if is_on(AccessProvider::KIND.name) {
            self.watch_access(&mut access);
        }
        for watch in synced.iter_mut().chain(&mut access) {
            tokio::select! {
                () = watch.wait() => {}
                () = self.end.cancelled() => return,
            }
        }
        let unserved: Vec<&'static str> = synced
            .iter()
            .filter(|watch| watch.is_unserved())
            .map(|watch| watch.kind)
            .collect();
        if let Some(shard_peers) = shard_peers.as_ref().filter(|_| self.task_table.is_all()) {
            shard_peers.wait_until_alone().await;
        }
        self.prepare_start(&unserved).await;
        self.hub.context.ready.cancel();
        self.begin_access(access);
        self.begin_packages(packages);
        self.hub.announce_all();
        if let Some(fleet) = self.hub.fleet() {
            fleet.start_placement();
        }
        if keeps_policies {
            let (hub, end) = (Arc::clone(&self.hub), self.end.clone());
            self.tasks.spawn(async move {
                end.run_until_cancelled(policies::maintain_policies(hub))
                    .await
                    .map(drop)
            });
        } else if self.hub.context.settings.has_policies {
            let (hub, end) = (Arc::clone(&self.hub), self.end.clone());
            self.tasks.spawn(async move {
                end.run_until_cancelled(policies::follow_enforcement(hub))
                    .await
                    .map(drop)
            });
        }
        if self.hub.context.reports_lanes && !is_of_shard(shard_peers.as_deref()) {
            let (hub, end) = (Arc::clone(&self.hub), self.end.clone());
            self.tasks.spawn(async move {
                end.run_until_cancelled(lane_report::maintain_report(hub))
                    .await
                    .map(drop)
            });
        }
        if let Some(shard_peers) = shard_peers.filter(|_| !self.task_table.is_all()) {
            let work: Arc<dyn ShardWork> = Arc::new(self.clone());
            let end = self.end.clone();
            self.tasks.spawn(async move {
                end.run_until_cancelled(sharding::maintain_shard(work, shard_peers))
                    .await
                    .map(drop)
            });
        }
    }

    /// Starts the reconcilers of access after all kinds of access have been seen: with half of them, the choice of the credential to end would be
    /// wrong.
    fn begin_access(&self, mut watches: Vec<OpenedWatch>) {
        let (access_hub, end) = (Arc::clone(&self.access_hub), self.end.clone());
        let beginning = async move {
            for watch in &mut watches {
                watch.wait_until_synced().await;
            }
            access_hub.start_reconcilers();
        };
        self.tasks
            .spawn(async move { end.run_until_cancelled(beginning).await });
    }

    /// Opens the watches of access. Kinds that count only in the platform namespace are watched only there.
    fn watch_access(&self, synced: &mut Vec<OpenedWatch>) {
        let api_version = AccessProvider::KIND.api_version;
        for (at, entry) in self.access_hub.kinds.iter().enumerate() {
            synced.push(
                self.watch_in_platform((api_version, entry.kind.name), move |manager, change| {
                    if let Some(entry) = manager.access_hub.kinds.get(at) {
                        manager.take_own(&manager.access_hub, entry, change);
                    }
                }),
            );
        }
        synced.push(
            self.watch_in_platform((api_version, "FluxAccessGrant"), |manager, change| {
                if let Some(change) = change.apply_to(&manager.access_hub.grants) {
                    manager.access_hub.take_grant(&change);
                }
            }),
        );
        synced.push(
            self.watch_in_platform((api_version, "FluxAccessStandingGrant"), |manager, change| {
                if change.apply_to(&manager.access_hub.standing_grants).is_some() {
                    manager.access_hub.take_standing_grants();
                }
            }),
        );
        synced.push(self.watch((api_version, "FluxAccess", None), |manager, change| {
            if let Some(change) = change.apply_to(&manager.access_hub.asked) {
                manager.access_hub.take_asked(&change);
            }
        }));
        synced.push(self.watch((api_version, "FluxAccessTarget", None), |manager, change| {
            drop(change.apply_to(&manager.access_hub.targets));
        }));
    }

    /// Checks whether this instance maintains the policies, or the facts on namespaces. Of several instances, only the main one does.
    fn keeps_policies(&self, shard_peers: Option<&ShardPeers>) -> bool {
        self.hub.context.settings.judges_writes() && !is_of_shard(shard_peers)
    }

    /// Lets each kind look at existing objects before reconciling starts, and drops the records of running work for deleted objects. Records of
    /// unserved kinds stay, because the kinds may be served again.
    async fn prepare_start(&self, unserved: &[&str]) {
        let (hub, context) = (&self.hub, &self.hub.context);
        context.attempt_marks.forget_gone(|kind, namespace, name| {
            if unserved.contains(&kind) {
                return true;
            }
            let shard = hub.find_shard(namespace);
            let in_lane = hub.lane_kinds.iter().find(|entry| entry.kind.name == kind);
            let in_hub = hub.kinds.iter().find(|entry| entry.kind.name == kind);
            in_lane
                .zip(shard)
                .is_some_and(|(entry, shard)| (entry.exists)(&shard, namespace, name))
                || in_hub.is_some_and(|entry| (entry.exists)(hub, namespace, name))
        });
        let is_served = |kind: &str| !unserved.contains(&kind);
        for entry in hub.lane_kinds.iter().filter(|entry| is_served(entry.kind.name)) {
            // If lanes are processes, they have their artifacts, and none are here.
            let shards = if hub.fleet().is_some() {
                Vec::new()
            } else {
                hub.list_shards()
            };
            (entry.prepare_start)(Arc::clone(context), shards).await;
        }
        for entry in hub.kinds.iter().filter(|entry| is_served(entry.kind.name)) {
            (entry.prepare_start)(Arc::clone(context), vec![Arc::clone(hub)]).await;
        }
    }

    fn take_namespace(&self, change: ObjectChange<'_>) {
        let Some(change) = change.apply_to(&self.hub.namespaces) else {
            return;
        };
        self.access_hub.take_namespace(&change);
        if self.hub.take_namespace(&change.name) {
            return;
        }
        let marks = |namespace: &Arc<Namespace>| (namespace.labels().clone(), namespace.annotations().clone());
        if let Some(namespace) = &change.new
            && change.old.as_ref().map(marks) != Some(marks(namespace))
            && let Some(tenant) = namespace.labels().get(TENANT_LABEL)
        {
            self.hub.context.mailboxes.wake(&Key::new(Tenant::KIND, "", tenant));
        }
        let annotations = |namespace: &Option<Arc<Namespace>>| namespace.as_ref()?.metadata.annotations.clone();
        if annotations(&change.old) != annotations(&change.new) {
            self.hub.policy_news.notify_one();
        }
    }

    /// Handles a changed policy or binding. Policies of others are not cached.
    fn take_policy(&self, cache: fn(&Hub) -> &Cache<DynamicObject>, change: ObjectChange<'_>) {
        if is_managed_policy(change.name()) && change.apply_to(cache(&self.hub)).is_some() {
            self.hub.policy_news.notify_one();
        }
    }

    /// Handles a changed object with the label of a Tenant: wakes that Tenant, and the Tenant of the previous label.
    fn take_tenant_object(&self, cache: CacheOfHub, change: ObjectChange<'_>) {
        let Some(change) = change.apply_to(cache(&self.hub)) else {
            return;
        };
        let tenant = |object: &Option<Arc<DynamicObject>>| object.as_ref()?.labels().get(TENANT_LABEL).cloned();
        let (old, new) = (tenant(&change.old), tenant(&change.new));
        // The used amount of a quota changes with each Pod, but few Tenants' plans depend on it.
        let counting = |object: &Arc<DynamicObject>| (object.metadata.labels.clone(), object.data.get("spec").cloned());
        let is_quota = change.new.as_ref().and_then(|object| object.types.as_ref());
        if is_quota.is_some_and(|types| types.kind == "ResourceQuota")
            && change.old.as_ref().map(counting) == change.new.as_ref().map(counting)
            && !new.as_ref().is_some_and(|tenant| self.hub.shares_quotas(tenant))
        {
            return;
        }
        for tenant in new.iter().chain(old.iter().filter(|old| Some(*old) != new.as_ref())) {
            self.hub.context.mailboxes.wake(&Key::new(Tenant::KIND, "", tenant));
        }
    }

    /// Maintains a lane's rights in a namespace while something is reconciled there.
    pub(crate) fn keep_rights(&self, namespace: &str) {
        let key = Key::of_rights(namespace);
        self.task_table.spawn(&key, |end| {
            let (mailbox, new) = self.hub.context.mailboxes.get_or_add(&key);
            mailbox.wake();
            new.then(|| lane_rights::run(Arc::clone(&self.hub), namespace.to_owned(), mailbox, end))
        });
    }

    /// Handles a changed RoleBinding of a lane. Other objects with the label are not cached, because a tenant may make many.
    fn take_lane_binding(&self, change: ObjectChange<'_>) {
        if change.name() == LANE_BINDING && change.apply_to(&self.hub.lane_bindings).is_some() {
            self.keep_rights(change.namespace());
        }
    }

    /// Handles a changed or deleted account of a lane: where that lane has rights, its rights are checked again. A new account needs no check,
    /// because its creator knows of it.
    fn take_lane_account(&self, change: ObjectChange<'_>) {
        let is_account = change.namespace() == PLATFORM_NAMESPACE && change.name().starts_with(LANE_PREFIX);
        let known = is_account.then(|| change.apply_to(&self.hub.lane_accounts)).flatten();
        if known.is_none_or(|change| change.old.is_none()) {
            return;
        }
        for binding in self.hub.lane_bindings.all() {
            if binding.data.pointer("/subjects/0/name").and_then(Value::as_str) == Some(change.name()) {
                let namespace = binding.namespace().unwrap_or_default();
                self.hub.context.mailboxes.wake(&Key::of_rights(&namespace));
            }
        }
    }

    /// Passes a changed object of a lane's kind to its lane.
    fn take_of_lane(&self, entry: &KindEntry<Shard>, change: ObjectChange<'_>) {
        let shard = self.hub.open_shard(change.namespace());
        let has_gone = matches!(change, ObjectChange::Gone(..));
        if let Some(fleet) = self.hub.fleet() {
            self.take_beyond(fleet, &shard, entry, change);
        } else if let Some(key) = self.take_own(&shard, entry, change) {
            shard.wake_dependents(&key);
        }
        if !self.task_table.is_all() {
            self.hub.hold(&shard, has_gone);
        }
    }

    /// Passes a changed object to the process of its lane. Replaces `take_of_lane` if lanes are processes, because nothing of lanes is reconciled here.
    fn take_beyond(
        &self,
        fleet: &Arc<LaneFleet>,
        shard: &Arc<Shard>,
        entry: &KindEntry<Shard>,
        change: ObjectChange<'_>,
    ) {
        let (is_new, gone) = match change {
            ObjectChange::Changed(object) => (!(entry.exists)(shard, &object.namespace, &object.name), None),
            ObjectChange::Gone(_, revision) => (false, Some(revision)),
        };
        let key = match change {
            ObjectChange::Changed(object) => (entry.take_seen)(shard, object),
            ObjectChange::Gone(object, revision) => Some((entry.take_gone)(shard, object, revision)),
        };
        let Some(key) = key else { return };
        self.hub.wake_dependents(&key);
        self.access_hub.wake_concerned(&key);
        self.notify_policies(&key);
        if !self.hub.context.enabled_kinds.is_on(entry.kind.name) && !fleet.has(&key.namespace) {
            return;
        }
        if gone.is_some() {
            shard.turnover_reports.forget(&key);
            self.hub.context.metrics.forget(&key);
            self.hub.context.receiver_endpoint.set(&key, None);
        }
        self.notify_process(fleet, shard, &key, gone);
        if self.hub.context.enabled_kinds.is_on(entry.kind.name) && (is_new || gone.is_some()) {
            self.keep_rights(&key.namespace);
        }
    }

    /// Notifies the policies if a changed object may change the facts that they read.
    fn notify_policies(&self, changed: &Key) {
        if self.hub.context.settings.judges_writes() && policies::affects_facts(&self.hub, changed) {
            self.hub.policy_news.notify_one();
        }
    }

    /// Handles a changed object of a reconciled kind: wakes its reconciler and the objects in the hub that depend on it.
    fn take_own<H: Home>(&self, home: &Arc<H>, entry: &KindEntry<H>, change: ObjectChange<'_>) -> Option<Key> {
        let key = match change {
            ObjectChange::Changed(object) => (entry.take_seen)(home, object)?,
            ObjectChange::Gone(object, revision) => {
                let key = (entry.take_gone)(home, object, revision);
                self.hub.context.metrics.forget(&key);
                key
            }
        };
        self.hub.wake_dependents(&key);
        self.access_hub.wake_concerned(&key);
        self.notify_policies(&key);
        if !self.hub.context.enabled_kinds.is_on(entry.kind.name) {
            return Some(key);
        }
        self.start_one(home, entry, &key, matches!(change, ObjectChange::Gone(..)));
        Some(key)
    }

    /// Starts the task of an object if this instance works on it, or wakes the running task.
    pub(crate) fn start_one<H: Home>(&self, home: &Arc<H>, entry: &KindEntry<H>, key: &Key, is_gone: bool) {
        let mut is_new = false;
        self.task_table.spawn(key, |end| {
            let (mailbox, new) = home.mailboxes().get_or_add(key);
            mailbox.wake();
            is_new = new;
            new.then(|| (entry.run)(Arc::clone(home), key.clone(), mailbox, end))
        });
        if !key.namespace.is_empty() && (is_new || is_gone) {
            self.keep_rights(&key.namespace);
        }
    }

    /// Notifies the process of a lane, if this instance works on the object.
    pub(crate) fn notify_process(&self, fleet: &Arc<LaneFleet>, shard: &Arc<Shard>, key: &Key, gone: Option<&str>) {
        // Runs while the namespace can't be released: a later message must not bring it back.
        self.task_table.spawn(key, |_| {
            fleet.note_change(shard, key, gone);
            None::<std::future::Ready<()>>
        });
    }
}

/// Checks whether this instance reconciles one shard beside the main instance.
fn is_of_shard(shard_peers: Option<&ShardPeers>) -> bool {
    shard_peers.is_some_and(|shard_peers| matches!(shard_peers.instance, Instance::Shard(_)))
}

#[cfg(test)]
mod tests;
