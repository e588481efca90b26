//! Serves artifacts over HTTP if an administrator enables it. One listener serves clients that authenticate and may `get` the object. A second listener serves every
//! client that reaches its address.
//!
//! The module bounds the time and the capacity for each client. The controllers decide which artifacts exist, and the API server decides who may read one (`gate`). The
//! server has no listing, reads no body, derives no file name from a request, and keeps no connection open.

mod flags;
mod gate;
mod listeners;
mod transfer;

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, ETAG, LAST_MODIFIED, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use tenure_apiserver::side_listeners::Caller;
use tenure_controllers::{ArtifactEndpoint, ArtifactRefusal, ServedArtifact};
use tenure_planner::artifact_address::ArtifactAddress;

pub(crate) use flags::{ArtifactSettings, Flags};
use gate::{Gate, ReaderRefusal};
pub(crate) use listeners::bind_listeners;
use transfer::{Deadline, send_artifact};

/// The answer to a request.
type Answer = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

/// The service of one listener: the source of the artifacts, and the check of clients.
struct Service {
    endpoint: ArtifactEndpoint,
    /// The check of clients; `None` if every client that reaches the listener may read.
    gate: Option<Gate>,
}

impl Service {
    async fn answer<B>(&self, caller: &Caller, request: Request<B>, deadline: &Arc<Deadline>) -> Answer {
        match self.find(caller, &request).await {
            Ok((address, artifact)) => write_artifact(&address, artifact, deadline),
            Err(denial) => denial.write(),
        }
    }

    async fn find<B>(
        &self,
        caller: &Caller,
        request: &Request<B>,
    ) -> Result<(ArtifactAddress, ServedArtifact), Denial> {
        let takes = match *request.method() {
            Method::GET => true,
            Method::HEAD => false,
            _ => return Err(Denial::Method),
        };
        let reader = match &self.gate {
            None => format!("address {}", caller.address),
            Some(gate) => {
                let user = gate.identify(request.headers(), &caller.certificates).await?;
                let reader = format!("user {}", user.name);
                self.endpoint.admit(&reader)?;
                let address = ArtifactAddress::read(request.uri().path()).ok_or(Denial::Unknown)?;
                // The check comes before the search, so a refused user doesn't learn whether the object exists.
                gate.admit(&user, &address).await?;
                return self.open(address, &reader, takes).await;
            }
        };
        self.endpoint.admit(&reader)?;
        let address = ArtifactAddress::read(request.uri().path()).ok_or(Denial::Unknown)?;
        self.open(address, &reader, takes).await
    }

    async fn open(
        &self,
        address: ArtifactAddress,
        reader: &str,
        takes: bool,
    ) -> Result<(ArtifactAddress, ServedArtifact), Denial> {
        let artifact = self.endpoint.open(&address, reader, takes).await?;
        Ok((address, artifact))
    }
}

/// The reason why a request gets no artifact, which decides the status code of the answer.
#[derive(Debug, PartialEq, Eq)]
enum Denial {
    Method,
    /// The client is unauthenticated.
    Unauthenticated,
    /// The user is known and lacks the right.
    Forbidden {
        user: String,
        object: String,
    },
    Unknown,
    TooMany,
    Unavailable,
}

impl From<ArtifactRefusal> for Denial {
    fn from(refusal: ArtifactRefusal) -> Self {
        match refusal {
            ArtifactRefusal::Unavailable => Self::Unavailable,
            ArtifactRefusal::TooMany => Self::TooMany,
            ArtifactRefusal::Unknown => Self::Unknown,
        }
    }
}

impl From<ReaderRefusal> for Denial {
    fn from(refusal: ReaderRefusal) -> Self {
        match refusal {
            ReaderRefusal::Unknown => Self::Unauthenticated,
            ReaderRefusal::Forbidden { user, object } => Self::Forbidden { user, object },
            ReaderRefusal::Unanswered => Self::Unavailable,
        }
    }
}

impl Denial {
    fn write(self) -> Answer {
        let again = (RETRY_AFTER, HeaderValue::from_static("1"));
        let (status, header, text) = match self {
            Self::Method => (
                StatusCode::METHOD_NOT_ALLOWED,
                Some((ALLOW, HeaderValue::from_static("GET, HEAD"))),
                "artifacts are taken with GET".to_owned(),
            ),
            Self::Unauthenticated => (
                StatusCode::UNAUTHORIZED,
                Some((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
                "show a token of this cluster, Authorization: Bearer TOKEN, or a certificate of a client".to_owned(),
            ),
            Self::Forbidden { user, object } => (
                StatusCode::FORBIDDEN,
                None,
                format!("User {user:?} cannot get {object}, and so not its artifact"),
            ),
            Self::Unknown => (StatusCode::NOT_FOUND, None, "there is no such artifact".to_owned()),
            Self::TooMany => (
                StatusCode::TOO_MANY_REQUESTS,
                Some(again),
                "too many requests at the same time; try again later".to_owned(),
            ),
            Self::Unavailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                Some(again),
                "this process doesn't serve artifacts yet, or can't identify the client; try again".to_owned(),
            ),
        };
        let mut response = write_empty(status);
        set_header(response.headers_mut(), CONTENT_TYPE, "text/plain; charset=utf-8");
        if let Some((name, value)) = header {
            response.headers_mut().insert(name, value);
        }
        *response.body_mut() = Full::from(text).map_err(|never| match never {}).boxed_unsync();
        response
    }
}

fn write_empty(status: StatusCode) -> Answer {
    let body = Full::default().map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    set_header(response.headers_mut(), http::header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    response
}

fn set_header(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// Sends the archive as stored, byte for byte the content of its digest.
fn write_artifact(address: &ArtifactAddress, artifact: ServedArtifact, deadline: &Arc<Deadline>) -> Answer {
    let mut response = write_empty(StatusCode::OK);
    let headers = response.headers_mut();
    set_header(headers, CONTENT_TYPE, "application/gzip");
    set_header(headers, CONTENT_LENGTH, &artifact.size.to_string());
    set_header(headers, ETAG, &format!("\"{}\"", address.digest));
    if let Some(stored_at) = artifact.stored_at {
        set_header(
            headers,
            LAST_MODIFIED,
            &stored_at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string(),
        );
    }
    if artifact.transfer.is_some() {
        *response.body_mut() = send_artifact(artifact, deadline);
    }
    response
}
