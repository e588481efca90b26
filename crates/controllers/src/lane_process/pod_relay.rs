//! The relay in a lane's Pod. It connects to the hub and starts the lane's process, which is the same and as confined as beside a hub. It forwards
//! the messages of both, and opens the connections that the lane requests, by the policy that the hub sends.
//!
//! The relay has the Pod's tokens. It gives the lane the token for the API server. The other token goes only to the hub. The relay ends a lane whose
//! hub is silent: by then another Pod may have its orders.

use std::collections::VecDeque;
use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use tenure_cluster::Token;
use tenure_sources::{ConnectFailure, ConnectRefusal};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::Child;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::artifacts::untrusted_folder::open_archive;
use crate::context::lane_settings::LaneProgram;
use crate::endpoints::lane_endpoint::PodStream;
use crate::lane::lane_references::Reference;
use crate::lane_protocol::dial_channel::DialChannel;
use crate::lane_protocol::dial_server::{self, DialPolicy};
use crate::lane_protocol::file_transfer::{FileReceiver, TransferError, send_file};
use crate::lane_protocol::message_rate::MessageRate;
use crate::lane_protocol::messages::{Answer, FrameError, FromLane, Question, ToLane, decode, encode, read_length};
use crate::lane_protocol::pod_connection::{
    FromPod, LENT_AT_ONCE, Part, PodAssignment, PodEnd, PodHello, PodWriter, ToPod, VERSION, read_part, write_hello,
};
use crate::lane_protocol::process_starter::ProcessStarter;

/// The time limit for the hub to accept the connection. After that, the Pod connects again.
const TAKEN_IN: Duration = Duration::from_secs(60);
/// The time limit for a lane to end its running work after its Pod gets the order to end.
const FAREWELL: Duration = Duration::from_secs(15);
/// The time limit for the last messages.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// The time limit for a borrowed archive to arrive.
const LENT: Duration = Duration::from_secs(50);
/// The length limit of a lane's question for a token.
const TOKEN_QUESTION: usize = 128;
/// The number of the first `Alive` message.
const FIRST: u64 = 1;
/// Frames that wait to be taken by the lane.
const WAITING: usize = 64;

/// Reads a token that the kubelet renews.
type ReadToken = dyn Fn() -> std::io::Result<String> + Send + Sync;

/// The relay in a lane's Pod.
pub struct LaneRelay {
    starter: ProcessStarter,
    folder: PathBuf,
    read_token: Arc<ReadToken>,
    works: Arc<AtomicBool>,
}

impl fmt::Debug for LaneRelay {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LaneRelay").finish_non_exhaustive()
    }
}

/// How a connection to the hub ended. The lane has ended in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayEnd {
    /// The hub did not accept the connection.
    NotTakenIn,
    /// The lane had started.
    LaneEnded,
}

impl LaneRelay {
    /// Creates a relay that starts the lane's program in its own folder below `folder`. The token is read again for each question of the lane. Must
    /// be called inside a tokio runtime.
    #[must_use]
    pub fn new(
        program: &LaneProgram,
        folder: PathBuf,
        read_token: impl Fn() -> std::io::Result<String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            starter: ProcessStarter::new(program),
            folder,
            read_token: Arc::new(read_token),
            works: Arc::default(),
        }
    }

    /// Returns the flag whether a lane runs here.
    #[must_use]
    pub fn works(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.works)
    }

    fn lane_folder(&self) -> PathBuf {
        self.folder.join("lane")
    }

    /// Serves the hub at the other end of a connection, until the lane or the connection ends, or the Pod gets the order to end.
    pub async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Sync + Unpin + 'static,
        hub_token: String,
        end: &CancellationToken,
    ) -> RelayEnd {
        let mut stream: PodStream = Box::pin(stream);
        let hello = PodHello {
            version: VERSION.to_owned(),
            token: hub_token,
            folder: self.lane_folder(),
        };
        let beginning = async {
            write_hello(&mut stream, &hello).await.ok()?;
            match read_part::<ToPod>(&mut stream).await {
                Ok(Some(Part::Own(ToPod::Begin(posting)))) => Some(posting),
                _ => None,
            }
        };
        let posting = tokio::select! {
            begun = tokio::time::timeout(TAKEN_IN, beginning) => begun.ok().flatten(),
            () = end.cancelled() => None,
        };
        let Some(posting) = posting else {
            return RelayEnd::NotTakenIn;
        };
        let (mut read, write) = tokio::io::split(stream);
        let writer = Arc::new(PodWriter::new(write));
        // The order to begin may be old. The lane starts only after the hub has answered a new message.
        let lease = Lease::new(posting.lease);
        let confirming = tokio::time::timeout(posting.lease, lease.confirm(&mut read, &writer)).await;
        if confirming != Ok(true) {
            return RelayEnd::NotTakenIn;
        }
        let ended = self.run_lane((read, &writer), (*posting, lease), end).await;
        self.works.store(false, Ordering::Release);
        let last_words = async {
            if let Some(ended) = ended {
                tracing::info!(?ended, "the lane ended");
                let _the_hub_may_be_gone = writer.send(&FromPod::Ended(ended)).await;
            }
            writer.shut_down().await;
        };
        let _late = tokio::time::timeout(LAST_WORDS, last_words).await;
        RelayEnd::LaneEnded
    }

    /// Runs the lane until it has ended. Returns how it ended, if the hub can still be informed.
    async fn run_lane(
        &self,
        (read, writer): (ReadHalf<PodStream>, &Arc<PodWriter>),
        (posting, lease): (PodAssignment, Lease),
        end: &CancellationToken,
    ) -> Option<PodEnd> {
        let folder = self.lane_folder();
        let made = {
            use std::os::unix::fs::DirBuilderExt as _;
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)
        };
        if let Err(error) = made {
            return Some(PodEnd::NotStarted(format!("{}: {error}", folder.display())));
        }
        let (mut child, line, dial_line) = match self.starter.start(None).await {
            Ok(started) => started,
            Err(error) => return Some(PodEnd::NotStarted(error.to_string())),
        };
        self.works.store(true, Ordering::Release);
        tracing::info!(lane = posting.lane, "the lane was started");
        let talk = Arc::new(HubLink::new(Arc::clone(writer), folder, &self.folder));
        let line = (read, line, dial_line);
        let end_reason = self.attend(&talk, line, (posting, lease), &mut child, end).await;
        // The lane's process is dead before this function returns, in every case.
        match end_reason {
            ServeEnd::Ended(status) => Some(read_status(status)),
            ServeEnd::Misspoke(problem) => {
                kill_child(&mut child).await;
                Some(PodEnd::Misspoke(problem))
            }
            ServeEnd::HubGone => {
                kill_child(&mut child).await;
                None
            }
            ServeEnd::Alone => {
                kill_child(&mut child).await;
                Some(PodEnd::Alone)
            }
            ServeEnd::Leaving => {
                kill_child(&mut child).await;
                Some(PodEnd::Left)
            }
        }
    }

    /// Connects the lane's process with the hub, until one of them ends or the Pod gets the order to end. Returns the reason.
    async fn attend(
        &self,
        talk: &Arc<HubLink>,
        (read, line, dial_line): (ReadHalf<PodStream>, UnixStream, DialChannel),
        (posting, lease): (PodAssignment, Lease),
        child: &mut Child,
        end: &CancellationToken,
    ) -> ServeEnd {
        let (from_lane, to_lane) = line.into_split();
        let (to_lane_queue, frames) = mpsc::channel(WAITING);
        let lender = Arc::clone(talk);
        let reachable = DialPolicy {
            lane: posting.lane,
            policy: posting.policy,
            server: posting.server,
            open_lent: Box::new(move |reference, digest| {
                let talk = Arc::clone(&lender);
                async move { talk.borrow(reference, digest).await }.boxed()
            }),
        };
        let hearing = read_from_hub(talk, read, &lease, &to_lane_queue);
        let telling = write_to_lane(to_lane, frames);
        let handing_on = hand_on(talk, from_lane, &self.read_token, &to_lane_queue);
        let dialing = dial_server::serve(dial_line, reachable);
        let living = lease.send_alive(&talk.writer);
        let leaving = async {
            end.cancelled().await;
            if let Ok(stop) = encode(&ToLane::Stop) {
                let _gone = to_lane_queue.send(stop).await;
            }
            tokio::time::sleep(FAREWELL).await;
        };
        let end_reason = tokio::select! {
            () = hearing => ServeEnd::HubGone,
            // The lane's process reads no more, so it is about to end. `child.wait` then returns.
            () = telling => std::future::pending().await,
            end_reason = handing_on => end_reason,
            end_reason = dialing => end_reason.map_or(ServeEnd::HubGone, ServeEnd::Misspoke),
            () = living => ServeEnd::Alone,
            ended = child.wait() => ServeEnd::Ended(ended),
            () = leaving => ServeEnd::Leaving,
        };
        match end_reason {
            ServeEnd::Ended(_) if end.is_cancelled() => ServeEnd::Leaving,
            end_reason => end_reason,
        }
    }
}

/// The reason why the relay stops serving a lane.
enum ServeEnd {
    Ended(std::io::Result<ExitStatus>),
    Misspoke(String),
    HubGone,
    Alone,
    Leaving,
}

async fn kill_child(child: &mut Child) {
    // An already ended process can't be killed.
    let _ended = child.start_kill();
    let _whatever_it_was = child.wait().await;
}

fn read_status(ended: std::io::Result<ExitStatus>) -> PodEnd {
    match ended {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => PodEnd::Exited(code),
            (None, signal) => PodEnd::Signalled(signal.unwrap_or_default()),
        },
        Err(error) => PodEnd::NotStarted(error.to_string()),
    }
}

/// The time for which the lane may go on, counted from the last `Alive` message that the hub answered. After that, another Pod may have its orders.
struct Lease {
    length: Duration,
    began: Instant,
    state: Mutex<AliveMessages>,
}

/// The sent `Alive` messages without an answer, and the time of the last one that the hub answered. The length of the lease bounds their number.
#[derive(Default)]
struct AliveMessages {
    sent: VecDeque<(u64, Instant)>,
    confirmed_at: Option<Instant>,
}

impl Lease {
    fn new(length: Duration) -> Self {
        Self {
            length,
            began: Instant::now(),
            state: Mutex::default(),
        }
    }

    fn note_sent(&self, number: u64, now: Instant) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.sent.push_back((number, now));
    }

    /// Records that the hub has received this message and all before it.
    fn confirm_message(&self, number: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(place) = state.sent.iter().position(|(sent, _)| *sent == number) else {
            return;
        };
        // Earlier messages need no answer any more.
        let confirmed = state.sent.drain(..=place).next_back();
        state.confirmed_at = confirmed.map(|(_, at)| at);
    }

    fn end_time(&self) -> Instant {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.confirmed_at.unwrap_or(self.began) + self.length
    }

    /// Sends the first `Alive` message, and returns whether the hub has answered it.
    async fn confirm(&self, read: &mut ReadHalf<PodStream>, writer: &PodWriter) -> bool {
        self.note_sent(FIRST, Instant::now());
        if writer.send(&FromPod::Alive(FIRST)).await.is_err() {
            return false;
        }
        match read_part::<ToPod>(read).await {
            Ok(Some(Part::Own(ToPod::Received(FIRST)))) => {
                self.confirm_message(FIRST);
                true
            }
            _ => false,
        }
    }

    /// Sends `Alive` messages until the hub has not answered for too long.
    async fn send_alive(&self, writer: &PodWriter) {
        let saying = async {
            let mut number = FIRST;
            let mut often = tokio::time::interval(self.length / 4);
            loop {
                often.tick().await;
                number += 1;
                self.note_sent(number, Instant::now());
                if writer.send(&FromPod::Alive(number)).await.is_err() {
                    // The reader of the line notices its end.
                    std::future::pending::<()>().await;
                }
            }
        };
        let watching = async {
            loop {
                let end = self.end_time();
                if end <= Instant::now() {
                    return;
                }
                tokio::time::sleep_until(end).await;
            }
        };
        tokio::select! {
            () = saying => {}
            () = watching => {}
        }
    }
}

/// The relay's connection to the hub: the writer, the folders for files, and the requests for borrowed archives that wait for content.
struct HubLink {
    writer: Arc<PodWriter>,
    /// The lane's folder.
    folder: PathBuf,
    /// The folder for borrowed archives while they arrive.
    lent_folder: PathBuf,
    wanted: FileReceiver<ConnectRefusal>,
    room: Semaphore,
}

fn make_refusal(message: impl Into<String>) -> ConnectRefusal {
    ConnectRefusal {
        failure: ConnectFailure::Unreachable,
        message: message.into(),
    }
}

impl HubLink {
    fn new(writer: Arc<PodWriter>, folder: PathBuf, above: &std::path::Path) -> Self {
        Self {
            writer,
            folder,
            lent_folder: above.join("lent"),
            wanted: FileReceiver::default(),
            room: Semaphore::new(LENT_AT_ONCE),
        }
    }

    /// Receives an artifact that another lane has fetched, from the hub.
    async fn borrow(&self, reference: Reference, digest: String) -> Result<std::fs::File, ConnectRefusal> {
        let _room = self.room.acquire().await;
        let delivery = self.wanted.expect();
        let wants = FromPod::Wants {
            number: delivery.number,
            reference,
            digest,
        };
        let receiving = async {
            self.writer
                .send(&wants)
                .await
                .map_err(|error| make_refusal(error.to_string()))?;
            // The hub enforces the size limit of an archive.
            let received = delivery.receive(&self.lent_folder, u64::MAX).await;
            received.map_err(|undelivered| match undelivered {
                TransferError::Refused(refusal) => refusal,
                TransferError::Broken(error) => make_refusal(format!("the archive did not arrive: {error}")),
            })
        };
        let received = tokio::time::timeout(LENT, receiving).await;
        received.unwrap_or_else(|_| Err(make_refusal("the archive did not arrive in time")))
    }

    /// Sends a file of the lane's folder.
    async fn send(self: Arc<Self>, number: u64, path: PathBuf, most: u64) {
        let sent = match open_archive(self.folder.clone(), path).await {
            Some(file) => send_file(&self.writer, number, file, most).await,
            None => self.writer.send(&FromPod::Missing { number }).await,
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "a file could not be sent to the controllers");
        }
    }
}

/// Reads the hub's messages until the hub is gone or sends an unreadable message.
async fn read_from_hub(
    talk: &Arc<HubLink>,
    mut read: ReadHalf<PodStream>,
    lease: &Lease,
    to_lane_queue: &mpsc::Sender<Vec<u8>>,
) {
    let mut sending = JoinSet::new();
    loop {
        while sending.try_join_next().is_some() {}
        match read_part::<ToPod>(&mut read).await {
            Ok(Some(Part::Lane(frame))) => {
                // A lane that reads nothing blocks the hub's messages, and the hub then ends the lane.
                if to_lane_queue.send(add_length(&frame)).await.is_err() {
                    return std::future::pending().await;
                }
            }
            Ok(Some(Part::Piece { number, bytes })) => {
                talk.wanted.take_piece(number, bytes).await;
            }
            Ok(Some(Part::Own(ToPod::Received(number)))) => lease.confirm_message(number),
            Ok(Some(Part::Own(ToPod::Open { number, path, most }))) => {
                sending.spawn(Arc::clone(talk).send(number, path, most));
            }
            Ok(Some(Part::Own(ToPod::Refused { number, refusal }))) => talk.wanted.refuse(number, refusal).await,
            Ok(Some(Part::Own(ToPod::Begin(_))) | None) => return,
            Err(error) => {
                tracing::debug!(%error, "the line to the controllers ended");
                return;
            }
        }
    }
}

fn add_length(frame: &[u8]) -> Vec<u8> {
    let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes(), frame].concat()
}

/// Sends the hub's messages to the lane.
async fn write_to_lane(mut to_lane: OwnedWriteHalf, mut frames: mpsc::Receiver<Vec<u8>>) {
    while let Some(frame) = frames.recv().await {
        if to_lane.write_all(&frame).await.is_err() {
            return;
        }
    }
}

/// Forwards the lane's messages, as fast as the hub reads them. The relay itself answers questions for the lane's token.
async fn hand_on(
    talk: &HubLink,
    mut from_lane: OwnedReadHalf,
    read_token: &Arc<ReadToken>,
    to_lane_queue: &mpsc::Sender<Vec<u8>>,
) -> ServeEnd {
    let mut pace = MessageRate::new(Instant::now().into_std());
    loop {
        let frame = match read_raw(&mut from_lane).await {
            Ok(Some(frame)) => frame,
            // The lane is about to end.
            Ok(None) | Err(FrameError::Broken(_)) => return std::future::pending().await,
            Err(error) => return ServeEnd::Misspoke(error.to_string()),
        };
        tokio::time::sleep(pace.charge_frame(frame.len(), Instant::now().into_std())).await;
        if let Some(number) = find_token_question(&frame) {
            let token = read_own_token(read_token).await;
            let answer = Answer::Token(token.map(|token| Token::new(token, None).hand_over()));
            let Ok(answer) = encode(&ToLane::Answer { number, answer }) else {
                continue;
            };
            if to_lane_queue.send(answer).await.is_err() {
                return std::future::pending().await;
            }
            continue;
        }
        if talk.writer.hand_on(&frame).await.is_err() {
            return ServeEnd::HubGone;
        }
    }
}

/// Returns the number of the question, if a frame asks for the lane's own token.
fn find_token_question(frame: &[u8]) -> Option<u64> {
    let body = frame.get(4..).filter(|body| body.len() <= TOKEN_QUESTION)?;
    match decode(body) {
        Ok(FromLane::Question {
            number,
            question: Question::Token { .. },
        }) => Some(number),
        _ => None,
    }
}

async fn read_own_token(read_token: &Arc<ReadToken>) -> Result<String, String> {
    let read_token = Arc::clone(read_token);
    let reading = tokio::task::spawn_blocking(move || read_token()).await;
    let read = reading.map_err(|error| error.to_string())?;
    read.map_err(|error| format!("the Pod's token can't be read: {error}"))
}

/// Reads a frame with its length before it, unchanged.
async fn read_raw(line: &mut (impl AsyncRead + Unpin)) -> Result<Option<Vec<u8>>, FrameError> {
    let mut head = [0; 4];
    if line.read(&mut head[..1]).await? == 0 {
        return Ok(None);
    }
    line.read_exact(&mut head[1..]).await?;
    let length = read_length(head)?;
    let mut frame = head.to_vec();
    line.take(length.into()).read_to_end(&mut frame).await?;
    if (frame.len() as u64) < u64::from(length) + 4 {
        return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
    }
    Ok(Some(frame))
}

#[cfg(test)]
mod tests;
