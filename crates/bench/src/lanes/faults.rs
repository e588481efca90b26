//! The failures that hit the lane of the hostile tenant. Each failure is repeated after a new process of the lane has started. The lane has work at every start. Only
//! processes of this lane are hit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::process::{Resource, Rlimit, prlimit};
use serde_json::json;
use tokio::task::JoinHandle;

use super::processes::list_lanes;
use crate::hostile::loads::Load;
use crate::hostile::pressure::{Prepared, Pressure};
use crate::load::Target;
use crate::stage::{HOSTILE, Stage, kustomization_path, request_reconcile};

/// How often the bench looks for a process to hit. Looking costs processor time, too.
const LOOK: Duration = Duration::from_millis(250);
/// The longest time for a lane to restart before a turn: the pauses grow with each failure.
const BACK: Duration = Duration::from_secs(200);
/// Kustomizations that the lane begins with.
const KUSTOMIZATIONS: usize = 20;

/// A failure of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// No failure: the natural variation.
    AtRest,
    /// The lane makes large renderings.
    Busy,
    /// SIGKILL.
    Killed,
    /// SIGSTOP, until the hub ends the process.
    Stopped,
    /// The lane gets no more memory, and gives up.
    OutOfMemory,
}

impl Fault {
    pub(super) const ALL: [Self; 5] = [Self::AtRest, Self::Busy, Self::Killed, Self::Stopped, Self::OutOfMemory];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::AtRest => "at rest",
            Self::Busy => "busy",
            Self::Killed => "killed",
            Self::Stopped => "stopped",
            Self::OutOfMemory => "out of memory",
        }
    }

    /// Checks whether it can happen to a lane without a process.
    pub(super) fn strikes_tasks(self) -> bool {
        matches!(self, Self::AtRest | Self::Busy)
    }

    fn signal(self) -> Option<Signal> {
        match self {
            Self::Killed => Some(Signal::SIGKILL),
            Self::Stopped => Some(Signal::SIGSTOP),
            Self::AtRest | Self::Busy | Self::OutOfMemory => None,
        }
    }

    /// Sends the signal of the failure once to the process of a lane.
    pub(super) fn deal(self, lane: Pid) {
        if let Some(signal) = self.signal() {
            let _gone_by_itself = kill(lane, signal);
        }
        if self == Self::OutOfMemory {
            let none = Rlimit {
                current: Some(0),
                maximum: Some(0),
            };
            let _gone_by_itself = prlimit(rustix::process::Pid::from_raw(lane.as_raw()), Resource::Data, none);
        }
    }

    /// Prepares the lane's work.
    pub(super) async fn prepare(self, stage: &Stage) -> anyhow::Result<PreparedFault> {
        let load = if self == Self::Busy {
            Load::LargeRenderings.prepare(stage).await?
        } else {
            Prepared::default()
        };
        let repository = stage.git.create("apps").await?;
        let app = |number: usize| {
            let text =
                format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: app-{number}\ndata:\n  from: git\n");
            (format!("{number}/app.yaml"), text)
        };
        repository.commit((0..KUSTOMIZATIONS).map(app), "apps").await?;
        stage.apply_source(HOSTILE, "apps").await?;
        for number in 0..KUSTOMIZATIONS {
            let spec = json!({"sourceRef": {"kind": "GitRepository", "name": "apps"}, "path": format!("./{number}")});
            stage
                .apply_kustomization(HOSTILE, &format!("app-{number}"), &spec)
                .await?;
        }
        Ok(PreparedFault { fault: self, load })
    }
}

/// A failure, with the prepared work of the lane that it hits.
pub(super) struct PreparedFault {
    fault: Fault,
    load: Prepared,
}

impl PreparedFault {
    /// Starts: waits for a lane, and hits each of its processes.
    pub(super) async fn start_strikes(&self, stage: &Stage) -> anyhow::Result<RunningFault<'_>> {
        let hub = stage.process_id();
        if !self.fault.strikes_tasks() {
            let began = Instant::now();
            while find_lane(hub).is_none() {
                if began.elapsed() > BACK {
                    bail!("the lane did not come back in {BACK:?}");
                }
                tokio::time::sleep(LOOK).await;
            }
        }
        let (count, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let striking = strike_lane(
            self.fault,
            (hub, stage.hostile.clone()),
            Arc::clone(&count),
            Arc::clone(&over),
        );
        Ok(RunningFault {
            load: self.load.start_load(stage).await,
            task: tokio::spawn(striking),
            count,
            over,
        })
    }
}

/// A task that hits each new process of the lane with a failure, until it is ended.
pub(super) struct RunningFault<'a> {
    load: Pressure<'a>,
    task: JoinHandle<()>,
    count: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
}

impl RunningFault<'_> {
    /// Ends the strikes. Returns how often the lane was hit.
    pub(super) async fn end_strikes(self, stage: &Stage) -> usize {
        self.over.store(true, Ordering::Relaxed);
        let _ended = self.task.await;
        self.load.end_load(stage).await;
        self.count.load(Ordering::Relaxed)
    }
}

fn find_lane(hub: u32) -> Option<Pid> {
    let name = format!("tenant/{HOSTILE}");
    list_lanes(hub)
        .into_iter()
        .find_map(|(found, process)| (found == name).then_some(process))
}

async fn strike_lane(fault: Fault, (hub, hostile): (u32, Target), count: Arc<AtomicUsize>, over: Arc<AtomicBool>) {
    let mut struck = None;
    while !over.load(Ordering::Relaxed) {
        if !fault.strikes_tasks()
            && let Some(lane) = find_lane(hub)
            && struck != Some(lane)
        {
            struck = Some(lane);
            count.fetch_add(1, Ordering::Relaxed);
            fault.deal(lane);
        }
        if fault == Fault::OutOfMemory {
            // This work takes memory until none is left.
            ask_for_all(&hostile).await;
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn ask_for_all(hostile: &Target) {
    let Ok(connection) = hostile.connect().await else {
        return;
    };
    for number in 0..KUSTOMIZATIONS {
        let path = kustomization_path(HOSTILE, &format!("app-{number}"));
        let _visible_in_metrics = request_reconcile(&connection, &path).await;
    }
    tokio::time::sleep(Duration::from_millis(250)).await;
}
