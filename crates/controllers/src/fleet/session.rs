//! One process of a lane, from its start to its end: its line is written and read, and what becomes of it is told. What it says is judged
//! here: a process that says what no lane says is ended, alone.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure_planner::lane_process::{Cause, Fact};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::allowance::Pace;
use super::answers::Clerk;
use super::mail::Letter;
use super::supervision::LaneHandle;
use super::{Fleet, dialing};
use crate::dial_line::DialLine;
use crate::frames::{Answer, FromLane, ToLane, read_frame, write_frame};

/// How long a process may take to end after its line did.
const HANGING_UP: Duration = Duration::from_secs(2);

/// A process that runs.
#[derive(Debug)]
pub(super) struct Session {
    /// Its number.
    pub(super) process: u32,
    /// Ends it.
    pub(super) kill: CancellationToken,
}

/// Starts a process and gives it its orders.
pub(super) async fn start(
    fleet: &Arc<Fleet>,
    lane: &Arc<LaneHandle>,
    tell: mpsc::Sender<Fact>,
) -> Result<Session, String> {
    let folder = fleet.folder(lane);
    let made = {
        use std::os::unix::fs::DirBuilderExt as _;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)
    };
    made.map_err(|error| format!("{}: {error}", folder.display()))?;
    let orders = fleet.write_orders(lane).ok_or("it has no namespace")?;
    let (child, line, dial_line) = fleet.starter.start().await.map_err(|error| error.to_string())?;
    let session = Session {
        process: child.id().unwrap_or_default(),
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
    let (read, write) = line.into_split();
    let said = {
        let writing = write_all(fleet, lane, write, first);
        let reading = read_all(fleet, lane, read, tell);
        let dialing = dialing::serve(fleet, lane, dial_line);
        // Dropped without a farewell when everything ends at once.
        let abandoned = async {
            fleet.end.cancelled().await;
            if fleet.farewell.is_cancelled() {
                std::future::pending::<()>().await;
            }
        };
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

/// Tells a process what there is to tell, until the line ends.
async fn write_all(fleet: &Fleet, lane: &LaneHandle, mut line: OwnedWriteHalf, first: ToLane) {
    let mut next = Some(first);
    loop {
        if let Some(frame) = next.take()
            && let Err(error) = write_frame(&mut line, &frame).await
        {
            tracing::debug!(lane = lane.name, %error, "the line to a lane ended");
            return;
        }
        match lane.mail.take_next() {
            Some(Letter::Frame(frame)) => next = Some(frame),
            Some(Letter::Loan { number, reference }) => {
                let answer = Answer::Loan(Box::new(fleet.lend(lane, &reference).await));
                next = Some(ToLane::Answer { number, answer });
            }
            Some(Letter::Object { key, gone }) => {
                let object = fleet.write_object(&key);
                if let Some(revision) = gone {
                    let frame = ToLane::Gone {
                        kind: key.kind.name.to_owned(),
                        namespace: key.namespace,
                        name: key.name,
                        revision,
                    };
                    if write_frame(&mut line, &frame).await.is_err() {
                        return;
                    }
                }
                let kind = key.kind.name.to_owned();
                next = object.map(|object| ToLane::Changed { kind, object });
            }
            None => lane.mail.news.notified().await,
        }
    }
}

/// Hears a process out until its line ends; what it should not have said, if it did.
async fn read_all(
    fleet: &Arc<Fleet>,
    lane: &Arc<LaneHandle>,
    mut line: OwnedReadHalf,
    tell: &mpsc::Sender<Fact>,
) -> Option<String> {
    let mut clerk = Clerk::new(fleet, lane);
    let mut pace = Pace::new(Instant::now());
    loop {
        let frame = match read_frame::<FromLane>(&mut line).await {
            Ok(Some((frame, bytes))) => {
                // Who talks without end is heard out slowly: what it says is work for the hub, which is everybody's.
                tokio::time::sleep(pace.take(bytes, Instant::now())).await;
                frame
            }
            Ok(None) => return None,
            Err(error @ crate::frames::FrameError::Broken(_)) => {
                tracing::debug!(lane = lane.name, %error, "the line of a lane ended");
                return None;
            }
            Err(error) => return Some(error.to_string()),
        };
        let fact = match frame {
            FromLane::Pong(_) => Fact::Answered,
            FromLane::Works => Fact::Works,
            FromLane::Left { namespace } => {
                lane.mail.take_left(&namespace);
                continue;
            }
            FromLane::Hooked { number, verdict } => {
                lane.mail.take_hooked(number, verdict);
                continue;
            }
            other => match clerk.take(other) {
                Ok(()) => continue,
                Err(problem) => return Some(problem),
            },
        };
        if tell.send(fact).await.is_err() {
            return None;
        }
    }
}
