//! One lane: everything that is held for the namespaces of one tenant, of the platform, or for one namespace that is nobody's. What is seen
//! of a namespace, and kept for it, is in a shard of its own, which moves with the namespace when that comes to belong to another lane.
//!
//! A lane knows nothing of other lanes. What it has to know of its surroundings it asks by [`Surroundings`], and what bounds all lanes
//! together it is given as [`Means`]; the hub, which answers and gives, brings it what watches tell. Owns no decision.

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

use crate::artifacts::ArtifactRecords;
use crate::bounds::LaneBounds;
use crate::cache::CacheByKind;
use crate::elsewhere::ClusterTable;
use crate::entry::Entry;
use crate::figures::Figures;
use crate::herald_books::HeraldBooks;
use crate::inventories::Inventories;
use crate::key::Key;
use crate::live::LiveObjects;
use crate::loans::Borrowed;
use crate::mailbox::MailboxTable;
use crate::means::Means;
use crate::receiver_books::ReceiverBooks;
use crate::recipes::RecipeBoard;
use crate::reconciled::Home;
use crate::turnovers::TurnoverBoard;

/// One lane.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) bounds: LaneBounds,
    /// Who it is to the API server.
    account: LaneAccount,
    /// What waits to be told to others of its events.
    pub(crate) herald: HeraldBooks,
    /// What is held, by namespace, for as long as something in it is reconciled.
    shards: Mutex<HashMap<String, Weak<Shard>>>,
    means: Arc<Means>,
}

/// What a lane asks about what is not its own.
pub(crate) trait Surroundings: Send + Sync + fmt::Debug {
    /// Whose a namespace is.
    fn place<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Placement>;

    /// The lane that a namespace belongs to now.
    fn find_lane<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Arc<Lane>>;

    /// What is held for another namespace, for a reference that may lead there.
    fn find_neighbour(&self, namespace: &str) -> Neighbour;

    /// What another lane's process has, for a reference of a namespace here that may lead there; asked only where a neighbour is
    /// [`Neighbour::Apart`].
    fn borrow<'a>(&'a self, _from: &'a str, _key: &'a Key) -> BoxFuture<'a, Borrowed> {
        Box::pin(std::future::ready(Borrowed::Nothing))
    }

    /// What is ending about a namespace, by what is known of Tenants and namespaces.
    fn find_ending(&self, namespace: &str) -> Option<Ending>;

    /// Which of these namespaces are being deleted.
    fn find_endings<'a>(&'a self, namespaces: &'a BTreeSet<String>) -> BoxFuture<'a, BTreeSet<String>>;

    /// What the lane of another Kustomization, by namespace and name, says of it to one that wants these objects, which bear its labels:
    /// in this cluster, or in another one, which statuses call so.
    fn ask_owner<'a>(
        &'a self,
        owner: (&'a str, &'a str),
        objects: &'a [ObjectId],
        cluster: Option<&'a str>,
    ) -> BoxFuture<'a, Option<OwnerAnswer>>;

    /// Whether the lane of a namespace has its rights there.
    fn is_admitted(&self, namespace: &str) -> bool;

    /// What is held for a namespace here, if it is.
    fn find_shard(&self, namespace: &str) -> Option<Arc<Shard>>;

    /// A Receiver here takes requests at a path, or at none.
    fn open_door(&self, receiver: &Key, path: Option<&HookPath>);

    /// Nothing in a namespace is reconciled any more.
    fn close(&self, namespace: &str);

    /// Somebody here listens to these, some of which may be reconciled elsewhere.
    fn note_listening(&self, _key: &Key, _to: &BTreeSet<Key>) {}

    /// A Kustomization here has told what it gains and drops.
    fn note_turnover(&self, _key: &Key, _turnover: &Turnover) {}

    /// Whether somebody else writes an event about what is here, since its place is not.
    fn takes_event(&self, _about: &Key, _event: &Event) -> bool {
        false
    }
}

/// What is held for another namespace.
#[derive(Debug)]
pub(crate) enum Neighbour {
    /// This.
    Here(Arc<Shard>),
    /// Nothing: there is no such namespace, or nothing in it is reconciled.
    Nothing,
    /// It may be another lane's, and that is in another process: the hub has to be asked.
    Apart,
}

/// What a lane says of a Kustomization of its own to one that wants its objects.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OwnerAnswer {
    pub(crate) rival: Rival,
    /// Those of the objects that it has in its inventory.
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

    /// How it asks the API server.
    pub(crate) fn access(&self) -> LaneAccess {
        LaneAccess {
            account: self.account.clone(),
            turns: self.bounds.turns.clone(),
        }
    }

    /// The client of a ServiceAccount, which works in the lane's turns.
    pub(crate) async fn act_as(&self, account: &ServiceAccount) -> Result<Client, ClusterError> {
        self.means.clients.for_account(account, &self.access()).await
    }

    /// The client of the lane itself.
    pub(crate) fn act_as_itself(&self) -> Client {
        self.means.clients.for_lane(&self.access())
    }

    /// The controller's own client, which works in the lane's turns.
    pub(crate) fn act_as_controller(&self) -> Client {
        self.means.controller.in_turns(&self.bounds.turns)
    }

    /// What is held for a namespace.
    pub(crate) fn find_shard(&self, namespace: &str) -> Option<Arc<Shard>> {
        self.shards().get(namespace)?.upgrade()
    }

    /// What is held for all its namespaces, by their names.
    pub(crate) fn list_shards(&self) -> Vec<Arc<Shard>> {
        let mut shards: Vec<Arc<Shard>> = self.shards().values().filter_map(Weak::upgrade).collect();
        shards.sort_by(|one, other| one.namespace.cmp(&other.namespace));
        shards
    }

    /// What is held for a namespace; made when nothing is.
    pub(crate) fn open_shard(&self, namespace: &str, new: impl FnOnce() -> Shard) -> Arc<Shard> {
        let mut shards = self.shards();
        if let Some(shard) = shards.get(namespace).and_then(Weak::upgrade) {
            return shard;
        }
        let shard = Arc::new(new());
        shards.insert(namespace.to_owned(), Arc::downgrade(&shard));
        shard
    }

    /// Holds what was made for a namespace, in place of what was held for it before.
    pub(crate) fn hold_shard(&self, shard: &Arc<Shard>) {
        self.shards().insert(shard.namespace.clone(), Arc::downgrade(shard));
    }

    /// Takes over what another lane held for a namespace.
    pub(crate) fn take_shard(&self, namespace: &str, from: &Self) {
        let moved = from.shards().remove(namespace);
        if let Some(shard) = moved {
            self.shards().insert(namespace.to_owned(), shard);
        }
    }

    /// Drops the place of a namespace for which nothing is held any more; whether it did.
    pub(crate) fn drop_shard(&self, namespace: &str) -> bool {
        let mut shards = self.shards();
        let is_gone = |shard: &Weak<Shard>| shard.strong_count() == 0;
        if !shards.get(namespace).is_none_or(is_gone) {
            return false;
        }
        shards.remove(namespace);
        true
    }

    /// Whether nobody has it, it holds nothing, and nothing that works in it is under way.
    pub(crate) fn is_idle(self: &Arc<Self>) -> bool {
        let holds_none = self.shards().values().all(|shard| shard.strong_count() == 0);
        Arc::strong_count(self) == 1 && holds_none && self.bounds.are_idle() && self.herald.is_idle()
    }
}

/// What a lane holds for one namespace.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) namespace: String,
    /// The objects of the kinds that are reconciled in lanes.
    pub(crate) caches: CacheByKind,
    /// What has been applied, as watches as the appliers' identities tell.
    pub(crate) live: Arc<LiveObjects>,
    /// Other clusters that are applied to from here.
    pub(crate) clusters: ClusterTable,
    /// Which Kustomizations name which objects.
    pub(crate) inventories: Inventories,
    /// What Kustomizations of one source tell each other.
    pub(crate) turnovers: TurnoverBoard,
    pub(crate) artifacts: ArtifactRecords,
    /// What ArtifactGenerators tell of what they make.
    pub(crate) recipes: RecipeBoard,
    /// The tokens that GitHub Apps of sources have been given.
    pub(crate) app_tokens: AppTokens,
    /// What requests leave of Receivers.
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

    /// The lane that it belongs to now.
    pub(crate) async fn lane(&self) -> Arc<Lane> {
        self.surroundings.find_lane(&self.namespace).await
    }

    /// Whether its lane has its rights in the namespace.
    pub(crate) fn is_admitted(&self) -> bool {
        self.surroundings.is_admitted(&self.namespace)
    }

    /// Whose the namespace is.
    pub(crate) async fn place(&self) -> Placement {
        self.surroundings.place(&self.namespace).await
    }

    /// Wakes everybody here who looks at an object that changed.
    pub(crate) fn tell_dependents(&self, changed: &Key) {
        for entry in self.kinds.iter() {
            for dependent in (entry.list_dependents)(self, changed) {
                self.means.mailboxes.wake(&dependent);
            }
        }
    }

    /// Wakes everybody who listens to an object of this namespace, wherever they are.
    pub(crate) fn tell_listeners(&self, key: &Key) {
        for listener in self.means.listeners.list(key) {
            self.means.mailboxes.wake(&listener);
        }
    }

    /// Takes what a Kustomization gains and drops with a revision, and tells those that wait for it. Of what it gains, only that counts
    /// which another one beside it has.
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

    /// Takes what a Kustomization gains and drops, as it was told.
    pub(crate) fn take_turnover(&self, key: &Key, told: Turnover) {
        if self.turnovers.tell(key, told) {
            self.tell_listeners(key);
        }
    }

    /// Sets whom an object of this namespace listens to, wherever they are.
    pub(crate) fn listen(&self, key: &Key, to: BTreeSet<Key>) {
        self.surroundings.note_listening(key, &to);
        self.means.listeners.listen(key, to);
    }

    /// All objects that are here, of all kinds.
    pub(crate) fn list_keys(&self) -> Vec<Key> {
        let of_kind = |entry: &Entry<Self>| (entry.list_keys)(self);
        self.kinds.iter().flat_map(of_kind).collect()
    }

    /// Whether nothing is here.
    pub(crate) fn is_empty(&self) -> bool {
        self.list_keys().is_empty()
    }

    /// Whether an object is here.
    pub(crate) fn has(&self, key: &Key) -> bool {
        let entry = self.kinds.iter().find(|entry| entry.kind == key.kind);
        entry.is_some_and(|entry| (entry.exists)(self, &key.namespace, &key.name))
    }

    /// An object as JSON.
    pub(crate) fn write_object(&self, key: &Key) -> Option<Value> {
        let entry = self.kinds.iter().find(|entry| entry.kind == key.kind)?;
        (entry.write_object)(self, &key.namespace, &key.name)
    }

    /// The metadata of objects of one kind, as JSON: of those that are meant, so many at most.
    pub(crate) fn list_metadata(&self, kind: &str, is_meant: &dyn Fn(&ObjectMeta) -> bool, most: usize) -> Vec<Value> {
        let entry = self.kinds.iter().find(|entry| entry.kind.name == kind);
        entry.map_or_else(Vec::new, |entry| (entry.list_metadata)(self, is_meant, most))
    }

    /// The objects of every kind that bear a label.
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
