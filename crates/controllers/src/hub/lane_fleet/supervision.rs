//! Supervises one lane's process, from its first start until the lane reconciles nothing any more. It executes the planner's moves and reports their
//! results to the planner.

use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tenure_cluster::LaneAccount;
use tenure_planner::lane_process::{ExitCause, LaneProblem, ProcessAction, ProcessEvent, ProcessRecord};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::capacity_grants::GrantedCapacity;
use super::lane_pods::{self, PodState};
use super::session::{self, Session};
use super::{LaneFleet, OutgoingMessages, ProcessLocation, lock};
use crate::cluster_view::key::Key;
use crate::lane_protocol::messages::NamespaceFacts;

/// The hub's handle of a lane that runs in a process or a Pod of its own.
#[derive(Debug)]
pub(super) struct LaneHandle {
    pub(super) name: String,
    pub(super) account: LaneAccount,
    pub(super) outgoing: OutgoingMessages,
    /// Notified when the lane may no longer be needed, or has to be ended.
    changed: Notify,
    /// Why the process has to be ended.
    condemned: Mutex<Option<ExitCause>>,
    /// The parts of shared capacities that the lane's process has.
    grants: Mutex<Weak<GrantedCapacity>>,
    /// The state of the lane's Pods, if lanes run in Pods.
    pub(super) pod: PodState,
}

impl LaneHandle {
    /// Checks whether this is the lane of a tenant.
    pub(super) fn is_tenants(&self) -> bool {
        self.name.starts_with("tenant/")
    }

    pub(super) fn new(name: &str, account: LaneAccount) -> Self {
        Self {
            name: name.to_owned(),
            account,
            outgoing: OutgoingMessages::default(),
            changed: Notify::new(),
            condemned: Mutex::default(),
            grants: Mutex::default(),
            pod: PodState::default(),
        }
    }

    /// Gives the lane a namespace, or changed facts about it.
    pub(super) fn assign(&self, namespace: &str, facts: NamespaceFacts) {
        self.outgoing.assign(namespace, facts);
        self.changed.notify_one();
    }

    /// Takes a namespace from the lane.
    pub(super) fn revoke(&self, namespace: &str) {
        drop(self.outgoing.revoke(namespace));
        self.changed.notify_one();
    }

    /// Takes a namespace from the lane, and waits until the process has released it or has ended.
    pub(super) async fn ask_to_leave(&self, namespace: &str) {
        let left = self.outgoing.revoke(namespace);
        self.changed.notify_one();
        if let Some(left) = left {
            let _either_way = left.await;
        }
    }

    pub(super) fn queue_change(&self, key: &Key, gone: Option<&str>) {
        self.outgoing.queue_change(key, gone);
    }

    pub(super) fn queue_changes(&self, keys: &[Key]) {
        keys.iter().for_each(|key| self.outgoing.queue_change(key, None));
    }

    pub(super) fn wake(&self, key: &Key) {
        self.outgoing.wake(key);
    }

    /// Returns the parts of shared capacities that the lane's process has, if the process exists.
    pub(super) fn grants(&self) -> Option<Arc<GrantedCapacity>> {
        lock(&self.grants).upgrade()
    }

    /// Returns an empty record of shared capacity for a new process of the lane.
    pub(super) fn reset_grants(&self) -> Arc<GrantedCapacity> {
        let grants = Arc::new(GrantedCapacity::default());
        *lock(&self.grants) = Arc::downgrade(&grants);
        grants
    }

    /// Called after the lane's Pod has connected.
    pub(super) fn notice_arrival(&self) {
        self.changed.notify_one();
    }

    /// Orders the supervisor to end the lane's process for this cause.
    pub(super) fn kill(&self, cause: ExitCause) {
        *lock(&self.condemned) = Some(cause);
        self.changed.notify_one();
    }
}

/// The task that writes into the status of each of the lane's objects that the lane's process is down.
struct RunningReport {
    trouble: LaneProblem,
    task: JoinHandle<()>,
    end: CancellationToken,
}

impl RunningReport {
    /// Ends the report. After this returns, nothing is written, so the next process can overwrite it.
    async fn stop_writing(self) {
        self.end.cancel();
        let _either_way = self.task.await;
    }
}

/// Maintains a lane's process until the lane reconciles nothing, or until everything ends.
pub(super) async fn supervise_lane(fleet: Arc<LaneFleet>, lane: Arc<LaneHandle>) {
    let began = Instant::now();
    let mut record = ProcessRecord::new(fleet.process_config.apart.patience);
    let (sender, mut events) = mpsc::channel::<ProcessEvent>(16);
    let mut session: Option<Session> = None;
    let mut report: Option<RunningReport> = None;
    let mut pings = 0_u64;
    loop {
        if fleet.end.is_cancelled() && !fleet.farewell.is_cancelled() {
            // Not in good order: running work must not go on beside another leader's.
            return;
        }
        let now = began.elapsed();
        if lane.pod.is_waiting() {
            record.take_event(ProcessEvent::Arrived, now);
        }
        report_trouble(&fleet, &lane, (&record, now), &mut report).await;
        let is_wanted = !fleet.end.is_cancelled() && !lane.outgoing.is_without_namespaces();
        let condemned = lock(&lane.condemned).take();
        let next = match condemned {
            Some(cause) if session.is_some() => ProcessAction::Kill(cause),
            _ => record.decide_action(is_wanted, now),
        };
        match next {
            ProcessAction::Start => {
                if let Some(report) = report.take() {
                    report.stop_writing().await;
                }
                let started = match &fleet.location {
                    ProcessLocation::Here(home) => session::start((&fleet, home), &lane, sender.clone()).await,
                    ProcessLocation::Pods(home) => lane_pods::expect_pod((&fleet, home), &lane, sender.clone()).await,
                };
                match started {
                    Ok(begun) => {
                        let fact = match begun.process {
                            Some(process) => {
                                tracing::info!(lane = lane.name, process, "the process of a lane was started");
                                ProcessEvent::Started
                            }
                            None => ProcessEvent::Expected,
                        };
                        session = Some(begun);
                        record.take_event(fact, began.elapsed());
                    }
                    Err(problem) => {
                        record.take_event(ProcessEvent::Ended(ExitCause::NotStarted(problem)), began.elapsed())
                    }
                }
            }
            ProcessAction::Ask => {
                pings = pings.wrapping_add(1);
                lane.outgoing.ping(pings);
                record.take_event(ProcessEvent::Asked, now);
            }
            ProcessAction::Stop => {
                lane.outgoing.stop();
                record.take_event(ProcessEvent::Stopped, now);
            }
            ProcessAction::GiveUp => {
                if let Some(session) = &session {
                    session.kill.cancel();
                }
                record.take_event(ProcessEvent::GaveUp, now);
            }
            ProcessAction::Kill(cause) => {
                tracing::warn!(lane = lane.name, %cause, "the process of a lane is ended");
                if let Some(session) = &session {
                    session.kill.cancel();
                }
                record.take_event(ProcessEvent::Killed(cause), now);
            }
            ProcessAction::Retire => {
                // The folder or the Pod must be gone before another lane of this name can begin.
                fleet.clear_away(&lane).await;
                if fleet.retire(&lane) {
                    break;
                }
            }
            ProcessAction::Wait(until) => {
                let sleep = async {
                    match until {
                        Some(until) => tokio::time::sleep(until.saturating_sub(began.elapsed())).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    Some(fact) = events.recv() => record_event(&lane, &mut record, &mut session, fact, began.elapsed()),
                    () = lane.changed.notified() => {}
                    () = fleet.end.cancelled(), if is_wanted => {}
                    () = sleep => {}
                }
            }
        }
    }
    if let Some(report) = report {
        report.stop_writing().await;
    }
    fleet.set_trouble(&lane, None);
}

fn record_event(
    lane: &LaneHandle,
    record: &mut ProcessRecord,
    session: &mut Option<Session>,
    fact: ProcessEvent,
    now: Duration,
) {
    match &fact {
        ProcessEvent::Ended(cause) => {
            *session = None;
            tracing::info!(lane = lane.name, %cause, "the process of a lane ended");
        }
        // The sender of this event has already ended the process.
        ProcessEvent::Killed(cause) => tracing::warn!(lane = lane.name, %cause, "the process of a lane is ended"),
        ProcessEvent::Works => tracing::info!(lane = lane.name, "the process of a lane works"),
        ProcessEvent::Expected
        | ProcessEvent::Arrived
        | ProcessEvent::Started
        | ProcessEvent::GaveUp
        | ProcessEvent::Asked
        | ProcessEvent::Answered
        | ProcessEvent::Stopped => {}
    }
    record.take_event(fact, now);
}

/// Reports why the lane is down, or that it works again: immediately to its Surfaces, and to everything else while it is down.
async fn report_trouble(
    fleet: &Arc<LaneFleet>,
    lane: &Arc<LaneHandle>,
    (record, now): (&ProcessRecord, Duration),
    report: &mut Option<RunningReport>,
) {
    let Some(trouble) = record.find_problem(now) else {
        fleet.set_trouble(lane, None);
        return;
    };
    let is_reported = report.as_ref().is_some_and(|report| report.trouble == trouble);
    if is_reported || trouble.until <= now {
        return;
    }
    let at = Timestamp::now();
    let at = at.checked_add(trouble.until.saturating_sub(now)).unwrap_or(at);
    let words = trouble.describe(&lane.name, at);
    tracing::warn!("{words}");
    fleet.set_trouble(lane, Some(words.clone()));
    if let Some(before) = report.take() {
        before.stop_writing().await;
    }
    let end = CancellationToken::new();
    let (work, ended) = (Arc::clone(fleet).report_pause(Arc::clone(lane), words), end.clone());
    let task = tokio::spawn(async move {
        ended.run_until_cancelled(work).await;
    });
    *report = Some(RunningReport { trouble, task, end });
}
