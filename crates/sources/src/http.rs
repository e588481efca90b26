//! HTTP/1.1 requests of the Git protocol, over connections of the dialer.
//!
//! Owns redirects and where credentials may go. A redirect is followed for the first request only, as git does, never
//! from https to http, and credentials stay with the scheme, host and port of the URL in the object: a server can't send
//! them elsewhere. It refuses bodies that are encoded.

use std::pin::Pin;

use base64::Engine as _;
use bytes::Bytes;
use futures::TryStreamExt as _;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderValue, LOCATION, USER_AGENT};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncRead;
use tokio::task::AbortHandle;
use tokio_util::io::StreamReader;

use crate::dialer::Dialer;
use crate::error::FetchError;
use crate::policy::{Endpoint, Scheme};
use crate::secret::{Credentials, TlsOptions};
use crate::tls;
use crate::url::RemoteUrl;

/// Servers look for "git/" in front of it.
const AGENT: &str = concat!("git/2.39 (tenure/", env!("CARGO_PKG_VERSION"), ")");
const SERVICE: &str = "git-upload-pack";

/// A body as it arrives.
pub(crate) type Body = Pin<Box<dyn AsyncRead + Send>>;

/// The HTTP side of one fetch.
pub(crate) struct HttpTransport {
    dialer: Dialer,
    /// The URL of the object: what credentials belong to.
    original: RemoteUrl,
    /// Where requests go: the same, or where the first request was redirected to.
    base: RemoteUrl,
    credentials: Credentials,
    tls: TlsOptions,
    connection: Option<Connection>,
}

struct Connection {
    endpoint: Endpoint,
    sender: SendRequest<Full<Bytes>>,
    driver: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl HttpTransport {
    pub(crate) fn new(dialer: Dialer, url: &RemoteUrl, credentials: &Credentials, tls: &TlsOptions) -> Self {
        Self {
            dialer,
            original: url.clone(),
            base: url.clone(),
            credentials: credentials.clone(),
            tls: tls.clone(),
            connection: None,
        }
    }

    /// Asks what the server offers, following redirects.
    pub(crate) async fn advertisement(&mut self) -> Result<Body, FetchError> {
        let mut redirects = 0_usize;
        loop {
            let url = self.base.clone();
            let target = format!("{}/info/refs?service={SERVICE}", url.path().trim_end_matches('/'));
            let request = self.request(Method::GET, &target).header(ACCEPT, "*/*");
            let response = self.send(request, Bytes::new()).await?;
            if !response.status().is_redirection() {
                return self.body(&url, response, "application/x-git-upload-pack-advertisement");
            }
            let next = redirected(&url, &response)?;
            redirects += 1;
            if redirects > self.dialer.limits().redirects {
                return Err(FetchError::Redirect {
                    from: url.to_string(),
                    to: next.to_string(),
                    problem: "there were too many in a row",
                });
            }
            self.base = next;
        }
    }

    /// Sends a request of the Git protocol and returns the answer's body.
    pub(crate) async fn post(&mut self, body: Vec<u8>) -> Result<Body, FetchError> {
        let url = self.base.clone();
        let target = format!("{}/{SERVICE}", url.path().trim_end_matches('/'));
        let request = self
            .request(Method::POST, &target)
            .header(CONTENT_TYPE, "application/x-git-upload-pack-request")
            .header(ACCEPT, "application/x-git-upload-pack-result");
        let response = self.send(request, body.into()).await?;
        if response.status().is_redirection() {
            return Err(FetchError::Redirect {
                from: url.to_string(),
                to: "elsewhere".to_owned(),
                problem: "only the first request of a fetch may be redirected",
            });
        }
        self.body(&url, response, "application/x-git-upload-pack-result")
    }

    fn request(&self, method: Method, target: &str) -> http::request::Builder {
        let endpoint = self.base.endpoint();
        let host = if endpoint.host.contains(':') {
            format!("[{}]", endpoint.host)
        } else {
            endpoint.host.clone()
        };
        let host = if endpoint.port == endpoint.scheme.default_port() {
            host
        } else {
            format!("{host}:{}", endpoint.port)
        };
        let mut request = Request::builder()
            .method(method)
            .uri(target)
            .header(HOST, host)
            .header(USER_AGENT, AGENT)
            .header("Git-Protocol", "version=2");
        if self.at_home()
            && let Some(value) = authorization(&self.credentials)
        {
            request = request.header(AUTHORIZATION, value);
        }
        request
    }

    /// Whether requests go where the credentials belong.
    fn at_home(&self) -> bool {
        self.base.endpoint() == self.original.endpoint()
    }

    async fn send(&mut self, request: http::request::Builder, body: Bytes) -> Result<Response<Incoming>, FetchError> {
        let url = self.base.clone();
        let broken = |problem: String| FetchError::Broken {
            url: url.to_string(),
            problem,
        };
        let request = request
            .body(Full::new(body))
            .map_err(|error| broken(error.to_string()))?;
        if let Some(connection) = &mut self.connection
            && connection.endpoint == *url.endpoint()
            && connection.sender.ready().await.is_ok()
        {
            match connection.sender.try_send_request(request).await {
                Ok(response) => return Ok(response),
                // The server closed the idle connection before it saw the request: the one case to try again.
                Err(mut error) => match error.take_message() {
                    Some(request) => return self.send_anew(request).await,
                    None => return Err(broken(chain(&error.into_error()))),
                },
            }
        }
        self.send_anew(request).await
    }

    async fn send_anew(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, FetchError> {
        self.connection = None;
        let url = self.base.clone();
        let broken = |error: hyper::Error| FetchError::Broken {
            url: url.to_string(),
            problem: chain(&error),
        };
        let endpoint = url.endpoint();
        let stream = self.dialer.connect(endpoint).await?;
        let (mut sender, driver) = if endpoint.scheme == Scheme::Https {
            let connector = tls::connector(&self.tls, self.at_home())?;
            let stream = tls::handshake(&connector, endpoint, stream).await?;
            let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(broken)?;
            (sender, tokio::spawn(connection).abort_handle())
        } else {
            let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(broken)?;
            (sender, tokio::spawn(connection).abort_handle())
        };
        let sent = sender.send_request(request);
        let connection = Connection {
            endpoint: endpoint.clone(),
            sender,
            driver,
        };
        let response = sent.await.map_err(broken)?;
        self.connection = Some(connection);
        Ok(response)
    }

    fn body(&self, url: &RemoteUrl, response: Response<Incoming>, expected: &str) -> Result<Body, FetchError> {
        let status = response.status();
        let shown = url.to_string();
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Err(FetchError::Unauthorized {
                url: shown,
                problem: self.why_unauthorized(status),
            });
        }
        if !status.is_success() {
            let problem = match status {
                StatusCode::NOT_FOUND => {
                    "there is no such repository, or it is hidden from whoever shows no (or other) credentials"
                }
                StatusCode::TOO_MANY_REQUESTS => "it wants fewer requests",
                status if status.is_server_error() => "the server has a problem",
                _ => "that is no answer of a Git server",
            };
            return Err(FetchError::HttpStatus {
                url: shown,
                status: status.as_u16(),
                problem,
            });
        }
        if response.headers().contains_key(CONTENT_ENCODING) {
            return Err(FetchError::Protocol {
                url: shown,
                problem: "its answer is encoded, which nobody asked for".to_owned(),
            });
        }
        let content_type = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or("");
        if content_type.split(';').next().map(str::trim) != Some(expected) {
            return Err(FetchError::Protocol {
                url: shown,
                problem: format!(
                    "its answer is of type {content_type:?}, not {expected}; is this the URL that git clone takes?"
                ),
            });
        }
        let stream = response
            .into_body()
            .into_data_stream()
            .map_err(|error| std::io::Error::other(chain(&error)));
        Ok(Box::pin(StreamReader::new(stream)))
    }

    fn why_unauthorized(&self, status: StatusCode) -> String {
        let code = status.as_u16();
        if !self.at_home() && self.credentials != Credentials::Anonymous {
            return format!(
                "HTTP {code} after a redirect to another host; credentials are only sent to the host of spec.url: use the final URL"
            );
        }
        match &self.credentials {
            Credentials::Anonymous => format!(
                "HTTP {code} without credentials; name a Secret with username and password, or bearerToken, in spec.secretRef"
            ),
            Credentials::Basic { .. } => {
                format!("HTTP {code}: the server does not accept the Secret's username and password")
            }
            Credentials::Bearer(_) => format!("HTTP {code}: the server does not accept the Secret's bearerToken"),
            Credentials::SshKey { .. } => format!("HTTP {code}: an ssh key does not help with HTTP"),
        }
    }
}

fn authorization(credentials: &Credentials) -> Option<HeaderValue> {
    let text = match credentials {
        Credentials::Basic { username, password } => {
            let pair = format!("{username}:{}", password.reveal());
            format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair))
        }
        Credentials::Bearer(token) => format!("Bearer {}", token.reveal()),
        Credentials::Anonymous | Credentials::SshKey { .. } => return None,
    };
    let mut value = HeaderValue::from_str(&text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Where a redirect of the first request leads: the location must end as the request did, the rest is the new base.
fn redirected(from: &RemoteUrl, response: &Response<Incoming>) -> Result<RemoteUrl, FetchError> {
    let refuse = |to: String, problem| FetchError::Redirect {
        from: from.to_string(),
        to,
        problem,
    };
    let location = response
        .headers()
        .get(LOCATION)
        .and_then(|value| value.to_str().ok())
        .ok_or_else(|| refuse("nowhere".to_owned(), "it names no location"))?;
    let base = url::Url::parse(&format!(
        "{}{}/info/refs",
        from.endpoint(),
        from.path().trim_end_matches('/')
    ))
    .map_err(|_| refuse("nowhere".to_owned(), "it starts at no URL"))?;
    let target = base
        .join(location)
        .map_err(|_| refuse("an unreadable location".to_owned(), "it is no URL"))?;
    let (path, query) = (target.path().to_owned(), target.query().unwrap_or_default().to_owned());
    let mut bare = target;
    bare.set_query(None);
    bare.set_fragment(None);
    // What the location says about a user is not ours to send.
    let _ = bare.set_username("");
    let _ = bare.set_password(None);
    let shown = bare.to_string();
    let Some(path) = path.strip_suffix("/info/refs").filter(|path| !path.is_empty()) else {
        return Err(refuse(shown, "it leads to something else than a Git repository"));
    };
    if query != format!("service={SERVICE}") {
        return Err(refuse(shown, "it leads to something else than a Git repository"));
    }
    bare.set_path(path);
    let next = match RemoteUrl::parse(bare.as_str()) {
        Ok(next) if next.endpoint().scheme != Scheme::Ssh => next,
        _ => return Err(refuse(shown, "it is not an http or https URL of a repository")),
    };
    if from.endpoint().scheme == Scheme::Https && next.endpoint().scheme == Scheme::Http {
        return Err(refuse(next.to_string(), "it leads from https to http"));
    }
    Ok(next)
}

/// An error with its causes, in a line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
