//! Answers with an object, a list, a Status or a text, and their headers.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WARNING};
use http::{Method, Response, StatusCode};
use http_body::Body as _;
use serde_json::Value;

use super::{ApiError, Body, body};

pub(crate) const JSON: &str = "application/json";

/// Returns an answer with a complete body.
pub(crate) fn with_bytes(status: StatusCode, content_type: &'static str, bytes: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(body::complete_body(bytes));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// Returns an answer with an object.
pub(crate) fn with_value(status: StatusCode, value: &Value) -> Response<Body> {
    with_bytes(status, JSON, write_line(value))
}

/// Returns JSON with the final line feed that Kubernetes adds.
fn write_line(value: &Value) -> Vec<u8> {
    let mut out = serde_json::to_vec(value).unwrap_or_default();
    out.push(b'\n');
    out
}

/// Returns an error as a Status.
pub(crate) fn with_error(error: &ApiError) -> Response<Body> {
    let status = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = with_bytes(status, JSON, write_line(&error.to_value()));
    if let Some(seconds) = error.retry_after() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Returns a plain text.
pub(crate) fn with_text(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = with_bytes(status, "text/plain; charset=utf-8", text);
    response
        .headers_mut()
        .insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

/// Returns the answer to an unknown path.
pub(crate) fn not_found() -> Response<Body> {
    with_text(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// Returns the answer to a client that sends too many requests at once.
pub(crate) fn too_many_requests() -> Response<Body> {
    let mut response = with_text(
        StatusCode::TOO_MANY_REQUESTS,
        "Too many requests, please try again later.\n",
    );
    response
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// Removes the body from an answer that must have none: HTTP/1 would omit the body, and HTTP/2 would send it. The
/// answer to a HEAD has the length of the removed body.
pub(crate) fn remove_forbidden_body(response: &mut Response<Body>, method: &Method) {
    let status = response.status();
    let bare = status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if !bare && *method != Method::HEAD {
        return;
    }
    let length = response.body().size_hint().exact();
    *response.body_mut() = body::complete_body(Bytes::new());
    match length {
        Some(length) if !bare => {
            response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        _ => {
            response.headers_mut().remove(CONTENT_LENGTH);
        }
    }
}

/// Adds texts as Warning headers.
pub(crate) fn add_warning_headers(response: &mut Response<Body>, warnings: &[String]) {
    for warning in super::warnings::list_sent(warnings) {
        let quoted: String = warning.chars().filter(|character| !character.is_control()).collect();
        let quoted = quoted.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
}
