//! One lane: the state for the namespaces of one tenant, of the platform, of one protected namespace, or of the pool. The state of each namespace is
//! a shard. The shard moves with its namespace when the namespace comes to belong to another lane.
//!
//! A lane sees no other lane. It asks about its surroundings through [`Surroundings`], and gets the limits that all lanes share as [`Means`]. The hub
//! answers these questions, passes on the events of watches, and provides [`Means`]. A lane makes no decision.

pub(crate) mod generator_reports;
pub(crate) mod lane_references;
pub(crate) mod lane_table;
pub(crate) mod notification_queue;
pub(crate) mod receiver_state;
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
use tenure_planner::kustomization::{Rival, Turnover};
use tenure_planner::receiver::HookPath;
use tenure_sources::AppTokens;
use tenure_tenancy::{Ending, Placement};
use tokio_util::sync::CancellationToken;

use crate::artifacts::storage::ArtifactRecords;
use crate::cluster_view::cache::CacheByKind;
use crate::cluster_view::inventory_index::Inventories;
use crate::cluster_view::key::Key;
use crate::cluster_view::live_objects::LiveObjects;
use crate::cluster_view::mailbox::MailboxTable;
use crate::cluster_view::remote_clusters::ClusterTable;
use crate::context::Means;
use crate::lane::generator_reports::RecipeBoard;
use crate::lane::lane_references::Borrowed;
use crate::lane::notification_queue::HeraldBooks;
use crate::lane::receiver_state::ReceiverBooks;
use crate::lane::turnover_reports::TurnoverBoard;
use crate::limits::lane_limits::LaneBounds;
use crate::reconcile_loop::kind_entry::Entry;
use crate::reconcile_loop::reconciled::Home;
use crate::telemetry::metrics::Figures;

/// One lane.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) bounds: LaneBounds,
    /// The account with which the lane authenticates to the API server.
    account: LaneAccount,
    /// Events of the lane that wait to be sent to the receivers of Alerts.
    pub(crate) herald: HeraldBooks,
    /// Shards by namespace, each for as long as something in its namespace is reconciled.
    shards: Mutex<HashMap<String, Weak<Shard>>>,
    means: Arc<Means>,
}

/// Questions and messages of a lane about objects and namespaces outside it.
pub(crate) trait Surroundings: Send + Sync + fmt::Debug {
    /// Returns the placement of a namespace: whose it is.
    fn place<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Placement>;

    /// Returns the lane to which a namespace belongs now.
    fn find_lane<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Arc<Lane>>;

    /// Finds the shard of another namespace, for a reference that may lead there.
    fn find_neighbour(&self, namespace: &str) -> Neighbour;

    /// Borrows an artifact from another lane's process, for a reference from a namespace of this lane. Called only for [`Neighbour::Apart`].
    fn borrow<'a>(&'a self, _from: &'a str, _key: &'a Key) -> BoxFuture<'a, Borrowed> {
        Box::pin(std::future::ready(Borrowed::Nothing))
    }

    /// Returns whether the namespace or its Tenant is being deleted, from the known Tenants and namespaces.
    fn find_ending(&self, namespace: &str) -> Option<Ending>;

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
    fn open_door(&self, receiver: &Key, path: Option<&HookPath>);

    /// Called when nothing in a namespace is reconciled any more.
    fn close(&self, namespace: &str);

    /// Records that an object here listens to these objects. Some of them may be reconciled in another process.
    fn note_listening(&self, _key: &Key, _to: &BTreeSet<Key>) {}

    /// Records the objects that a Kustomization here reported as gained and dropped.
    fn note_turnover(&self, _key: &Key, _turnover: &Turnover) {}

    /// Returns true if the hub writes an event about an object here, because this process may not write in the event's namespace.
    fn takes_event(&self, _about: &Key, _event: &Event) -> bool {
        false
    }
}

/// The shard of another namespace, as far as this process knows it.
#[derive(Debug)]
pub(crate) enum Neighbour {
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
    pub(crate) rival: Rival,
    /// The requested objects that are in the Kustomization's inventory.
    pub(crate) has: Vec<ObjectId>,
}

impl Lane {
    pub(crate) fn new(name: &str, account: LaneAccount, means: &Arc<Means>) -> Self {
        Self {
            bounds: LaneBounds::new(name, means.lane_width, means.clients.turns()),
            account,
            herald: HeraldBooks::default(),
            shards: Mutex::default(),
            means: Arc::clone(means),
        }
    }

    fn shards(&self) -> MutexGuard<'_, HashMap<String, Weak<Shard>>> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the lane's access to the API server.
    pub(crate) fn access(&self) -> LaneAccess {
        LaneAccess {
            account: self.account.clone(),
            turns: self.bounds.turns.clone(),
        }
    }

    /// Returns the client of a ServiceAccount. The client works in the lane's turns.
    pub(crate) async fn act_as(&self, account: &ServiceAccount) -> Result<Client, ClusterError> {
        self.means.clients.for_account(account, &self.access()).await
    }

    /// Returns the client of the lane itself.
    pub(crate) fn act_as_itself(&self) -> Client {
        self.means.clients.for_lane(&self.access())
    }

    /// Returns the controller's own client. The client works in the lane's turns.
    pub(crate) fn act_as_controller(&self) -> Client {
        self.means.controller.in_turns(&self.bounds.turns)
    }

    /// Returns the shard of a namespace.
    pub(crate) fn find_shard(&self, namespace: &str) -> Option<Arc<Shard>> {
        self.shards().get(namespace)?.upgrade()
    }

    /// Returns the shards of all namespaces, ordered by name.
    pub(crate) fn list_shards(&self) -> Vec<Arc<Shard>> {
        let mut shards: Vec<Arc<Shard>> = self.shards().values().filter_map(Weak::upgrade).collect();
        shards.sort_by(|one, other| one.namespace.cmp(&other.namespace));
        shards
    }

    /// Returns the shard of a namespace, and creates it if it is missing.
    pub(crate) fn open_shard(&self, namespace: &str, new: impl FnOnce() -> Shard) -> Arc<Shard> {
        let mut shards = self.shards();
        if let Some(shard) = shards.get(namespace).and_then(Weak::upgrade) {
            return shard;
        }
        let shard = Arc::new(new());
        shards.insert(namespace.to_owned(), Arc::downgrade(&shard));
        shard
    }

    /// Stores a shard in place of the previous shard of its namespace.
    pub(crate) fn hold_shard(&self, shard: &Arc<Shard>) {
        self.shards().insert(shard.namespace.clone(), Arc::downgrade(shard));
    }

    /// Moves the shard of a namespace from another lane to this lane.
    pub(crate) fn take_shard(&self, namespace: &str, from: &Self) {
        let moved = from.shards().remove(namespace);
        if let Some(shard) = moved {
            self.shards().insert(namespace.to_owned(), shard);
        }
    }

    /// Removes the entry of a namespace whose shard no longer exists. Returns whether an entry was removed.
    pub(crate) fn drop_shard(&self, namespace: &str) -> bool {
        let mut shards = self.shards();
        let is_gone = |shard: &Weak<Shard>| shard.strong_count() == 0;
        if !shards.get(namespace).is_none_or(is_gone) {
            return false;
        }
        shards.remove(namespace);
        true
    }

    /// Checks whether the lane is unused: no other reference to it, no shard, no running work, no waiting event.
    pub(crate) fn is_idle(self: &Arc<Self>) -> bool {
        let holds_none = self.shards().values().all(|shard| shard.strong_count() == 0);
        Arc::strong_count(self) == 1 && holds_none && self.bounds.are_idle() && self.herald.is_idle()
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
    pub(crate) clusters: ClusterTable,
    /// The objects that each Kustomization names.
    pub(crate) inventories: Inventories,
    /// Gained and dropped objects that Kustomizations of one source report to each other.
    pub(crate) turnovers: TurnoverBoard,
    pub(crate) artifacts: ArtifactRecords,
    /// The objects that ArtifactGenerators report as their output.
    pub(crate) recipes: RecipeBoard,
    /// Tokens issued for the GitHub Apps of sources.
    pub(crate) app_tokens: AppTokens,
    /// Requests recorded for Receivers.
    pub(crate) receivers: ReceiverBooks,
    pub(crate) surroundings: Arc<dyn Surroundings>,
    pub(crate) means: Arc<Means>,
    kinds: Arc<[Entry<Self>]>,
}

impl Shard {
    pub(crate) fn new(
        namespace: &str,
        kinds: &Arc<[Entry<Self>]>,
        surroundings: Arc<dyn Surroundings>,
        means: &Arc<Means>,
    ) -> Self {
        let caches = CacheByKind::default();
        kinds.iter().for_each(|entry| (entry.open_cache)(&caches));
        Self {
            namespace: namespace.to_owned(),
            caches,
            live: Arc::new(LiveObjects::new(
                means.clients.clone(),
                Arc::clone(&means.mailboxes),
                None,
            )),
            clusters: ClusterTable::default(),
            inventories: Inventories::default(),
            turnovers: TurnoverBoard::default(),
            artifacts: ArtifactRecords::new(Arc::clone(&means.depot)),
            recipes: RecipeBoard::default(),
            app_tokens: AppTokens::default(),
            receivers: ReceiverBooks::default(),
            surroundings,
            means: Arc::clone(means),
            kinds: Arc::clone(kinds),
        }
    }

    /// Returns the lane to which the namespace belongs now.
    pub(crate) async fn lane(&self) -> Arc<Lane> {
        self.surroundings.find_lane(&self.namespace).await
    }

    /// Checks whether the lane has its rights in the namespace.
    pub(crate) fn is_admitted(&self) -> bool {
        self.surroundings.is_admitted(&self.namespace)
    }

    /// Returns the placement of the namespace: whose it is.
    pub(crate) async fn place(&self) -> Placement {
        self.surroundings.place(&self.namespace).await
    }

    /// Wakes all objects in this shard that depend on a changed object.
    pub(crate) fn tell_dependents(&self, changed: &Key) {
        for entry in self.kinds.iter() {
            for dependent in (entry.list_dependents)(self, changed) {
                self.means.mailboxes.wake(&dependent);
            }
        }
    }

    /// Wakes all objects that listen to an object of this namespace, in any namespace.
    pub(crate) fn tell_listeners(&self, key: &Key) {
        for listener in self.means.listeners.list(key) {
            self.means.mailboxes.wake(&listener);
        }
    }

    /// Records the objects that a Kustomization gains and drops with a revision, and notifies the waiting Kustomizations. A gained object counts only
    /// if another Kustomization beside it has the object.
    pub(crate) fn tell_turnover(&self, key: &Key, turnover: &Turnover) {
        let told = Turnover {
            revision: turnover.revision.clone(),
            generation: turnover.generation,
            gains: self.inventories.named_by_others(key, &turnover.gains),
            drops: turnover.drops.clone(),
        };
        self.surroundings.note_turnover(key, &told);
        self.take_turnover(key, told);
    }

    /// Records gained and dropped objects exactly as they were reported.
    pub(crate) fn take_turnover(&self, key: &Key, told: Turnover) {
        if self.turnovers.tell(key, told) {
            self.tell_listeners(key);
        }
    }

    /// Sets the objects to which an object of this namespace listens, in any namespace.
    pub(crate) fn listen(&self, key: &Key, to: BTreeSet<Key>) {
        self.surroundings.note_listening(key, &to);
        self.means.listeners.listen(key, to);
    }

    /// Returns the keys of all objects in this shard, of all kinds.
    pub(crate) fn list_keys(&self) -> Vec<Key> {
        let of_kind = |entry: &Entry<Self>| (entry.list_keys)(self);
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
        let of_kind = |entry: &Entry<Self>| (entry.list_labelled)(self, label);
        self.kinds.iter().flat_map(of_kind).collect()
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        self.surroundings.close(&self.namespace);
    }
}

impl Home for Shard {
    fn caches(&self) -> &CacheByKind {
        &self.caches
    }

    fn figures(&self) -> &Figures {
        &self.means.figures
    }

    fn mailboxes(&self) -> &MailboxTable {
        &self.means.mailboxes
    }

    fn controller(&self) -> &Client {
        &self.means.controller
    }

    async fn bookkeeper_of(&self, namespace: &str) -> Client {
        self.surroundings.find_lane(namespace).await.act_as_itself()
    }

    fn takes_event(&self, about: &Key, event: &Event) -> bool {
        self.surroundings.takes_event(about, event)
    }

    fn platform_namespace(&self) -> &str {
        &self.means.settings.platform_namespace
    }

    fn ready(&self) -> &CancellationToken {
        &self.means.ready
    }
}
