//! The connection between the hub and a lane's Pod. It carries the frames of the lane (`crate::lane_protocol::messages`), the frames of the relay in
//! the Pod (`crate::lane_process::pod_relay`), and pieces of borrowed archives. A part has its length and its kind before it, and no part is longer
//! than a bound. Everything else is refused. This module also says how long a Pod works without hearing from the hub.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tenure_planner::lane_process::ExitCause;
use tenure_sources::{ConnectRefusal, Policy};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, WriteHalf};
use tokio::sync::Mutex;

use crate::endpoints::lane_endpoint::PodStream;
use crate::lane::lane_references::Reference;
use crate::lane_protocol::messages::{FrameError, LONGEST, decode, encode, read_length};

/// The version that both ends must have: a lane of another version has other frames.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The length limit of a part that is no frame of a lane.
pub(crate) const LONGEST_OWN: u32 = 64 << 10;
/// The size of one piece of an archive.
pub(crate) const PIECE: usize = 32 << 10;
/// The length limit of the greeting, with the token in it.
const LONGEST_HELLO: u32 = 16 << 10;
/// The number of archives for which one Pod may wait at the same time.
pub(crate) const LENT_AT_ONCE: usize = 4;

/// Returns how long a Pod works without confirmation that the hub has received its message. This is well before the hub counts the Pod as gone,
/// after [`count_as_gone`]. Each side counts from an earlier moment than the other side.
pub(crate) fn find_lease(patience: Duration) -> Duration {
    patience / 2
}

/// Returns the silence of a Pod after which the hub counts it as gone. The hub counts from its last acknowledgement to the Pod.
pub(crate) fn count_as_gone(patience: Duration) -> Duration {
    patience * 3 / 4
}

/// The Pod's first message, before it is trusted.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PodHello {
    pub(crate) version: String,
    /// Token of the Pod's ServiceAccount, for the hub alone.
    pub(crate) token: String,
    /// The folder for the lane's fetched artifacts.
    pub(crate) folder: PathBuf,
}

impl fmt::Debug for PodHello {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Hello(<hidden>)")
    }
}

/// Message before the lane's orders: how connections are opened for the lane, and how long the Pod works without the hub.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PodAssignment {
    /// The lane's name.
    pub(crate) lane: String,
    /// The addresses that the lane's sources may reach.
    pub(crate) policy: Policy,
    /// The address of the API server.
    pub(crate) server: String,
    pub(crate) lease: Duration,
}

/// From the hub to the relay in a Pod.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum ToPod {
    /// The first message, sent exactly once: the Pod starts the lane.
    Begin(Box<PodAssignment>),
    /// The hub has received the Pod's `Alive` with this number.
    #[serde(rename = "Heard")]
    Received(u64),
    /// Requests a file of the lane's folder, of at most `most` bytes. It comes in pieces with that number.
    Open { number: u64, path: PathBuf, most: u64 },
    /// The hub does not lend the artifact that was requested with this number.
    Refused { number: u64, refusal: ConnectRefusal },
}

/// From the relay in a Pod to the hub.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum FromPod {
    /// The Pod is alive.
    Alive(u64),
    /// The file that was requested with this number does not exist.
    Missing { number: u64 },
    /// Requests an artifact that another lane has fetched. It comes in pieces with that number.
    Wants {
        number: u64,
        reference: Reference,
        digest: String,
    },
    /// The lane has ended. No message follows.
    Ended(PodEnd),
}

/// How a lane in a Pod ended, as the Pod reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum PodEnd {
    NotStarted(String),
    Exited(i32),
    Signalled(i32),
    /// The lane violated the protocol.
    Misspoke(String),
    /// The Pod received the order to end.
    Left,
    /// The Pod received nothing from the hub for too long.
    Alone,
}

/// The length limit of a Pod's reason.
const LONGEST_REASON: usize = 512;

impl PodEnd {
    /// Returns the reason for users. Text from the Pod is cut.
    pub(crate) fn describe(self) -> ExitCause {
        let cut = |text: String| text.chars().take(LONGEST_REASON).collect();
        match self {
            Self::NotStarted(problem) => ExitCause::NotStarted(cut(problem)),
            Self::Exited(code) => ExitCause::Exited(code),
            Self::Signalled(signal) => ExitCause::Signalled(signal),
            Self::Misspoke(problem) => ExitCause::Misspoke(cut(problem)),
            Self::Left => ExitCause::Left,
            Self::Alone => ExitCause::HungUp,
        }
    }
}

/// One part that a line carries.
#[derive(Debug)]
pub(crate) enum Part<T> {
    /// A message between both ends of the line.
    Own(T),
    /// A frame of the lane, as the lane wrote it.
    Lane(Vec<u8>),
    /// A piece of a file. An empty piece ends the file.
    Piece { number: u64, bytes: Vec<u8> },
}

/// The kinds of parts, as the header has them: see [`Part`].
const OWN: u8 = 0;
const LANE: u8 = 1;
const PIECES: u8 = 2;
/// The size of the header of each part: its length and its kind.
const HEAD: usize = 5;
/// The size of the number before each piece.
const NUMBER: usize = 8;

/// Reads the next part; `None` after the last part. Allocates no more memory than has arrived.
pub(crate) async fn read_part<T: DeserializeOwned>(
    line: &mut (impl AsyncRead + Unpin),
) -> Result<Option<Part<T>>, FrameError> {
    let mut head = [0; HEAD];
    if line.read(&mut head[..1]).await? == 0 {
        return Ok(None);
    }
    line.read_exact(&mut head[1..]).await?;
    let [a, b, c, d, kind] = head;
    let length = read_length([a, b, c, d])?;
    let most = if kind == LANE { LONGEST } else { LONGEST_OWN };
    if length > most {
        return Err(FrameError::TooLong(length.into()));
    }
    let mut bytes = Vec::new();
    line.take(length.into()).read_to_end(&mut bytes).await?;
    if bytes.len() as u64 != u64::from(length) {
        return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
    }
    match kind {
        OWN => Ok(Some(Part::Own(decode(&bytes)?))),
        LANE => Ok(Some(Part::Lane(bytes))),
        PIECES => {
            let Some((number, rest)) = bytes.split_first_chunk::<NUMBER>() else {
                return Err(FrameError::Unreadable(0));
            };
            Ok(Some(Part::Piece {
                number: u64::from_be_bytes(*number),
                bytes: rest.to_vec(),
            }))
        }
        _ => Err(FrameError::Unreadable(0)),
    }
}

/// The writer of a line. It sends one part after the other.
pub(crate) struct PodWriter {
    line: Mutex<WriteHalf<PodStream>>,
}

impl fmt::Debug for PodWriter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PodWriter")
    }
}

impl PodWriter {
    pub(crate) fn new(line: WriteHalf<PodStream>) -> Self {
        Self { line: Mutex::new(line) }
    }

    /// Sends a message to the other end of the line.
    pub(crate) async fn send<T: Serialize + Sync>(&self, frame: &T) -> Result<(), FrameError> {
        let frame = encode(frame)?;
        let (head, body) = frame.split_at_checked(4).ok_or(FrameError::Unreadable(0))?;
        self.write(OWN, head, &[], body).await
    }

    /// Forwards a frame of the lane, with its length before it.
    pub(crate) async fn hand_on(&self, frame: &[u8]) -> Result<(), FrameError> {
        let (head, body) = frame.split_at_checked(4).ok_or(FrameError::Unreadable(0))?;
        self.write(LANE, head, &[], body).await
    }

    /// Sends a piece of a file. An empty piece ends the file.
    pub(crate) async fn send_piece(&self, number: u64, bytes: &[u8]) -> Result<(), FrameError> {
        let length = u32::try_from(bytes.len().saturating_add(NUMBER)).unwrap_or(u32::MAX);
        self.write(PIECES, &length.to_be_bytes(), &number.to_be_bytes(), bytes)
            .await
    }

    async fn write(&self, kind: u8, length: &[u8], before: &[u8], body: &[u8]) -> Result<(), FrameError> {
        // In one write, so that no second packet waits for the first.
        let mut part = Vec::with_capacity(HEAD.saturating_add(before.len()).saturating_add(body.len()));
        part.extend_from_slice(length);
        part.push(kind);
        part.extend_from_slice(before);
        part.extend_from_slice(body);
        let mut line = self.line.lock().await;
        line.write_all(&part).await?;
        // TLS buffers small writes.
        line.flush().await?;
        Ok(())
    }

    /// Closes the sending side of the line.
    pub(crate) async fn shut_down(&self) {
        let _it_may_be_broken = self.line.lock().await.shutdown().await;
    }
}

/// Writes the greeting.
pub(crate) async fn write_hello(line: &mut (impl AsyncWrite + Unpin), hello: &PodHello) -> Result<(), FrameError> {
    line.write_all(&encode(hello)?).await?;
    line.flush().await?;
    Ok(())
}

/// Reads the greeting of a peer that has proven nothing yet.
pub(crate) async fn read_hello(line: &mut (impl AsyncRead + Unpin)) -> Result<PodHello, FrameError> {
    let mut head = [0; 4];
    line.read_exact(&mut head).await?;
    let length = read_length(head)?;
    if length > LONGEST_HELLO {
        return Err(FrameError::TooLong(length.into()));
    }
    let mut bytes = Vec::new();
    line.take(length.into()).read_to_end(&mut bytes).await?;
    decode(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (PodStream, PodStream) {
        let (one, other) = tokio::io::duplex(1 << 20);
        (Box::pin(one), Box::pin(other))
    }

    #[tokio::test]
    async fn parts_come_as_they_were_sent() {
        let (hub, pod) = pair();
        let (mut read, _) = tokio::io::split(pod);
        let (_, write) = tokio::io::split(hub);
        let writer = PodWriter::new(write);
        writer.send(&ToPod::Received(7)).await.unwrap();
        writer
            .hand_on(&encode(&crate::lane_protocol::messages::ToLane::Synced).unwrap())
            .await
            .unwrap();
        writer.send_piece(9, b"piece").await.unwrap();
        writer.send_piece(9, b"").await.unwrap();
        writer.shut_down().await;
        let mut next = async || read_part::<ToPod>(&mut read).await.unwrap();
        assert!(matches!(next().await, Some(Part::Own(ToPod::Received(7)))));
        assert!(matches!(next().await, Some(Part::Lane(bytes)) if bytes == b"\"Synced\""));
        assert!(matches!(next().await, Some(Part::Piece { number: 9, bytes }) if bytes == b"piece"));
        assert!(matches!(next().await, Some(Part::Piece { number: 9, bytes }) if bytes.is_empty()));
        assert!(next().await.is_none());
    }

    #[tokio::test]
    async fn malformed_parts_are_refused() {
        let read = async |bytes: &[u8]| {
            let mut line = bytes;
            read_part::<FromPod>(&mut line).await.map(drop)
        };
        // Only a lane's frame may be long.
        let head = |length: u32, kind: u8| [&length.to_be_bytes()[..], &[kind]].concat();
        for (length, kind) in [(LONGEST + 1, LANE), (LONGEST_OWN + 1, OWN), (LONGEST_OWN + 1, PIECES)] {
            let refused = read(&head(length, kind)).await.unwrap_err();
            assert!(matches!(refused, FrameError::TooLong(_)), "{kind}: {refused}");
        }
        let odd = |kind: u8, body: &[u8]| [head(u32::try_from(body.len()).unwrap(), kind), body.to_vec()].concat();
        for bytes in [odd(OWN, b"{}"), odd(PIECES, b"short"), odd(3, b"")] {
            assert!(matches!(read(&bytes).await, Err(FrameError::Unreadable(_))));
        }
        assert!(matches!(read(b"\0\0\0\x02\x01{").await, Err(FrameError::Broken(_))));
    }

    #[tokio::test]
    async fn a_greeting_is_short_and_hides_its_token() {
        let hello = PodHello {
            version: VERSION.to_owned(),
            token: "sesame".to_owned(),
            folder: "/data".into(),
        };
        assert!(!format!("{hello:?}").contains("sesame"));
        let mut line = Vec::new();
        write_hello(&mut line, &hello).await.unwrap();
        assert_eq!(read_hello(&mut line.as_slice()).await.unwrap().token, "sesame");
        let long = (LONGEST_HELLO + 1).to_be_bytes();
        assert!(matches!(
            read_hello(&mut long.as_slice()).await,
            Err(FrameError::TooLong(_))
        ));
        let odd = read_hello(&mut b"\0\0\0\x08\"sesame\"".as_slice()).await.unwrap_err();
        assert!(!odd.to_string().contains("sesame"), "{odd}");
    }

    #[test]
    fn a_pod_ends_before_it_is_taken_for_gone() {
        for seconds in [3, 20, 3600] {
            let patience = Duration::from_secs(seconds);
            assert!(find_lease(patience) < count_as_gone(patience));
            assert!(count_as_gone(patience) < patience);
        }
    }
}
