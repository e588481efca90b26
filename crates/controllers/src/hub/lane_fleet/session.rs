//! One process of a lane, from its start to its end: its line is written and read, and its end is reported. Its messages are validated: a process
//! that violates the protocol is ended, and no other.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tenure_planner::lane_process::memory::{check_memory, read_memory};
use tenure_planner::lane_process::{ExitCause, ProcessEvent};
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::message_loop::{read_all, write_all};
use super::supervision::LaneHandle;
use super::{LaneFleet, ProcessHome, count_memory};
use crate::lane_protocol::dial_channel::DialChannel;
use crate::lane_protocol::dial_server::{self, DialPolicy};
use crate::lane_protocol::messages::ToLane;

/// The time limit for a process to end after the end of its line.
const HANGING_UP: Duration = Duration::from_secs(2);
/// The interval between checks of a process's memory, besides the kernel's limits.
const MEASURING: Duration = Duration::from_secs(2);

/// The supervisor's handle of a lane's process: its id, and the token that ends it.
#[derive(Debug)]
pub(super) struct Session {
    /// The process id. Absent for a lane in a Pod that has not connected yet.
    pub(super) process: Option<u32>,
    /// Ends the process.
    pub(super) kill: CancellationToken,
}

/// Starts a lane's process, and a task that sends the orders and serves the process until its end.
pub(super) async fn start(
    (fleet, home): (&Arc<LaneFleet>, &Arc<ProcessHome>),
    lane: &Arc<LaneHandle>,
    events: mpsc::Sender<ProcessEvent>,
) -> Result<Session, String> {
    let (preparing, name) = (Arc::clone(home), lane.name.clone());
    let prepared = tokio::task::spawn_blocking(move || preparing.folders.prepare(&name)).await;
    let user = prepared.map_err(|error| error.to_string())??;
    let folder = home.folders.find(&lane.name);
    let handed = match user {
        Some(_) => Some(File::open(&folder).map_err(|error| format!("{}: {error}", folder.display()))?),
        None => None,
    };
    let orders = fleet.write_orders(lane, (folder, user)).ok_or("it has no namespace")?;
    let (child, line, dial_line) = home.starter.start(user).await.map_err(|error| error.to_string())?;
    if let Some(process) = child.id() {
        home.groups.admit(&lane.name, process, orders.memory)?;
    }
    if let Some(folder) = handed {
        let handing = dial_line.hand_folder(folder.as_fd()).await;
        handing.map_err(|error| error.to_string())?;
    }
    let session = Session {
        process: Some(child.id().unwrap_or_default()),
        kill: CancellationToken::new(),
    };
    lane.outgoing.open();
    fleet.note_everything(lane);
    let (fleet, home) = (Arc::clone(fleet), Arc::clone(home));
    let (lane, kill) = (Arc::clone(lane), session.kill.clone());
    // The task ends with the process, even if the supervisor ends earlier.
    fleet.tasks.clone().spawn(async move {
        let first = ToLane::Orders(Box::new(orders));
        let end = serve_process((&fleet, &lane), child, (line, dial_line), (first, kill), &events).await;
        home.groups.remove(&lane.name);
        lane.outgoing.close();
        fleet.clear_listening(&lane);
        fleet.context.metrics.forget_lane(&lane.name);
        let _nobody_supervises = events.send(ProcessEvent::Ended(end)).await;
    });
    Ok(session)
}

/// Serves a process until it has ended, and reports how.
async fn serve_process(
    (fleet, lane): (&Arc<LaneFleet>, &Arc<LaneHandle>),
    mut child: Child,
    (line, dial_line): (UnixStream, DialChannel),
    (first, kill): (ToLane, CancellationToken),
    events: &mpsc::Sender<ProcessEvent>,
) -> ExitCause {
    let memory = count_memory(&fleet.process_config.config, &fleet.process_config.apart);
    let (mut read, mut write) = line.into_split();
    let cause_of_end = {
        let writing = write_all(fleet, lane, &mut write, first);
        let reading = read_all(fleet, lane, &mut read, events);
        let dialing = dial_server::serve(dial_line, describe_reach(fleet, lane));
        let abandoned = fleet.wait_until_abandoned();
        let measuring = measure_memory(child.id(), memory);
        tokio::select! {
            ended = child.wait() => return read_status(ended),
            cause_of_end = reading => cause_of_end.map(ExitCause::Misspoke),
            cause_of_end = dialing => cause_of_end.map(ExitCause::Misspoke),
            cause = measuring => Some(cause),
            () = writing => None,
            () = kill.cancelled() => {
                return end_process(&mut child).await;
            }
            () = abandoned => {
                return end_process(&mut child).await;
            }
        }
    };
    match cause_of_end {
        Some(cause) => {
            let _nobody_supervises = events.send(ProcessEvent::Killed(cause)).await;
            end_process(&mut child).await
        }
        None => match tokio::time::timeout(HANGING_UP, child.wait()).await {
            Ok(ended) => read_status(ended),
            Err(_) => end_process(&mut child).await,
        },
    }
}

/// Measures the memory of a process at intervals. Returns when the process uses more than the limit and has to be ended.
async fn measure_memory(process: Option<u32>, limit: u64) -> ExitCause {
    let Some(process) = process else {
        return std::future::pending().await;
    };
    let path = format!("/proc/{process}/status");
    loop {
        tokio::time::sleep(MEASURING).await;
        // The kernel has this file in memory, so the read does not block.
        let status = std::fs::read_to_string(&path).unwrap_or_default();
        if let Some(cause) = read_memory(&status).and_then(|used| check_memory(used, limit)) {
            return cause;
        }
    }
}

async fn end_process(child: &mut Child) -> ExitCause {
    // An already ended process can't be killed.
    let _ended = child.start_kill();
    read_status(child.wait().await)
}

fn read_status(ended: std::io::Result<ExitStatus>) -> ExitCause {
    match ended {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => ExitCause::Exited(code),
            (None, signal) => ExitCause::Signalled(signal.unwrap_or_default()),
        },
        Err(error) => ExitCause::NotStarted(error.to_string()),
    }
}

/// Returns the addresses and artifacts that a lane beside this process may open.
fn describe_reach(fleet: &Arc<LaneFleet>, lane: &Arc<LaneHandle>) -> DialPolicy {
    let (lender, borrower) = (Arc::clone(fleet), Arc::clone(lane));
    DialPolicy {
        lane: lane.name.clone(),
        policy: fleet.find_policy(lane),
        server: fleet.process_config.apart.server.url.clone(),
        open_lent: Box::new(move |reference, digest| {
            let (fleet, lane) = (Arc::clone(&lender), Arc::clone(&borrower));
            async move { fleet.open_lent(&lane, &reference, &digest).await }.boxed()
        }),
    }
}
