//! Takes requests to Receivers over plain HTTP, behind a proxy that ends TLS.
//!
//! The module bounds the time and the size of requests. The controllers know the paths and answer. The body of a request to an unknown path is not read, and no
//! connection stays open. A client that can't prove the token gets only one line.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tenure_apiserver::side_listeners::{ListenerBounds, PresentedCertificate, accept_all};
use tenure_controllers::{AdmittedRequest, HEADERS, ReceiverEndpoint, Verdict};
use tokio::net::TcpListener;

use crate::failure::Failure;
use crate::plain_http::open_listener;

/// The number of concurrent connections, in total and for one address. An address may be one client, or a proxy that collects whole requests.
const BOUNDS: ListenerBounds = ListenerBounds {
    connections: 256,
    of_one: 96,
    handshake: HEAD,
};
/// The timeout for the head of a request.
const HEAD: Duration = Duration::from_secs(5);
/// The timeout for the body.
const BODY: Duration = Duration::from_secs(10);
/// The timeout for the whole request with its answer.
const ALL: Duration = Duration::from_secs(45);
/// The longest head of a request, in bytes.
const HEAD_BYTES: usize = 32 << 10;
/// The largest number of headers.
const HEAD_LINES: usize = 64;

/// Listens, and answers until the future is dropped.
pub(crate) async fn serve_hooks(
    address: SocketAddr,
    hooks: ReceiverEndpoint,
) -> Result<impl Future<Output = ()>, Failure> {
    let listener = open_listener(address, "--hook-address").await?;
    hooks.note_listener();
    Ok(answer_hooks(listener, hooks))
}

async fn answer_hooks(listener: TcpListener, hooks: ReceiverEndpoint) {
    accept_all(listener, BOUNDS, PresentedCertificate::Nothing, move |stream, _| {
        let hooks = hooks.clone();
        async move {
            let service = service_fn(|request: Request<Incoming>| {
                let hooks = hooks.clone();
                async move { Ok::<_, Infallible>(describe_answer(answer_request(&hooks, request).await)) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .max_buf_size(HEAD_BYTES)
                .max_headers(HEAD_LINES)
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), service);
            let _whatever_became_of_it = tokio::time::timeout(ALL, connection).await;
        }
    })
    .await;
}

/// Answers a request, or returns the status for an invalid one.
async fn answer_request(hooks: &ReceiverEndpoint, request: Request<Incoming>) -> Result<Verdict, StatusCode> {
    if request.method() != Method::POST {
        return Err(StatusCode::METHOD_NOT_ALLOWED);
    }
    let mut admission = match hooks.admit(request.uri().path()) {
        Ok(admission) => admission,
        Err(verdict) => return Ok(verdict),
    };
    let headers = choose_headers(request.headers());
    let body = tokio::time::timeout(BODY, read_body(&mut admission, request.into_body())).await;
    match body {
        Ok(Ok(body)) => Ok(admission.deliver(headers, body).await),
        Ok(Err(refused)) => refused,
        Err(_) => Err(StatusCode::REQUEST_TIMEOUT),
    }
}

/// Returns the headers that the controllers read.
fn choose_headers(headers: &HeaderMap) -> BTreeMap<String, String> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::to_owned);
    HEADERS
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), text(name)?)))
        .collect()
}

/// Reads a body in pieces, and charges each to the tenant before it is stored.
async fn read_body(
    admission: &mut AdmittedRequest,
    mut body: Incoming,
) -> Result<Vec<u8>, Result<Verdict, StatusCode>> {
    let size = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if size > tenure_controllers::WHOLE_BODY {
        return Err(Err(StatusCode::PAYLOAD_TOO_LARGE));
    }
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Err(StatusCode::BAD_REQUEST))?;
        let Ok(part) = frame.into_data() else { continue };
        let length = whole.len().saturating_add(part.len());
        if length > tenure_controllers::WHOLE_BODY {
            return Err(Err(StatusCode::PAYLOAD_TOO_LARGE));
        }
        admission.hold(length).map_err(Ok)?;
        whole.extend_from_slice(&part);
    }
    Ok(whole)
}

fn describe_answer(answer: Result<Verdict, StatusCode>) -> Response<Full<Bytes>> {
    let (status, text) = match answer {
        Ok(verdict) => {
            let (status, text) = verdict.describe();
            (
                StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
                text,
            )
        }
        Err(status) => (status, status.canonical_reason().unwrap_or_default()),
    };
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_headers_that_are_looked_at_are_handed_on() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("X-GitHub-Event", "push"),
            ("Cookie", "secret"),
            ("Content-Type", "application/json"),
        ] {
            headers.insert(
                http::HeaderName::try_from(name).expect("a name"),
                http::HeaderValue::from_static(value),
            );
        }
        let chosen = choose_headers(&headers);
        assert_eq!(
            chosen.keys().map(String::as_str).collect::<Vec<_>>(),
            ["content-type", "x-github-event"]
        );
    }
}
