//! One process of a lane, from its start to its end: its line is written and read, and what becomes of it is told. What it says is judged
//! here: a process that says what no lane says is ended, alone.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tenure_planner::lane_process::{Cause, Fact};
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Fleet;
use super::hearing::{read_all, write_all};
use super::supervision::LaneHandle;
use crate::dial_line::DialLine;
use crate::dial_server::{self, Reachable};
use crate::frames::ToLane;
use crate::lane_starter::Starter;

/// How long a process may take to end after its line did.
const HANGING_UP: Duration = Duration::from_secs(2);

/// A process that runs.
#[derive(Debug)]
pub(super) struct Session {
    /// Its number; none, where it is in a Pod, and has yet to connect.
    pub(super) process: Option<u32>,
    /// Ends it.
    pub(super) kill: CancellationToken,
}

/// Starts a process and gives it its orders.
pub(super) async fn start(
    (fleet, starter): (&Arc<Fleet>, &Starter),
    lane: &Arc<LaneHandle>,
    tell: mpsc::Sender<Fact>,
) -> Result<Session, String> {
    let folder = fleet.folder(lane);
    let made = {
        use std::os::unix::fs::DirBuilderExt as _;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)
    };
    made.map_err(|error| format!("{}: {error}", folder.display()))?;
    let orders = fleet.write_orders(lane, folder).ok_or("it has no namespace")?;
    let (child, line, dial_line) = starter.start().await.map_err(|error| error.to_string())?;
    let session = Session {
        process: Some(child.id().unwrap_or_default()),
        kill: CancellationToken::new(),
    };
    lane.mail.open();
    fleet.note_everything(lane);
    let (fleet, lane, kill) = (Arc::clone(fleet), Arc::clone(lane), session.kill.clone());
    // Ends with the process, whatever becomes of who supervises it.
    fleet.tasks.clone().spawn(async move {
        let first = ToLane::Orders(Box::new(orders));
        let end = attend((&fleet, &lane), child, (line, dial_line), (first, kill), &tell).await;
        lane.mail.close();
        fleet.clear_listening(&lane);
        fleet.means.figures.forget_lane(&lane.name);
        let _nobody_supervises = tell.send(Fact::Ended(end)).await;
    });
    Ok(session)
}

/// Attends to a process until it has ended, and tells how.
async fn attend(
    (fleet, lane): (&Arc<Fleet>, &Arc<LaneHandle>),
    mut child: Child,
    (line, dial_line): (UnixStream, DialLine),
    (first, kill): (ToLane, CancellationToken),
    tell: &mpsc::Sender<Fact>,
) -> Cause {
    let (mut read, mut write) = line.into_split();
    let said = {
        let writing = write_all(fleet, lane, &mut write, first);
        let reading = read_all(fleet, lane, &mut read, tell);
        let dialing = dial_server::serve(dial_line, describe_reach(fleet, lane));
        let abandoned = fleet.wait_until_abandoned();
        tokio::select! {
            ended = child.wait() => return read_status(ended),
            said = reading => said,
            said = dialing => said,
            () = writing => None,
            () = kill.cancelled() => {
                return end(&mut child).await;
            }
            () = abandoned => {
                return end(&mut child).await;
            }
        }
    };
    match said {
        Some(problem) => {
            let _nobody_supervises = tell.send(Fact::Killed(Cause::Misspoke(problem))).await;
            end(&mut child).await
        }
        None => match tokio::time::timeout(HANGING_UP, child.wait()).await {
            Ok(ended) => read_status(ended),
            Err(_) => end(&mut child).await,
        },
    }
}

async fn end(child: &mut Child) -> Cause {
    // One that has ended already can't be killed.
    let _ended = child.start_kill();
    read_status(child.wait().await)
}

fn read_status(ended: std::io::Result<ExitStatus>) -> Cause {
    match ended {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => Cause::Exited(code),
            (None, signal) => Cause::Signalled(signal.unwrap_or_default()),
        },
        Err(error) => Cause::NotStarted(error.to_string()),
    }
}

/// What a lane beside this process is connected to.
fn describe_reach(fleet: &Arc<Fleet>, lane: &Arc<LaneHandle>) -> Reachable {
    let (lender, borrower) = (Arc::clone(fleet), Arc::clone(lane));
    Reachable {
        lane: lane.name.clone(),
        policy: fleet.find_policy(lane),
        server: fleet.standing.apart.server.url.clone(),
        open_lent: Box::new(move |reference, digest| {
            let (fleet, lane) = (Arc::clone(&lender), Arc::clone(&borrower));
            async move { fleet.open_lent(&lane, &reference, &digest).await }.boxed()
        }),
    }
}
