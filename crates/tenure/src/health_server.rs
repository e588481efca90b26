//! Answers probes: `/healthz` while the process runs, `/readyz` while the controllers can do their work. Owns one listener for plain HTTP;
//! refuses to tell anything about objects, tenants or credentials, so that whoever can reach it learns one word.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tenure_cluster::ControllerHealth;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::failure::Failure;

/// How many connections are answered at the same time; others wait.
const CONNECTIONS: usize = 16;
/// How long a connection may take to send its request.
const PATIENCE: Duration = Duration::from_secs(5);

/// Listens, and answers until the future is dropped.
pub(crate) async fn serve_probes(
    address: SocketAddr,
    health: ControllerHealth,
) -> Result<impl Future<Output = ()>, Failure> {
    let listener = TcpListener::bind(address).await.map_err(|error| {
        Failure::environment(format!("can't listen on {address}: {error}"))
            .hint("take another address for probes: --health-address ADDRESS:PORT")
    })?;
    Ok(answer_probes(listener, health))
}

async fn answer_probes(listener: TcpListener, health: ControllerHealth) {
    let places = std::sync::Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = std::sync::Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, or gone before it was looked at: another one may do better.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let health = health.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let answer = answer(request.uri().path(), health.is_good());
                async move { Ok::<_, Infallible>(answer) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(PATIENCE)
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), service);
            // What a probe does wrong concerns nobody else; one that takes no answer is left after a while.
            let _whatever_became_of_it = tokio::time::timeout(PATIENCE * 2, connection).await;
            drop(place);
        });
    }
}

fn answer(path: &str, good: bool) -> Response<Full<Bytes>> {
    let (status, text) = match (path, good) {
        ("/healthz" | "/livez", _) | ("/readyz", true) => (StatusCode::OK, "ok"),
        ("/readyz", false) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the controllers can't do their work; the log says why",
        ),
        _ => (StatusCode::NOT_FOUND, "there are /healthz and /readyz"),
    };
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_learns_one_word() {
        for (path, good, status) in [
            ("/healthz", false, 200),
            ("/readyz", true, 200),
            ("/readyz", false, 503),
            ("/metrics", true, 404),
        ] {
            assert_eq!(answer(path, good).status().as_u16(), status, "{path}");
        }
    }
}
