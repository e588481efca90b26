//! The frames between the hub and the process of a lane: a closed set in each direction. A frame is its length and then its content, and no frame is
//! longer than a bound. Everything else is refused. The reader of the line decides the consequence.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure_api::ObjectId;
use tenure_cluster::HandedToken;
use tenure_planner::Event;
use tenure_planner::artifact_address::ArtifactBase;
use tenure_planner::kustomization::{ApplySettings, Guards, ObjectTurnover};
use tenure_planner::receiver::{Delivery, HookPath, Verdict};
use tenure_sources::Limits;
use tenure_tenancy::{Placement, Settings, Termination};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::context::lane_settings::LaneServer;
use crate::lane::OwnerAnswer;
use crate::lane::lane_references::{Reference, ReferenceAnswer};
use crate::lane_protocol::shared_capacity::SharedCapacity;
use crate::limits::budgets::Budgets;
use crate::rendering::renderer::RenderLimits;
use crate::telemetry::lane_spans::TracedAttempt;
use crate::telemetry::metrics::Report;

/// The length limit of a frame in bytes. An object of an API server is far below it, and so is a question of a Kustomization with about ten thousand
/// objects.
pub(crate) const LONGEST: u32 = 16 << 20;

/// The orders of a lane: its first message.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LaneOrders {
    /// The lane's name.
    pub(crate) lane: String,
    /// A namespace of the lane, and its placement. The lane's account follows from both.
    pub(crate) namespace: String,
    pub(crate) placement: Placement,
    pub(crate) server: LaneServer,
    /// The folder for fetched artifacts.
    pub(crate) folder: PathBuf,
    /// Memory limit of the lane, in bytes.
    pub(crate) memory: u64,
    /// The user of the lane's process, and owner of the folder. Absent if the lane runs as the user of the process that starts it.
    pub(crate) user: Option<u32>,
    pub(crate) settings: Settings,
    /// Switches, in the form that [`crate::read_switches`] reads.
    pub(crate) enabled_kinds: String,
    pub(crate) limits: Limits,
    pub(crate) budgets: Budgets,
    pub(crate) lane_width: usize,
    pub(crate) rendering: RenderLimits,
    pub(crate) guards: Guards,
    pub(crate) applying: ApplySettings,
    pub(crate) strict_sops: bool,
    /// Whether a listener takes requests for Receivers.
    pub(crate) has_receiver_listener: bool,
    /// Whether the hub exports spans.
    pub(crate) has_spans: bool,
    /// The base address at which artifacts are served to other controllers, if they are served.
    pub(crate) advertised: Option<ArtifactBase>,
}

/// The hub's facts about one namespace of the lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamespaceFacts {
    pub(crate) placement: Placement,
    pub(crate) ending: Option<Termination>,
    /// Whether the lane has its rights in the namespace.
    pub(crate) is_admitted: bool,
}

/// From the hub to a lane.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum ToLane {
    /// The first frame, sent exactly once.
    Orders(Box<LaneOrders>),
    /// The namespace belongs to the lane, or no longer does.
    Namespace {
        name: String,
        facts: Option<Box<NamespaceFacts>>,
    },
    /// The object exists in this form.
    Changed { kind: String, object: Value },
    /// The object was deleted at a revision.
    Gone {
        kind: String,
        namespace: String,
        name: String,
        revision: String,
    },
    /// All existing objects have been sent.
    Synced,
    /// An object to which this object listens has changed.
    Wake {
        kind: String,
        namespace: String,
        name: String,
    },
    /// A request to a Receiver.
    Hook {
        number: u64,
        namespace: String,
        name: String,
        delivery: Box<Delivery>,
    },
    /// The answer to a question.
    Answer { number: u64, answer: Answer },
    /// The granted part of a requested shared capacity: 0 bytes if none became free in time.
    Granted { room: SharedCapacity, bytes: u64 },
    /// Another lane waits for capacity. The lane returns the part that it does not use.
    WantedBack(SharedCapacity),
    /// Asks whether the lane is alive.
    Ping(u64),
    /// The lane finishes its running work, and then the process ends.
    Stop,
}

/// From a lane to the hub.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum FromLane {
    /// Answers a ping: the lane is alive.
    Pong(u64),
    /// The lane has received everything and has started to reconcile.
    Works,
    /// The lane has released a namespace that no longer belongs to it.
    Left { namespace: String },
    /// Requests shared capacity: `bytes`, and more if more is free immediately. The lane sends the next request after the answer.
    Wants {
        room: SharedCapacity,
        bytes: u64,
        besides: u64,
        waits: bool,
    },
    /// Returns unused shared capacity.
    GivesBack { room: SharedCapacity, bytes: u64 },
    /// Asks a question that the hub answers by its number.
    Question { number: u64, question: Question },
    /// An object listens to others, by kind, namespace and name.
    Listens {
        kind: String,
        namespace: String,
        name: String,
        to: Vec<(String, String, String)>,
    },
    /// A Receiver takes requests at this path, or at no path.
    Door {
        namespace: String,
        name: String,
        path: Option<HookPath>,
    },
    /// The answer to a request to a Receiver.
    Hooked { number: u64, verdict: Verdict },
    /// Objects that a Kustomization gains and drops.
    Turnover {
        namespace: String,
        name: String,
        turnover: ObjectTurnover,
    },
    /// An event about one of the lane's objects, for a namespace in which the lane may not write.
    Event {
        kind: String,
        namespace: String,
        name: String,
        event: Event,
    },
    /// The lane's metrics since its previous report.
    Metrics(Box<Report>),
    /// Finished attempts, if the hub exports spans.
    Spans(Vec<TracedAttempt>),
    /// The limits that the kernel could not enforce for the lane.
    Gaps(Vec<String>),
}

/// A question of a lane to the hub.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum Question {
    /// Asks for the lane's own token. `refused`: the API server refused the previous token, so a new one is needed.
    Token { refused: bool },
    /// Asks the lane of a Kustomization about objects that another Kustomization wants.
    Owner {
        namespace: String,
        name: String,
        objects: Vec<ObjectId>,
        /// The other cluster with the objects. Absent for this cluster.
        cluster: Option<String>,
    },
    /// Asks which of these namespaces are being deleted.
    Endings(BTreeSet<String>),
    /// Asks for the target of a reference from one of the lane's namespaces.
    Loan(Reference),
}

/// The hub's answer to a question.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum Answer {
    Token(Result<HandedToken, String>),
    Owner(Option<Box<OwnerAnswer>>),
    Endings(BTreeSet<String>),
    Loan(Box<ReferenceAnswer>),
}

/// Why a frame could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    /// The connection broke.
    #[error("the line broke: {0}")]
    Broken(#[from] std::io::Error),
    /// The frame is longer than the limit.
    #[error("a frame of {0} bytes, where {LONGEST} are allowed")]
    TooLong(u64),
    /// The content is no known frame.
    #[error("a frame that can't be read, at its byte {0}")]
    Unreadable(usize),
}

/// Encodes a frame with its length before it.
pub(crate) fn encode<T: Serialize>(frame: &T) -> Result<Vec<u8>, FrameError> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, frame).map_err(|error| FrameError::Unreadable(error.column()))?;
    let length = bytes.len().saturating_sub(4);
    match u32::try_from(length) {
        Ok(short) if short <= LONGEST => {
            let head = short.to_be_bytes();
            bytes.iter_mut().zip(head).for_each(|(byte, value)| *byte = value);
            Ok(bytes)
        }
        _ => Err(FrameError::TooLong(length as u64)),
    }
}

/// Decodes a frame. The error for an unreadable frame quotes no part of it.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, FrameError> {
    serde_json::from_slice(bytes).map_err(|error| FrameError::Unreadable(error.column()))
}

/// Reads the length of a frame from the four bytes before it.
pub(crate) fn read_length(head: [u8; 4]) -> Result<u32, FrameError> {
    match u32::from_be_bytes(head) {
        length if length <= LONGEST => Ok(length),
        length => Err(FrameError::TooLong(length.into())),
    }
}

/// Writes one frame.
pub(crate) async fn write_frame<T: Serialize>(
    line: &mut (impl AsyncWrite + Unpin),
    frame: &T,
) -> Result<(), FrameError> {
    line.write_all(&encode(frame)?).await?;
    Ok(())
}

/// Reads the next frame, and returns it with its size in bytes; `None` after the last frame. Allocates no more memory than has arrived.
pub(crate) async fn read_frame<T: DeserializeOwned>(
    line: &mut (impl AsyncRead + Unpin),
) -> Result<Option<(T, usize)>, FrameError> {
    let mut head = [0; 4];
    let first = line.read(&mut head[..1]).await?;
    if first == 0 {
        return Ok(None);
    }
    line.read_exact(&mut head[1..]).await?;
    let length = read_length(head)?;
    let mut bytes = Vec::new();
    line.take(length.into()).read_to_end(&mut bytes).await?;
    if bytes.len() as u64 != u64::from(length) {
        return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
    }
    Ok(Some((decode(&bytes)?, bytes.len())))
}

/// The time that a lane waits for an answer.
pub(crate) const ANSWER: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(bytes: &[u8]) -> Result<Option<(FromLane, usize)>, FrameError> {
        let mut line = bytes;
        read_frame(&mut line).await
    }

    #[tokio::test]
    async fn frames_come_as_they_were_sent() {
        let mut line = Vec::new();
        for number in 0..3 {
            write_frame(&mut line, &FromLane::Pong(number)).await.unwrap();
        }
        let mut line = line.as_slice();
        for number in 0..3 {
            let frame = read_frame::<FromLane>(&mut line).await.unwrap();
            assert!(matches!(frame, Some((FromLane::Pong(found), 10)) if found == number));
        }
        assert!(read_frame::<FromLane>(&mut line).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn malformed_frames_are_refused() {
        let long = (LONGEST + 1).to_be_bytes();
        assert!(matches!(read(&long).await, Err(FrameError::TooLong(_))));
        assert!(matches!(read(b"\0\0\0\x02{}").await, Err(FrameError::Unreadable(_))));
        assert!(matches!(
            read(b"\0\0\0\x0e{\"Obey\":\"pass\"}").await,
            Err(FrameError::Unreadable(_))
        ));
        assert!(matches!(read(b"\0\0\0\x09\"Works").await, Err(FrameError::Broken(_))));
        assert!(matches!(read(b"\0\0").await, Err(FrameError::Broken(_))));
        let secret = read(b"\0\0\0\x08\"sesame\"").await.unwrap_err();
        assert!(!secret.to_string().contains("sesame"), "{secret}");
    }

    #[test]
    fn oversized_frame_is_not_sent() {
        let object = Value::String("x".repeat(LONGEST as usize));
        let frame = ToLane::Changed {
            kind: "Kustomization".to_owned(),
            object,
        };
        assert!(matches!(encode(&frame), Err(FrameError::TooLong(_))));
    }
}
