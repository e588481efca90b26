//! One listener for plain HTTP, for what a kubelet or Prometheus asks of a process. Owns how many are answered at the same time and how long
//! each may take; refuses to know what is answered.

use std::convert::Infallible;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::failure::Failure;

/// How many connections are answered at the same time; others wait.
const CONNECTIONS: usize = 16;
/// How long a connection may take to send its request.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is answered.
pub(crate) type Answer = Response<Full<Bytes>>;

/// Reads an address and a port, or a port alone, which stands for every address of both families.
pub(crate) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse() {
        return Ok(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
    }
    text.parse()
        .map_err(|_| "a port, or an address with a port, is wanted, such as 9440 or 127.0.0.1:9440".to_owned())
}

/// Listens on an address that a flag names. Where there is no IPv6 at all, every address is every one of IPv4.
pub(crate) async fn listen(address: SocketAddr, flag: &str) -> Result<TcpListener, Failure> {
    use nix::libc::{EADDRNOTAVAIL, EAFNOSUPPORT};
    let bound = match TcpListener::bind(address).await {
        Err(error)
            if address.ip() == Ipv6Addr::UNSPECIFIED
                && matches!(error.raw_os_error(), Some(EAFNOSUPPORT | EADDRNOTAVAIL)) =>
        {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    };
    bound.map_err(|error| {
        Failure::environment(format!("can't listen on {address}: {error}"))
            .hint(format!("take another address: {flag} ADDRESS:PORT"))
    })
}

/// Answers until the future is dropped; a connection is left when its answer is not taken `within` this time.
pub(crate) async fn serve<F>(
    listener: TcpListener,
    within: Duration,
    answer: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static,
) where
    F: Future<Output = Answer> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let answer = Arc::new(answer);
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, or gone before it was looked at: another one may do better.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let answer = Arc::clone(&answer);
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let answering = answer(request);
                async move { Ok::<_, Infallible>(answering.await) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(PATIENCE)
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), service);
            // What one does wrong concerns nobody else; one that takes no answer is left after a while.
            let _whatever_became_of_it = tokio::time::timeout(PATIENCE + within, connection).await;
            drop(place);
        });
    }
}

/// An answer of a few words, or of many lines.
pub(crate) fn write_text(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
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
}
