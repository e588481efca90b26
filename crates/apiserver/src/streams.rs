//! The streams of one HTTP/2 connection, which run in the connection's own task. This module decides when each is
//! polled, and which bytes are sent as one piece.
//!
//! A request of a few microseconds isn't worth a task of its own, which would wake on another core, as would the
//! connection for its answer. Also, the events of many watches about one change are sent as one piece. Long work runs
//! in its own task (see `service`).

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, BufWriter, ReadBuf};

/// The work on one stream of an HTTP/2 connection: a request up to the end of its answer.
type StreamFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The executor of a connection: it stores the streams that the connection opens, for [`Streams`] to run.
#[derive(Clone, Default)]
pub(crate) struct OpenedStreams(Arc<Mutex<Vec<StreamFuture>>>);

impl<F> hyper::rt::Executor<F> for OpenedStreams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        self.0.lock().push(Box::pin(stream));
    }
}

thread_local! {
    /// Number of streams that this thread has polled. A comparison shows whether a poll of the set polled any.
    static POLLS: Cell<u64> = const { Cell::new(0) };
    /// The stream that this thread polls now, so that its code can get a handle to end it.
    static POLLED: RefCell<Polled> = const { RefCell::new(Polled::None) };
}

/// The stream that a thread polls, for the creation of its [`StreamEnd`].
enum Polled {
    /// The thread polls no stream.
    None,
    /// The stream has no handle yet.
    Unnamed,
    /// The stream has this handle.
    Named(Arc<StreamEnd>),
}

/// A handle to end one stream from another task: the stream is dropped, and its client sees a reset.
#[derive(Debug, Default)]
pub(crate) struct StreamEnd {
    over: AtomicBool,
    waker: AtomicWaker,
}

impl StreamEnd {
    /// Returns the handle of the stream that is being polled; `None` outside of a connection with several streams.
    pub(crate) fn of_polled_stream() -> Option<Arc<Self>> {
        POLLED.with_borrow_mut(|polled| match polled {
            Polled::None => None,
            Polled::Named(end) => Some(end.clone()),
            Polled::Unnamed => {
                let end = Arc::<Self>::default();
                *polled = Polled::Named(end.clone());
                Some(end)
            }
        })
    }

    /// Ends the stream.
    pub(crate) fn end_stream(&self) {
        self.over.store(true, Ordering::Release);
        self.waker.wake();
    }
}

/// A stream that counts its polls for [`Streams`], and that a [`StreamEnd`] can end.
struct Counted {
    stream: StreamFuture,
    end: Option<Arc<StreamEnd>>,
}

impl Counted {
    fn new(stream: StreamFuture) -> Self {
        Self { stream, end: None }
    }
}

impl Future for Counted {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        POLLS.set(POLLS.get().wrapping_add(1));
        let this = &mut *self;
        let polled = this.end.take().map_or(Polled::Unnamed, Polled::Named);
        POLLED.set(polled);
        let polled = this.stream.as_mut().poll(context);
        if let Polled::Named(end) = POLLED.replace(Polled::None) {
            this.end = Some(end);
        }
        if polled.is_pending()
            && let Some(end) = &this.end
        {
            end.waker.register(context.waker());
            if end.over.load(Ordering::Acquire) {
                return Poll::Ready(());
            }
        }
        polled
    }
}

/// The streams of one connection, which run in the connection's own task.
#[derive(Default)]
pub(crate) struct Streams {
    opened: OpenedStreams,
    running: FuturesUnordered<Counted>,
}

impl Streams {
    /// Returns the executor with which the connection opens its streams.
    pub(crate) fn stream_executor(&self) -> OpenedStreams {
        self.opened.clone()
    }

    /// Runs the connection with its streams until it ends. A caller that stops waiting may continue with another
    /// call.
    pub(crate) fn drive<'a, C: Future>(&'a mut self, connection: Pin<&'a mut C>) -> ConnectionDriver<'a, C> {
        ConnectionDriver {
            streams: self,
            connection,
        }
    }
}

/// A connection that runs with its streams.
pub(crate) struct ConnectionDriver<'a, C> {
    streams: &'a mut Streams,
    connection: Pin<&'a mut C>,
}

impl<C: Future> Future for ConnectionDriver<'_, C> {
    type Output = C::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { streams, connection } = self.get_mut();
        loop {
            if let Poll::Ready(ended) = connection.as_mut().poll(context) {
                return Poll::Ready(ended);
            }
            streams
                .running
                .extend(streams.opened.0.lock().drain(..).map(Counted::new));
            // The set yields after a few streams, and the connection would then send a partial piece. So every ready
            // stream is polled once before the connection. A stream that sends wakes its connection, which is this
            // task.
            for _ in 0..streams.running.len().max(1) {
                let before = POLLS.get();
                while let Poll::Ready(Some(())) = streams.running.poll_next_unpin(context) {}
                if POLLS.get() == before {
                    break;
                }
            }
            if streams.opened.0.lock().is_empty() {
                return Poll::Pending;
            }
        }
    }
}

/// Gathers writes into few TLS records: many small frames, or the head of an answer with its body.
///
/// The writer declares that it takes one slice at a time. Otherwise HTTP/2 sends every frame of more than some
/// hundred bytes separately. That saves a copy, but a record and a system call cost far more.
pub(crate) struct GatheringWriter<S>(BufWriter<S>);

/// The largest TLS record.
const RECORD: usize = 16 * 1024;

impl<S: AsyncWrite> GatheringWriter<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self(BufWriter::with_capacity(RECORD, stream))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for GatheringWriter<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for GatheringWriter<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use hyper::rt::Executor;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn streams_run_concurrently_and_end_with_their_connection() {
        let mut streams = Streams::default();
        let opened = streams.stream_executor();
        let (first, second) = (oneshot::channel::<()>(), oneshot::channel::<()>());
        let alive = Arc::new(());
        let held = alive.clone();
        let connection = async {
            let (sent, received) = oneshot::channel();
            // The first stream waits for the second, which is opened later.
            opened.execute(async move {
                let _ = second.1.await;
                let _ = sent.send("first");
            });
            tokio::task::yield_now().await;
            opened.execute(async move {
                let _ = second.0.send(());
                drop(first.0);
            });
            opened.execute(async move {
                let _held = held;
                std::future::pending::<()>().await;
            });
            let _ = first.1.await;
            received.await
        };
        let mut connection = std::pin::pin!(connection);
        assert_eq!(streams.drive(connection.as_mut()).await, Ok("first"));
        assert_eq!(Arc::strong_count(&alive), 2);
        drop(streams);
        assert_eq!(
            Arc::strong_count(&alive),
            1,
            "what didn't end with its connection goes with it"
        );
    }

    #[tokio::test]
    async fn all_streams_are_polled_before_the_connection_sends() {
        const STREAMS: usize = 50;
        let mut streams = Streams::default();
        let opened = streams.stream_executor();
        let polled_streams = Arc::new(AtomicUsize::new(0));
        let mut polls = 0;
        let connection = std::future::poll_fn(|_| {
            polls += 1;
            if polls == 1 {
                for _ in 0..STREAMS {
                    let (polled_streams, mut before) = (polled_streams.clone(), false);
                    // Like a stream that got a window to send: it wakes itself once.
                    opened.execute(std::future::poll_fn(move |context| {
                        if std::mem::replace(&mut before, true) {
                            polled_streams.fetch_add(1, Ordering::Relaxed);
                            return Poll::Ready(());
                        }
                        context.waker().wake_by_ref();
                        Poll::Pending
                    }));
                }
            }
            match polled_streams.load(Ordering::Relaxed) {
                STREAMS => Poll::Ready(polls),
                _ => Poll::Pending,
            }
        });
        let connection = std::pin::pin!(connection);
        assert_eq!(streams.drive(connection).await, 2);
    }
}
