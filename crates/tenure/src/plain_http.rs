//! A listener for plain HTTP, for requests of a kubelet or Prometheus. It bounds the concurrent connections and the time of each. The caller provides the answers.

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

/// The number of concurrent connections; others wait.
const CONNECTIONS: usize = 16;
/// The timeout for a request.
const PATIENCE: Duration = Duration::from_secs(5);

/// The type of an answer.
pub(crate) type Answer = Response<Full<Bytes>>;

/// Reads an address and a port, or a port alone, which means all addresses of IPv4 and IPv6.
pub(crate) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse() {
        return Ok(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
    }
    text.parse()
        .map_err(|_| "write a port, or an address with a port, such as 9440 or 127.0.0.1:9440".to_owned())
}

/// Listens on the address of a flag. Without IPv6 on the machine, all addresses are all of IPv4.
pub(crate) async fn open_listener(address: SocketAddr, flag: &str) -> Result<TcpListener, Failure> {
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

/// Serves until the future is dropped. A connection is closed if the client does not take its answer `within` this time.
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
            // The process is out of descriptors, or the connection is gone already. The next connection may succeed.
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
            // A failed connection has no effect on others, and a client that takes no answer is closed after a while.
            let _whatever_became_of_it = tokio::time::timeout(PATIENCE + within, connection).await;
            drop(place);
        });
    }
}

/// Returns an answer with a text.
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
