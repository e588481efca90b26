//! Git's smart HTTP protocol: its requests, and the checks of its answers.
//!
//! As in git, only the first request follows a redirect, and only to another repository.

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};

use crate::dialer::Dialer;
use crate::error::FetchError;
use crate::http::{Body, HttpAnswer, HttpClient, HttpRequest, Location};
use crate::policy::Scheme;
use crate::secret::{Credentials, TlsOptions};
use crate::url::RemoteUrl;

/// Servers look for "git/" at the beginning.
const AGENT: &str = concat!("git/2.39 (tenure/", env!("CARGO_PKG_VERSION"), ")");
/// The service in the query of the first request.
const SERVICE: &str = "service=git-upload-pack";

/// A client of Git's smart HTTP protocol, for one repository and one fetch.
pub(crate) struct SmartHttp {
    client: HttpClient,
    /// The base of requests: the URL of the object, or the target of the first request's redirect.
    base: RemoteUrl,
}

impl SmartHttp {
    pub(crate) fn new(dialer: Dialer, url: &RemoteUrl, credentials: &Credentials, tls: &TlsOptions) -> Self {
        Self {
            client: HttpClient::new(dialer, url.endpoint(), credentials, tls, AGENT),
            base: url.clone(),
        }
    }

    /// Returns the server's first message.
    pub(crate) async fn read_advertisement(&mut self) -> Result<Body, FetchError> {
        let answer = self.request_advertisement().await?;
        self.read_body(answer, "application/x-git-upload-pack-advertisement")
    }

    /// Requests the server's first message, following redirects. Returns any answer.
    pub(crate) async fn request_advertisement(&mut self) -> Result<HttpAnswer, FetchError> {
        let mut base = self.base.clone();
        let redirect = |from: &HttpRequest, location: Location| {
            base = read_redirect(from, location)?;
            Ok(ask_for_advertisement(&base))
        };
        let answer = self
            .client
            .send_and_follow(ask_for_advertisement(&self.base), redirect)
            .await?;
        self.base = base;
        Ok(answer)
    }

    /// Sends a request of the Git protocol and returns the answer's body.
    pub(crate) async fn post(&mut self, body: Vec<u8>) -> Result<Body, FetchError> {
        let mut request = make_request(&self.base, Method::POST, "/git-upload-pack");
        let headers = [
            (CONTENT_TYPE, "application/x-git-upload-pack-request"),
            (ACCEPT, "application/x-git-upload-pack-result"),
        ];
        request
            .headers
            .extend(headers.map(|(name, value)| (name, HeaderValue::from_static(value))));
        request.body = body.into();
        let answer = self.client.send(&request).await?;
        if answer.is_redirect() {
            return Err(FetchError::Redirect {
                from: request.shown,
                to: "elsewhere".to_owned(),
                problem: "only the first request of a fetch may be redirected",
            });
        }
        self.read_body(answer, "application/x-git-upload-pack-result")
    }

    /// Returns the body of a successful answer of the expected media type, or an error.
    fn read_body(&self, answer: HttpAnswer, expected: &str) -> Result<Body, FetchError> {
        self.client.refuse_unauthorized(&answer)?;
        let status = answer.status();
        if !status.is_success() {
            let problem = match status {
                StatusCode::NOT_FOUND => "there is no such repository, or it needs (other) credentials",
                StatusCode::TOO_MANY_REQUESTS => "it wants fewer requests",
                status if status.is_server_error() => "the server has a problem",
                _ => "that is no answer of a Git server",
            };
            return Err(FetchError::HttpStatus {
                url: answer.requested_address().to_owned(),
                status: status.as_u16(),
                problem,
                retry_after: answer.retry_after(),
            });
        }
        answer.refuse_encoding()?;
        let content_type = answer.content_type();
        if content_type.split(';').next().map(str::trim) != Some(expected) {
            return Err(FetchError::Protocol {
                url: answer.requested_address().to_owned(),
                problem: format!(
                    "its answer is of type {content_type:?}, not {expected}; is this the URL that git clone takes?"
                ),
            });
        }
        Ok(answer.into_body())
    }
}

fn make_request(base: &RemoteUrl, method: Method, below: &str) -> HttpRequest {
    let version = (
        HeaderName::from_static("git-protocol"),
        HeaderValue::from_static("version=2"),
    );
    HttpRequest {
        method,
        endpoint: base.endpoint().clone(),
        target: format!("{}{below}", base.path().trim_end_matches('/')),
        headers: HeaderMap::from_iter([version]),
        body: Bytes::new(),
        shown: base.to_string(),
    }
}

fn ask_for_advertisement(base: &RemoteUrl) -> HttpRequest {
    let mut request = make_request(base, Method::GET, &format!("/info/refs?{SERVICE}"));
    request.headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
    request
}

/// Reads the target of the first request's redirect: it must end like the request, and the rest is the new base.
fn read_redirect(from: &HttpRequest, location: Location) -> Result<RemoteUrl, FetchError> {
    let Location { mut url, path, query } = location;
    let refuse = |to: &url::Url, problem| FetchError::Redirect {
        from: from.shown.clone(),
        to: to.to_string(),
        problem,
    };
    let path = path.strip_suffix("/info/refs").filter(|path| !path.is_empty());
    let Some(path) = path.filter(|_| query == SERVICE) else {
        return Err(refuse(&url, "it leads to something else than a Git repository"));
    };
    let shown = url.clone();
    url.set_path(path);
    match RemoteUrl::parse(url.as_str()) {
        Ok(next) if next.endpoint().scheme != Scheme::Ssh => Ok(next),
        _ => Err(refuse(&shown, "it is not an http or https URL of a repository")),
    }
}
