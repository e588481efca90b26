//! Requests to the API of a Git host, over the dialer. Each has one complete and bounded answer, or none.
//!
//! A failure says whether the host may have received the request, which callers that change something need to know. No redirect is followed, and no request is repeated.
//! The credential goes in a header, to the API's own scheme, host and port only. Callers interpret the answers.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use tokio::io::AsyncReadExt as _;
use url::Url;
use zeroize::Zeroizing;

use crate::connector::Connector;
use crate::dialer::Dialer;
use crate::error::FetchError;
use crate::http::{HttpClient, HttpRequest};
use crate::limits::Limits;
use crate::policy::{Endpoint, Scheme};
use crate::secret::{Credentials, TlsOptions};
use crate::url::read_host;

/// The client name in requests.
const AGENT: &str = concat!("tenure/", env!("CARGO_PKG_VERSION"));

/// The address of an API: a server, and a path on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl {
    endpoint: Endpoint,
    path: String,
}

/// A client of one API with one credential, for a question and the pages of its answer.
pub struct HostClient {
    client: HttpClient,
    base: BaseUrl,
    answer_bytes: u64,
    patience: Duration,
}

/// A request to the API of a Git host.
#[derive(Clone)]
pub struct HostRequest {
    /// The method.
    pub method: Method,
    /// The path below the API's path, with a slash in front, and a query if there is one.
    pub below: String,
    /// The headers besides the common ones.
    pub headers: Vec<(&'static str, &'static str)>,
    /// The media type of the body, and the body.
    pub body: Option<(&'static str, Zeroizing<Vec<u8>>)>,
}

/// A complete answer of a Git host's API.
pub struct HostAnswer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, which may contain a credential.
    pub body: Zeroizing<Vec<u8>>,
}

/// Why a request to a Git host has no readable answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostFailure {
    /// No connection: the host has not received the request.
    #[error("{0}")]
    NotSent(String),
    /// The connection broke or timed out: the host may have received the request.
    #[error("{0}")]
    Broken(String),
    /// The answer is too long, or encoded.
    #[error("{0}")]
    Unreadable(&'static str),
}

impl BaseUrl {
    /// Reads an `http` or `https` URL without user, query and fragment.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let url = Url::parse(text).ok()?;
        let scheme = match url.scheme() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return None,
        };
        let is_plain =
            url.query().is_none() && url.fragment().is_none() && url.username().is_empty() && url.password().is_none();
        let host = read_host(&url).filter(|host| is_plain && !host.is_empty() && !host.starts_with('-'))?;
        let endpoint = Endpoint {
            scheme,
            host,
            port: url.port().unwrap_or(scheme.default_port()),
        };
        let path = url.path().trim_end_matches('/').to_owned();
        Some(Self { endpoint, path })
    }

    /// Returns scheme, host and port.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Returns the path, without a slash at its end.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the same server with a path below this one.
    #[must_use]
    pub fn join(&self, below: &str) -> Self {
        Self {
            endpoint: self.endpoint.clone(),
            path: format!("{}{below}", self.path),
        }
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.endpoint, self.path)
    }
}

impl HostClient {
    /// Creates a client that reads at most this many bytes for one answer, at most `answers` times that in all, and waits this long for each.
    #[must_use]
    pub fn new(
        reach: &Connector,
        base: &BaseUrl,
        credentials: &Credentials,
        tls: &TlsOptions,
        (answer_bytes, answers, patience): (u64, u64, Duration),
    ) -> Self {
        let limits = Limits {
            received_bytes: answer_bytes.saturating_mul(answers),
            ..Limits::default()
        };
        let dialer = Dialer::new(reach.clone(), &limits);
        Self {
            client: HttpClient::new(dialer, &base.endpoint, credentials, tls, AGENT),
            base: base.clone(),
            answer_bytes,
            patience,
        }
    }

    /// Sets the credentials of the following requests.
    pub fn set_credentials(&mut self, credentials: Credentials) {
        self.client.set_credentials(credentials);
    }

    /// Sends a request once.
    ///
    /// # Errors
    /// [`HostFailure`] when no readable answer arrives.
    pub async fn send(&mut self, request: &HostRequest) -> Result<HostAnswer, HostFailure> {
        let mut headers = HeaderMap::new();
        for (name, value) in &request.headers {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let body = request.body.as_ref().map(|(kind, body)| {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            Bytes::copy_from_slice(body)
        });
        let message = HttpRequest {
            method: request.method.clone(),
            endpoint: self.base.endpoint.clone(),
            target: format!("{}{}", self.base.path, request.below),
            headers,
            body: body.unwrap_or_default(),
            shown: self.base.to_string(),
        };
        match tokio::time::timeout(self.patience, self.exchange(&message)).await {
            Ok(result) => result,
            Err(_) => {
                let seconds = self.patience.as_secs();
                Err(HostFailure::Broken(format!(
                    "{} gave no answer in {seconds} s",
                    self.base
                )))
            }
        }
    }

    async fn exchange(&mut self, message: &HttpRequest) -> Result<HostAnswer, HostFailure> {
        let answer = self.client.send(message).await.map_err(|error| match &error {
            FetchError::Broken { .. } | FetchError::Timeout { .. } => HostFailure::Broken(error.to_string()),
            _ => HostFailure::NotSent(error.to_string()),
        })?;
        answer
            .refuse_encoding()
            .map_err(|_| HostFailure::Unreadable("it is encoded, which was not requested"))?;
        let (status, headers) = (answer.status(), answer.all_headers().clone());
        let mut body = Zeroizing::new(Vec::new());
        let read = answer
            .into_body()
            .take(self.answer_bytes + 1)
            .read_to_end(&mut body)
            .await;
        if body.len() as u64 > self.answer_bytes {
            return Err(HostFailure::Unreadable("it is longer than any answer of this API"));
        }
        read.map_err(|_| HostFailure::Broken(format!("{} broke off in the middle of its answer", self.base)))?;
        Ok(HostAnswer { status, headers, body })
    }
}
