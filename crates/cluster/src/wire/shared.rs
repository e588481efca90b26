//! Connections that many requests share, by HTTP/2.
//!
//! The module bounds the streams of a connection, chooses the connection for a request, and closes idle connections. A connection's window is as large as all its
//! streams may fill together, so a slow reader stalls no other stream. A connection that doesn't answer is closed with all its streams. A connection never carries more
//! streams than the server allows: a further one would wait for a stream that may never end.

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

use super::{Channel, ConnectionOwner, Purpose};

/// The interval of pings on an open connection, and the timeout for their answers.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(15));
/// The time for which an unused connection stays open, and the interval of the search for such connections.
const IDLE: Duration = Duration::from_secs(90);
const SWEEP: Duration = Duration::from_secs(30);
/// The time for the server to announce its limit of streams. After this time, [`INITIAL_STREAMS`] counts.
const FIRST_WORD: Duration = Duration::from_secs(1);
/// The streams of a new connection before the server has announced a limit. No known server announces this number.
const INITIAL_STREAMS: usize = 13;
/// The number of connections that a request tries if the previous connections did nothing for it.
const TRIES: usize = 3;

/// The limits of one HTTP/2 connection.
struct ConnectionLimits {
    /// The largest number of streams.
    streams: usize,
    /// The bytes of each stream that may arrive before they are read.
    window: u32,
}

impl Purpose {
    /// Returns the limits of a connection for this purpose. A kube-apiserver allows a hundred streams by default. Together they may fill 6.4 and 16 MiB.
    fn load(self) -> ConnectionLimits {
        match self {
            Self::Watches => ConnectionLimits {
                streams: 100,
                window: 64 << 10,
            },
            Self::Requests => ConnectionLimits {
                streams: 64,
                window: 256 << 10,
            },
            Self::Leadership => ConnectionLimits {
                streams: 8,
                window: 64 << 10,
            },
        }
    }
}

/// The byte stream below a connection.
pub(super) trait Stream: hyper::rt::Read + hyper::rt::Write + Send + Unpin {}

impl<S: hyper::rt::Read + hyper::rt::Write + Send + Unpin> Stream for S {}

/// The result of a new connection.
pub(super) enum NewConnection {
    /// The connection speaks HTTP/2.
    Shareable(Box<dyn Stream>),
    /// The connection speaks HTTP/1.1, and is closed.
    Http1,
}

/// Opens a connection.
pub(super) type Opener = Arc<dyn Fn() -> BoxFuture<'static, Result<NewConnection, OpenError>> + Send + Sync>;

/// The reason why a connection failed.
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

/// The opener of connections, and all open connections.
struct Shared {
    opener: Opener,
    keep_alive: (Duration, Duration),
    /// Whether the server speaks no HTTP/2.
    refused: AtomicBool,
    channels: Mutex<Channels>,
}

/// The open connections by owner and purpose, and the time of the last search for idle connections.
struct Channels {
    open: HashMap<Channel, Arc<Group>>,
    swept: Instant,
}

/// The connections of one channel.
#[derive(Default)]
struct Group {
    /// The lock for opening a connection. The value is the last failure and its time.
    opening: tokio::sync::Mutex<Option<(Instant, OpenError)>>,
    connections: Mutex<Vec<OpenConnection>>,
}

/// A connection that can send requests, with its use.
struct OpenConnection {
    sender: SendRequest<Body>,
    use_of: Arc<ConnectionUse>,
}

/// The number of streams on a connection, their limit, and the time since which it may be idle.
struct ConnectionUse {
    streams: AtomicUsize,
    /// The largest number of streams that the server allows.
    most: AtomicUsize,
    /// The time when the last stream ended.
    ended: Mutex<Instant>,
}

/// A reserved stream on a connection, which is released when the value is dropped.
struct StreamReservation(Arc<ConnectionUse>);

impl StreamReservation {
    fn on(use_of: &Arc<ConnectionUse>) -> Self {
        use_of.streams.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(use_of))
    }
}

impl Drop for StreamReservation {
    fn drop(&mut self) {
        *lock(&self.0.ended) = Instant::now();
        self.0.streams.fetch_sub(1, Ordering::AcqRel);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedConnections {
    /// Returns a set without connections.
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

    /// Whether the server is known to speak no HTTP/2.
    pub(super) fn is_refused(&self) -> bool {
        self.0.refused.load(Ordering::Acquire)
    }

    /// Sends a request over a connection of its channel, and returns after the head of the response has arrived.
    ///
    /// # Errors
    /// [`SpeaksHttp1`] before anything was sent, [`OpenError`], or the failure of the connection.
    pub(super) async fn send(self, mut request: Request<Body>) -> Result<Response<HeldBody>, BoxError> {
        let channel = request.extensions_mut().remove::<Channel>();
        let channel = channel.unwrap_or(Channel {
            holder: ConnectionOwner::Controller,
            purpose: Purpose::Requests,
        });
        let (parts, body) = request.into_parts();
        let mut body = Some(body);
        let mut tries = 0;
        loop {
            tries += 1;
            let (mut sender, place) = self.acquire(&channel).await?;
            // Bodies here are bytes, and all copies share the same memory. A streamed body could be sent only once.
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

    /// Reserves a stream on an open connection of the channel, or opens a connection.
    async fn acquire(&self, channel: &Channel) -> Result<(SendRequest<Body>, StreamReservation), BoxError> {
        let (group, began) = (self.group(channel), Instant::now());
        if let Some(taken) = group.reserve_stream(channel.purpose) {
            return Ok(taken);
        }
        // One request opens the connection. The others use the connection, or get the reason for the failure.
        let mut failed = group.opening.lock().await;
        if let Some(taken) = group.reserve_stream(channel.purpose) {
            return Ok(taken);
        }
        if let Some((_, error)) = failed.as_ref().filter(|(at, _)| *at >= began) {
            return Err(error.clone().into());
        }
        *failed = None;
        match (self.0.opener)().await {
            Ok(NewConnection::Shareable(stream)) => match share(stream, channel.purpose, self.0.keep_alive).await {
                Ok(connection) => {
                    let taken = (connection.sender.clone(), StreamReservation::on(&connection.use_of));
                    lock(&group.connections).push(connection);
                    Ok(taken)
                }
                Err(error) => {
                    *failed = Some((Instant::now(), error.clone()));
                    Err(error.into())
                }
            },
            Ok(NewConnection::Http1) => {
                self.0.refused.store(true, Ordering::Release);
                Err(SpeaksHttp1.into())
            }
            Err(error) => {
                *failed = Some((Instant::now(), error.clone()));
                Err(error.into())
            }
        }
    }

    /// Returns the connections of a channel. If the last search for idle connections is [`SWEEP`] ago, closes them first in all channels.
    fn group(&self, channel: &Channel) -> Arc<Group> {
        let mut channels = lock(&self.0.channels);
        let now = Instant::now();
        if now.duration_since(channels.swept) >= SWEEP {
            channels.swept = now;
            channels.open.retain(|_, group| {
                group.close_idle(now);
                // A task gets its reference to a group under this lock, so no task can begin to use a removed group.
                Arc::strong_count(group) > 1 || !lock(&group.connections).is_empty()
            });
        }
        Arc::clone(channels.open.entry(channel.clone()).or_default())
    }
}

impl Group {
    /// Reserves a stream on the fullest connection that has a free one, so connections that were opened for a peak become idle.
    fn reserve_stream(&self, purpose: Purpose) -> Option<(SendRequest<Body>, StreamReservation)> {
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
        Some((fullest.sender.clone(), StreamReservation::on(&fullest.use_of)))
    }

    fn close_idle(&self, now: Instant) {
        lock(&self.connections).retain(|connection| {
            let use_of = &connection.use_of;
            let idle = now.duration_since(*lock(&use_of.ended));
            !connection.sender.is_closed() && (use_of.streams.load(Ordering::Acquire) > 0 || idle < IDLE)
        });
    }
}

/// Checks whether the server reports that it did not process a request: the server shut the connection down before the request (RFC 9113 §6.8), or refused the
/// stream (§8.7).
fn is_unprocessed(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| {
        let is = |reason| cause.is_remote() && cause.reason() == Some(reason);
        (cause.is_go_away() && is(h2::Reason::NO_ERROR)) || (cause.is_reset() && is(h2::Reason::REFUSED_STREAM))
    })
}

/// Begins HTTP/2 on a connection, and waits for the server's limit of streams.
async fn share(
    stream: Box<dyn Stream>,
    purpose: Purpose,
    keep_alive: (Duration, Duration),
) -> Result<OpenConnection, OpenError> {
    let ConnectionLimits { streams, window } = purpose.load();
    let most = u32::try_from(streams).unwrap_or(u32::MAX);
    let shaken = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_max_send_streams(INITIAL_STREAMS)
        .initial_stream_window_size(window)
        .initial_connection_window_size(window.saturating_mul(most))
        .keep_alive_interval(keep_alive.0)
        .keep_alive_timeout(keep_alive.1)
        .keep_alive_while_idle(true)
        .handshake::<_, Body>(stream)
        .await;
    let (sender, connection) = shaken.map_err(|error| OpenError(error.to_string().into()))?;
    let use_of = Arc::new(ConnectionUse {
        streams: AtomicUsize::new(0),
        most: AtomicUsize::new(INITIAL_STREAMS),
        ended: Mutex::new(Instant::now()),
    });
    let (settings_seen, limit_announced) = tokio::sync::oneshot::channel::<()>();
    let driven = Arc::clone(&use_of);
    tokio::spawn(async move {
        let mut connection = pin!(connection);
        let mut settings_seen = Some(settings_seen);
        let mut look = tokio::time::interval(Duration::from_millis(1));
        let ended = std::future::poll_fn(|context| {
            let ended = connection.as_mut().poll(context);
            let most = connection.current_max_send_streams();
            driven.most.store(most, Ordering::Release);
            if most != INITIAL_STREAMS || settings_seen.as_ref().is_none_or(|sender| sender.is_closed()) {
                drop(settings_seen.take());
            } else {
                // The server's settings wake no task.
                while look.poll_tick(context).is_ready() {}
            }
            ended
        });
        if let Err(error) = ended.await {
            tracing::debug!(%error, "a connection to the API server ended");
        }
    });
    let _announced_or_not = tokio::time::timeout(FIRST_WORD, limit_announced).await;
    Ok(OpenConnection { sender, use_of })
}

/// The body of a response, which keeps its stream reserved until it is dropped.
pub(super) struct HeldBody {
    body: Incoming,
    _place: StreamReservation,
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
