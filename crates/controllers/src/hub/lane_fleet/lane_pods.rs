//! Lanes in Pods: their Deployments, their connected Pods, and the session with one Pod. The hub writes a Deployment and waits. A proven Pod comes
//! in by `crate::endpoints::lane_endpoint`. The Pod gets its orders when no other Pod of that lane can have any. Its session is the session of a
//! process beside the hub, with two differences: the line (`crate::lane_protocol::pod_connection`), and the Pod opens the connections.
//!
//! No two Pods of one lane work at the same time. If the end of a Pod is not confirmed, the hub waits until that Pod has ended by itself.

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use tenure_api::ObjectView;
use tenure_api::metadata::{PLATFORM_NAMESPACE, TENURE_CONTROLLER};
use tenure_api::workload::{LANE_LABEL, LanePods, lane_deployment};
use tenure_cluster::{ApplyOptions, ClusterError, DeleteOptions, Preconditions};
use tenure_planner::lane_process::{ExitCause, ProcessEvent};
use tenure_sources::{ConnectFailure, ConnectRefusal, Policy};
use tenure_tenancy::lane::Lane;
use tokio::io::ReadHalf;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::message_loop::{MessageReceiver, MessageSender, read_all, write_all};
use super::session::Session;
use super::supervision::LaneHandle;
use super::{LaneFleet, ProcessLocation, count_memory, lock};
use crate::context::config::Config;
use crate::context::lane_settings::PodSettings;
use crate::endpoints::lane_endpoint::{LaneConnection, LaneEndpoint, PodAcceptor, PodRefusal, PodStream, ProvenPod};
use crate::lane::lane_references::Reference;
use crate::lane::lane_table::name_lane;
use crate::lane_protocol::file_transfer::{FileReceiver, TransferError, send_file};
use crate::lane_protocol::messages::{FrameError, FromLane, ToLane, decode, encode};
use crate::lane_protocol::pod_connection::{
    FromPod, LENT_AT_ONCE, Part, PodAssignment, PodEnd, PodWriter, ToPod, count_as_gone, find_lease, read_part,
};

/// The time limit for a write of a Deployment.
const WRITING: Duration = Duration::from_secs(20);
/// A Pod that connected longer ago than this has given up.
const FRESH: Duration = Duration::from_secs(50);
/// The time limit for the first message of a Pod after its orders.
const FIRST_WORD: Duration = Duration::from_secs(10);
/// The time limit for closing a connection.
const CLOSING: Duration = Duration::from_secs(2);
/// The time limit for fetching a file of a lane's folder, and for a short file.
const FETCHING: Duration = Duration::from_secs(45);
const FETCHING_LITTLE: Duration = Duration::from_secs(5);
/// The size limit of a short file, in bytes.
const LITTLE: u64 = 1 << 20;
/// The number of archives that are fetched from lanes at the same time, one from each lane. Each may be as large as a tenant's share of the disk.
const SPOOLS: usize = 8;
/// The size that is counted for each message of the Pod itself, besides its lane's frames.
const OWN_WORD: usize = 64;
/// Disk of a Pod besides artifacts: unfinished fetches, and borrowed artifacts while they arrive.
const DISK_BESIDES: u64 = 1 << 30;
/// Memory of a Pod besides the lane.
const RELAY_MEMORY: u64 = 64 << 20;
/// The interval between searches for Deployments that no lane uses.
const LOOK: Duration = Duration::from_secs(600);
/// The delay before the first search.
const FIRST_LOOK: Duration = Duration::from_secs(60);

/// The state that all lanes in Pods share: the common part of their Deployments, the endpoint for their Pods, and the folder for lent artifacts.
#[derive(Debug)]
pub(super) struct PodHome {
    pods: LanePods,
    pub(super) door: LaneEndpoint,
    /// The folder for artifacts on the way from one lane to another.
    lent_folder: PathBuf,
    lent_permits: Semaphore,
}

impl PodHome {
    pub(super) fn new(config: &Config, settings: &PodSettings) -> Self {
        let archives = config.budgets.archives;
        let pods = LanePods {
            memory: count_memory(config, &settings.apart).saturating_add(RELAY_MEMORY),
            disk: archives.tenant.min(archives.all).saturating_add(DISK_BESIDES),
            ..settings.pods.clone()
        };
        Self {
            pods,
            door: settings.door.clone(),
            lent_folder: config.artifacts.join("lent"),
            lent_permits: Semaphore::new(SPOOLS),
        }
    }

    /// Fetches a file of a lane's folder, of at most `most` bytes. The error says why the existence of the file is unknown.
    pub(super) async fn fetch(&self, pod: &PodState, path: PathBuf, most: u64) -> Result<Option<File>, String> {
        let post = pod.find_post().ok_or("the Pod of its lane is not connected")?;
        let fetching = async {
            let _room = match most > LITTLE {
                true => Some((post.turn.acquire().await, self.lent_permits.acquire().await)),
                false => None,
            };
            let delivery = post.wanted.expect();
            let number = delivery.number;
            let asked = post.writer.send(&ToPod::Open { number, path, most }).await;
            asked.map_err(|error| error.to_string())?;
            match delivery.receive(&self.lent_folder, most).await {
                Ok(file) => Ok(Some(file)),
                Err(TransferError::Refused(())) => Ok(None),
                Err(TransferError::Broken(error)) => Err(error.to_string()),
            }
        };
        let patience = if most > LITTLE { FETCHING } else { FETCHING_LITTLE };
        let fetched = tokio::time::timeout(patience, fetching).await;
        fetched.unwrap_or_else(|_| Err("the Pod of its lane gave no answer in time".to_owned()))
    }
}

/// A Pod that has connected and waits for its orders.
#[derive(Debug)]
struct ArrivedPod {
    pod: String,
    call: LaneConnection,
    at: Instant,
}

/// A Pod whose end is not confirmed, and the time until which it may still work.
#[derive(Debug)]
struct UnconfirmedPod {
    pod: String,
    until: Instant,
}

/// The known state of one lane's Pods: the Pod that waits for orders, the Pod that may still work, and the connection for files.
#[derive(Debug, Default)]
pub(super) struct PodState {
    waiting: Mutex<Option<ArrivedPod>>,
    came: Notify,
    unconfirmed: Mutex<Option<UnconfirmedPod>>,
    post: Mutex<Weak<PodFiles>>,
}

/// The writer to a connected Pod, and the requests for files of the Pod's lane that wait for content.
#[derive(Debug)]
struct PodFiles {
    writer: Arc<PodWriter>,
    wanted: FileReceiver<()>,
    /// Allows one archive at a time.
    turn: Semaphore,
}

impl PodState {
    /// Checks whether a connected Pod waits for orders.
    pub(super) fn is_waiting(&self) -> bool {
        lock(&self.waiting).is_some()
    }

    /// Stores the newest Pod as the waiting one. A previous Pod has given up, or will.
    fn set_waiting(&self, arrival: ArrivedPod) {
        let before = lock(&self.waiting).replace(arrival);
        drop(before);
        self.came.notify_one();
    }

    /// Returns the next Pod that has connected.
    async fn wait_for_pod(&self) -> ArrivedPod {
        loop {
            let arrival = lock(&self.waiting).take();
            match arrival {
                Some(arrival) if arrival.at.elapsed() < FRESH => return arrival,
                Some(_) => {}
                None => self.came.notified().await,
            }
        }
    }

    /// Returns the time from which a Pod may have orders: now, unless another Pod may still work.
    fn find_turn(&self, pod: &str) -> Option<Instant> {
        let unconfirmed = lock(&self.unconfirmed);
        let unconfirmed = unconfirmed.as_ref().filter(|other| other.pod != pod);
        unconfirmed.map(|other| other.until)
    }

    fn find_post(&self) -> Option<Arc<PodFiles>> {
        lock(&self.post).upgrade()
    }
}

impl PodAcceptor for LaneFleet {
    fn accept_pod(&self, pod: ProvenPod, call: LaneConnection) -> Result<(), PodRefusal> {
        if self.end.is_cancelled() {
            return Err(PodRefusal::NotLeading);
        }
        let lanes = lock(&self.lanes);
        let lane = lanes.values().find(|lane| lane.account.name() == pod.account);
        let lane = Arc::clone(lane.ok_or(PodRefusal::NoSuchLane)?);
        drop(lanes);
        tracing::debug!(lane = lane.name, pod = pod.uid, "the Pod of a lane has connected");
        lane.pod.set_waiting(ArrivedPod {
            pod: pod.uid,
            call,
            at: Instant::now(),
        });
        lane.notice_arrival();
        Ok(())
    }
}

/// Ensures that a lane has a Deployment, and starts a task that waits for its Pod and serves it.
pub(super) async fn expect_pod(
    (fleet, home): (&Arc<LaneFleet>, &PodHome),
    lane: &Arc<LaneHandle>,
    events: mpsc::Sender<ProcessEvent>,
) -> Result<Session, String> {
    let deployment = lane_deployment(&home.pods, &lane.name, lane.account.name());
    let options = ApplyOptions {
        manager: TENURE_CONTROLLER,
        force: true,
        dry_run: false,
        subresource: None,
    };
    let applying = fleet.context.controller.apply(&deployment, &options);
    match tokio::time::timeout(WRITING, applying).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => return Err(format!("its Deployment can't be written: {error}")),
        Err(_) => return Err("its Deployment can't be written: no answer in time".to_owned()),
    }
    let session = Session {
        process: None,
        kill: CancellationToken::new(),
    };
    let (fleet, lane, kill) = (Arc::clone(fleet), Arc::clone(lane), session.kill.clone());
    fleet.tasks.clone().spawn(async move {
        let end = serve_pod(&fleet, &lane, &kill, &events).await;
        let _nobody_supervises = events.send(ProcessEvent::Ended(end)).await;
    });
    Ok(session)
}

/// The connection to a Pod that has its assignment, and the lane's orders, which are sent first.
struct PodLine {
    pod: String,
    post: Arc<PodFiles>,
    hearing: PodFrameReceiver,
    orders: ToLane,
}

/// Waits for a Pod, serves it until its lane has ended, and returns how the lane ended.
async fn serve_pod(
    fleet: &Arc<LaneFleet>,
    lane: &Arc<LaneHandle>,
    kill: &CancellationToken,
    events: &mpsc::Sender<ProcessEvent>,
) -> ExitCause {
    let line = tokio::select! {
        line = connect_pod(fleet, lane) => line,
        () = kill.cancelled() => Err(ExitCause::HungUp),
        () = fleet.wait_until_abandoned() => Err(ExitCause::HungUp),
    };
    let mut line = match line {
        Ok(line) => line,
        Err(cause) => return cause,
    };
    tracing::info!(lane = lane.name, pod = line.pod, "the Pod of a lane has its orders");
    *lock(&lane.pod.post) = Arc::downgrade(&line.post);
    lane.outgoing.open();
    fleet.note_everything(lane);
    let _nobody_supervises = events.send(ProcessEvent::Started).await;
    let mut speaking = PodFrameSender(Arc::clone(&line.post.writer));
    let (problem, is_abandoned) = {
        let writing = write_all(fleet, lane, &mut speaking, line.orders);
        let reading = read_all(fleet, lane, &mut line.hearing, events);
        tokio::select! {
            problem = reading => (problem, false),
            () = writing => (None, false),
            () = kill.cancelled() => (None, false),
            () = fleet.wait_until_abandoned() => (None, true),
        }
    };
    if let Some(problem) = problem {
        let _nobody_supervises = events.send(ProcessEvent::Killed(ExitCause::Misspoke(problem))).await;
    }
    let gone = count_as_gone(fleet.process_config.apart.patience);
    if !is_abandoned {
        line.hearing.close(gone).await;
    }
    // The next Pod must see this deadline before it may begin.
    *lock(&lane.pod.unconfirmed) = (!line.hearing.is_confirmed).then(|| UnconfirmedPod {
        pod: line.pod,
        until: line.hearing.acknowledged_at + gone,
    });
    lane.outgoing.close();
    fleet.clear_listening(lane);
    fleet.context.metrics.forget_lane(&lane.name);
    line.hearing.ended.map_or(ExitCause::HungUp, PodEnd::describe)
}

/// Connects to the next waiting Pod, and returns the line after the Pod has answered its orders. The error is the Pod's stated reason.
async fn connect_pod(fleet: &Arc<LaneFleet>, lane: &Arc<LaneHandle>) -> Result<PodLine, ExitCause> {
    loop {
        let arrival = lane.pod.wait_for_pod().await;
        if let Some(turn) = lane.pod.find_turn(&arrival.pod) {
            tokio::time::sleep_until(turn.into()).await;
        }
        let orders = fleet
            .write_orders(lane, (arrival.call.folder, None))
            .ok_or(ExitCause::HungUp)?;
        let (read, write) = tokio::io::split(arrival.call.stream);
        let post = Arc::new(PodFiles {
            writer: Arc::new(PodWriter::new(write)),
            wanted: FileReceiver::default(),
            turn: Semaphore::new(1),
        });
        let apart = &fleet.process_config.apart;
        let posting = PodAssignment {
            lane: lane.name.clone(),
            policy: fleet.find_policy(lane),
            server: apart.server.url.clone(),
            lease: find_lease(apart.patience),
        };
        let mut hearing = PodFrameReceiver::new(fleet, lane, (read, Arc::clone(&post)));
        // From here on the Pod may begin, even if this function fails: the orders may arrive, or were sent before the failure.
        *lock(&lane.pod.unconfirmed) = Some(UnconfirmedPod {
            pod: arrival.pod.clone(),
            until: hearing.acknowledged_at + count_as_gone(apart.patience),
        });
        let beginning = async {
            post.writer.send(&ToPod::Begin(Box::new(posting))).await.ok()?;
            // The Pod's first message says that it is alive.
            hearing.receive().await.ok().flatten()
        };
        if let Ok(Some(_)) = tokio::time::timeout(FIRST_WORD, beginning).await {
            return Ok(PodLine {
                pod: arrival.pod,
                post,
                hearing,
                orders: ToLane::Orders(Box::new(orders)),
            });
        }
        if let Some(ended) = hearing.ended {
            *lock(&lane.pod.unconfirmed) = None;
            return Err(ended.describe());
        }
    }
}

/// Sends the hub's frames to the lane in a Pod.
struct PodFrameSender(Arc<PodWriter>);

impl MessageSender for PodFrameSender {
    async fn send_frame(&mut self, frame: &ToLane) -> Result<(), FrameError> {
        self.0.hand_on(&encode(frame)?).await
    }
}

/// Reads from a Pod: returns the frames of its lane, and handles the messages of the Pod itself.
struct PodFrameReceiver {
    fleet: Arc<LaneFleet>,
    lane: Arc<LaneHandle>,
    read: ReadHalf<PodStream>,
    post: Arc<PodFiles>,
    /// Running loans to the Pod. They end with the connection.
    lending: JoinSet<()>,
    ended: Option<PodEnd>,
    /// Whether the lane has certainly ended.
    is_confirmed: bool,
    /// Whether the line broke. A broken line delivers nothing more.
    is_broken: bool,
    /// The time of the hub's last acknowledgement to the Pod, or of its order to begin.
    acknowledged_at: Instant,
}

impl PodFrameReceiver {
    fn new(fleet: &Arc<LaneFleet>, lane: &Arc<LaneHandle>, (read, post): (ReadHalf<PodStream>, Arc<PodFiles>)) -> Self {
        Self {
            fleet: Arc::clone(fleet),
            lane: Arc::clone(lane),
            read,
            post,
            lending: JoinSet::new(),
            ended: None,
            is_confirmed: false,
            is_broken: false,
            acknowledged_at: Instant::now(),
        }
    }

    /// Lends the Pod an artifact that another lane has fetched.
    async fn lend(&mut self, number: u64, reference: Reference, digest: String) {
        // A Pod of Tenure requests at most this many archives at a time. Other Pods have to wait here.
        while self.lending.len() >= LENT_AT_ONCE {
            self.lending.join_next().await;
        }
        while self.lending.try_join_next().is_some() {}
        let (fleet, lane, writer) = (
            Arc::clone(&self.fleet),
            Arc::clone(&self.lane),
            Arc::clone(&self.post.writer),
        );
        self.lending.spawn(async move {
            let opened = match reference.is_short() {
                true => fleet.open_lent(&lane, &reference, &digest).await,
                false => Err(ConnectRefusal {
                    failure: ConnectFailure::Denied,
                    message: "a name that is longer than there are".to_owned(),
                }),
            };
            let sent = match opened {
                Ok(file) => send_file(&writer, number, file, fleet.count_archive_bytes()).await,
                Err(refusal) => writer.send(&ToPod::Refused { number, refusal }).await,
            };
            if let Err(error) = sent {
                tracing::debug!(lane = lane.name, %error, "an archive could not be lent");
            }
        });
    }

    /// Sends nothing more, and waits until the lane has ended: the lane says so, or its lease has run out.
    async fn close(&mut self, gone: Duration) {
        let _late = tokio::time::timeout(CLOSING, self.post.writer.shut_down()).await;
        if self.is_confirmed || self.is_broken {
            return;
        }
        let until = tokio::time::Instant::from_std(self.acknowledged_at + gone);
        let draining = async {
            while !self.is_confirmed {
                match read_part::<FromPod>(&mut self.read).await {
                    Ok(Some(Part::Own(FromPod::Ended(_))) | None) => self.is_confirmed = true,
                    Ok(Some(_)) => {}
                    Err(_) => return,
                }
            }
        };
        let _gone_by_then = tokio::time::timeout_at(until, draining).await;
    }
}

impl MessageReceiver for PodFrameReceiver {
    async fn receive(&mut self) -> Result<Option<(Option<FromLane>, usize)>, FrameError> {
        let read = read_part::<FromPod>(&mut self.read).await;
        self.is_broken = matches!(read, Err(FrameError::Broken(_)));
        match read? {
            Some(Part::Lane(frame)) => Ok(Some((Some(decode(&frame)?), frame.len()))),
            Some(Part::Piece { number, bytes }) => {
                let length = bytes.len();
                match self.post.wanted.take_piece(number, bytes).await {
                    // The hub requested this piece, so its content doesn't count for the lane's message rate.
                    true => Ok(Some((None, OWN_WORD))),
                    false => Ok(Some((None, length.saturating_add(OWN_WORD)))),
                }
            }
            Some(Part::Own(FromPod::Alive(number))) => {
                self.acknowledged_at = Instant::now();
                self.post.writer.send(&ToPod::Received(number)).await?;
                Ok(Some((None, OWN_WORD)))
            }
            Some(Part::Own(FromPod::Missing { number })) => {
                self.post.wanted.refuse(number, ()).await;
                Ok(Some((None, OWN_WORD)))
            }
            Some(Part::Own(FromPod::Wants {
                number,
                reference,
                digest,
            })) => {
                self.lend(number, reference, digest).await;
                Ok(Some((None, OWN_WORD)))
            }
            Some(Part::Own(FromPod::Ended(end))) => {
                self.ended = Some(end);
                self.is_confirmed = true;
                Ok(None)
            }
            None => {
                // The Pod reported its end in good order, which it does after the lane has ended.
                self.is_confirmed = true;
                Ok(None)
            }
        }
    }
}

impl LaneFleet {
    /// Returns the addresses that the sources of a lane may reach.
    pub(super) fn find_policy(&self, lane: &LaneHandle) -> Policy {
        let config = &self.process_config.config;
        if lane.name == name_lane(&Lane::Platform) {
            config.platform_sources.clone()
        } else {
            config.tenant_sources.clone()
        }
    }

    /// Returns true if the artifacts of another lane have to be requested from that lane.
    pub(super) fn asks_others(&self) -> bool {
        matches!(self.location, ProcessLocation::Pods(_))
    }

    /// Waits until everything ends immediately, without a farewell.
    pub(super) async fn wait_until_abandoned(&self) {
        self.end.cancelled().await;
        if self.farewell.is_cancelled() {
            std::future::pending::<()>().await;
        }
    }

    /// Deletes the Deployment of a lane that reconciles nothing.
    pub(super) async fn delete_pod(&self, lane: &LaneHandle) {
        let name = lane.account.name();
        let deleting = async {
            let client = &self.context.controller;
            let resource = client.resource("apps/v1", "Deployment").await?;
            client
                .delete(&resource, PLATFORM_NAMESPACE, name, &DeleteOptions::default())
                .await
        };
        match tokio::time::timeout(WRITING, deleting).await {
            Ok(Ok(()) | Err(ClusterError::NotFound { .. })) => {}
            Ok(Err(error)) => {
                tracing::warn!(name, %error, "the Deployment of a lane can't be deleted; it is tried again later");
            }
            Err(_) => tracing::warn!(
                name,
                "the Deployment of a lane can't be deleted in time; it is tried again later"
            ),
        }
    }

    /// Checks whether each watched namespace has its lane. A namespace with an unknown placement, or on its way between lanes, may come to any lane.
    fn knows_all_lanes(&self) -> bool {
        lock(&self.homes).values().all(|home| home.lane.is_some())
    }

    /// Finds Deployments of lanes that no longer exist, and deletes them. Runs until everything ends.
    pub(super) async fn remove_left_over(self: Arc<Self>) {
        let mut pause = FIRST_LOOK;
        while self.end.run_until_cancelled(tokio::time::sleep(pause)).await.is_some() {
            pause = LOOK;
            if let Err(error) = self.look_for_left_over().await {
                tracing::warn!(%error, "Deployments of lanes that are gone can't be looked for");
            }
        }
    }

    async fn look_for_left_over(&self) -> Result<(), ClusterError> {
        // The set of lanes is unknown while the placement of a namespace is unknown.
        if !self.knows_all_lanes() {
            return Ok(());
        }
        let client = &self.context.controller;
        let resource = client.resource("apps/v1", "Deployment").await?;
        for deployment in client.list(&resource, PLATFORM_NAMESPACE).await? {
            let view = ObjectView::new(&deployment);
            if view.find_label(LANE_LABEL).is_none() {
                continue;
            }
            let name = view.read_text("/metadata/name");
            let is_lanes = lock(&self.lanes).values().any(|lane| lane.account.name() == name);
            if is_lanes {
                continue;
            }
            let options = DeleteOptions {
                preconditions: Preconditions {
                    uid: Some(view.read_text("/metadata/uid").to_owned()),
                    ..Preconditions::default()
                },
                propagation: None,
                dry_run: false,
            };
            match client.delete(&resource, PLATFORM_NAMESPACE, name, &options).await {
                Ok(()) => tracing::info!(name, "the Deployment of a lane that is gone was deleted"),
                Err(ClusterError::NotFound { .. } | ClusterError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
