//! Connections: accept, TLS, HTTP/2 or 1.1, and an end that lets requests finish.

use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use crate::connections::{Connections, OpenConnection};
use crate::fairness::MemoryUse;
use crate::gate::Peer;
use crate::service::{ApiService, Shared};
use crate::streams::{GatheringWriter, Streams};

/// Longest time for the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Longest time for the head of an HTTP/1.1 request: kube-apiserver's time.
const HEAD: Duration = Duration::from_secs(32);
/// Most bytes of headers in a request.
const HEADERS: u32 = 256 * 1024;
/// Time in which running requests may finish once the server stops.
const GRACE: Duration = Duration::from_secs(5);
/// Longest time for the end of an idle connection.
const GOODBYE: Duration = Duration::from_secs(2);
/// Interval between checks of the certificates.
const RENEWAL: Duration = Duration::from_secs(12 * 60 * 60);
/// Bytes that a client may send on one stream, and on all of them, before it has to wait. They allow a body of the
/// largest size.
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;

/// Serves connections until shutdown.
pub(crate) async fn run(
    shared: Arc<Shared>,
    listener: TcpListener,
    tls: ServerConfig,
    renew: impl Fn(),
) -> Result<(), std::io::Error> {
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let connections = Connections::new();
    let tasks = TaskTracker::new();
    let mut renewal = tokio::time::interval(RENEWAL);
    renewal.tick().await;
    loop {
        let stream = tokio::select! {
            () = shared.shutdown.cancelled() => break,
            _ = renewal.tick() => {
                renew();
                continue;
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // The likely cause is a lack of file descriptors. Wait until other connections are closed,
                    // without a busy loop.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        let Some(open) = connections.open() else {
            tracing::warn!("a connection was refused: there are too many");
            continue;
        };
        tasks.spawn(serve_connection(shared.clone(), acceptor.clone(), stream, open));
    }
    tasks.close();
    if tokio::time::timeout(GRACE, tasks.wait()).await.is_err() {
        tracing::info!("connections that did not end in time are closed");
    }
    Ok(())
}

async fn serve_connection(shared: Arc<Shared>, acceptor: TlsAcceptor, stream: TcpStream, open: OpenConnection) {
    let _ = stream.set_nodelay(true);
    let remote = stream.peer_addr().ok().map(|address| address.ip());
    let activity = open.activity.clone();
    let handshake = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream));
    let stream = tokio::select! {
        () = activity.evicted.cancelled() => return,
        handshake = handshake => match handshake {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(%error, "a TLS handshake failed");
                return;
            }
            Err(_) => return,
        },
    };
    let peer = match stream.get_ref().1.peer_certificates() {
        Some(chain) if !chain.is_empty() => Peer::Certificates(Arc::new(
            chain
                .iter()
                .map(|certificate| certificate.clone().into_owned())
                .collect(),
        )),
        _ => Peer::Anonymous,
    };
    let service = ApiService::new(shared.clone(), peer).on_connection(activity.clone(), remote);
    let mut streams = Streams::default();
    let mut builder = Builder::new(streams.stream_executor());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        // The pieces of an answer are not copied together, so that each is released once it is written.
        .writev(true)
        .max_buf_size(HEADERS as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(1000)
        .max_header_list_size(HEADERS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .keep_alive_timeout(Duration::from_secs(20));
    let serving = builder.serve_connection(
        TokioIo::new(GatheringWriter::new(stream)),
        service_fn(move |request: http::Request<hyper::body::Incoming>| {
            let service = service.clone();
            async move { Ok::<_, std::convert::Infallible>(service.handle(request).await) }
        }),
    );
    tokio::pin!(serving);
    let ended = tokio::select! {
        ended = streams.drive(serving.as_mut()) => ended,
        () = shared.shutdown.cancelled() => {
            serving.as_mut().graceful_shutdown();
            streams.drive(serving).await
        }
        () = activity.wait_until_idle() => {
            serving.as_mut().graceful_shutdown();
            match tokio::time::timeout(GOODBYE, streams.drive(serving)).await {
                Ok(ended) => ended,
                Err(_) => return,
            }
        }
        () = activity.evicted.cancelled() => return,
        () = activity.unread.wait_until_stalled(shared.answers.patience, shared.fairness.ledger(MemoryUse::Answers)) => {
            tracing::debug!("a connection is closed, because its client doesn't read");
            return;
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended badly");
    }
}
