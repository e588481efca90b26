//! The surroundings of a lane's process: facts that the hub sent about the lane's own namespaces, and questions to the hub about the rest. This
//! module has the shards. It does not guess: without facts from the hub, no account may act in a namespace.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::Value;
use tenure_api::ObjectId;
use tenure_cluster::RawObject;
use tenure_planner::kustomization::ObjectTurnover;
use tenure_planner::receiver::{Delivery, HookPath, Verdict};
use tenure_planner::{Event, EventPlace};
use tenure_tenancy::{Placement, Termination};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::borrowed_artifacts::ArtifactBorrower;
use super::hub_channel::HubChannel;
use super::hub_dialer::HubDialer;
use crate::cluster_view::key::Key;
use crate::context::ControllerContext;
use crate::lane::lane_references::BorrowedObject;
use crate::lane::lane_table::LaneTable;
use crate::lane::{HubApi, Lane, OwnerAnswer, Shard, ShardLookup};
use crate::lane_kinds::kustomization;
use crate::lane_kinds::receiver;
use crate::lane_protocol::messages::{Answer, FromLane, NamespaceFacts, Question};
use crate::reconcile_loop::kind_entry::KindEntry;

/// The time in which reconcilers may end by themselves after their namespace leaves the lane.
const LEAVING: Duration = Duration::from_secs(5);

/// Stands for the hub in a lane's process: the facts that the hub sent about the lane's namespaces, and the shards of these namespaces.
#[derive(Debug)]
pub(super) struct HubProxy {
    pub(super) context: Arc<ControllerContext>,
    pub(super) kinds: Arc<[KindEntry<Shard>]>,
    lanes: LaneTable,
    facts: RwLock<BTreeMap<String, NamespaceFacts>>,
    homes: Mutex<HashMap<String, NamespaceHome>>,
    /// The objects to which each object listens, as the hub was last notified.
    listened: Mutex<HashMap<Key, Vec<ObjectName>>>,
    /// The paths of Receivers, as the hub was last notified.
    receiver_paths: Mutex<HashMap<Key, HookPath>>,
    /// Artifacts borrowed from other lanes.
    pub(super) borrower: ArtifactBorrower,
    line: Arc<HubChannel>,
    end: CancellationToken,
}

/// An object by kind, namespace and name.
type ObjectName = (String, String, String);

/// A namespace of the lane: its shard, and its running tasks.
#[derive(Clone, Debug)]
struct NamespaceHome {
    shard: Arc<Shard>,
    tasks: TaskTracker,
    /// Cancelled to let running work finish.
    end: CancellationToken,
    /// Cancelled to stop running work immediately.
    abort: CancellationToken,
}

impl HubProxy {
    pub(super) fn new(
        context: ControllerContext,
        kinds: Vec<KindEntry<Shard>>,
        (line, dialer): (&Arc<HubChannel>, &Arc<HubDialer>),
        end: CancellationToken,
    ) -> Arc<Self> {
        let context = Arc::new(context);
        Arc::new(Self {
            borrower: ArtifactBorrower::new(line, dialer, &context.artifact_storage),
            lanes: LaneTable::new(Arc::clone(&context)),
            context,
            kinds: kinds.into(),
            facts: RwLock::default(),
            homes: Mutex::default(),
            listened: Mutex::default(),
            receiver_paths: Mutex::default(),
            line: Arc::clone(line),
            end,
        })
    }

    fn lock_homes(&self) -> MutexGuard<'_, HashMap<String, NamespaceHome>> {
        self.homes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_listened(&self) -> MutexGuard<'_, HashMap<Key, Vec<ObjectName>>> {
        self.listened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_facts<T>(&self, namespace: &str, read: impl FnOnce(&NamespaceFacts) -> T) -> Option<T> {
        let facts = self.facts.read().unwrap_or_else(PoisonError::into_inner);
        facts.get(namespace).map(read)
    }

    fn place_known(&self, namespace: &str) -> Placement {
        let known = self.read_facts(namespace, |facts| facts.placement.clone());
        known.unwrap_or_else(|| Placement::Disputed {
            message: format!("namespace {namespace} is not of this lane"),
        })
    }

    /// Returns the shards of all namespaces.
    pub(super) fn list_shards(&self) -> Vec<Arc<Shard>> {
        self.lock_homes().values().map(|home| Arc::clone(&home.shard)).collect()
    }

    /// Checks whether an object exists.
    pub(super) fn has(&self, kind: &str, namespace: &str, name: &str) -> bool {
        let home = self.lock_homes().get(namespace).map(|home| Arc::clone(&home.shard));
        let entry = self.kinds.iter().find(|entry| entry.kind.name == kind);
        home.zip(entry)
            .is_some_and(|(shard, entry)| (entry.exists)(&shard, namespace, name))
    }

    /// Records a new namespace of the lane, or changed facts about one.
    pub(super) fn take_namespace(self: &Arc<Self>, name: &str, facts: NamespaceFacts) {
        let mut known = self.facts.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(name.to_owned(), facts);
        drop(known);
        let new = || {
            let hub_api: Arc<dyn HubApi> = Arc::clone(self) as _;
            let shard = Arc::new(Shard::new(name, &self.kinds, hub_api, &self.context));
            self.lanes.find_lane(&self.place_known(name), name).hold_shard(&shard);
            NamespaceHome {
                shard,
                tasks: TaskTracker::new(),
                end: self.end.child_token(),
                abort: CancellationToken::new(),
            }
        };
        self.lock_homes().entry(name.to_owned()).or_insert_with(new);
        // Every namespace of a tenant depends on the list of the tenant's namespaces.
        self.context.mailboxes.wake_all();
    }

    /// Releases a namespace that no longer belongs to the lane. Its running work ends before this function returns.
    pub(super) async fn leave(&self, name: &str) {
        let Some(home) = self.lock_homes().remove(name) else {
            return;
        };
        home.tasks.close();
        let keys = home.shard.list_keys();
        let ended = async |patience| tokio::time::timeout(patience, home.tasks.wait()).await.is_ok();
        // If no object is left, the running work is already cleaning up.
        let is_over = keys.is_empty() && ended(LEAVING).await;
        home.end.cancel();
        if !is_over && !ended(LEAVING).await {
            home.abort.cancel();
            home.tasks.wait().await;
        }
        for key in keys {
            self.context.mailboxes.remove_unless(&key, || false);
            self.context.change_subscriptions.listen(&key, BTreeSet::new());
        }
        // The next lane of the namespace reports its Receivers. If the namespace comes back, this process reports them again.
        let mut receiver_paths = self.receiver_paths.lock().unwrap_or_else(PoisonError::into_inner);
        receiver_paths.retain(|receiver, _| receiver.namespace != name);
        drop(receiver_paths);
        let mut known = self.facts.write().unwrap_or_else(PoisonError::into_inner);
        known.remove(name);
    }

    /// Waits until no work is running, after the end was ordered.
    pub(super) async fn wait(&self) {
        let homes: Vec<NamespaceHome> = self.lock_homes().values().cloned().collect();
        for home in homes {
            home.tasks.close();
            home.tasks.wait().await;
        }
    }

    /// Handles a request to a Receiver, concurrently with all other messages.
    pub(super) fn take_hook(&self, number: u64, namespace: &str, name: String, delivery: Box<Delivery>) {
        let home = self.lock_homes().get(namespace).cloned();
        let line = Arc::clone(&self.line);
        let Some(home) = home else {
            let verdict = Verdict::Unavailable;
            let _nobody_waits = line.try_send(FromLane::Hooked { number, verdict });
            return;
        };
        let abort = home.abort.clone();
        let take = async move {
            let verdict = receiver::handle_delivery(&home.shard, &name, &delivery).await;
            line.send(FromLane::Hooked { number, verdict }).await;
        };
        let tasks = home.tasks.clone();
        tasks.spawn(async move { abort.run_until_cancelled(take).await });
    }

    /// Records the current version of an object.
    pub(super) fn take_changed(&self, kind: &str, object: &Value) {
        let text = |path| {
            object
                .pointer(path)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let seen = RawObject {
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
            revision: text("/metadata/resourceVersion"),
            labels: BTreeMap::new(),
            text: object.to_string().into_bytes().into(),
        };
        self.take_change(kind, &seen.namespace.clone(), |entry, shard| {
            (entry.take_seen)(shard, &seen)
        });
    }

    /// Records that an object was deleted at a revision.
    pub(super) fn take_gone(&self, kind: &str, (namespace, name): (&str, &str), revision: &str) {
        self.take_change(kind, namespace, |entry, shard| {
            Some((entry.take_gone)(shard, (namespace, name), revision))
        });
    }

    /// Wakes an object after a change of an object to which it listens.
    pub(super) fn wake(&self, kind: &str, namespace: &str, name: &str) {
        if let Some(entry) = self.kinds.iter().find(|entry| entry.kind.name == kind) {
            self.context.mailboxes.wake(&Key::new(entry.kind, namespace, name));
        }
    }

    fn take_change(&self, kind: &str, namespace: &str, take: impl FnOnce(&KindEntry<Shard>, &Shard) -> Option<Key>) {
        let Some(entry) = self.kinds.iter().find(|entry| entry.kind.name == kind) else {
            return;
        };
        let Some(home) = self.lock_homes().get(namespace).cloned() else {
            return;
        };
        let Some(key) = take(entry, &home.shard) else { return };
        if self.context.enabled_kinds.is_on(entry.kind.name) {
            let (mailbox, new) = self.context.mailboxes.get_or_add(&key);
            mailbox.wake();
            if new {
                let run = (entry.run)(Arc::clone(&home.shard), key.clone(), mailbox, home.end.clone());
                let abort = home.abort.clone();
                home.tasks.spawn(async move { abort.run_until_cancelled(run).await });
            }
        }
        home.shard.wake_dependents(&key);
    }
}

impl HubApi for HubProxy {
    fn read_placement<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Placement> {
        std::future::ready(self.place_known(namespace)).boxed()
    }

    fn find_lane<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Arc<Lane>> {
        std::future::ready(self.lanes.find_lane(&self.place_known(namespace), namespace)).boxed()
    }

    fn find_other_shard(&self, namespace: &str) -> ShardLookup {
        let home = self.lock_homes().get(namespace).map(|home| Arc::clone(&home.shard));
        home.map_or(ShardLookup::Apart, ShardLookup::Here)
    }

    fn borrow<'a>(&'a self, from: &'a str, key: &'a Key) -> BoxFuture<'a, BorrowedObject> {
        async move {
            let lane = self.lanes.find_lane(&self.place_known(from), from);
            self.borrower.borrow(from, key, &lane.limits.name).await
        }
        .boxed()
    }

    fn find_ending(&self, namespace: &str) -> Option<Termination> {
        self.read_facts(namespace, |facts| facts.ending).flatten()
    }

    fn find_endings<'a>(&'a self, namespaces: &'a BTreeSet<String>) -> BoxFuture<'a, BTreeSet<String>> {
        async move {
            if namespaces.is_empty() {
                return BTreeSet::new();
            }
            match self.line.ask(Question::Endings(namespaces.clone())).await {
                Some(Answer::Endings(found)) => found,
                // Without an answer, nothing is given up.
                _ => BTreeSet::new(),
            }
        }
        .boxed()
    }

    /// Answers for the lane's own namespaces from local state, which is the newest. The hub answers for other namespaces from its watches.
    fn ask_owner<'a>(
        &'a self,
        (namespace, name): (&'a str, &'a str),
        objects: &'a [ObjectId],
        cluster: Option<&'a str>,
    ) -> BoxFuture<'a, Option<OwnerAnswer>> {
        async move {
            let home = self.lock_homes().get(namespace).map(|home| Arc::clone(&home.shard));
            if let Some(shard) = home {
                return kustomization::answer_owner(&shard, name, objects, cluster).await;
            }
            let question = Question::Owner {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                objects: objects.to_vec(),
                cluster: cluster.map(str::to_owned),
            };
            match self.line.ask(question).await {
                Some(Answer::Owner(answer)) => answer.map(|answer| *answer),
                _ => None,
            }
        }
        .boxed()
    }

    fn is_admitted(&self, namespace: &str) -> bool {
        self.read_facts(namespace, |facts| facts.is_admitted)
            .unwrap_or_default()
    }

    fn find_shard(&self, namespace: &str) -> Option<Arc<Shard>> {
        self.lock_homes().get(namespace).map(|home| Arc::clone(&home.shard))
    }

    fn set_receiver_path(&self, receiver: &Key, path: Option<&HookPath>) {
        let mut receiver_paths = self.receiver_paths.lock().unwrap_or_else(PoisonError::into_inner);
        if receiver_paths.get(receiver) == path {
            return;
        }
        let is_sent = self.line.try_send(FromLane::Door {
            namespace: receiver.namespace.clone(),
            name: receiver.name.clone(),
            path: path.cloned(),
        });
        match (is_sent, path) {
            (true, Some(path)) => drop(receiver_paths.insert(receiver.clone(), path.clone())),
            (true, None) => drop(receiver_paths.remove(receiver)),
            // If the line was full, the next round reports it again.
            (false, _) => {}
        }
    }

    fn close(&self, _namespace: &str) {}

    fn note_subscriptions(&self, key: &Key, to: &BTreeSet<Key>) {
        let homes = self.lock_homes();
        let elsewhere = to.iter().filter(|other| !homes.contains_key(&other.namespace));
        let name = |other: &Key| (other.kind.name.to_owned(), other.namespace.clone(), other.name.clone());
        let to: Vec<ObjectName> = elsewhere.map(name).collect();
        drop(homes);
        let is_news = self
            .lock_listened()
            .get(key)
            .map_or(!to.is_empty(), |before| *before != to);
        let frame = FromLane::Listens {
            kind: key.kind.name.to_owned(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            to: to.clone(),
        };
        // If the line was full, the next attempt reports it again.
        if is_news && self.line.try_send(frame) {
            if to.is_empty() {
                self.lock_listened().remove(key);
            } else {
                self.lock_listened().insert(key.clone(), to);
            }
        }
    }

    fn note_turnover(&self, key: &Key, turnover: &ObjectTurnover) {
        let _reported_with_the_next_attempt = self.line.try_send(FromLane::Turnover {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            turnover: turnover.clone(),
        });
    }

    fn takes_event(&self, about: &Key, event: &Event) -> bool {
        let place = match &event.place {
            EventPlace::Beside => return false,
            EventPlace::Platform => self.context.settings.platform_namespace.as_str(),
            EventPlace::Kustomization { namespace, .. } => namespace,
        };
        if self.lock_homes().contains_key(place) {
            return false;
        }
        let frame = FromLane::Event {
            kind: about.kind.name.to_owned(),
            namespace: about.namespace.clone(),
            name: about.name.clone(),
            event: event.clone(),
        };
        if !self.line.try_send(frame) {
            tracing::warn!(object = %about, reason = event.reason, "an event could not be handed on");
        }
        true
    }
}
