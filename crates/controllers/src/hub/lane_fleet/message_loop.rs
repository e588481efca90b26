//! The messages to and from one lane's process, over any line. Its messages are validated here: a process that violates the protocol is ended, and no
//! other.

use std::sync::Arc;
use std::time::Instant;

use tenure_planner::lane_process::ProcessEvent;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::LaneFleet;
use super::message_handler::MessageHandler;
use super::outgoing_messages::NextMessage;
use super::supervision::LaneHandle;
use crate::lane_protocol::message_rate::MessageRate;
use crate::lane_protocol::messages::{Answer, FrameError, FromLane, ToLane, read_frame, write_frame};

/// The limit of concurrent questions to other lanes for one lane.
const LOANS: usize = 16;

/// The hub's sender on a line.
pub(super) trait MessageSender: Send {
    /// Sends one message.
    fn send_frame(&mut self, frame: &ToLane) -> impl Future<Output = Result<(), FrameError>> + Send;
}

/// The hub's receiver on a line.
pub(super) trait MessageReceiver: Send {
    /// Receives the next message of the lane, with its size in bytes. A useless message also has a size. `None` after the last message.
    fn receive(&mut self) -> impl Future<Output = Result<Option<(Option<FromLane>, usize)>, FrameError>> + Send;
}

impl MessageSender for OwnedWriteHalf {
    async fn send_frame(&mut self, frame: &ToLane) -> Result<(), FrameError> {
        write_frame(self, frame).await
    }
}

impl MessageReceiver for OwnedReadHalf {
    async fn receive(&mut self) -> Result<Option<(Option<FromLane>, usize)>, FrameError> {
        let read = read_frame::<FromLane>(self).await?;
        Ok(read.map(|(frame, bytes)| (Some(frame), bytes)))
    }
}

/// Sends a process all its messages, until the line ends.
pub(super) async fn write_all(
    fleet: &Arc<LaneFleet>,
    lane: &Arc<LaneHandle>,
    line: &mut impl MessageSender,
    first: ToLane,
) {
    let mut next = Some(first);
    let mut lending = JoinSet::new();
    loop {
        if let Some(frame) = next.take()
            && let Err(error) = line.send_frame(&frame).await
        {
            tracing::debug!(lane = lane.name, %error, "the line to a lane ended");
            return;
        }
        match lane.outgoing.take_next() {
            Some(NextMessage::Frame(frame)) => next = Some(frame),
            Some(NextMessage::Loan { number, reference }) if fleet.asks_others() => {
                // Another lane's Pod is asked, and this lane waits for none of the answers.
                while lending.len() >= LOANS {
                    lending.join_next().await;
                }
                while lending.try_join_next().is_some() {}
                let (fleet, lane) = (Arc::clone(fleet), Arc::clone(lane));
                lending.spawn(async move {
                    let answer = Answer::Loan(Box::new(fleet.lend(&lane, &reference).await));
                    lane.outgoing.answer(ToLane::Answer { number, answer });
                });
            }
            Some(NextMessage::Loan { number, reference }) => {
                let answer = Answer::Loan(Box::new(fleet.lend(lane, &reference).await));
                next = Some(ToLane::Answer { number, answer });
            }
            Some(NextMessage::Object { key, gone }) => {
                let object = fleet.write_object(&key);
                if let Some(revision) = gone {
                    let frame = ToLane::Gone {
                        kind: key.kind.name.to_owned(),
                        namespace: key.namespace,
                        name: key.name,
                        revision,
                    };
                    if line.send_frame(&frame).await.is_err() {
                        return;
                    }
                }
                let kind = key.kind.name.to_owned();
                next = object.map(|object| ToLane::Changed { kind, object });
            }
            None => lane.outgoing.news.notified().await,
        }
    }
}

/// Reads the messages of a process until its line ends. Returns the violation, if the process sent a forbidden message.
pub(super) async fn read_all(
    fleet: &Arc<LaneFleet>,
    lane: &Arc<LaneHandle>,
    line: &mut impl MessageReceiver,
    events: &mpsc::Sender<ProcessEvent>,
) -> Option<String> {
    let mut handler = MessageHandler::new(fleet, lane);
    let mut pace = MessageRate::new(Instant::now());
    loop {
        let frame = match line.receive().await {
            Ok(Some((frame, bytes))) => {
                // An endless sender is read slowly: its messages are work for the hub, which all lanes share.
                tokio::time::sleep(pace.charge_frame(bytes, Instant::now())).await;
                match frame {
                    Some(frame) => frame,
                    None => continue,
                }
            }
            Ok(None) => return None,
            Err(error @ FrameError::Broken(_)) => {
                tracing::debug!(lane = lane.name, %error, "the line of a lane ended");
                return None;
            }
            Err(error) => return Some(error.to_string()),
        };
        let fact = match frame {
            FromLane::Pong(_) => ProcessEvent::Answered,
            FromLane::Works => ProcessEvent::Works,
            FromLane::Left { namespace } => {
                lane.outgoing.note_released(&namespace);
                continue;
            }
            FromLane::Hooked { number, verdict } => {
                lane.outgoing.take_hooked(number, verdict);
                continue;
            }
            other => match handler.handle_frame(other) {
                Ok(()) => continue,
                Err(problem) => return Some(problem),
            },
        };
        if events.send(fact).await.is_err() {
            return None;
        }
    }
}
