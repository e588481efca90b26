//! Answers probes: `/livez` and `/healthz` while the process runs, `/readyz` while the controllers can do their work. Owns one listener for plain HTTP;
//! refuses to tell anything about objects, tenants or credentials, so that whoever can reach it learns one word.

use std::convert::Infallible;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
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

/// Reads an address and a port, or a port alone, which stands for every address of both families.
pub(crate) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse() {
        return Ok(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
    }
    text.parse()
        .map_err(|_| "a port, or an address with a port, is wanted, such as 9440 or 127.0.0.1:9440".to_owned())
}

/// Where there is no IPv6 at all, every address is every one of IPv4.
pub(crate) async fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    use nix::libc::{EADDRNOTAVAIL, EAFNOSUPPORT};
    match TcpListener::bind(address).await {
        Err(error)
            if address.ip() == Ipv6Addr::UNSPECIFIED
                && matches!(error.raw_os_error(), Some(EAFNOSUPPORT | EADDRNOTAVAIL)) =>
        {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    }
}

/// Listens, and answers until the future is dropped.
pub(crate) async fn serve_probes(
    address: SocketAddr,
    health: ControllerHealth,
) -> Result<impl Future<Output = ()>, Failure> {
    let listener = listen(address).await.map_err(|error| {
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
        _ => (StatusCode::NOT_FOUND, "there are /livez, /healthz and /readyz"),
    };
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_one_of_every_address() {
        for (text, address) in [
            ("9440", Some("[::]:9440")),
            ("127.0.0.1:9440", Some("127.0.0.1:9440")),
            ("[::1]:9440", Some("[::1]:9440")),
            ("localhost:9440", None),
            ("65536", None),
            ("", None),
        ] {
            let read = parse_address(text).ok().map(|address| address.to_string());
            assert_eq!(read.as_deref(), address, "{text}");
        }
    }

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
