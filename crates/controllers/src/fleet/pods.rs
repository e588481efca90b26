//! Lanes in Pods: their Deployments, who of their Pods has connected, and one session with such a Pod. The hub writes a Deployment and waits; a Pod
//! that was proven comes by the door (`crate::lane_door`), and has its orders when no other one of that lane can have any. A session is that of a
//! process beside the hub but for its line (`crate::pod_line`), and that connections are opened in the Pod.
//!
//! It refuses to have two Pods of one lane work: of one whose end nobody has confirmed it waits until that has ended by itself.

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use tenure_api::ObjectView;
use tenure_api::metadata::{PLATFORM_NAMESPACE, TENURE_CONTROLLER};
use tenure_api::workload::{LANE_LABEL, LanePods, lane_deployment};
use tenure_cluster::{ApplyOptions, ClusterError, DeleteOptions, Preconditions};
use tenure_planner::lane_process::{Cause, Fact};
use tenure_sources::{ConnectFailure, ConnectRefusal, Policy};
use tenure_tenancy::lane::Lane;
use tokio::io::ReadHalf;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::hearing::{Hear, Speak, read_all, write_all};
use super::session::Session;
use super::supervision::LaneHandle;
use super::{Fleet, Whereabouts, count_memory, lock};
use crate::config::Config;
use crate::frames::{FrameError, FromLane, ToLane, decode, encode};
use crate::lane_door::{Doorkeeper, LaneCall, LaneDoor, PodStream, ProvenPod, Unadmitted};
use crate::lane_mode::PodSettings;
use crate::lane_table::name_lane;
use crate::loans::Reference;
use crate::pod_line::{
    FromPod, LENT_AT_ONCE, Part, PodEnd, PodWriter, Posting, ToPod, count_as_gone, find_lease, read_part,
};
use crate::spool::{Deliveries, Undelivered, send_file};

/// How long writing a Deployment may take.
const WRITING: Duration = Duration::from_secs(20);
/// One that connected longer ago than this has given up by now.
const FRESH: Duration = Duration::from_secs(50);
/// How long one that has its orders may take to say that it is there.
const FIRST_WORD: Duration = Duration::from_secs(10);
/// How long closing a connection may take.
const CLOSING: Duration = Duration::from_secs(2);
/// How long a file of a lane's folder may take to come, and a short one.
const FETCHING: Duration = Duration::from_secs(45);
const FETCHING_LITTLE: Duration = Duration::from_secs(5);
/// Up to how many bytes a file is a short one.
const LITTLE: u64 = 1 << 20;
/// Archives that are fetched of lanes at the same time, one of each lane: each may be as long as a tenant's share of the disk.
const SPOOLS: usize = 8;
/// What everything that a Pod says besides its lane's frames counts for.
const OWN_WORD: usize = 64;
/// What is on a Pod's disk besides artifacts: what is fetched until it is one, and what is lent while it comes.
const DISK_BESIDES: u64 = 1 << 30;
/// What is in a Pod besides the lane takes so much memory.
const RELAY_MEMORY: u64 = 64 << 20;
/// How often Deployments are looked for that no lane has.
const LOOK: Duration = Duration::from_secs(600);
/// How soon that is done for the first time.
const FIRST_LOOK: Duration = Duration::from_secs(60);

/// What all lanes in Pods have in common.
#[derive(Debug)]
pub(super) struct PodHome {
    pods: LanePods,
    pub(super) door: LaneDoor,
    /// Where what one lane lends another is, on its way.
    spool: PathBuf,
    spools: Semaphore,
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
            spool: config.artifacts.join("lent"),
            spools: Semaphore::new(SPOOLS),
        }
    }

    /// A file of a lane's folder, of so many bytes at most; why it can't be told whether there is one, if it can't.
    pub(super) async fn fetch(&self, pod: &PodState, path: PathBuf, most: u64) -> Result<Option<File>, String> {
        let post = pod.post().ok_or("the Pod of its lane is not connected")?;
        let fetching = async {
            let _room = match most > LITTLE {
                true => Some((post.turn.acquire().await, self.spools.acquire().await)),
                false => None,
            };
            let delivery = post.wanted.expect();
            let number = delivery.number;
            let asked = post.writer.tell(&ToPod::Open { number, path, most }).await;
            asked.map_err(|error| error.to_string())?;
            match delivery.receive(&self.spool, most).await {
                Ok(file) => Ok(Some(file)),
                Err(Undelivered::Refused(())) => Ok(None),
                Err(Undelivered::Broken(error)) => Err(error.to_string()),
            }
        };
        let patience = if most > LITTLE { FETCHING } else { FETCHING_LITTLE };
        let fetched = tokio::time::timeout(patience, fetching).await;
        fetched.unwrap_or_else(|_| Err("the Pod of its lane gave no answer in time".to_owned()))
    }
}

/// A Pod that has connected.
#[derive(Debug)]
struct Arrival {
    pod: String,
    call: LaneCall,
    at: Instant,
}

/// What may still go on in a Pod whose end nobody has confirmed.
#[derive(Debug)]
struct Unconfirmed {
    pod: String,
    until: Instant,
}

/// What is known of one lane's Pods.
#[derive(Debug, Default)]
pub(super) struct PodState {
    waiting: Mutex<Option<Arrival>>,
    came: Notify,
    unconfirmed: Mutex<Option<Unconfirmed>>,
    post: Mutex<Weak<Post>>,
}

/// What a connected Pod can be asked.
#[derive(Debug)]
struct Post {
    writer: Arc<PodWriter>,
    wanted: Deliveries<()>,
    /// One archive at a time.
    turn: Semaphore,
}

impl PodState {
    /// Whether one waits for orders.
    pub(super) fn is_waiting(&self) -> bool {
        lock(&self.waiting).is_some()
    }

    /// The one that came last has the place: another one has given up, or will.
    fn arrive(&self, arrival: Arrival) {
        let before = lock(&self.waiting).replace(arrival);
        drop(before);
        self.came.notify_one();
    }

    /// The next one that has connected.
    async fn next(&self) -> Arrival {
        loop {
            let arrival = lock(&self.waiting).take();
            match arrival {
                Some(arrival) if arrival.at.elapsed() < FRESH => return arrival,
                Some(_) => {}
                None => self.came.notified().await,
            }
        }
    }

    /// From when on a Pod may have orders: at once, unless another one may still work.
    fn find_turn(&self, pod: &str) -> Option<Instant> {
        let unconfirmed = lock(&self.unconfirmed);
        let unconfirmed = unconfirmed.as_ref().filter(|other| other.pod != pod);
        unconfirmed.map(|other| other.until)
    }

    fn post(&self) -> Option<Arc<Post>> {
        lock(&self.post).upgrade()
    }
}

impl Doorkeeper for Fleet {
    fn take_in(&self, pod: ProvenPod, call: LaneCall) -> Result<(), Unadmitted> {
        if self.end.is_cancelled() {
            return Err(Unadmitted::NotLeading);
        }
        let lanes = lock(&self.lanes);
        let lane = lanes.values().find(|lane| lane.account.name() == pod.account);
        let lane = Arc::clone(lane.ok_or(Unadmitted::NoSuchLane)?);
        drop(lanes);
        tracing::debug!(lane = lane.name, pod = pod.uid, "the Pod of a lane has connected");
        lane.pod.arrive(Arrival {
            pod: pod.uid,
            call,
            at: Instant::now(),
        });
        lane.notice_arrival();
        Ok(())
    }
}

/// Sees to it that there is a Pod for a lane, and waits for it.
pub(super) async fn expect(
    (fleet, home): (&Arc<Fleet>, &PodHome),
    lane: &Arc<LaneHandle>,
    tell: mpsc::Sender<Fact>,
) -> Result<Session, String> {
    let deployment = lane_deployment(&home.pods, &lane.name, lane.account.name());
    let options = ApplyOptions {
        manager: TENURE_CONTROLLER,
        force: true,
        dry_run: false,
        subresource: None,
    };
    let applying = fleet.means.controller.apply(&deployment, &options);
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
        let end = attend(&fleet, &lane, &kill, &tell).await;
        let _nobody_supervises = tell.send(Fact::Ended(end)).await;
    });
    Ok(session)
}

/// A line to a Pod that has its orders.
struct PodLine {
    pod: String,
    post: Arc<Post>,
    hearing: Hearing,
    orders: ToLane,
}

/// Waits for a Pod, and attends to it until its lane has ended; tells how.
async fn attend(
    fleet: &Arc<Fleet>,
    lane: &Arc<LaneHandle>,
    kill: &CancellationToken,
    tell: &mpsc::Sender<Fact>,
) -> Cause {
    let line = tokio::select! {
        line = begin(fleet, lane) => line,
        () = kill.cancelled() => Err(Cause::HungUp),
        () = fleet.wait_until_abandoned() => Err(Cause::HungUp),
    };
    let mut line = match line {
        Ok(line) => line,
        Err(cause) => return cause,
    };
    tracing::info!(lane = lane.name, pod = line.pod, "the Pod of a lane has its orders");
    *lock(&lane.pod.post) = Arc::downgrade(&line.post);
    lane.mail.open();
    fleet.note_everything(lane);
    let _nobody_supervises = tell.send(Fact::Started).await;
    let mut speaking = Speaking(Arc::clone(&line.post.writer));
    let (said, is_abandoned) = {
        let writing = write_all(fleet, lane, &mut speaking, line.orders);
        let reading = read_all(fleet, lane, &mut line.hearing, tell);
        tokio::select! {
            said = reading => (said, false),
            () = writing => (None, false),
            () = kill.cancelled() => (None, false),
            () = fleet.wait_until_abandoned() => (None, true),
        }
    };
    if let Some(problem) = said {
        let _nobody_supervises = tell.send(Fact::Killed(Cause::Misspoke(problem))).await;
    }
    let gone = count_as_gone(fleet.standing.apart.patience);
    if !is_abandoned {
        line.hearing.close(gone).await;
    }
    // Whoever has to wait until this one can't go on hears of it before he is let begin.
    *lock(&lane.pod.unconfirmed) = (!line.hearing.is_confirmed).then(|| Unconfirmed {
        pod: line.pod,
        until: line.hearing.heard_at + gone,
    });
    lane.mail.close();
    fleet.clear_listening(lane);
    fleet.means.figures.forget_lane(&lane.name);
    line.hearing.ended.map_or(Cause::HungUp, PodEnd::describe)
}

/// The line to the next Pod that has connected, and answers when it is told to begin; why there is none, if that is said.
async fn begin(fleet: &Arc<Fleet>, lane: &Arc<LaneHandle>) -> Result<PodLine, Cause> {
    loop {
        let arrival = lane.pod.next().await;
        if let Some(turn) = lane.pod.find_turn(&arrival.pod) {
            tokio::time::sleep_until(turn.into()).await;
        }
        let orders = fleet
            .write_orders(lane, (arrival.call.folder, None))
            .ok_or(Cause::HungUp)?;
        let (read, write) = tokio::io::split(arrival.call.stream);
        let post = Arc::new(Post {
            writer: Arc::new(PodWriter::new(write)),
            wanted: Deliveries::default(),
            turn: Semaphore::new(1),
        });
        let apart = &fleet.standing.apart;
        let posting = Posting {
            lane: lane.name.clone(),
            policy: fleet.find_policy(lane),
            server: apart.server.url.clone(),
            lease: find_lease(apart.patience),
        };
        let mut hearing = Hearing::new(fleet, lane, (read, Arc::clone(&post)));
        // From here on it may begin, whatever becomes of this: if what it is told arrives, or has been sent before this is given up.
        *lock(&lane.pod.unconfirmed) = Some(Unconfirmed {
            pod: arrival.pod.clone(),
            until: hearing.heard_at + count_as_gone(apart.patience),
        });
        let beginning = async {
            post.writer.tell(&ToPod::Begin(Box::new(posting))).await.ok()?;
            // Its first word is that it is there.
            hearing.hear().await.ok().flatten()
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

/// What is said to the lane of a Pod.
struct Speaking(Arc<PodWriter>);

impl Speak for Speaking {
    async fn speak(&mut self, frame: &ToLane) -> Result<(), FrameError> {
        self.0.hand_on(&encode(frame)?).await
    }
}

/// What is heard of a Pod, its lane's words and its own.
struct Hearing {
    fleet: Arc<Fleet>,
    lane: Arc<LaneHandle>,
    read: ReadHalf<PodStream>,
    post: Arc<Post>,
    /// What is being lent to it; it ends with the connection.
    lending: JoinSet<()>,
    ended: Option<PodEnd>,
    /// Whether its lane has certainly ended.
    is_confirmed: bool,
    /// Whether the line broke: nothing comes over it any more.
    is_broken: bool,
    /// When it was last told that it was heard, or to begin.
    heard_at: Instant,
}

impl Hearing {
    fn new(fleet: &Arc<Fleet>, lane: &Arc<LaneHandle>, (read, post): (ReadHalf<PodStream>, Arc<Post>)) -> Self {
        Self {
            fleet: Arc::clone(fleet),
            lane: Arc::clone(lane),
            read,
            post,
            lending: JoinSet::new(),
            ended: None,
            is_confirmed: false,
            is_broken: false,
            heard_at: Instant::now(),
        }
    }

    /// What another lane has fetched is wanted.
    async fn lend(&mut self, number: u64, reference: Reference, digest: String) {
        // It asks for no more itself.
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
                Err(refusal) => writer.tell(&ToPod::Refused { number, refusal }).await,
            };
            if let Err(error) = sent {
                tracing::debug!(lane = lane.name, %error, "an archive could not be lent");
            }
        });
    }

    /// Says nothing more, and waits until the lane has ended: it says so, or can't go on by then.
    async fn close(&mut self, gone: Duration) {
        let _late = tokio::time::timeout(CLOSING, self.post.writer.shut_down()).await;
        if self.is_confirmed || self.is_broken {
            return;
        }
        let until = tokio::time::Instant::from_std(self.heard_at + gone);
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

impl Hear for Hearing {
    async fn hear(&mut self) -> Result<Option<(Option<FromLane>, usize)>, FrameError> {
        let read = read_part::<FromPod>(&mut self.read).await;
        self.is_broken = matches!(read, Err(FrameError::Broken(_)));
        match read? {
            Some(Part::Lane(frame)) => Ok(Some((Some(decode(&frame)?), frame.len()))),
            Some(Part::Piece { number, bytes }) => {
                let length = bytes.len();
                match self.post.wanted.take_piece(number, bytes).await {
                    // It was asked for.
                    true => Ok(Some((None, OWN_WORD))),
                    false => Ok(Some((None, length.saturating_add(OWN_WORD)))),
                }
            }
            Some(Part::Own(FromPod::Alive(number))) => {
                self.heard_at = Instant::now();
                self.post.writer.tell(&ToPod::Heard(number)).await?;
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
                // Its end was said in good order, which is done when the lane has ended.
                self.is_confirmed = true;
                Ok(None)
            }
        }
    }
}

impl Fleet {
    /// What the sources of a lane may reach.
    pub(super) fn find_policy(&self, lane: &LaneHandle) -> Policy {
        let config = &self.standing.config;
        if lane.name == name_lane(&Lane::Platform) {
            config.platform_sources.clone()
        } else {
            config.tenant_sources.clone()
        }
    }

    /// Whether what another lane has is asked of that one.
    pub(super) fn asks_others(&self) -> bool {
        matches!(self.whereabouts, Whereabouts::Pods(_))
    }

    /// Everything ends at once, without a farewell.
    pub(super) async fn wait_until_abandoned(&self) {
        self.end.cancelled().await;
        if self.farewell.is_cancelled() {
            std::future::pending::<()>().await;
        }
    }

    /// Deletes the Deployment of a lane of which nothing is reconciled.
    pub(super) async fn delete_pod(&self, lane: &LaneHandle) {
        let name = lane.account.name();
        let deleting = async {
            let client = &self.means.controller;
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

    /// Whether each namespace in which something is seen has its lane: one about which nobody has answered yet, or that is on its way from one
    /// lane to another, may come to any.
    fn knows_all_lanes(&self) -> bool {
        lock(&self.homes).values().all(|home| home.lane.is_some())
    }

    /// Looks for Deployments of lanes that there are no longer, and deletes them, until everything ends.
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
        // As long as it isn't known whose a namespace is, nobody knows which lanes there are.
        if !self.knows_all_lanes() {
            return Ok(());
        }
        let client = &self.means.controller;
        let resource = client.resource("apps/v1", "Deployment").await?;
        for deployment in client.list(&resource, PLATFORM_NAMESPACE).await? {
            let view = ObjectView::of(&deployment);
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
