//! Connections: accept, TLS, HTTP/2 or 1.1, and an end that lets requests finish.

use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use crate::access::Peer;
use crate::certificates::Authority;
use crate::service::{ApiService, Shared};

/// Connections that may be open at once.
const CONNECTIONS: usize = 4096;
/// How long a client may take for the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a client may take for the head of an HTTP/1.1 request.
const HEAD: Duration = Duration::from_secs(30);
/// How long requests may take to finish once the server stops.
const GRACE: Duration = Duration::from_secs(5);
/// How often certificates are looked at.
const RENEWAL: Duration = Duration::from_secs(12 * 60 * 60);

/// Serves connections until the server is told to stop.
pub(crate) async fn run(
    shared: Arc<Shared>,
    authority: Arc<Authority>,
    listener: TcpListener,
    tls: ServerConfig,
) -> Result<(), std::io::Error> {
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let connections = Arc::new(Semaphore::new(CONNECTIONS));
    let tasks = TaskTracker::new();
    let mut renewal = tokio::time::interval(RENEWAL);
    renewal.tick().await;
    loop {
        let Ok(permit) = connections.clone().acquire_owned().await else {
            break;
        };
        let stream = tokio::select! {
            () = shared.shutdown.cancelled() => break,
            _ = renewal.tick() => {
                if let Err(error) = authority.renew(shared.registry.now()) {
                    tracing::error!(%error, "the certificates could not be renewed");
                }
                continue;
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of descriptors, most likely: others will be closed; don't spin until then.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        let (shared, acceptor) = (shared.clone(), acceptor.clone());
        tasks.spawn(async move {
            connection(shared, acceptor, stream).await;
            drop(permit);
        });
    }
    tasks.close();
    if tokio::time::timeout(GRACE, tasks.wait()).await.is_err() {
        tracing::info!("connections that did not end in time are cut");
    }
    Ok(())
}

async fn connection(shared: Arc<Shared>, acceptor: TlsAcceptor, stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let stream = match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%error, "a TLS handshake failed");
            return;
        }
        Err(_) => return,
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
    let service = ApiService::new(shared.clone(), peer);
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(1000)
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .keep_alive_timeout(Duration::from_secs(20));
    let serving = builder.serve_connection(
        TokioIo::new(stream),
        service_fn(move |request: http::Request<hyper::body::Incoming>| {
            let service = service.clone();
            async move { Ok::<_, std::convert::Infallible>(service.handle(request).await) }
        }),
    );
    tokio::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = shared.shutdown.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended badly");
    }
}
