//! Connections that many requests share, by HTTP/2.
//!
//! Owns how many streams a connection carries, which one a request goes over, and when one is closed. A connection has as much room as all of
//! its streams may fill together, so that whoever doesn't read stalls nobody; one that doesn't answer is given up, with all that is on it.
//! Refuses to put more on a connection than the server takes: what is beyond that would wait for a stream that may never end.

use std::collections::HashMap;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::Body;
use tokio::time::Instant;
use tower::BoxError;

use super::{Channel, Holder, Purpose};

/// How often an open connection is asked whether it is there, and how long it may take to say so.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(15));
/// How long a connection that nobody uses is kept, and how often such ones are looked for.
const IDLE: Duration = Duration::from_secs(90);
const SWEEP: Duration = Duration::from_secs(30);
/// How long the server may take to say how many streams it takes. One that doesn't is taken at [`UNSAID`].
const FIRST_WORD: Duration = Duration::from_secs(1);
/// How many streams a new connection carries before the server has said anything; no server is known that says this number.
const UNSAID: usize = 13;
/// Over how many connections a request goes, where the ones before did nothing for it.
const TRIES: usize = 3;

/// What a connection may carry.
struct Load {
    /// Streams, at most.
    streams: usize,
    /// Bytes of each that may have come before they are read.
    window: u32,
}

impl Purpose {
    /// A hundred is what a kube-apiserver takes by default. Together they may fill 6.4 and 16 MiB.
    fn load(self) -> Load {
        match self {
            Self::Watches => Load {
                streams: 100,
                window: 64 << 10,
            },
            Self::Requests => Load {
                streams: 64,
                window: 256 << 10,
            },
            Self::Leadership => Load {
                streams: 8,
                window: 64 << 10,
            },
        }
    }
}

/// What a connection is made of.
pub(super) trait Stream: hyper::rt::Read + hyper::rt::Write + Send + Unpin {}

impl<S: hyper::rt::Read + hyper::rt::Write + Send + Unpin> Stream for S {}

/// What became of a new connection.
pub(super) enum Opened {
    /// It speaks HTTP/2.
    Shareable(Box<dyn Stream>),
    /// It speaks HTTP/1.1, and is closed.
    Http1,
}

/// Opens a connection.
pub(super) type Opener = Arc<dyn Fn() -> BoxFuture<'static, Result<Opened, OpenError>> + Send + Sync>;

/// Why there is no connection.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct OpenError(pub(super) Arc<str>);

/// The server speaks no HTTP/2; nothing was sent.
#[derive(Debug, thiserror::Error)]
#[error("the API server speaks no HTTP/2")]
pub(super) struct SpeaksHttp1;

/// The connections to one API server. Cheap to clone.
#[derive(Clone)]
pub(super) struct SharedConnections(Arc<Shared>);

struct Shared {
    opener: Opener,
    keep_alive: (Duration, Duration),
    /// Whether the server speaks no HTTP/2.
    refused: AtomicBool,
    channels: Mutex<Channels>,
}

struct Channels {
    open: HashMap<Channel, Arc<Group>>,
    swept: Instant,
}

/// The connections of one channel.
#[derive(Default)]
struct Group {
    /// Held by whoever opens one; what the last one who did failed with, and when.
    opening: tokio::sync::Mutex<Option<(Instant, OpenError)>>,
    connections: Mutex<Vec<OpenConnection>>,
}

struct OpenConnection {
    sender: SendRequest<Body>,
    use_of: Arc<Use>,
}

/// How much a connection is used.
struct Use {
    streams: AtomicUsize,
    /// How many the server takes.
    most: AtomicUsize,
    /// When the last stream ended.
    ended: Mutex<Instant>,
}

/// A stream's place on a connection, until it is dropped.
struct Place(Arc<Use>);

impl Place {
    fn on(use_of: &Arc<Use>) -> Self {
        use_of.streams.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(use_of))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *lock(&self.0.ended) = Instant::now();
        self.0.streams.fetch_sub(1, Ordering::AcqRel);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedConnections {
    /// None yet.
    pub(super) fn new(opener: Opener) -> Self {
        Self::with_patience(opener, KEEP_ALIVE)
    }

    fn with_patience(opener: Opener, keep_alive: (Duration, Duration)) -> Self {
        Self(Arc::new(Shared {
            opener,
            keep_alive,
            refused: AtomicBool::new(false),
            channels: Mutex::new(Channels {
                open: HashMap::new(),
                swept: Instant::now(),
            }),
        }))
    }

    /// Whether the server speaks no HTTP/2, as far as is known.
    pub(super) fn is_refused(&self) -> bool {
        self.0.refused.load(Ordering::Acquire)
    }

    /// Sends a request over a connection of its channel, and answers when the head of the response is there.
    ///
    /// # Errors
    /// [`SpeaksHttp1`] before anything was sent, [`OpenError`], or what the connection failed with.
    pub(super) async fn send(self, mut request: Request<Body>) -> Result<Response<HeldBody>, BoxError> {
        let channel = request.extensions_mut().remove::<Channel>();
        let channel = channel.unwrap_or(Channel {
            holder: Holder::Controller,
            purpose: Purpose::Requests,
        });
        let (parts, body) = request.into_parts();
        let mut body = Some(body);
        let mut tries = 0;
        loop {
            tries += 1;
            let (mut sender, place) = self.acquire(&channel).await?;
            // What is sent here is bytes, which are held once however often. A body that comes in pieces could be sent once.
            let copy = body.as_ref().and_then(Body::try_clone);
            let sent = if copy.is_some() { copy } else { body.take() };
            let request = Request::from_parts(parts.clone(), sent.unwrap_or_else(Body::empty));
            let mut error = match sender.try_send_request(request).await {
                Ok(response) => return Ok(response.map(|body| HeldBody { body, _place: place })),
                Err(error) => error,
            };
            let is_unsent = error.take_message().is_some() || is_unprocessed(error.error());
            if !is_unsent || tries >= TRIES || body.is_none() {
                return Err(error.into_error().into());
            }
        }
    }

    async fn acquire(&self, channel: &Channel) -> Result<(SendRequest<Body>, Place), BoxError> {
        let (group, began) = (self.group(channel), Instant::now());
        if let Some(taken) = group.take(channel.purpose) {
            return Ok(taken);
        }
        // One opens, and the others have what it opened, or hear why it couldn't.
        let mut failed = group.opening.lock().await;
        if let Some(taken) = group.take(channel.purpose) {
            return Ok(taken);
        }
        if let Some((_, error)) = failed.as_ref().filter(|(at, _)| *at >= began) {
            return Err(error.clone().into());
        }
        *failed = None;
        match (self.0.opener)().await {
            Ok(Opened::Shareable(stream)) => match share(stream, channel.purpose, self.0.keep_alive).await {
                Ok(connection) => {
                    let taken = (connection.sender.clone(), Place::on(&connection.use_of));
                    lock(&group.connections).push(connection);
                    Ok(taken)
                }
                Err(error) => {
                    *failed = Some((Instant::now(), error.clone()));
                    Err(error.into())
                }
            },
            Ok(Opened::Http1) => {
                self.0.refused.store(true, Ordering::Release);
                Err(SpeaksHttp1.into())
            }
            Err(error) => {
                *failed = Some((Instant::now(), error.clone()));
                Err(error.into())
            }
        }
    }

    fn group(&self, channel: &Channel) -> Arc<Group> {
        let mut channels = lock(&self.0.channels);
        let now = Instant::now();
        if now.duration_since(channels.swept) >= SWEEP {
            channels.swept = now;
            channels.open.retain(|_, group| {
                group.close_idle(now);
                // Whoever uses it has come by it under this lock.
                Arc::strong_count(group) > 1 || !lock(&group.connections).is_empty()
            });
        }
        Arc::clone(channels.open.entry(channel.clone()).or_default())
    }
}

impl Group {
    /// A place on a connection that has one: the fullest, so that those which were opened for a few moments become idle.
    fn take(&self, purpose: Purpose) -> Option<(SendRequest<Body>, Place)> {
        let mut connections = lock(&self.connections);
        connections.retain(|connection| !connection.sender.is_closed());
        let streams = |connection: &&OpenConnection| connection.use_of.streams.load(Ordering::Acquire);
        let has_place = |connection: &&OpenConnection| {
            let most = connection
                .use_of
                .most
                .load(Ordering::Acquire)
                .min(purpose.load().streams);
            streams(connection) < most
        };
        let fullest = connections.iter().filter(has_place).max_by_key(streams)?;
        Some((fullest.sender.clone(), Place::on(&fullest.use_of)))
    }

    fn close_idle(&self, now: Instant) {
        lock(&self.connections).retain(|connection| {
            let use_of = &connection.use_of;
            let idle = now.duration_since(*lock(&use_of.ended));
            !connection.sender.is_closed() && (use_of.streams.load(Ordering::Acquire) > 0 || idle < IDLE)
        });
    }
}

/// Whether the server says that it did nothing for a request: it ended the connection in good order before that (RFC 9113 §6.8), or takes no
/// more streams (§8.7).
fn is_unprocessed(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| {
        let is = |reason| cause.is_remote() && cause.reason() == Some(reason);
        (cause.is_go_away() && is(h2::Reason::NO_ERROR)) || (cause.is_reset() && is(h2::Reason::REFUSED_STREAM))
    })
}

/// Begins HTTP/2 on a connection, and hears how many streams the server takes.
async fn share(
    stream: Box<dyn Stream>,
    purpose: Purpose,
    keep_alive: (Duration, Duration),
) -> Result<OpenConnection, OpenError> {
    let Load { streams, window } = purpose.load();
    let most = u32::try_from(streams).unwrap_or(u32::MAX);
    let shaken = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_max_send_streams(UNSAID)
        .initial_stream_window_size(window)
        .initial_connection_window_size(window.saturating_mul(most))
        .keep_alive_interval(keep_alive.0)
        .keep_alive_timeout(keep_alive.1)
        .keep_alive_while_idle(true)
        .handshake::<_, Body>(stream)
        .await;
    let (sender, connection) = shaken.map_err(|error| OpenError(error.to_string().into()))?;
    let use_of = Arc::new(Use {
        streams: AtomicUsize::new(0),
        most: AtomicUsize::new(UNSAID),
        ended: Mutex::new(Instant::now()),
    });
    let (heard, first_word) = tokio::sync::oneshot::channel::<()>();
    let driven = Arc::clone(&use_of);
    tokio::spawn(async move {
        let mut connection = pin!(connection);
        let mut heard = Some(heard);
        let mut look = tokio::time::interval(Duration::from_millis(1));
        let ended = std::future::poll_fn(|context| {
            let ended = connection.as_mut().poll(context);
            let most = connection.current_max_send_streams();
            driven.most.store(most, Ordering::Release);
            if most != UNSAID || heard.as_ref().is_none_or(|heard| heard.is_closed()) {
                drop(heard.take());
            } else {
                // What the server says of streams wakes nobody.
                while look.poll_tick(context).is_ready() {}
            }
            ended
        });
        if let Err(error) = ended.await {
            tracing::debug!(%error, "a connection to the API server ended");
        }
    });
    let _said_or_not = tokio::time::timeout(FIRST_WORD, first_word).await;
    Ok(OpenConnection { sender, use_of })
}

/// A response's body, which keeps its place on the connection until it is dropped.
pub(super) struct HeldBody {
    body: Incoming,
    _place: Place,
}

impl http_body::Body for HeldBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
