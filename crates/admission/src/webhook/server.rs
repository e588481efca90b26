//! The server that receives reviews over HTTPS. It bounds the size and the time of each request, and the bytes in memory at one time. It
//! reads no body from an unknown client, and answers a malformed review with the error.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tenure_api::admission_webhooks::{MUTATE_PATH, VALIDATE_PATH};
use tenure_apiserver::side_listeners::{ListenerBounds, PresentedCertificate, accept_all};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::decider::{ReviewDecider, Unanswered, WorkAmount};
use super::review::{Phase, read_review, write_answer};
use super::tls::ClientVerifier;

/// The greatest number of connections, in all and for one address. One API server keeps several
/// connections open.
const BOUNDS: ListenerBounds = ListenerBounds {
    connections: 1024,
    of_one: 256,
    handshake: Duration::from_secs(5),
};
/// The longest time that a connection may be idle or the head of a request may take.
const HEAD: Duration = Duration::from_secs(60);
/// The longest time for a body to arrive, and for a decision.
const BODY: Duration = Duration::from_secs(5);
const DECISION: Duration = Duration::from_secs(8);
/// The longest head of a request, in bytes, and the greatest number of headers.
const HEAD_BYTES: usize = 32 << 10;
const HEAD_LINES: usize = 64;
/// The longest body: an old and a new object of 3 MiB each, the limit of API servers.
const LONGEST: usize = 8 << 20;
/// The longest small body, in bytes. A small body needs no share of the memory for large ones; only
/// the number of connections limits it.
const SMALL: usize = 128 << 10;
/// The greatest number of bytes of all larger bodies in memory at one time. A sender that fills this memory delays only other senders of
/// large bodies.
const ROOM: usize = 64 << 20;

/// The server that answers reviews.
#[derive(Debug)]
pub struct WebhookServer {
    judge: ReviewDecider,
    gate: Option<Arc<ClientVerifier>>,
    body: Duration,
    room: Semaphore,
    large: Semaphore,
}

/// The answer to a request.
type Answer = Response<Full<Bytes>>;

impl WebhookServer {
    /// Returns a server that decides with this decider. With a gate, it answers only clients that the
    /// gate admits.
    #[must_use]
    pub fn new(judge: ReviewDecider, gate: Option<Arc<ClientVerifier>>) -> Self {
        Self {
            judge,
            gate,
            body: BODY,
            room: Semaphore::new(ROOM),
            large: Semaphore::new(1),
        }
    }

    /// Sets the longest time for a body to arrive.
    #[must_use]
    pub fn waiting_for_bodies(mut self, body: Duration) -> Self {
        self.body = body;
        self
    }

    /// Answers on this listener until the future is dropped.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, shown: PresentedCertificate) {
        accept_all(listener, BOUNDS, shown, move |stream, caller| {
            let server = Arc::clone(&self);
            async move {
                let is_proven = server.gate.as_ref().map(|gate| gate.admits(&caller));
                let service = service_fn(|request: Request<Incoming>| {
                    let server = Arc::clone(&server);
                    async move { Ok::<_, Infallible>(server.answer(request, is_proven).await) }
                });
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD)
                    .max_buf_size(HEAD_BYTES)
                    .max_headers(HEAD_LINES)
                    .keep_alive(is_proven != Some(false))
                    .serve_connection(TokioIo::new(stream), service);
                // An error of one connection affects no other.
                let _whatever_became_of_it = connection.await;
            }
        })
        .await;
    }

    async fn answer(&self, request: Request<Incoming>, is_proven: Option<bool>) -> Answer {
        if is_proven == Some(false) {
            return make_response(
                StatusCode::UNAUTHORIZED,
                "only an API server with a certificate of its authority gets an answer: --admission-client-ca names the authority",
            );
        }
        let phase = match request.uri().path() {
            MUTATE_PATH => Phase::Mutating,
            VALIDATE_PATH => Phase::Validating,
            _ => return make_response(StatusCode::NOT_FOUND, "there are /mutate and /validate"),
        };
        if request.method() != Method::POST {
            let mut answer = make_response(StatusCode::METHOD_NOT_ALLOWED, "reviews come by POST");
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
            return answer;
        }
        let body = tokio::time::timeout(self.body, self.read_body(request.into_body())).await;
        let (body, _room) = match body {
            Ok(Ok(read)) => read,
            Ok(Err(answer)) => return answer,
            Err(_) => return make_response(StatusCode::REQUEST_TIMEOUT, "the review took too long to arrive"),
        };
        let judging = self.judge(phase, &body, is_proven == Some(true));
        let judged = tokio::time::timeout(DECISION, judging).await;
        judged.unwrap_or_else(|_| refuse(&Unanswered::Late))
    }

    /// Returns the answer to a complete review. `is_proven` is true if the sender is proven to be
    /// an API server.
    pub async fn judge(&self, phase: Phase, body: &[u8], is_proven: bool) -> Response<Full<Bytes>> {
        let effort = match body.len() > SMALL {
            true => WorkAmount::Large(&self.large),
            false => WorkAmount::Small,
        };
        let review = match effort.work(|| read_review(body)).await {
            Ok(review) => review,
            Err(error) => return make_response(StatusCode::BAD_REQUEST, &error.to_string()),
        };
        match self.judge.judge(phase, &review.request, is_proven, effort).await {
            Ok(verdict) => write_json(&write_answer(&review.uid, verdict)),
            Err(unanswered) => refuse(&unanswered),
        }
    }

    /// Reads a body while it arrives. The memory for a large one is reserved before its bytes are
    /// stored.
    async fn read_body(&self, mut body: Incoming) -> Result<(Vec<u8>, Option<SemaphorePermit<'_>>), Answer> {
        let too_long = || {
            let text = format!("a review of more than {LONGEST} bytes isn't read");
            make_response(StatusCode::PAYLOAD_TOO_LARGE, &text)
        };
        let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        if announced > LONGEST {
            return Err(too_long());
        }
        let mut whole = Vec::new();
        let mut room: Option<SemaphorePermit<'_>> = None;
        while let Some(frame) = body.frame().await {
            let broken = |_| make_response(StatusCode::BAD_REQUEST, "the review ends before its end");
            let Ok(part) = frame.map_err(broken)?.into_data() else {
                continue;
            };
            if whole.len().saturating_add(part.len()) > LONGEST {
                return Err(too_long());
            }
            let length = whole.len().saturating_add(part.len());
            let held = room
                .as_ref()
                .map_or(SMALL, |room| SMALL.saturating_add(room.num_permits()));
            let more = u32::try_from(length.saturating_sub(held)).unwrap_or(u32::MAX);
            if more > 0 {
                let Ok(taken) = self.room.acquire_many(more).await else {
                    return Err(refuse(&Unanswered::Late));
                };
                match &mut room {
                    Some(room) => room.merge(taken),
                    None => room = Some(taken),
                }
            }
            whole.extend_from_slice(&part);
        }
        Ok((whole, room))
    }
}

/// Returns a response without a decision. The API server then follows the webhook's `failurePolicy`,
/// and shows this message.
fn refuse(unanswered: &Unanswered) -> Answer {
    tracing::debug!(%unanswered, "a review could not be decided");
    make_response(StatusCode::SERVICE_UNAVAILABLE, &unanswered.to_string())
}

fn make_response(status: StatusCode, text: &str) -> Answer {
    let mut response = Response::new(Full::from(text.to_owned()));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn write_json(value: &serde_json::Value) -> Answer {
    let mut response = Response::new(Full::from(value.to_string()));
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
