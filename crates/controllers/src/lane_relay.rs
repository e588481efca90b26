//! What is in a lane's Pod besides the lane: it connects to the hub, starts the lane's process, which is the same as beside a hub and shut in as that
//! one is, hands on what both say, and opens the connections that the lane asks for, by the policy that the hub tells.
//!
//! It holds the Pod's tokens: of the one for the API server it answers the lane, the other goes to the hub and nowhere else. It refuses to let a lane
//! go on whose hub is not heard of: another Pod may have its orders by then.

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

use crate::beneath::open_archive;
use crate::dial_line::DialLine;
use crate::dial_server::{self, Reachable};
use crate::frames::{Answer, FrameError, FromLane, Question, ToLane, decode, encode, read_length};
use crate::lane_door::PodStream;
use crate::lane_mode::LaneProgram;
use crate::lane_starter::Starter;
use crate::loans::Reference;
use crate::pace::Pace;
use crate::pod_line::{
    FromPod, Hello, LENT_AT_ONCE, Part, PodEnd, PodWriter, Posting, ToPod, VERSION, read_part, write_hello,
};
use crate::spool::{Deliveries, Undelivered, send_file};

/// How long it is waited to be taken in; then it connects anew.
const TAKEN_IN: Duration = Duration::from_secs(60);
/// How long a lane may take to end what is under way when its Pod is told to end.
const FAREWELL: Duration = Duration::from_secs(15);
/// How long the last words may take.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How long an archive that is lent may take to come.
const LENT: Duration = Duration::from_secs(50);
/// The longest question for a token, as the lane writes it.
const TOKEN_QUESTION: usize = 128;
/// The number of the first time that it says that it is there.
const FIRST: u64 = 1;
/// Frames that wait to be taken by the lane.
const WAITING: usize = 64;

/// Reads a token that somebody renews.
type ReadToken = dyn Fn() -> std::io::Result<String> + Send + Sync;

/// What is in a lane's Pod besides the lane.
pub struct LaneRelay {
    starter: Starter,
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
    /// Nobody took it in.
    NotTakenIn,
    /// The lane had begun.
    LaneEnded,
}

impl LaneRelay {
    /// One that starts the lane like this, in a folder of its own below `folder`, with the token that is read for each time that it wants one.
    /// Must be called inside a tokio runtime.
    #[must_use]
    pub fn new(
        program: &LaneProgram,
        folder: PathBuf,
        read_token: impl Fn() -> std::io::Result<String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            starter: Starter::new(program),
            folder,
            read_token: Arc::new(read_token),
            works: Arc::default(),
        }
    }

    /// Whether a lane runs here.
    #[must_use]
    pub fn works(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.works)
    }

    fn lane_folder(&self) -> PathBuf {
        self.folder.join("lane")
    }

    /// Serves the hub at the other end of a connection, until either ends or the Pod is told to end.
    pub async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Sync + Unpin + 'static,
        hub_token: String,
        end: &CancellationToken,
    ) -> RelayEnd {
        let mut stream: PodStream = Box::pin(stream);
        let hello = Hello {
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
        // That it was told to begin may be long ago. Nothing begins before the hub has answered something that is new.
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
                let _the_hub_may_be_gone = writer.tell(&FromPod::Ended(ended)).await;
            }
            writer.shut_down().await;
        };
        let _late = tokio::time::timeout(LAST_WORDS, last_words).await;
        RelayEnd::LaneEnded
    }

    /// Runs the lane until it has ended; how, where there is somebody to tell.
    async fn run_lane(
        &self,
        (read, writer): (ReadHalf<PodStream>, &Arc<PodWriter>),
        (posting, lease): (Posting, Lease),
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
        let talk = Arc::new(Talk::new(Arc::clone(writer), folder, &self.folder));
        let line = (read, line, dial_line);
        let said = self.attend(&talk, line, (posting, lease), &mut child, end).await;
        // Nothing of it goes on when this returns, whatever it was.
        match said {
            Said::Ended(status) => Some(read_status(status)),
            Said::Misspoke(problem) => {
                kill(&mut child).await;
                Some(PodEnd::Misspoke(problem))
            }
            Said::HubGone => {
                kill(&mut child).await;
                None
            }
            Said::Alone => {
                kill(&mut child).await;
                Some(PodEnd::Alone)
            }
            Said::Leaving => {
                kill(&mut child).await;
                Some(PodEnd::Left)
            }
        }
    }

    async fn attend(
        &self,
        talk: &Arc<Talk>,
        (read, line, dial_line): (ReadHalf<PodStream>, UnixStream, DialLine),
        (posting, lease): (Posting, Lease),
        child: &mut Child,
        end: &CancellationToken,
    ) -> Said {
        let (from_lane, to_lane) = line.into_split();
        let (tell, told) = mpsc::channel(WAITING);
        let lender = Arc::clone(talk);
        let reachable = Reachable {
            lane: posting.lane,
            policy: posting.policy,
            server: posting.server,
            open_lent: Box::new(move |reference, digest| {
                let talk = Arc::clone(&lender);
                async move { talk.borrow(reference, digest).await }.boxed()
            }),
        };
        let hearing = hear_hub(talk, read, &lease, &tell);
        let telling = tell_lane(to_lane, told);
        let handing_on = hand_on(talk, from_lane, &self.read_token, &tell);
        let dialing = dial_server::serve(dial_line, reachable);
        let living = lease.keep(&talk.writer);
        let leaving = async {
            end.cancelled().await;
            if let Ok(stop) = encode(&ToLane::Stop) {
                let _gone = tell.send(stop).await;
            }
            tokio::time::sleep(FAREWELL).await;
        };
        let said = tokio::select! {
            () = hearing => Said::HubGone,
            // Its process is about to end.
            () = telling => std::future::pending().await,
            said = handing_on => said,
            said = dialing => said.map_or(Said::HubGone, Said::Misspoke),
            () = living => Said::Alone,
            ended = child.wait() => Said::Ended(ended),
            () = leaving => Said::Leaving,
        };
        match said {
            Said::Ended(_) if end.is_cancelled() => Said::Leaving,
            said => said,
        }
    }
}

/// Why a lane is no longer attended to.
enum Said {
    Ended(std::io::Result<ExitStatus>),
    Misspoke(String),
    HubGone,
    Alone,
    Leaving,
}

async fn kill(child: &mut Child) {
    // One that has ended already can't be killed.
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

/// How long the lane may go on: since it last said that it is there and the hub answered that. Another Pod may have its orders afterwards.
struct Lease {
    length: Duration,
    began: Instant,
    state: Mutex<Words>,
}

/// What was said, and what of it was heard. There is never more of it than is said in the time of a lease.
#[derive(Default)]
struct Words {
    sent: VecDeque<(u64, Instant)>,
    heard: Option<Instant>,
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

    /// The hub has heard this, and all before.
    fn note_heard(&self, number: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(place) = state.sent.iter().position(|(sent, _)| *sent == number) else {
            return;
        };
        // Those before it need no answer any more.
        let heard = state.sent.drain(..=place).next_back();
        state.heard = heard.map(|(_, at)| at);
    }

    fn end(&self) -> Instant {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.heard.unwrap_or(self.began) + self.length
    }

    /// Says for the first time that it is there; whether the hub has answered that.
    async fn confirm(&self, read: &mut ReadHalf<PodStream>, writer: &PodWriter) -> bool {
        self.note_sent(FIRST, Instant::now());
        if writer.tell(&FromPod::Alive(FIRST)).await.is_err() {
            return false;
        }
        match read_part::<ToPod>(read).await {
            Ok(Some(Part::Own(ToPod::Heard(FIRST)))) => {
                self.note_heard(FIRST);
                true
            }
            _ => false,
        }
    }

    /// Says that the lane is there, until the hub has not heard it for too long.
    async fn keep(&self, writer: &PodWriter) {
        let saying = async {
            let mut number = FIRST;
            let mut often = tokio::time::interval(self.length / 4);
            loop {
                often.tick().await;
                number += 1;
                self.note_sent(number, Instant::now());
                if writer.tell(&FromPod::Alive(number)).await.is_err() {
                    // The line is read elsewhere, and what it comes to is seen there.
                    std::future::pending::<()>().await;
                }
            }
        };
        let watching = async {
            loop {
                let end = self.end();
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

/// What is said to the hub, and what it was asked for.
struct Talk {
    writer: Arc<PodWriter>,
    /// The lane's folder.
    folder: PathBuf,
    /// Where what is lent is kept while it comes.
    spool: PathBuf,
    wanted: Deliveries<ConnectRefusal>,
    room: Semaphore,
}

fn refuse(message: impl Into<String>) -> ConnectRefusal {
    ConnectRefusal {
        failure: ConnectFailure::Unreachable,
        message: message.into(),
    }
}

impl Talk {
    fn new(writer: Arc<PodWriter>, folder: PathBuf, above: &std::path::Path) -> Self {
        Self {
            writer,
            folder,
            spool: above.join("lent"),
            wanted: Deliveries::default(),
            room: Semaphore::new(LENT_AT_ONCE),
        }
    }

    /// What another lane has fetched, as the hub sends it.
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
                .tell(&wants)
                .await
                .map_err(|error| refuse(error.to_string()))?;
            // The hub sends no more than an archive may have.
            let received = delivery.receive(&self.spool, u64::MAX).await;
            received.map_err(|undelivered| match undelivered {
                Undelivered::Refused(refusal) => refusal,
                Undelivered::Broken(error) => refuse(format!("the archive did not come: {error}")),
            })
        };
        let received = tokio::time::timeout(LENT, receiving).await;
        received.unwrap_or_else(|_| Err(refuse("the archive did not come in time")))
    }

    /// Sends a file of the lane's folder.
    async fn send(self: Arc<Self>, number: u64, path: PathBuf, most: u64) {
        let sent = match open_archive(self.folder.clone(), path).await {
            Some(file) => send_file(&self.writer, number, file, most).await,
            None => self.writer.tell(&FromPod::Missing { number }).await,
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "a file could not be sent to the controllers");
        }
    }
}

/// Hears the hub until it is gone, or says what can't be read.
async fn hear_hub(talk: &Arc<Talk>, mut read: ReadHalf<PodStream>, lease: &Lease, tell: &mpsc::Sender<Vec<u8>>) {
    let mut sending = JoinSet::new();
    loop {
        while sending.try_join_next().is_some() {}
        match read_part::<ToPod>(&mut read).await {
            Ok(Some(Part::Lane(frame))) => {
                // Who takes nothing keeps the hub waiting, which ends it then.
                if tell.send(add_length(&frame)).await.is_err() {
                    return std::future::pending().await;
                }
            }
            Ok(Some(Part::Piece { number, bytes })) => {
                talk.wanted.take_piece(number, bytes).await;
            }
            Ok(Some(Part::Own(ToPod::Heard(number)))) => lease.note_heard(number),
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

/// Tells the lane what the hub says.
async fn tell_lane(mut to_lane: OwnedWriteHalf, mut told: mpsc::Receiver<Vec<u8>>) {
    while let Some(frame) = told.recv().await {
        if to_lane.write_all(&frame).await.is_err() {
            return;
        }
    }
}

/// Hands on what the lane says, as fast as the hub hears it. Its token it gets from here.
async fn hand_on(
    talk: &Talk,
    mut from_lane: OwnedReadHalf,
    read_token: &Arc<ReadToken>,
    tell: &mpsc::Sender<Vec<u8>>,
) -> Said {
    let mut pace = Pace::new(Instant::now().into_std());
    loop {
        let frame = match read_raw(&mut from_lane).await {
            Ok(Some(frame)) => frame,
            // It is about to end.
            Ok(None) | Err(FrameError::Broken(_)) => return std::future::pending().await,
            Err(error) => return Said::Misspoke(error.to_string()),
        };
        tokio::time::sleep(pace.take(frame.len(), Instant::now().into_std())).await;
        if let Some(number) = find_token_question(&frame) {
            let token = read_own_token(read_token).await;
            let answer = Answer::Token(token.map(|token| Token::new(token, None).hand_over()));
            let Ok(answer) = encode(&ToLane::Answer { number, answer }) else {
                continue;
            };
            if tell.send(answer).await.is_err() {
                return std::future::pending().await;
            }
            continue;
        }
        if talk.writer.hand_on(&frame).await.is_err() {
            return Said::HubGone;
        }
    }
}

/// Whether a frame asks for the lane's own token; the number of the question.
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

/// A frame with its length before it, as it was written.
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
