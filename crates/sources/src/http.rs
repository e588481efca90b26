//! A client for HTTP/1.1 over connections of the dialer, for any protocol above it.
//!
//! Credentials and the client certificate stay with one scheme, host and port, so a server can't redirect them elsewhere. No redirect leads from https to http, and the
//! number of redirects in a row is bounded. The client follows redirects only if its caller asks for it, and refuses encoded bodies. The dialer counts the bytes of every
//! connection. Callers bound the time: dropping a client, or an answer, closes its connection. A proxy gets its own credentials, and others only within requests over
//! plain HTTP. The client keeps one connection, for one request at a time. This needs no pool of hyper-util, which would also hide why the dialer refused.

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

/// A body that is still arriving.
pub(crate) type Body = Pin<Box<dyn AsyncRead + Send>>;

/// An HTTP/1.1 client with at most one open connection, and with credentials for one endpoint.
pub(crate) struct HttpClient {
    dialer: Dialer,
    /// The endpoint that the credentials are for.
    home: Endpoint,
    credentials: Credentials,
    tls: TlsOptions,
    /// The client name in requests.
    agent: &'static str,
    connection: Option<Connection>,
}

/// The client's open connection to an endpoint. Dropping it closes the connection.
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

/// An HTTP request, with the server that it goes to.
pub(crate) struct HttpRequest {
    pub(crate) method: Method,
    /// The server; `http` or `https`.
    pub(crate) endpoint: Endpoint,
    /// The path, and the query if there is one, as written.
    pub(crate) target: String,
    /// The headers besides the common ones.
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// The address in messages; without credentials.
    pub(crate) shown: String,
}

/// The head of an answer; its body has not arrived yet.
pub(crate) struct HttpAnswer {
    response: Response<Incoming>,
    /// The server that answered.
    endpoint: Endpoint,
    shown: String,
}

/// The target of a redirect.
pub(crate) struct Location {
    /// The URL without user, password and fragment: those of a redirect are never sent.
    pub(crate) url: Url,
    /// The path and the query of the redirected request.
    pub(crate) path: String,
    pub(crate) query: String,
}

impl HttpClient {
    /// Creates a client whose credentials and client certificate are for one endpoint.
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

    /// Sets the credentials for the endpoint.
    pub(crate) fn set_credentials(&mut self, credentials: Credentials) {
        self.credentials = credentials;
    }

    /// Checks whether the client sends no credentials.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.credentials == Credentials::Anonymous
    }

    /// Sends a request and follows redirects. `redirect` turns the target of a redirect into the next request, or refuses.
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

    /// Sends a request, on the open connection if it goes to the same endpoint.
    pub(crate) async fn send(&mut self, request: &HttpRequest) -> Result<HttpAnswer, FetchError> {
        let answer = self.send_once(request).await?;
        match self.dialer.forwarding_proxy(&request.endpoint) {
            // The proxy itself sent this status.
            Some(proxy) if answer.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
                Err(proxy.explain_status(407))
            }
            _ => Ok(answer),
        }
    }

    /// Sends a request on the open connection if possible, else on a new one. The request is repeated only if the server can't have seen it.
    async fn send_once(&mut self, request: &HttpRequest) -> Result<HttpAnswer, FetchError> {
        let broken = |problem: String| FetchError::Broken {
            url: request.shown.clone(),
            problem,
        };
        let message = self
            .complete_request(request)
            .map_err(|error| broken(error.to_string()))?;
        if let Some(connection) = &mut self.connection
            && connection.endpoint == request.endpoint
            && connection.sender.ready().await.is_ok()
        {
            match connection.sender.try_send_request(message).await {
                Ok(response) => return Ok(HttpAnswer::new(request, response)),
                // The server closed the idle connection before it saw the request: the only case for a retry.
                Err(mut error) => match error.take_message() {
                    Some(message) => return self.send_on_new_connection(request, message).await,
                    None => return Err(broken(describe_chain(&error.into_error()))),
                },
            }
        }
        self.send_on_new_connection(request, message).await
    }

    async fn send_on_new_connection(
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
        Ok(HttpAnswer::new(request, response))
    }

    /// Completes a request with the common headers, and with credentials if the endpoint may have them.
    fn complete_request(&self, request: &HttpRequest) -> Result<Request<Full<Bytes>>, http::Error> {
        let forwarder = self.dialer.forwarding_proxy(&request.endpoint);
        let mut message = Request::builder().method(request.method.clone());
        // A forwarding proxy needs the whole URL.
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

    /// Checks whether the credentials are for this endpoint.
    fn is_home(&self, endpoint: &Endpoint) -> bool {
        *endpoint == self.home
    }

    /// Returns an error for an answer that requires credentials, or rejects the sent ones.
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
    fn new(request: &HttpRequest, response: Response<Incoming>) -> Self {
        Self {
            response,
            endpoint: request.endpoint.clone(),
            shown: request.shown.clone(),
        }
    }

    /// Returns the status.
    pub(crate) fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// Checks whether the answer is a redirect.
    pub(crate) fn is_redirect(&self) -> bool {
        self.status().is_redirection()
    }

    /// Returns the server that answered.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Returns all headers.
    pub(crate) fn all_headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// Returns the values of a header that are text.
    pub(crate) fn headers(&self, name: &HeaderName) -> impl Iterator<Item = &str> {
        let values = self.response.headers().get_all(name);
        values.into_iter().filter_map(|value| value.to_str().ok())
    }

    /// Returns the wait that the server requests (RFC 9110, `Retry-After`), in seconds or until a time.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let value = self.headers(&RETRY_AFTER).next()?.trim();
        if let Ok(seconds) = value.parse() {
            return Some(Duration::from_secs(seconds));
        }
        let until = jiff::fmt::rfc2822::parse(value).ok()?.timestamp();
        Duration::try_from(until.duration_since(jiff::Timestamp::now())).ok()
    }

    /// Returns the requested address, for messages.
    pub(crate) fn requested_address(&self) -> &str {
        &self.shown
    }

    /// Returns the media type of the body; empty if the answer names none.
    pub(crate) fn content_type(&self) -> &str {
        let value = self.response.headers().get(CONTENT_TYPE);
        value.and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Refuses an encoded body, because decoding could make it arbitrarily long.
    pub(crate) fn refuse_encoding(&self) -> Result<(), FetchError> {
        if self.response.headers().contains_key(CONTENT_ENCODING) {
            return Err(FetchError::Protocol {
                url: self.shown.clone(),
                problem: "its answer is encoded, which was not requested".to_owned(),
            });
        }
        Ok(())
    }

    /// Returns the body, to be read as it arrives.
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
    /// Reads the target of a redirect.
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

/// Writes a host, with its port unless it is the default one, as in requests.
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

/// Returns the value of the header `Authorization`; `None` for credentials that HTTP does not send.
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

/// Writes an error with its causes in a line.
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
