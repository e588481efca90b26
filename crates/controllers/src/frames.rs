//! The frames between the hub and the process of a lane: a closed set in both directions, each with its length before it, and none longer
//! than a bound. Refuses whatever else comes; what that means is for who reads it to say.

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
use tenure_planner::kustomization::{ApplySettings, Guards, Turnover};
use tenure_planner::receiver::{Delivery, HookPath, Verdict};
use tenure_sources::Limits;
use tenure_tenancy::{Ending, Placement, Settings};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::budgets::Budgets;
use crate::figures::Report;
use crate::lane::OwnerAnswer;
use crate::lane_mode::LaneServer;
use crate::lane_spans::TracedAttempt;
use crate::loans::{Loan, Reference};
use crate::render::RenderLimits;
use crate::rooms::SharedRoom;

/// The longest frame: an object of an API server is far below, as is what a Kustomization of some ten thousand objects asks.
pub(crate) const LONGEST: u32 = 16 << 20;

/// What a lane is told before anything else.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Orders {
    /// What it is called.
    pub(crate) lane: String,
    /// One of its namespaces, and whose that is: its account follows from both.
    pub(crate) namespace: String,
    pub(crate) placement: Placement,
    pub(crate) server: LaneServer,
    /// The folder for what it fetches.
    pub(crate) folder: PathBuf,
    /// Bytes of memory that it may take.
    pub(crate) memory: u64,
    /// The user of its process, which owns the folder; none where that is the user of the process that starts it.
    pub(crate) user: Option<u32>,
    pub(crate) settings: Settings,
    /// As [`crate::read_switches`] reads it.
    pub(crate) switches: String,
    pub(crate) limits: Limits,
    pub(crate) budgets: Budgets,
    pub(crate) lane_width: usize,
    pub(crate) rendering: RenderLimits,
    pub(crate) guards: Guards,
    pub(crate) applying: ApplySettings,
    pub(crate) strict_sops: bool,
    /// Whether somebody wants its spans.
    pub(crate) has_spans: bool,
    /// Where artifacts are served to others, if they are.
    pub(crate) advertised: Option<ArtifactBase>,
}

/// What a lane is told of one of its namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamespaceFacts {
    pub(crate) placement: Placement,
    pub(crate) ending: Option<Ending>,
    /// Whether the lane has its rights there.
    pub(crate) is_admitted: bool,
}

/// From the hub to a lane.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum ToLane {
    /// The first, and only once.
    Orders(Box<Orders>),
    /// A namespace is the lane's, or no longer.
    Namespace {
        name: String,
        facts: Option<Box<NamespaceFacts>>,
    },
    /// An object is there.
    Changed { kind: String, object: Value },
    /// An object is gone at a revision.
    Gone {
        kind: String,
        namespace: String,
        name: String,
        revision: String,
    },
    /// All that is there has been told.
    Synced,
    /// Somebody that an object listens to has changed.
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
    /// What was asked for of a room that is everybody's; nothing, if there was none in time.
    Granted { room: SharedRoom, bytes: u64 },
    /// Another lane waits for room: what isn't used is to be given back.
    WantedBack(SharedRoom),
    /// Is it there?
    Ping(u64),
    /// What is under way ends, and then the process.
    Stop,
}

/// From a lane to the hub.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum FromLane {
    /// It is there.
    Pong(u64),
    /// It has seen everything, and works.
    Works,
    /// It has let go of a namespace that is no longer its.
    Left { namespace: String },
    /// It asks for more of a room that is everybody's, and for so much besides if that is there at once; once more when that is answered.
    Wants {
        room: SharedRoom,
        bytes: u64,
        besides: u64,
        waits: bool,
    },
    /// It has so much less of a room, which it doesn't use.
    GivesBack { room: SharedRoom, bytes: u64 },
    /// It wants an answer.
    Question { number: u64, question: Question },
    /// An object listens to others, by kind, namespace and name.
    Listens {
        kind: String,
        namespace: String,
        name: String,
        to: Vec<(String, String, String)>,
    },
    /// A Receiver takes requests at a path, or at none.
    Door {
        namespace: String,
        name: String,
        path: Option<HookPath>,
    },
    /// What is answered to a request to a Receiver.
    Hooked { number: u64, verdict: Verdict },
    /// What a Kustomization gains and drops.
    Turnover {
        namespace: String,
        name: String,
        turnover: Turnover,
    },
    /// An event about an object of its, to be written where the lane may not write.
    Event {
        kind: String,
        namespace: String,
        name: String,
        event: Event,
    },
    /// What it has done since it told last.
    Figures(Box<Report>),
    /// Attempts that are over, where somebody wants their spans.
    Spans(Vec<TracedAttempt>),
    /// What the kernel could not hold it to.
    Gaps(Vec<String>),
}

/// What a lane asks.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum Question {
    /// Its own token; another one when the last one was refused.
    Token { refused: bool },
    /// What the lane of a Kustomization says of it to one that wants these objects.
    Owner {
        namespace: String,
        name: String,
        objects: Vec<ObjectId>,
        /// The other cluster that they are in, if they are not in this one.
        cluster: Option<String>,
    },
    /// Which of these namespaces are being deleted.
    Endings(BTreeSet<String>),
    /// What is there that one of its namespaces refers to.
    Loan(Reference),
}

/// What it is answered.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum Answer {
    Token(Result<HandedToken, String>),
    Owner(Option<Box<OwnerAnswer>>),
    Endings(BTreeSet<String>),
    Loan(Box<Loan>),
}

/// Why a frame could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    /// The line broke.
    #[error("the line broke: {0}")]
    Broken(#[from] std::io::Error),
    /// It is longer than any frame.
    #[error("a frame of {0} bytes, where {LONGEST} are allowed")]
    TooLong(u64),
    /// It is none of those that there are.
    #[error("a frame that can't be read, at its byte {0}")]
    Unreadable(usize),
}

/// A frame with its length before it.
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

/// A frame of what was read of it. What is told of one that can't be read quotes nothing of it.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, FrameError> {
    serde_json::from_slice(bytes).map_err(|error| FrameError::Unreadable(error.column()))
}

/// How long a frame is, by the four bytes before it.
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

/// Reads the next frame and how many bytes it took; none after the last. Takes no more memory than has arrived.
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

/// How long a lane waits for an answer.
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
    async fn what_is_no_frame_is_refused() {
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
    fn what_is_too_long_is_not_sent() {
        let object = Value::String("x".repeat(LONGEST as usize));
        let frame = ToLane::Changed {
            kind: "Kustomization".to_owned(),
            object,
        };
        assert!(matches!(encode(&frame), Err(FrameError::TooLong(_))));
    }
}
