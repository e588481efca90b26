//! The processes of lanes, as the hub sees them: which there are, which namespaces each has, and what is seen there.
//!
//! A namespace in which something is reconciled has a *mirror* here, the shard that the watches feed; nothing is reconciled in it. Its lane's
//! process is told of what is in the mirror and of nothing else. Who asks about a namespace of another lane is answered from the mirror,
//! so no lane ever waits for another. When a namespace comes to belong to another lane, that one is told after the first has let go.
//! Decides nothing about processes: that is `tenure_planner::lane_process`.

mod allowance;
mod answers;
mod folders;
mod groups;
mod hearing;
mod lending;
mod mail;
mod pods;
mod rooms;
mod session;
mod supervision;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;
use tenure_api::{ArtifactGenerator, Kustomization};
use tenure_cluster::Client;
use tenure_planner::lane_process::Cause;
use tenure_planner::receiver::{Delivery, Verdict};
use tenure_tenancy::lane::decide_lane;
use tenure_tenancy::{Placement, identity};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::entry::Entry;
use crate::frames::{NamespaceFacts, Orders};
use crate::key::Key;
use crate::lane::{Shard, Surroundings};
use crate::lane_door::Doorkeeper;
use crate::lane_mode::{ApartSettings, LANE_FOLDERS, LaneMode};
use crate::lane_starter::Starter;
use crate::lane_table::name_lane;
use crate::means::Means;
use crate::reconciled::Reconciled as _;
use folders::LaneFolders;
pub(crate) use folders::remove_folder;
use groups::LaneGroups;
use mail::Mail;
use pods::PodHome;
use rooms::WantedRooms;
use supervision::LaneHandle;

/// How long a lane may take to let go of a namespace.
const LEAVING: Duration = Duration::from_secs(60);
/// How often it is looked whether a namespace has come from one lane to another.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Things that a kernel may lack, and how long one is in words.
const GAPS: usize = 16;
const LONGEST_GAP: usize = 512;

/// What is given to every lane's process, whosever it is.
#[derive(Debug)]
struct Standing {
    config: Config,
    apart: ApartSettings,
}

/// How processes of lanes beside this one are started, and their folders and groups.
#[derive(Debug)]
struct LaneHome {
    starter: Starter,
    folders: LaneFolders,
    groups: LaneGroups,
}

/// Where the processes are.
#[derive(Debug)]
enum Whereabouts {
    /// Beside this one, which starts them.
    Here(Arc<LaneHome>),
    /// In Pods.
    Pods(PodHome),
}

/// The kinds that are reconciled in lanes.
type LaneKinds = Arc<[Entry<Shard>]>;

/// What the fleet asks of the hub, besides what lanes ask.
pub(crate) trait Overview: Surroundings {
    /// Whether a watch has told of a namespace.
    fn has_seen(&self, namespace: &str) -> bool;

    /// Whose a namespace is, by what is known.
    fn place_known(&self, namespace: &str) -> Placement;

    /// The Surfaces of a namespace.
    fn list_surfaces(&self, namespace: &str) -> Vec<Key>;

    /// Who keeps the books of what is in a namespace.
    fn find_bookkeeper<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Client>;
}

/// The processes of lanes.
#[derive(Debug)]
pub(crate) struct Fleet {
    hub: Weak<dyn Overview>,
    means: Arc<Means>,
    /// The kinds that are reconciled in lanes.
    kinds: LaneKinds,
    standing: Standing,
    whereabouts: Whereabouts,
    tasks: TaskTracker,
    /// Everything ends.
    end: CancellationToken,
    /// It ends in good order.
    farewell: CancellationToken,
    /// Everything that is there has been seen: whose a namespace is can be told.
    is_ready: AtomicBool,
    homes: Mutex<HashMap<String, Mirror>>,
    lanes: Mutex<BTreeMap<String, Arc<LaneHandle>>>,
    /// Why lanes are down, by their names.
    troubles: Mutex<HashMap<String, String>>,
    /// Room that was wanted back from them.
    wanted: WantedRooms,
    /// What the kernel can't hold processes to, as it was said.
    gaps: Mutex<BTreeSet<String>>,
}

/// What is seen of one namespace, and which lane it was told.
#[derive(Debug)]
struct Mirror {
    shard: Arc<Shard>,
    lane: Option<Arc<LaneHandle>>,
    /// The lane that had it lets go of it.
    is_moving: bool,
}

/// What one lane's process may take of memory.
fn count_memory(config: &Config, apart: &ApartSettings) -> u64 {
    config
        .budgets
        .count_memory_of_one()
        .saturating_add(config.rendering.all_bytes)
        .saturating_add(apart.own_memory)
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fleet {
    /// The processes that a configuration wants; none, where lanes are tasks. `end` ends everything, in good order if `farewell` does.
    pub(crate) fn of(
        config: &Config,
        (hub, means, kinds): (Weak<dyn Overview>, &Arc<Means>, &LaneKinds),
        tasks: &TaskTracker,
        (end, farewell): (&CancellationToken, &CancellationToken),
    ) -> Option<Arc<Self>> {
        let apart = config.lanes.find_apart()?.clone();
        let whereabouts = match &config.lanes {
            LaneMode::Tasks => return None,
            LaneMode::Processes(processes) => {
                let folders = config.artifacts.join(LANE_FOLDERS);
                Whereabouts::Here(Arc::new(LaneHome {
                    starter: Starter::new(&processes.program),
                    folders: LaneFolders::new(folders, &processes.program.program),
                    groups: LaneGroups::new(),
                }))
            }
            LaneMode::Pods(pods) => Whereabouts::Pods(PodHome::new(config, pods)),
        };
        Some(Arc::new(Self {
            hub,
            means: Arc::clone(means),
            kinds: Arc::clone(kinds),
            standing: Standing {
                config: config.clone(),
                apart,
            },
            whereabouts,
            tasks: tasks.clone(),
            end: end.clone(),
            farewell: farewell.clone(),
            is_ready: AtomicBool::new(false),
            homes: Mutex::default(),
            lanes: Mutex::default(),
            troubles: Mutex::default(),
            wanted: WantedRooms::default(),
            gaps: Mutex::default(),
        }))
    }

    /// Whether something is seen of a namespace.
    pub(crate) fn has(&self, namespace: &str) -> bool {
        lock(&self.homes).contains_key(namespace)
    }

    /// An object changed in a mirror, or is gone from it at a revision.
    pub(crate) fn note(self: &Arc<Self>, shard: &Arc<Shard>, key: &Key, gone: Option<&str>) {
        let is_empty = gone.is_some() && shard.list_keys().is_empty();
        let mut homes = lock(&self.homes);
        let home = homes.entry(key.namespace.clone()).or_insert_with(|| Mirror {
            shard: Arc::clone(shard),
            lane: None,
            is_moving: false,
        });
        if let Some(lane) = &home.lane {
            lane.note(key, gone);
        }
        let is_new = home.lane.is_none() && !home.is_moving;
        if !is_empty {
            drop(homes);
            if is_new {
                self.place(&key.namespace);
            }
            return;
        }
        let closed = homes.remove(&key.namespace);
        drop(homes);
        if let Some(lane) = closed.as_ref().and_then(|home| home.lane.as_ref()) {
            lane.take_away(&key.namespace);
        }
        // Not under the lock: the hub closes the namespace with it.
        drop(closed);
    }

    /// Everything that is there has been seen.
    pub(crate) fn begin(self: &Arc<Self>) {
        self.is_ready.store(true, Ordering::Release);
        self.tasks.spawn(Arc::clone(self).watch_rooms());
        self.place_all();
        if let Whereabouts::Pods(home) = &self.whereabouts {
            self.tasks.spawn(Arc::clone(self).remove_left_over());
            let keeper = Arc::downgrade(self) as Weak<dyn Doorkeeper>;
            home.door.set_keeper(keeper);
        }
    }

    /// Whose the namespaces are may have changed.
    pub(crate) fn place_all(self: &Arc<Self>) {
        self.place_where(|_| true);
    }

    /// Whose these namespaces are, or what is ending about others, may have changed.
    pub(crate) fn place_where(self: &Arc<Self>, is_meant: impl Fn(&str) -> bool) {
        let namespaces: Vec<String> = lock(&self.homes).keys().cloned().collect();
        for namespace in namespaces.iter().filter(|namespace| is_meant(namespace)) {
            self.place(namespace);
        }
    }

    /// Sees to it that the lane of a namespace knows that it has it, and how it stands.
    pub(crate) fn place(self: &Arc<Self>, namespace: &str) {
        let Some(hub) = self.hub.upgrade() else { return };
        if !self.is_ready.load(Ordering::Acquire) || self.end.is_cancelled() {
            return;
        }
        if hub.has_seen(namespace) {
            self.place_known(hub.as_ref(), namespace);
            return;
        }
        // No watch has told of it: whose it is has to be asked, or it would be nobody's for a moment.
        let (fleet, namespace) = (Arc::clone(self), namespace.to_owned());
        self.tasks.spawn(async move {
            let asked = fleet.end.run_until_cancelled(hub.place(&namespace)).await;
            if asked.is_some() {
                fleet.place_known(hub.as_ref(), &namespace);
            }
        });
    }

    fn place_known(self: &Arc<Self>, hub: &dyn Overview, namespace: &str) {
        let mut homes = lock(&self.homes);
        let Some(home) = homes.get_mut(namespace) else { return };
        if home.is_moving {
            return;
        }
        // Looked at under the lock: who comes later knows more.
        let placement = hub.place_known(namespace);
        let name = name_lane(&decide_lane(&placement, namespace));
        let facts = NamespaceFacts {
            ending: hub.find_ending(namespace),
            is_admitted: hub.is_admitted(namespace),
            placement,
        };
        match home.lane.take() {
            Some(lane) if lane.name != name => {
                home.is_moving = true;
                let (fleet, namespace) = (Arc::clone(self), namespace.to_owned());
                self.tasks
                    .spawn(async move { fleet.take_from(&lane, &namespace).await });
            }
            Some(lane) => {
                lane.give(namespace, facts);
                home.lane = Some(lane);
            }
            None => {
                let lane = self.give_to_lane(&name, namespace, facts);
                lane.note_all(&home.shard.list_keys());
                home.lane = Some(lane);
            }
        }
    }

    /// Gives a namespace to the lane of a name, which is started if it is not there.
    fn give_to_lane(self: &Arc<Self>, name: &str, namespace: &str, facts: NamespaceFacts) -> Arc<LaneHandle> {
        let mut lanes = lock(&self.lanes);
        if let Some(lane) = lanes.get(name) {
            // Under the lock: one that has no namespace is forgotten under it.
            lane.give(namespace, facts);
            return Arc::clone(lane);
        }
        let account = identity::decide_for_lane(&facts.placement, namespace);
        let lane = Arc::new(LaneHandle::new(name, account));
        lane.give(namespace, facts);
        lanes.insert(name.to_owned(), Arc::clone(&lane));
        self.tasks
            .spawn(supervision::supervise(Arc::clone(self), Arc::clone(&lane)));
        lane
    }

    /// A lane is told that a namespace is no longer its, and ended if it holds on to it.
    async fn wait_until_left(&self, lane: &LaneHandle, namespace: &str) {
        let left = lane.ask_to_leave(namespace);
        tokio::pin!(left);
        if tokio::time::timeout(LEAVING, &mut left).await.is_err() {
            lane.kill(Cause::HeldOn);
            left.await;
        }
    }

    /// Takes a namespace from a lane that it is no longer of.
    async fn take_from(self: &Arc<Self>, lane: &LaneHandle, namespace: &str) {
        self.wait_until_left(lane, namespace).await;
        if let Some(home) = lock(&self.homes).get_mut(namespace) {
            home.is_moving = false;
        }
        self.place(namespace);
    }

    /// Takes what is seen of a namespace from its lane: the lane, if it has one, and whether there is nothing any more.
    fn take_home(&self, namespace: &str) -> (Option<Arc<LaneHandle>>, bool) {
        let mut homes = lock(&self.homes);
        let Some(home) = homes.get_mut(namespace) else {
            return (None, true);
        };
        let lane = match home.is_moving {
            // It is on its way from one lane to another: it is taken from that one.
            true => None,
            false => home.lane.take(),
        };
        home.is_moving |= lane.is_some();
        let is_over = !home.is_moving;
        let closed = is_over.then(|| homes.remove(namespace));
        drop(homes);
        // Not under the lock: the hub closes the namespace with it.
        drop(closed);
        (lane, is_over)
    }

    /// Another instance works on a namespace from here on: returns when no process has anything of it.
    pub(crate) async fn let_go(self: &Arc<Self>, namespace: &str) {
        loop {
            let (lane, is_over) = self.take_home(namespace);
            if is_over {
                return;
            }
            match lane {
                Some(lane) => {
                    self.wait_until_left(&lane, namespace).await;
                    if let Some(home) = lock(&self.homes).get_mut(namespace) {
                        home.is_moving = false;
                    }
                }
                None => tokio::time::sleep(LOOK_AGAIN).await,
            }
        }
    }

    /// Says once of each thing that the kernel could not hold a process to it. It is the same for all of them.
    fn tell_of_gaps(&self, told: &[String]) -> Result<(), String> {
        if told.len() > GAPS || told.iter().any(|gap| gap.len() > LONGEST_GAP) {
            return Err("more than a kernel can lack".to_owned());
        }
        let mut gaps = lock(&self.gaps);
        for gap in told {
            if gaps.len() < GAPS && gaps.insert(gap.clone()) {
                tracing::warn!(
                    ?gap,
                    "the processes of lanes are less shut in than they should be, on this machine"
                );
            }
        }
        Ok(())
    }

    /// Forgets a lane that has nothing any more; whether it has.
    fn retire(&self, lane: &LaneHandle) -> bool {
        let mut lanes = lock(&self.lanes);
        let is_over = lane.mail.is_without_namespaces() || self.end.is_cancelled();
        if is_over {
            lanes.remove(&lane.name);
        }
        is_over
    }

    /// Wakes an object of a kind that listens to others, where it is reconciled in a lane's process.
    pub(crate) fn wake(&self, key: &Key) {
        if key.kind != Kustomization::KIND && key.kind != ArtifactGenerator::KIND {
            return;
        }
        if let Some(lane) = lock(&self.homes)
            .get(&key.namespace)
            .and_then(|home| home.lane.as_ref())
        {
            lane.wake(key);
        }
    }

    /// Brings a request to the process that reconciles a Receiver, and what is answered back.
    pub(crate) async fn bring(&self, receiver: &Key, delivery: &Delivery) -> Verdict {
        let lane = lock(&self.homes)
            .get(&receiver.namespace)
            .and_then(|home| home.lane.clone());
        let brought = lane.map(|lane| lane.mail.bring(receiver, delivery));
        match brought {
            Some(Ok(answered)) => answered.await.unwrap_or(Verdict::Unavailable),
            Some(Err(verdict)) => verdict,
            None => Verdict::Unavailable,
        }
    }

    /// What is seen of a namespace.
    fn find_mirror(&self, namespace: &str) -> Option<Arc<Shard>> {
        lock(&self.homes).get(namespace).map(|home| Arc::clone(&home.shard))
    }

    /// An object as its lane is told of it.
    fn write_object(&self, key: &Key) -> Option<Value> {
        self.find_mirror(&key.namespace)?.write_object(key)
    }

    /// Everything that is in the namespaces of a lane.
    fn note_everything(&self, lane: &LaneHandle) {
        for namespace in lane.mail.list_namespaces() {
            if let Some(shard) = self.find_mirror(&namespace) {
                lane.note_all(&shard.list_keys());
            }
        }
    }

    /// What a lane is told first; nothing for one that has no namespace.
    fn write_orders(&self, lane: &LaneHandle, (folder, user): (PathBuf, Option<u32>)) -> Option<Orders> {
        let (namespace, placement) = lane.mail.find_any_namespace()?;
        let config = &self.standing.config;
        let budgets = config.budgets;
        let apart = &self.standing.apart;
        Some(Orders {
            lane: lane.name.clone(),
            namespace,
            placement,
            server: apart.server.clone(),
            folder,
            memory: count_memory(config, apart),
            user,
            settings: config.settings.clone(),
            switches: config.switches.write(),
            limits: config.limits,
            budgets,
            lane_width: config.lane_width,
            rendering: config.rendering,
            guards: config.guards.clone(),
            applying: config.applying.clone(),
            strict_sops: config.strict_sops,
            has_spans: config.spans.is_some(),
            advertised: config.advertised.clone(),
        })
    }

    /// Removes what a lane has to itself, its folder or its Pod: nothing of it is reconciled, so nothing of what it fetched is used.
    async fn clear_away(&self, lane: &LaneHandle) {
        if self.end.is_cancelled() {
            return;
        }
        match &self.whereabouts {
            Whereabouts::Pods(_) => self.delete_pod(lane).await,
            Whereabouts::Here(home) => {
                let (home, name) = (Arc::clone(home), lane.name.clone());
                let _removed = tokio::task::spawn_blocking(move || home.folders.remove(&name)).await;
            }
        }
    }

    /// Why the process of a namespace's lane is down, in words.
    pub(crate) fn find_trouble(&self, namespace: &str) -> Option<String> {
        let lane = lock(&self.homes).get(namespace)?.lane.clone()?;
        lock(&self.troubles).get(&lane.name).cloned()
    }

    /// The lanes that there are, and whether nothing is known to keep each from its work.
    pub(crate) fn list_lanes(&self) -> Vec<(String, bool)> {
        let names: Vec<String> = lock(&self.lanes).keys().cloned().collect();
        let troubles = lock(&self.troubles);
        let lanes = names.into_iter().map(|name| {
            let works = !troubles.contains_key(&name);
            (name, works)
        });
        lanes.collect()
    }

    /// Sets why a lane is down, and tells its Surfaces.
    fn set_trouble(&self, lane: &LaneHandle, trouble: Option<String>) {
        let mut troubles = lock(&self.troubles);
        let before = match &trouble {
            Some(words) => troubles.insert(lane.name.clone(), words.clone()),
            None => troubles.remove(&lane.name),
        };
        drop(troubles);
        if before == trouble {
            return;
        }
        let Some(hub) = self.hub.upgrade() else { return };
        for namespace in lane.mail.list_namespaces() {
            for surface in hub.list_surfaces(&namespace) {
                self.means.mailboxes.wake(&surface);
            }
        }
    }

    /// Says in the status of everything that a lane reconciles why it waits.
    async fn tell_of_pause(self: Arc<Self>, lane: Arc<LaneHandle>, words: String) {
        for namespace in lane.mail.list_namespaces() {
            let Some(shard) = self.find_mirror(&namespace) else {
                continue;
            };
            for key in shard.list_keys() {
                let entry = self.kinds.iter().find(|entry| entry.kind == key.kind);
                if let Some(entry) = entry {
                    (entry.tell_of_pause)(Arc::clone(&shard), key, words.clone()).await;
                }
            }
        }
    }
}
