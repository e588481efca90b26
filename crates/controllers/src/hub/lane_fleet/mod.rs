//! The processes of lanes, as the hub sees them: the existing processes, the namespaces of each, and the objects there.
//!
//! A namespace in which something is reconciled has a *mirror* here: the shard that the watches feed. The hub reconciles nothing in a mirror. The
//! process of the lane gets the content of the mirror and nothing else. Questions about a namespace of another lane are answered from the mirror, so
//! no lane ever waits for another. When a namespace moves to another lane, the new lane is notified after the previous lane has released the
//! namespace. The decisions about processes are made by `tenure_planner::lane_process`.
//!
//! - `capacity_grants`: shared capacity of processes.
//! - `control_groups`, `lane_folders`: their limits in the kernel, and their folders.
//! - `lane_pods`: lanes in Pods.
//! - `lending`: objects and artifacts of other lanes.
//! - `message_handler`: a lane's questions and reports.
//! - `message_loop`, `outgoing_messages`: messages in both directions.
//! - `report_limit`: limits the stored reports.
//! - `session`: one process from start to end.
//! - `supervision`: restarts the process of a lane.

mod capacity_grants;
mod control_groups;
mod lane_folders;
mod lane_pods;
mod lending;
mod message_handler;
mod message_loop;
mod outgoing_messages;
mod report_limit;
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
use tenure_planner::lane_process::ExitCause;
use tenure_planner::receiver::{Delivery, Verdict};
use tenure_tenancy::lane::decide_lane;
use tenure_tenancy::{Placement, identity};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cluster_view::key::Key;
use crate::context::ControllerContext;
use crate::context::config::Config;
use crate::context::lane_settings::{ApartSettings, LANE_FOLDERS, LaneMode};
use crate::endpoints::lane_endpoint::PodAcceptor;
use crate::lane::lane_table::name_lane;
use crate::lane::{HubApi, Shard};
use crate::lane_protocol::messages::{LaneOrders, NamespaceFacts};
use crate::lane_protocol::process_starter::ProcessStarter;
use crate::reconcile_loop::kind_entry::KindEntry;
use crate::reconcile_loop::reconciled::Reconciled as _;
use capacity_grants::WantedCapacity;
use control_groups::ControlGroups;
use lane_folders::LaneFolders;
pub(crate) use lane_folders::remove_folder;
use lane_pods::PodHome;
use outgoing_messages::OutgoingMessages;
use supervision::LaneHandle;

/// The time limit for a lane to release a namespace.
const LEAVING: Duration = Duration::from_secs(60);
/// The interval between checks whether a namespace has moved from one lane to another.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The maximum number of features that the kernel can lack, and of characters in the description of one.
const GAPS: usize = 16;
const LONGEST_GAP: usize = 512;

/// The configuration for the processes of all lanes. It depends on no tenant.
#[derive(Debug)]
struct ProcessConfig {
    config: Config,
    apart: ApartSettings,
}

/// Starts processes of lanes beside this process, with their folders and groups.
#[derive(Debug)]
struct ProcessHome {
    starter: ProcessStarter,
    folders: LaneFolders,
    groups: ControlGroups,
}

/// Where the processes are.
#[derive(Debug)]
enum ProcessLocation {
    /// On the machine of this process, which starts the processes of lanes.
    Here(Arc<ProcessHome>),
    /// In Pods.
    Pods(PodHome),
}

/// The kinds that are reconciled in lanes.
type LaneKinds = Arc<[KindEntry<Shard>]>;

/// Questions of the fleet to the hub, besides the questions of lanes.
pub(crate) trait HubOverview: HubApi {
    /// Checks whether a watch has reported a namespace.
    fn has_seen(&self, namespace: &str) -> bool;

    /// Returns whose a namespace is, from the known facts.
    fn place_known(&self, namespace: &str) -> Placement;

    /// Returns the Surfaces of a namespace.
    fn list_surfaces(&self, namespace: &str) -> Vec<Key>;

    /// Returns the client that does the bookkeeping of a namespace.
    fn find_bookkeeper<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Client>;
}

/// The lanes that run in processes or Pods of their own, and the mirrors of the namespaces that these lanes have.
#[derive(Debug)]
pub(crate) struct LaneFleet {
    hub: Weak<dyn HubOverview>,
    context: Arc<ControllerContext>,
    /// The kinds that are reconciled in lanes.
    kinds: LaneKinds,
    process_config: ProcessConfig,
    location: ProcessLocation,
    tasks: TaskTracker,
    /// Cancelled when everything ends.
    end: CancellationToken,
    /// Cancelled first for an end in good order.
    farewell: CancellationToken,
    /// Whether all existing objects have been seen. Before that, the placement of namespaces is unknown.
    is_ready: AtomicBool,
    homes: Mutex<HashMap<String, Mirror>>,
    lanes: Mutex<BTreeMap<String, Arc<LaneHandle>>>,
    /// The reasons why lanes are down, by lane name.
    troubles: Mutex<HashMap<String, String>>,
    /// Capacity that was requested back from lanes.
    wanted: WantedCapacity,
    /// The limits that the kernel can't enforce on processes, as already reported.
    gaps: Mutex<BTreeSet<String>>,
}

/// The objects of one namespace as watches reported them, and the lane that was notified that it has the namespace.
#[derive(Debug)]
struct Mirror {
    shard: Arc<Shard>,
    lane: Option<Arc<LaneHandle>>,
    /// The previous lane is releasing the namespace.
    is_moving: bool,
}

/// Returns the memory limit of one lane's process.
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

impl LaneFleet {
    /// Creates the processes that a configuration wants; `None` if lanes are tasks. `end` ends everything, in good order if `farewell` is cancelled.
    pub(crate) fn from_config(
        config: &Config,
        (hub, context, kinds): (Weak<dyn HubOverview>, &Arc<ControllerContext>, &LaneKinds),
        tasks: &TaskTracker,
        (end, farewell): (&CancellationToken, &CancellationToken),
    ) -> Option<Arc<Self>> {
        let apart = config.lanes.find_apart()?.clone();
        let location = match &config.lanes {
            LaneMode::Tasks => return None,
            LaneMode::Processes(processes) => {
                let folders = config.artifacts.join(LANE_FOLDERS);
                ProcessLocation::Here(Arc::new(ProcessHome {
                    starter: ProcessStarter::new(&processes.program),
                    folders: LaneFolders::new(folders, &processes.program.program),
                    groups: ControlGroups::new(),
                }))
            }
            LaneMode::Pods(pods) => ProcessLocation::Pods(PodHome::new(config, pods)),
        };
        Some(Arc::new(Self {
            hub,
            context: Arc::clone(context),
            kinds: Arc::clone(kinds),
            process_config: ProcessConfig {
                config: config.clone(),
                apart,
            },
            location,
            tasks: tasks.clone(),
            end: end.clone(),
            farewell: farewell.clone(),
            is_ready: AtomicBool::new(false),
            homes: Mutex::default(),
            lanes: Mutex::default(),
            troubles: Mutex::default(),
            wanted: WantedCapacity::default(),
            gaps: Mutex::default(),
        }))
    }

    /// Checks whether the fleet has a mirror of a namespace.
    pub(crate) fn has(&self, namespace: &str) -> bool {
        lock(&self.homes).contains_key(namespace)
    }

    /// Records that an object changed in a mirror, or was deleted from it at a revision.
    pub(crate) fn note_change(self: &Arc<Self>, shard: &Arc<Shard>, key: &Key, gone: Option<&str>) {
        let is_empty = gone.is_some() && shard.list_keys().is_empty();
        let mut homes = lock(&self.homes);
        let home = homes.entry(key.namespace.clone()).or_insert_with(|| Mirror {
            shard: Arc::clone(shard),
            lane: None,
            is_moving: false,
        });
        if let Some(lane) = &home.lane {
            lane.queue_change(key, gone);
        }
        let is_new = home.lane.is_none() && !home.is_moving;
        if !is_empty {
            drop(homes);
            if is_new {
                self.assign_namespace(&key.namespace);
            }
            return;
        }
        let closed = homes.remove(&key.namespace);
        drop(homes);
        if let Some(lane) = closed.as_ref().and_then(|home| home.lane.as_ref()) {
            lane.revoke(&key.namespace);
        }
        // Drop outside the lock: the drop closes the namespace in the hub.
        drop(closed);
    }

    /// Starts the placement of namespaces: all existing objects have been seen.
    pub(crate) fn start_placement(self: &Arc<Self>) {
        self.is_ready.store(true, Ordering::Release);
        self.tasks.spawn(Arc::clone(self).watch_rooms());
        self.place_all();
        if let ProcessLocation::Pods(home) = &self.location {
            self.tasks.spawn(Arc::clone(self).remove_left_over());
            let keeper = Arc::downgrade(self) as Weak<dyn PodAcceptor>;
            home.door.set_keeper(keeper);
        }
    }

    /// Places all namespaces again after a possible change of their tenants.
    pub(crate) fn place_all(self: &Arc<Self>) {
        self.place_where(|_| true);
    }

    /// Places the selected namespaces again after a possible change of their tenants or of a deletion.
    pub(crate) fn place_where(self: &Arc<Self>, is_meant: impl Fn(&str) -> bool) {
        let namespaces: Vec<String> = lock(&self.homes).keys().cloned().collect();
        for namespace in namespaces.iter().filter(|namespace| is_meant(namespace)) {
            self.assign_namespace(namespace);
        }
    }

    /// Ensures that the lane of a namespace knows that it has the namespace, with the current facts.
    pub(crate) fn assign_namespace(self: &Arc<Self>, namespace: &str) {
        let Some(hub) = self.hub.upgrade() else { return };
        if !self.is_ready.load(Ordering::Acquire) || self.end.is_cancelled() {
            return;
        }
        if hub.has_seen(namespace) {
            self.place_known(hub.as_ref(), namespace);
            return;
        }
        // No watch has reported the namespace. Ask first: otherwise it would count as without a tenant for a moment.
        let (fleet, namespace) = (Arc::clone(self), namespace.to_owned());
        self.tasks.spawn(async move {
            let asked = fleet.end.run_until_cancelled(hub.read_placement(&namespace)).await;
            if asked.is_some() {
                fleet.place_known(hub.as_ref(), &namespace);
            }
        });
    }

    fn place_known(self: &Arc<Self>, hub: &dyn HubOverview, namespace: &str) {
        let mut homes = lock(&self.homes);
        let Some(home) = homes.get_mut(namespace) else { return };
        if home.is_moving {
            return;
        }
        // Read under the lock, so that a later caller never has older facts.
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
                lane.assign(namespace, facts);
                home.lane = Some(lane);
            }
            None => {
                let lane = self.give_to_lane(&name, namespace, facts);
                lane.queue_changes(&home.shard.list_keys());
                home.lane = Some(lane);
            }
        }
    }

    /// Gives a namespace to the lane of a name, and starts that lane if it is missing.
    fn give_to_lane(self: &Arc<Self>, name: &str, namespace: &str, facts: NamespaceFacts) -> Arc<LaneHandle> {
        let mut lanes = lock(&self.lanes);
        if let Some(lane) = lanes.get(name) {
            // Under the lock, because a lane without a namespace is removed under it.
            lane.assign(namespace, facts);
            return Arc::clone(lane);
        }
        let account = identity::decide_for_lane(&facts.placement, namespace);
        let lane = Arc::new(LaneHandle::new(name, account));
        lane.assign(namespace, facts);
        lanes.insert(name.to_owned(), Arc::clone(&lane));
        self.tasks
            .spawn(supervision::supervise_lane(Arc::clone(self), Arc::clone(&lane)));
        lane
    }

    /// Notifies a lane that a namespace no longer belongs to it, and ends a lane that does not release the namespace in time.
    async fn wait_until_left(&self, lane: &LaneHandle, namespace: &str) {
        let left = lane.ask_to_leave(namespace);
        tokio::pin!(left);
        if tokio::time::timeout(LEAVING, &mut left).await.is_err() {
            lane.kill(ExitCause::HeldOn);
            left.await;
        }
    }

    /// Takes a namespace from its previous lane.
    async fn take_from(self: &Arc<Self>, lane: &LaneHandle, namespace: &str) {
        self.wait_until_left(lane, namespace).await;
        if let Some(home) = lock(&self.homes).get_mut(namespace) {
            home.is_moving = false;
        }
        self.assign_namespace(namespace);
    }

    /// Takes a namespace from its lane. Returns the lane, if the namespace had one, and whether the fleet has nothing more of the namespace.
    fn take_home(&self, namespace: &str) -> (Option<Arc<LaneHandle>>, bool) {
        let mut homes = lock(&self.homes);
        let Some(home) = homes.get_mut(namespace) else {
            return (None, true);
        };
        let lane = match home.is_moving {
            // The namespace is moving between lanes: the running move takes it from the previous lane.
            true => None,
            false => home.lane.take(),
        };
        home.is_moving |= lane.is_some();
        let is_over = !home.is_moving;
        let closed = is_over.then(|| homes.remove(namespace));
        drop(homes);
        // Drop outside the lock: the drop closes the namespace in the hub.
        drop(closed);
        (lane, is_over)
    }

    /// Releases a namespace to another instance. Returns when no process has anything of it.
    pub(crate) async fn release_namespace(self: &Arc<Self>, namespace: &str) {
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

    /// Reports each limit that the kernel could not enforce, once for all processes: they share one kernel.
    fn report_kernel_gaps(&self, reported: &[String]) -> Result<(), String> {
        if reported.len() > GAPS || reported.iter().any(|gap| gap.len() > LONGEST_GAP) {
            return Err("more than a kernel can lack".to_owned());
        }
        let mut gaps = lock(&self.gaps);
        for gap in reported {
            if gaps.len() < GAPS && gaps.insert(gap.clone()) {
                tracing::warn!(
                    ?gap,
                    "the processes of lanes are less confined than they should be, on this machine"
                );
            }
        }
        Ok(())
    }

    /// Removes a lane that has no namespace. Returns whether it was removed.
    fn retire(&self, lane: &LaneHandle) -> bool {
        let mut lanes = lock(&self.lanes);
        let is_over = lane.outgoing.is_without_namespaces() || self.end.is_cancelled();
        if is_over {
            lanes.remove(&lane.name);
        }
        is_over
    }

    /// Wakes an object that listens to other objects, if it is reconciled in a lane's process.
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

    /// Passes a request to the process that reconciles the Receiver, and returns its answer.
    pub(crate) async fn deliver(&self, receiver: &Key, delivery: &Delivery) -> Verdict {
        let lane = lock(&self.homes)
            .get(&receiver.namespace)
            .and_then(|home| home.lane.clone());
        let brought = lane.map(|lane| lane.outgoing.deliver(receiver, delivery));
        match brought {
            Some(Ok(answered)) => answered.await.unwrap_or(Verdict::Unavailable),
            Some(Err(verdict)) => verdict,
            None => Verdict::Unavailable,
        }
    }

    /// Returns the mirror of a namespace.
    fn find_mirror(&self, namespace: &str) -> Option<Arc<Shard>> {
        lock(&self.homes).get(namespace).map(|home| Arc::clone(&home.shard))
    }

    /// Returns an object in the form in which its lane gets it.
    fn write_object(&self, key: &Key) -> Option<Value> {
        self.find_mirror(&key.namespace)?.write_object(key)
    }

    /// Queues all objects in the namespaces of a lane.
    fn note_everything(&self, lane: &LaneHandle) {
        for namespace in lane.outgoing.list_namespaces() {
            if let Some(shard) = self.find_mirror(&namespace) {
                lane.queue_changes(&shard.list_keys());
            }
        }
    }

    /// Returns the first message for a lane; `None` for a lane without a namespace.
    fn write_orders(&self, lane: &LaneHandle, (folder, user): (PathBuf, Option<u32>)) -> Option<LaneOrders> {
        let (namespace, placement) = lane.outgoing.find_any_namespace()?;
        let config = &self.process_config.config;
        let budgets = config.budgets;
        let apart = &self.process_config.apart;
        Some(LaneOrders {
            lane: lane.name.clone(),
            namespace,
            placement,
            server: apart.server.clone(),
            folder,
            memory: count_memory(config, apart),
            user,
            settings: config.settings.clone(),
            enabled_kinds: config.enabled_kinds.write(),
            limits: config.limits,
            budgets,
            lane_width: config.lane_width,
            rendering: config.rendering,
            guards: config.guards.clone(),
            applying: config.applying.clone(),
            strict_sops: config.strict_sops,
            has_receiver_listener: config.receiver_endpoint.has_listener(),
            has_spans: config.spans.is_some(),
            advertised: config.advertised.clone(),
        })
    }

    /// Removes the folder or the Pod of a lane. The lane reconciles nothing, so its artifacts are not used.
    async fn clear_away(&self, lane: &LaneHandle) {
        if self.end.is_cancelled() {
            return;
        }
        match &self.location {
            ProcessLocation::Pods(_) => self.delete_pod(lane).await,
            ProcessLocation::Here(home) => {
                let (home, name) = (Arc::clone(home), lane.name.clone());
                let _removed = tokio::task::spawn_blocking(move || home.folders.remove(&name)).await;
            }
        }
    }

    /// Returns the reason why the process of a namespace's lane is down, as text.
    pub(crate) fn find_trouble(&self, namespace: &str) -> Option<String> {
        let lane = lock(&self.homes).get(namespace)?.lane.clone()?;
        lock(&self.troubles).get(&lane.name).cloned()
    }

    /// Returns the names of all lanes, each with true if the lane works, and false if its process is down.
    pub(crate) fn list_lanes(&self) -> Vec<(String, bool)> {
        let names: Vec<String> = lock(&self.lanes).keys().cloned().collect();
        let troubles = lock(&self.troubles);
        let lanes = names.into_iter().map(|name| {
            let works = !troubles.contains_key(&name);
            (name, works)
        });
        lanes.collect()
    }

    /// Sets the reason why a lane is down, and wakes its Surfaces.
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
        for namespace in lane.outgoing.list_namespaces() {
            for surface in hub.list_surfaces(&namespace) {
                self.context.mailboxes.wake(&surface);
            }
        }
    }

    /// Writes into the status of everything that a lane reconciles why the lane waits.
    async fn report_pause(self: Arc<Self>, lane: Arc<LaneHandle>, words: String) {
        for namespace in lane.outgoing.list_namespaces() {
            let Some(shard) = self.find_mirror(&namespace) else {
                continue;
            };
            for key in shard.list_keys() {
                let entry = self.kinds.iter().find(|entry| entry.kind == key.kind);
                if let Some(entry) = entry {
                    (entry.report_pause)(Arc::clone(&shard), key, words.clone()).await;
                }
            }
        }
    }
}
