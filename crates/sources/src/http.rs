//! A client for HTTP/1.1 over connections of the dialer, for whatever protocol goes above it.
//!
//! Owns the connection and its TLS, where credentials may go, and what of a redirect holds for everybody: credentials and the client
//! certificate stay with one scheme, host and port, so that a server can't send them elsewhere, nothing leads from https to http, and
//! there is an end to redirects in a row. Bytes are counted by the dialer on every connection, and time by whoever awaits: dropping a
//! client, or an answer, closes what it uses. It refuses bodies that are encoded, and to follow a redirect unasked. A proxy is shown
//! credentials of its own and no others, but for what is in requests over plain HTTP. One
//! connection is kept, for one request at a time: no pool of hyper-util's is needed for that, nor would it say why the dialer refused.

use std::pin::Pin;
use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use futures::TryStreamExt as _;
use http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION,
    PROXY_AUTHORIZATION, RETRY_AFTER, USER_AGENT,
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncRead;
use tokio::task::AbortHandle;
use tokio_util::io::StreamReader;
use url::Url;

use crate::dialer::Dialer;
use crate::error::FetchError;
use crate::policy::{Endpoint, Scheme};
use crate::proxy::Proxy;
use crate::secret::{Credentials, TlsOptions};
use crate::tls;

/// A body as it arrives.
pub(crate) type Body = Pin<Box<dyn AsyncRead + Send>>;

/// A client, and what it shows to whom.
pub(crate) struct HttpClient {
    dialer: Dialer,
    /// What credentials belong to.
    home: Endpoint,
    credentials: Credentials,
    tls: TlsOptions,
    /// What it calls itself.
    agent: &'static str,
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

/// What is asked for, and where.
pub(crate) struct HttpRequest {
    pub(crate) method: Method,
    /// Who is asked; `http` or `https`.
    pub(crate) endpoint: Endpoint,
    /// The path, and the query if there is one, as they are written.
    pub(crate) target: String,
    /// The headers besides those that every request has.
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// What messages call the address; without credentials.
    pub(crate) shown: String,
}

/// The head of an answer; its body is still to come.
pub(crate) struct HttpAnswer {
    response: Response<Incoming>,
    /// Who answered.
    endpoint: Endpoint,
    shown: String,
}

/// Where a redirect points.
pub(crate) struct Location {
    /// Without a user, a password and a fragment: what they say is not ours to send.
    pub(crate) url: Url,
    /// The path and the query that were asked for there.
    pub(crate) path: String,
    pub(crate) query: String,
}

impl HttpClient {
    /// A client whose credentials, and client certificate, are for one endpoint.
    pub(crate) fn new(
        dialer: Dialer,
        home: &Endpoint,
        credentials: &Credentials,
        tls: &TlsOptions,
        agent: &'static str,
    ) -> Self {
        Self {
            dialer,
            home: home.clone(),
            credentials: credentials.clone(),
            tls: tls.clone(),
            agent,
            connection: None,
        }
    }

    /// From now on these are shown to the endpoint that credentials belong to.
    pub(crate) fn set_credentials(&mut self, credentials: Credentials) {
        self.credentials = credentials;
    }

    /// Whether no credentials are shown to anybody.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.credentials == Credentials::Anonymous
    }

    /// Sends a request and follows redirects: `redirect` makes of where an answer points what is asked for there, or refuses.
    pub(crate) async fn send_and_follow(
        &mut self,
        request: HttpRequest,
        mut redirect: impl FnMut(&HttpRequest, Location) -> Result<HttpRequest, FetchError>,
    ) -> Result<HttpAnswer, FetchError> {
        let mut request = request;
        let mut redirects = 0_usize;
        loop {
            let answer = self.send(&request).await?;
            if !answer.is_redirect() {
                return Ok(answer);
            }
            let next = redirect(&request, Location::read(&request, &answer)?)?;
            let refuse = |problem| FetchError::Redirect {
                from: request.shown.clone(),
                to: next.shown.clone(),
                problem,
            };
            if request.endpoint.scheme == Scheme::Https && next.endpoint.scheme == Scheme::Http {
                return Err(refuse("it leads from https to http"));
            }
            redirects += 1;
            if redirects > self.dialer.limits().redirects {
                return Err(refuse("there were too many in a row"));
            }
            request = next;
        }
    }

    /// Sends a request, on the connection that is there if it goes to the same endpoint.
    pub(crate) async fn send(&mut self, request: &HttpRequest) -> Result<HttpAnswer, FetchError> {
        let answer = self.send_once(request).await?;
        match self.dialer.forwarder(&request.endpoint) {
            // That is the proxy's own word.
            Some(proxy) if answer.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED => Err(proxy.explain(407)),
            _ => Ok(answer),
        }
    }

    async fn send_once(&mut self, request: &HttpRequest) -> Result<HttpAnswer, FetchError> {
        let broken = |problem: String| FetchError::Broken {
            url: request.shown.clone(),
            problem,
        };
        let message = self.complete(request).map_err(|error| broken(error.to_string()))?;
        if let Some(connection) = &mut self.connection
            && connection.endpoint == request.endpoint
            && connection.sender.ready().await.is_ok()
        {
            match connection.sender.try_send_request(message).await {
                Ok(response) => return Ok(HttpAnswer::of(request, response)),
                // The server closed the idle connection before it saw the request: the one case to try again.
                Err(mut error) => match error.take_message() {
                    Some(message) => return self.send_anew(request, message).await,
                    None => return Err(broken(describe_chain(&error.into_error()))),
                },
            }
        }
        self.send_anew(request, message).await
    }

    async fn send_anew(
        &mut self,
        request: &HttpRequest,
        message: Request<Full<Bytes>>,
    ) -> Result<HttpAnswer, FetchError> {
        self.connection = None;
        let broken = |error: hyper::Error| FetchError::Broken {
            url: request.shown.clone(),
            problem: describe_chain(&error),
        };
        let endpoint = &request.endpoint;
        let stream = self.dialer.connect(endpoint).await?;
        let (mut sender, driver) = if endpoint.scheme == Scheme::Https {
            let connector = tls::make_connector(&self.tls, self.is_home(endpoint))?;
            let stream = tls::shake_hands(&connector, endpoint, stream).await?;
            let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(broken)?;
            (sender, tokio::spawn(connection).abort_handle())
        } else {
            let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(broken)?;
            (sender, tokio::spawn(connection).abort_handle())
        };
        let sent = sender.send_request(message);
        let connection = Connection {
            endpoint: endpoint.clone(),
            sender,
            driver,
        };
        let response = sent.await.map_err(broken)?;
        self.connection = Some(connection);
        Ok(HttpAnswer::of(request, response))
    }

    /// The request with what every one has, and with credentials where they belong.
    fn complete(&self, request: &HttpRequest) -> Result<Request<Full<Bytes>>, http::Error> {
        let forwarder = self.dialer.forwarder(&request.endpoint);
        let mut message = Request::builder().method(request.method.clone());
        // A proxy has to be told where to.
        message = match forwarder {
            Some(_) => message.uri(format!("http://{}{}", write_host(&request.endpoint), request.target)),
            None => message.uri(&request.target),
        };
        if let Some(value) = forwarder.and_then(Proxy::write_authorization) {
            message = message.header(PROXY_AUTHORIZATION, value);
        }
        message = message
            .header(HOST, write_host(&request.endpoint))
            .header(USER_AGENT, self.agent);
        if self.is_home(&request.endpoint)
            && let Some(value) = write_authorization(&self.credentials)
        {
            message = message.header(AUTHORIZATION, value);
        }
        for (name, value) in &request.headers {
            message = message.header(name, value);
        }
        message.body(Full::new(request.body.clone()))
    }

    /// Whether that is what the credentials belong to.
    fn is_home(&self, endpoint: &Endpoint) -> bool {
        *endpoint == self.home
    }

    /// Refuses an answer that asks for credentials, or for others, and says which.
    pub(crate) fn refuse_unauthorized(&self, answer: &HttpAnswer) -> Result<(), FetchError> {
        let status = answer.status();
        if !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Ok(());
        }
        let code = status.as_u16();
        let problem = if !self.is_home(&answer.endpoint) && self.credentials != Credentials::Anonymous {
            format!(
                "HTTP {code} after a redirect to another host; credentials are only sent to the host of spec.url: use the final URL"
            )
        } else {
            match &self.credentials {
                Credentials::Anonymous => format!(
                    "HTTP {code} without credentials; name a Secret with username and password, or bearerToken, in spec.secretRef"
                ),
                Credentials::Basic { username, password } => {
                    let hint = describe_line_feed(&[("username", username), ("password", password.reveal())]);
                    format!("HTTP {code}: the server does not accept the Secret's username and password{hint}")
                }
                Credentials::Bearer(_) => format!("HTTP {code}: the server does not accept the Secret's bearerToken"),
                Credentials::SshKey { .. } => format!("HTTP {code}: an ssh key does not help with HTTP"),
            }
        };
        Err(FetchError::Unauthorized {
            url: answer.shown.clone(),
            problem,
        })
    }
}

/// Returns a hint if one of these entries of a Secret ends with a line feed, as `echo` and editors write it; otherwise an empty text.
fn describe_line_feed(entries: &[(&str, &str)]) -> String {
    let mut entries = entries.iter();
    match entries.find(|(_, value)| value.ends_with(['\n', '\r'])) {
        Some((key, _)) => format!("; {key} ends with a line feed, which is part of it: write the Secret without it"),
        None => String::new(),
    }
}

impl HttpAnswer {
    fn of(request: &HttpRequest, response: Response<Incoming>) -> Self {
        Self {
            response,
            endpoint: request.endpoint.clone(),
            shown: request.shown.clone(),
        }
    }

    /// The status.
    pub(crate) fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// Whether it only says where else to ask.
    pub(crate) fn is_redirect(&self) -> bool {
        self.status().is_redirection()
    }

    /// Who answered.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// All headers.
    pub(crate) fn all_headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// The values of a header that are text.
    pub(crate) fn headers(&self, name: &HeaderName) -> impl Iterator<Item = &str> {
        let values = self.response.headers().get_all(name);
        values.into_iter().filter_map(|value| value.to_str().ok())
    }

    /// How long the server asks to be left alone (RFC 9110, `Retry-After`), in seconds or until a time.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let value = self.headers(&RETRY_AFTER).next()?.trim();
        if let Ok(seconds) = value.parse() {
            return Some(Duration::from_secs(seconds));
        }
        let until = jiff::fmt::rfc2822::parse(value).ok()?.timestamp();
        Duration::try_from(until.duration_since(jiff::Timestamp::now())).ok()
    }

    /// What messages call the address that it came from.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// What it says that its body is; empty when it says nothing.
    pub(crate) fn content_type(&self) -> &str {
        let value = self.response.headers().get(CONTENT_TYPE);
        value.and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Refuses a body that is encoded: it could grow without bounds when it is decoded.
    pub(crate) fn refuse_encoding(&self) -> Result<(), FetchError> {
        if self.response.headers().contains_key(CONTENT_ENCODING) {
            return Err(FetchError::Protocol {
                url: self.shown.clone(),
                problem: "its answer is encoded, which nobody asked for".to_owned(),
            });
        }
        Ok(())
    }

    /// The body, to be read as it arrives.
    pub(crate) fn into_body(self) -> Body {
        let stream = self
            .response
            .into_body()
            .into_data_stream()
            .map_err(|error| std::io::Error::other(describe_chain(&error)));
        Box::pin(StreamReader::new(stream))
    }
}

impl Location {
    /// Reads where an answer points.
    fn read(from: &HttpRequest, answer: &HttpAnswer) -> Result<Self, FetchError> {
        let refuse = |to: &str, problem| FetchError::Redirect {
            from: from.shown.clone(),
            to: to.to_owned(),
            problem,
        };
        let location = answer
            .response
            .headers()
            .get(LOCATION)
            .and_then(|value| value.to_str().ok())
            .ok_or_else(|| refuse("nowhere", "it names no location"))?;
        let asked = from.target.split('?').next().unwrap_or_default();
        let base =
            Url::parse(&format!("{}{asked}", from.endpoint)).map_err(|_| refuse("nowhere", "it starts at no URL"))?;
        let mut url = base
            .join(location)
            .map_err(|_| refuse("an unreadable location", "it is no URL"))?;
        let (path, query) = (url.path().to_owned(), url.query().unwrap_or_default().to_owned());
        url.set_query(None);
        url.set_fragment(None);
        let _ = url.set_username("");
        let _ = url.set_password(None);
        Ok(Self { url, path, query })
    }
}

/// A host, and its port where it isn't the usual one, as requests name it.
pub(crate) fn write_host(endpoint: &Endpoint) -> String {
    let host = if endpoint.host.contains(':') {
        format!("[{}]", endpoint.host)
    } else {
        endpoint.host.clone()
    };
    if endpoint.port == endpoint.scheme.default_port() {
        host
    } else {
        format!("{host}:{}", endpoint.port)
    }
}

fn write_authorization(credentials: &Credentials) -> Option<HeaderValue> {
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

/// An error with its causes, in a line.
fn describe_chain(error: &dyn std::error::Error) -> String {
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
