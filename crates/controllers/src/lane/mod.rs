//! One lane: the state for the namespaces of one tenant, of the platform, of one protected namespace, or of the pool. The state of each namespace is
//! a shard. The shard moves with its namespace when the namespace comes to belong to another lane.
//!
//! A lane sees no other lane. It asks the hub through [`HubApi`], and gets the limits that all lanes share as [`ControllerContext`]. The hub passes
//! on the events of watches. A lane makes no decision.
//!
//! - `generator_reports`, `turnover_reports`: reports of ArtifactGenerators and Kustomizations to others of their namespace.
//! - `lane_references`: references to objects in other lanes' processes, and the hub's answers.
//! - `lane_table`: all lanes by name.
//! - `notification_queue`: events that wait for the receivers of Alerts.
//! - `receiver_state`: the state that requests leave about a Receiver.
//! - `release_watches`: watches of the events that helm-controller writes.
//! - `secret_reader`: reads Secrets as an account of the namespace.

pub(crate) mod generator_reports;
pub(crate) mod lane_references;
pub(crate) mod lane_table;
pub(crate) mod notification_queue;
pub(crate) mod receiver_state;
pub(crate) mod release_watches;
pub(crate) mod secret_reader;
pub(crate) mod turnover_reports;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure_api::{ObjectId, ObjectMeta};
use tenure_cluster::{Client, ClusterError, LaneAccess, LaneAccount, ServiceAccount};
use tenure_planner::Event;
use tenure_planner::kustomization::{ObjectTurnover, OtherOwner};
use tenure_planner::receiver::HookPath;
use tenure_sources::AppTokens;
use tenure_tenancy::{Placement, Termination};
use tokio_util::sync::CancellationToken;

use crate::artifacts::storage::ArtifactRecords;
use crate::cluster_view::cache::CacheByKind;
use crate::cluster_view::inventory_index::InventoryIndex;
use crate::cluster_view::key::Key;
use crate::cluster_view::live_objects::LiveObjects;
use crate::cluster_view::mailbox::MailboxTable;
use crate::cluster_view::remote_clusters::RemoteClusterTable;
use crate::context::ControllerContext;
use crate::lane::generator_reports::GeneratorReports;
use crate::lane::lane_references::BorrowedObject;
use crate::lane::notification_queue::NotificationQueue;
use crate::lane::receiver_state::ReceiverStateTable;
use crate::lane::release_watches::ReleaseWatches;
use crate::lane::turnover_reports::TurnoverReports;
use crate::limits::lane_limits::LaneLimits;
use crate::reconcile_loop::kind_entry::KindEntry;
use crate::reconcile_loop::reconciled::Home;
use crate::telemetry::metrics::Metrics;

/// The state of one lane: its account, its limits, its shards by namespace, and its waiting events.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) limits: LaneLimits,
    /// The account with which the lane authenticates to the API server.
    account: LaneAccount,
    /// Events of the lane that wait to be sent to the receivers of Alerts.
    pub(crate) notification_queue: NotificationQueue,
    /// The watches of events that helm-controller writes.
    pub(crate) release_watches: ReleaseWatches,
    /// Shards by namespace, each for as long as something in its namespace is reconciled.
    shards: Mutex<HashMap<String, Weak<Shard>>>,
    context: Arc<ControllerContext>,
}

/// Questions and messages of a lane about objects and namespaces outside it.
pub(crate) trait HubApi: Send + Sync + fmt::Debug {
    /// Returns the placement of a namespace: whose it is.
    fn read_placement<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Placement>;

    /// Returns the lane to which a namespace belongs now.
    fn find_lane<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Arc<Lane>>;

    /// Finds the shard of another namespace, for a reference that may lead there.
    fn find_other_shard(&self, namespace: &str) -> ShardLookup;

    /// Borrows an artifact from another lane's process, for a reference from a namespace of this lane. Called only for [`ShardLookup::Apart`].
    fn borrow<'a>(&'a self, _from: &'a str, _key: &'a Key) -> BoxFuture<'a, BorrowedObject> {
        Box::pin(std::future::ready(BorrowedObject::Nothing))
    }

    /// Returns whether the namespace or its Tenant is being deleted, from the known Tenants and namespaces.
    fn find_ending(&self, namespace: &str) -> Option<Termination>;

    /// Returns those of these namespaces that are being deleted.
    fn find_endings<'a>(&'a self, namespaces: &'a BTreeSet<String>) -> BoxFuture<'a, BTreeSet<String>>;

    /// Asks the lane of another Kustomization (namespace, name) about these objects, which have its labels. The caller wants to apply them. `cluster`
    /// is the other cluster as statuses name it, or absent for this cluster.
    fn ask_owner<'a>(
        &'a self,
        owner: (&'a str, &'a str),
        objects: &'a [ObjectId],
        cluster: Option<&'a str>,
    ) -> BoxFuture<'a, Option<OwnerAnswer>>;

    /// Checks whether the lane of a namespace has its rights there.
    fn is_admitted(&self, namespace: &str) -> bool;

    /// Returns the shard of a namespace of this process, if it exists.
    fn find_shard(&self, namespace: &str) -> Option<Arc<Shard>>;

    /// Sets the path at which a Receiver of this process takes requests, or removes the path.
    fn set_receiver_path(&self, receiver: &Key, path: Option<&HookPath>);

    /// Called when nothing in a namespace is reconciled any more.
    fn close(&self, namespace: &str);

    /// Records that an object here listens to these objects. Some of them may be reconciled in another process.
    fn note_subscriptions(&self, _key: &Key, _to: &BTreeSet<Key>) {}

    /// Records the objects that a Kustomization here reported as gained and dropped.
    fn note_turnover(&self, _key: &Key, _turnover: &ObjectTurnover) {}

    /// Returns true if the hub writes an event about an object here, because this process may not write in the event's namespace.
    fn takes_event(&self, _about: &Key, _event: &Event) -> bool {
        false
    }
}

/// The shard of another namespace, as far as this process knows it.
#[derive(Debug)]
pub(crate) enum ShardLookup {
    /// The shard, in this process.
    Here(Arc<Shard>),
    /// The namespace does not exist, or nothing in it is reconciled.
    Nothing,
    /// The namespace may belong to another lane in another process. The caller has to ask the hub.
    Apart,
}

/// The answer of a lane about one of its Kustomizations, for another Kustomization that wants the same objects.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OwnerAnswer {
    pub(crate) rival: OtherOwner,
    /// The requested objects that are in the Kustomization's inventory.
    pub(crate) has: Vec<ObjectId>,
}

impl Lane {
    pub(crate) fn new(name: &str, account: LaneAccount, context: &Arc<ControllerContext>) -> Self {
        Self {
            limits: LaneLimits::new(name, context.lane_width, context.clients.turns()),
            account,
            notification_queue: NotificationQueue::default(),
            release_watches: ReleaseWatches::default(),
            shards: Mutex::default(),
            context: Arc::clone(context),
        }
    }

    fn lock_shards(&self) -> MutexGuard<'_, HashMap<String, Weak<Shard>>> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the lane's access to the API server.
    pub(crate) fn access(&self) -> LaneAccess {
        LaneAccess {
            account: self.account.clone(),
            turns: self.limits.turns.clone(),
        }
    }

    /// Returns the client of a ServiceAccount. The client works in the lane's turns.
    pub(crate) async fn act_as(&self, account: &ServiceAccount) -> Result<Client, ClusterError> {
        self.context.clients.for_account(account, &self.access()).await
    }

    /// Returns the client of the lane itself.
    pub(crate) fn act_as_itself(&self) -> Client {
        self.context.clients.for_lane(&self.access())
    }

    /// Returns the controller's own client. The client works in the lane's turns.
    pub(crate) fn act_as_controller(&self) -> Client {
        self.context.controller.in_turns(&self.limits.turns)
    }

    /// Returns the shard of a namespace.
    pub(crate) fn find_shard(&self, namespace: &str) -> Option<Arc<Shard>> {
        self.lock_shards().get(namespace)?.upgrade()
    }

    /// Returns the shards of all namespaces, ordered by name.
    pub(crate) fn list_shards(&self) -> Vec<Arc<Shard>> {
        let mut shards: Vec<Arc<Shard>> = self.lock_shards().values().filter_map(Weak::upgrade).collect();
        shards.sort_by(|one, other| one.namespace.cmp(&other.namespace));
        shards
    }

    /// Returns the shard of a namespace, and creates it if it is missing.
    pub(crate) fn open_shard(&self, namespace: &str, new: impl FnOnce() -> Shard) -> Arc<Shard> {
        let mut shards = self.lock_shards();
        if let Some(shard) = shards.get(namespace).and_then(Weak::upgrade) {
            return shard;
        }
        let shard = Arc::new(new());
        shards.insert(namespace.to_owned(), Arc::downgrade(&shard));
        shard
    }

    /// Stores a shard in place of the previous shard of its namespace.
    pub(crate) fn hold_shard(&self, shard: &Arc<Shard>) {
        self.lock_shards()
            .insert(shard.namespace.clone(), Arc::downgrade(shard));
    }

    /// Moves the shard of a namespace from another lane to this lane.
    pub(crate) fn take_shard(&self, namespace: &str, from: &Self) {
        let moved = from.lock_shards().remove(namespace);
        if let Some(shard) = moved {
            self.lock_shards().insert(namespace.to_owned(), shard);
        }
    }

    /// Removes the entry of a namespace whose shard no longer exists. Returns whether an entry was removed.
    pub(crate) fn drop_shard(&self, namespace: &str) -> bool {
        let mut shards = self.lock_shards();
        let is_gone = |shard: &Weak<Shard>| shard.strong_count() == 0;
        if !shards.get(namespace).is_none_or(is_gone) {
            return false;
        }
        shards.remove(namespace);
        true
    }

    /// Checks whether the lane is unused: no other reference to it, no shard, no running work, no waiting event.
    pub(crate) fn is_idle(self: &Arc<Self>) -> bool {
        let holds_none = self.lock_shards().values().all(|shard| shard.strong_count() == 0);
        Arc::strong_count(self) == 1 && holds_none && self.limits.are_idle() && self.notification_queue.is_idle()
    }
}

/// The state of a lane for one namespace.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) namespace: String,
    /// The objects of the kinds that are reconciled in lanes.
    pub(crate) caches: CacheByKind,
    /// The applied objects, as watches with the appliers' identities report them.
    pub(crate) live: Arc<LiveObjects>,
    /// Other clusters that are applied to from here.
    pub(crate) clusters: RemoteClusterTable,
    /// The objects that each Kustomization names.
    pub(crate) inventory_index: InventoryIndex,
    /// Gained and dropped objects that Kustomizations of one source report to each other.
    pub(crate) turnover_reports: TurnoverReports,
    pub(crate) artifacts: ArtifactRecords,
    /// The objects that ArtifactGenerators report as their output.
    pub(crate) generator_reports: GeneratorReports,
    /// Tokens issued for the GitHub Apps of sources.
    pub(crate) app_tokens: AppTokens,
    /// Requests recorded for Receivers.
    pub(crate) receivers: ReceiverStateTable,
    pub(crate) hub_api: Arc<dyn HubApi>,
    pub(crate) context: Arc<ControllerContext>,
    kinds: Arc<[KindEntry<Self>]>,
}

impl Shard {
    pub(crate) fn new(
        namespace: &str,
        kinds: &Arc<[KindEntry<Self>]>,
        hub_api: Arc<dyn HubApi>,
        context: &Arc<ControllerContext>,
    ) -> Self {
        let caches = CacheByKind::default();
        kinds.iter().for_each(|entry| (entry.open_cache)(&caches));
        Self {
            namespace: namespace.to_owned(),
            caches,
            live: Arc::new(LiveObjects::new(
                context.clients.clone(),
                Arc::clone(&context.mailboxes),
                None,
            )),
            clusters: RemoteClusterTable::default(),
            inventory_index: InventoryIndex::default(),
            turnover_reports: TurnoverReports::default(),
            artifacts: ArtifactRecords::new(Arc::clone(&context.artifact_storage)),
            generator_reports: GeneratorReports::default(),
            app_tokens: AppTokens::default(),
            receivers: ReceiverStateTable::default(),
            hub_api,
            context: Arc::clone(context),
            kinds: Arc::clone(kinds),
        }
    }

    /// Returns the lane to which the namespace belongs now.
    pub(crate) async fn lane(&self) -> Arc<Lane> {
        self.hub_api.find_lane(&self.namespace).await
    }

    /// Checks whether the lane has its rights in the namespace.
    pub(crate) fn is_admitted(&self) -> bool {
        self.hub_api.is_admitted(&self.namespace)
    }

    /// Returns the placement of the namespace: whose it is.
    pub(crate) async fn read_placement(&self) -> Placement {
        self.hub_api.read_placement(&self.namespace).await
    }

    /// Wakes all objects in this shard that depend on a changed object.
    pub(crate) fn wake_dependents(&self, changed: &Key) {
        for entry in self.kinds.iter() {
            for dependent in (entry.list_dependents)(self, changed) {
                self.context.mailboxes.wake(&dependent);
            }
        }
    }

    /// Wakes all objects that listen to an object of this namespace, in any namespace.
    pub(crate) fn notify_listeners(&self, key: &Key) {
        for listener in self.context.change_subscriptions.list(key) {
            self.context.mailboxes.wake(&listener);
        }
    }

    /// Records the objects that a Kustomization gains and drops with a revision, and notifies the waiting Kustomizations. A gained object counts only
    /// if another Kustomization beside it has the object.
    pub(crate) fn report_turnover(&self, key: &Key, turnover: &ObjectTurnover) {
        let report = ObjectTurnover {
            revision: turnover.revision.clone(),
            generation: turnover.generation,
            gains: self.inventory_index.named_by_others(key, &turnover.gains),
            drops: turnover.drops.clone(),
        };
        self.hub_api.note_turnover(key, &report);
        self.take_turnover(key, report);
    }

    /// Records gained and dropped objects exactly as they were reported.
    pub(crate) fn take_turnover(&self, key: &Key, report: ObjectTurnover) {
        if self.turnover_reports.store(key, report) {
            self.notify_listeners(key);
        }
    }

    /// Sets the objects to which an object of this namespace listens, in any namespace.
    pub(crate) fn listen(&self, key: &Key, to: BTreeSet<Key>) {
        self.hub_api.note_subscriptions(key, &to);
        self.context.change_subscriptions.listen(key, to);
    }

    /// Returns the keys of all objects in this shard, of all kinds.
    pub(crate) fn list_keys(&self) -> Vec<Key> {
        let of_kind = |entry: &KindEntry<Self>| (entry.list_keys)(self);
        self.kinds.iter().flat_map(of_kind).collect()
    }

    /// Checks whether the shard has no object.
    pub(crate) fn is_empty(&self) -> bool {
        self.list_keys().is_empty()
    }

    /// Checks whether an object is in this shard.
    pub(crate) fn has(&self, key: &Key) -> bool {
        let entry = self.kinds.iter().find(|entry| entry.kind == key.kind);
        entry.is_some_and(|entry| (entry.exists)(self, &key.namespace, &key.name))
    }

    /// Returns an object as JSON.
    pub(crate) fn write_object(&self, key: &Key) -> Option<Value> {
        let entry = self.kinds.iter().find(|entry| entry.kind == key.kind)?;
        (entry.write_object)(self, &key.namespace, &key.name)
    }

    /// Returns the metadata of objects of one kind as JSON: only objects that `is_meant` selects, and at most `most` of them.
    pub(crate) fn list_metadata(&self, kind: &str, is_meant: &dyn Fn(&ObjectMeta) -> bool, most: usize) -> Vec<Value> {
        let entry = self.kinds.iter().find(|entry| entry.kind.name == kind);
        entry.map_or_else(Vec::new, |entry| (entry.list_metadata)(self, is_meant, most))
    }

    /// Returns the objects of every kind with a label.
    pub(crate) fn list_labelled(&self, label: (&str, &str)) -> Vec<Value> {
        let of_kind = |entry: &KindEntry<Self>| (entry.list_labelled)(self, label);
        self.kinds.iter().flat_map(of_kind).collect()
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        self.hub_api.close(&self.namespace);
    }
}

impl Home for Shard {
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
        self.hub_api.find_lane(namespace).await.act_as_itself()
    }

    fn takes_event(&self, about: &Key, event: &Event) -> bool {
        self.hub_api.takes_event(about, event)
    }

    fn platform_namespace(&self) -> &str {
        &self.context.settings.platform_namespace
    }

    fn ready(&self) -> &CancellationToken {
        &self.context.ready
    }
}
