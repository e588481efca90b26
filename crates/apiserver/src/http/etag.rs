//! Answers that change rarely: an ETag, and 304 for clients with the current version.

use bytes::Bytes;
use http::header::{ETAG, HeaderName, HeaderValue, IF_NONE_MATCH, VARY};
use http::{HeaderMap, Response, StatusCode};
use sha2::{Digest, Sha512};

use super::{Body, body, respond};

/// Returns the hash that Kubernetes uses for ETags and OpenAPI URLs: SHA-512 in upper-case hex.
pub(crate) fn hash(bytes: &[u8]) -> String {
    hex::encode_upper(Sha512::digest(bytes))
}

/// Returns an answer with its hash as ETag, or 304 if the client sent this ETag.
pub(crate) fn respond_with_etag(
    headers: &HeaderMap,
    content_type: &'static str,
    bytes: impl Into<Bytes>,
) -> Response<Body> {
    let bytes = bytes.into();
    let tag = format!("\"{}\"", hash(&bytes));
    let known = headers
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|candidate| candidate.trim() == tag);
    let mut response = if known {
        let mut response = Response::new(body::complete_body(Bytes::new()));
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        respond::with_bytes(StatusCode::OK, content_type, bytes)
    };
    set(&mut response, ETAG, &tag);
    set(&mut response, VARY, "Accept");
    response
}

fn set(response: &mut Response<Body>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
