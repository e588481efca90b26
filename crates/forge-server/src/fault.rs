//! What goes wrong, where, and how often.

use bytes::Bytes;
use http::{Method, Response, StatusCode};

/// One thing that goes wrong. The first one that fits a request is what happens to it.
#[derive(Clone, Debug)]
pub struct Fault {
    /// To requests of this method; to all if there is none.
    pub method: Option<Method>,
    /// To requests whose path holds this.
    pub path: String,
    /// How many of them are let through before.
    pub after: usize,
    /// To how many of them.
    pub times: usize,
    /// What happens.
    pub what: Misbehaviour,
}

/// What happens to a request instead of what should.
#[derive(Clone, Debug)]
pub enum Misbehaviour {
    /// Nothing is done, and this is answered.
    Answer(Response<Bytes>),
    /// It is done, and this is answered.
    EffectThenAnswer(Response<Bytes>),
    /// It is done, and the connection is cut off.
    EffectThenCut,
    /// Nothing is done, and the connection is cut off.
    Cut,
}

impl Fault {
    /// Something that happens to the next request of a method whose path holds this.
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

    /// Something that happens to every request whose path holds this, until [`crate::ForgeServer::behave`].
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

    /// Whether that happens to a request; counts it if it fits.
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
    /// Too many requests, as GitLab says it where it says until when (`doc/security/rate_limits.md`).
    #[must_use]
    pub fn limited(seconds: u64) -> Self {
        let mut response = text(StatusCode::TOO_MANY_REQUESTS, "text/plain", "Retry later\n");
        response.headers_mut().insert("retry-after", seconds.into());
        response.headers_mut().insert("ratelimit-remaining", 0.into());
        Self::Answer(response)
    }

    /// Too many requests, as GitLab's application limits say it: without a header.
    #[must_use]
    pub fn limited_without_headers() -> Self {
        Self::Answer(text(StatusCode::TOO_MANY_REQUESTS, "text/plain", "Retry later\n"))
    }

    /// What an address hears for an hour after too many failed logins.
    #[must_use]
    pub fn ban() -> Self {
        Self::Answer(text(StatusCode::FORBIDDEN, "text/plain", "Forbidden\n"))
    }

    /// A page for people, as a proxy in front of a host that is down shows it.
    #[must_use]
    pub fn html() -> Self {
        Self::Answer(text(
            StatusCode::OK,
            "text/html",
            "<!DOCTYPE html><title>Sign in</title>",
        ))
    }

    /// JSON of many bytes.
    #[must_use]
    pub fn huge(bytes: usize) -> Self {
        let body = format!("[\"{}\"]", "x".repeat(bytes));
        Self::Answer(text(StatusCode::OK, "application/json", body))
    }

    /// A problem of the host's own.
    #[must_use]
    pub fn server_error() -> Self {
        Self::Answer(internal())
    }

    /// It is done, and the answer says that the host has a problem.
    #[must_use]
    pub fn effect_then_server_error() -> Self {
        Self::EffectThenAnswer(internal())
    }

    /// It leads elsewhere.
    #[must_use]
    pub fn redirect(status: StatusCode, to: &str) -> Self {
        let mut response = text(status, "application/json", "{\"message\":\"Moved\"}");
        if let Ok(location) = to.parse() {
            response.headers_mut().insert(http::header::LOCATION, location);
        }
        Self::Answer(response)
    }
}

fn internal() -> Response<Bytes> {
    let body = "{\"message\":\"500 Internal Server Error\"}";
    text(StatusCode::INTERNAL_SERVER_ERROR, "application/json", body)
}

fn text(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let kind = http::HeaderValue::from_static(kind);
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}
