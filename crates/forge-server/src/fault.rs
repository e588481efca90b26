//! Faults for tests: their kind, their requests, and their number.

use bytes::Bytes;
use http::{Method, Response, StatusCode};

/// A misbehaviour of the host for some requests, which a test configures. The first fault that fits a request takes effect.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The method of the affected requests; `None` means all methods.
    pub method: Option<Method>,
    /// Affected requests have this text in their path.
    pub path: String,
    /// The number of fitting requests that pass before the fault starts.
    pub after: usize,
    /// The number of requests that the fault affects.
    pub times: usize,
    /// The misbehaviour.
    pub what: Misbehaviour,
}

/// How the host misbehaves when a [`Fault`] affects a request.
#[derive(Clone, Debug)]
pub enum Misbehaviour {
    /// The host does nothing and sends this answer.
    Answer(Response<Bytes>),
    /// The host executes the request and sends this answer.
    EffectThenAnswer(Response<Bytes>),
    /// The host executes the request and cuts the connection.
    EffectThenCut,
    /// The host does nothing and cuts the connection.
    Cut,
}

impl Fault {
    /// Returns a fault for the next request with this method and this text in its path.
    #[must_use]
    pub fn once(method: Method, path: &str, what: Misbehaviour) -> Self {
        Self {
            method: Some(method),
            path: path.to_owned(),
            after: 0,
            times: 1,
            what,
        }
    }

    /// Returns a fault for every request with this text in its path, until [`crate::ForgeServer::behave`].
    #[must_use]
    pub fn always(path: &str, what: Misbehaviour) -> Self {
        Self {
            method: None,
            path: path.to_owned(),
            after: 0,
            times: usize::MAX,
            what,
        }
    }

    /// Checks whether the fault affects a request, and counts the request if it fits.
    pub(crate) fn strikes(&mut self, method: &Method, path: &str) -> bool {
        let fits = self.method.as_ref().is_none_or(|wanted| wanted == method) && path.contains(&self.path);
        if !fits || self.times == 0 {
            return false;
        }
        if self.after > 0 {
            self.after -= 1;
            return false;
        }
        self.times = self.times.saturating_sub(1);
        true
    }
}

impl Misbehaviour {
    /// Returns the answer of GitLab's rate limits that have headers with the end of the limit (`doc/security/rate_limits.md`).
    #[must_use]
    pub fn rate_limit(seconds: u64) -> Self {
        let mut response = text_answer(StatusCode::TOO_MANY_REQUESTS, "text/plain", "Retry later\n");
        response.headers_mut().insert("retry-after", seconds.into());
        response.headers_mut().insert("ratelimit-remaining", 0.into());
        Self::Answer(response)
    }

    /// Returns the answer of GitLab's application limits, which has no header.
    #[must_use]
    pub fn rate_limit_without_headers() -> Self {
        Self::Answer(text_answer(
            StatusCode::TOO_MANY_REQUESTS,
            "text/plain",
            "Retry later\n",
        ))
    }

    /// Returns the answer that a banned address gets for an hour after too many failed logins.
    #[must_use]
    pub fn ban() -> Self {
        Self::Answer(text_answer(StatusCode::FORBIDDEN, "text/plain", "Forbidden\n"))
    }

    /// Returns the answer of a Git server that doesn't accept a token.
    #[must_use]
    pub fn unauthorized() -> Self {
        Self::Answer(text_answer(
            StatusCode::UNAUTHORIZED,
            "text/plain",
            "HTTP Basic: Access denied\n",
        ))
    }

    /// Returns an HTML page, as a proxy sends it when its host is down.
    #[must_use]
    pub fn html() -> Self {
        Self::Answer(text_answer(
            StatusCode::OK,
            "text/html",
            "<!DOCTYPE html><title>Sign in</title>",
        ))
    }

    /// Returns an answer with a JSON body of this many bytes.
    #[must_use]
    pub fn huge(bytes: usize) -> Self {
        let body = format!("[\"{}\"]", "x".repeat(bytes));
        Self::Answer(text_answer(StatusCode::OK, "application/json", body))
    }

    /// Returns the answer of an internal server error.
    #[must_use]
    pub fn server_error() -> Self {
        Self::Answer(internal_error())
    }

    /// Returns the misbehaviour in which the host executes the request and answers with an internal server error.
    #[must_use]
    pub fn effect_then_server_error() -> Self {
        Self::EffectThenAnswer(internal_error())
    }

    /// Returns a redirect to another address.
    #[must_use]
    pub fn redirect(status: StatusCode, to: &str) -> Self {
        let mut response = text_answer(status, "application/json", "{\"message\":\"Moved\"}");
        if let Ok(location) = to.parse() {
            response.headers_mut().insert(http::header::LOCATION, location);
        }
        Self::Answer(response)
    }
}

fn internal_error() -> Response<Bytes> {
    let body = "{\"message\":\"500 Internal Server Error\"}";
    text_answer(StatusCode::INTERNAL_SERVER_ERROR, "application/json", body)
}

fn text_answer(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let kind = http::HeaderValue::from_static(kind);
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}
