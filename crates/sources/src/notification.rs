//! Sends one request to a receiver of notifications, over the dialer. The policy has to allow the address, the certificate is verified, and the answer is bounded.
//!
//! The request may hold secrets, and the address may be one. So errors contain nothing of an address, a header or an answer, and no redirect is followed, which could
//! send secrets elsewhere. Callers interpret the answer.

use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use tenure_remote_requests::address::Address;
use tenure_remote_requests::notification::{Answer, Method, NotificationRequest, ReceiverConnection};
use tokio::io::AsyncReadExt as _;

use crate::connector::{ConnectFailure, Connector};
use crate::dialer::Dialer;
use crate::error::FetchError;
use crate::http::{HttpClient, HttpRequest};
use crate::limits::Limits;
use crate::policy::{Endpoint, Scheme};
use crate::proxy::Proxy;
use crate::secret::{Credentials, SecretBytes, read_tls};

/// The client name in requests.
const AGENT: &str = concat!("tenure/", env!("CARGO_PKG_VERSION"));
/// The most bytes that may arrive for one request, TLS included.
const RECEIVED: u64 = 1 << 20;

/// The time limit for resolving a name before it is checked.
const CHECK: Duration = Duration::from_secs(5);

/// Why a request to a receiver of notifications has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotificationFailure {
    /// The problem, without any secret.
    pub message: String,
    /// Whether a retry after a while may help.
    pub is_transient: bool,
}

/// Why the policy will deny every request to a receiver of notifications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotificationDenial {
    /// The problem, with the denied address.
    pub message: String,
    /// The problem without any address, for an address from a Secret.
    pub discreet: String,
}

/// Sends one request to a receiver and returns the answer. The caller bounds the time.
///
/// # Errors
/// [`NotificationFailure`] when no answer arrives.
pub async fn send_notification(
    connection: &ReceiverConnection,
    request: &NotificationRequest,
    reach: &Connector,
) -> Result<Answer, NotificationFailure> {
    exchange(connection, request, reach)
        .await
        .map_err(|error| describe_error(&error))
}

/// Finds the reason for which requests to a receiver will be denied: the policy allows none of its addresses. Opens no connection. Returns `None` also if the
/// address can't be resolved in time, since it may be resolved later.
pub async fn find_denial(
    connection: &ReceiverConnection,
    address: &Address,
    reach: &Connector,
) -> Option<NotificationDenial> {
    let endpoint = find_endpoint(address);
    let proxy = connection.proxy.as_ref().map(Proxy::read).transpose().ok()?;
    let check = async {
        match &proxy {
            Some(proxy) => reach.check(proxy.endpoint(), Some(&endpoint)).await,
            None => reach.check(&endpoint, None).await,
        }
    };
    let error = tokio::time::timeout(CHECK, check).await.ok()?.err()?;
    let is_denial = match &error {
        FetchError::AddressDenied(_) => true,
        FetchError::NotOpened(refusal) => refusal.failure == ConnectFailure::Denied,
        _ => false,
    };
    is_denial.then(|| NotificationDenial {
        message: error.to_string(),
        discreet: describe_error(&error).message,
    })
}

async fn exchange(
    connection: &ReceiverConnection,
    request: &NotificationRequest,
    reach: &Connector,
) -> Result<Answer, FetchError> {
    let tls = read_tls(connection.tls.as_ref())?;
    let proxy = connection.proxy.as_ref().map(Proxy::read).transpose()?;
    let limits = Limits {
        received_bytes: RECEIVED,
        ..Limits::default()
    };
    let dialer = Dialer::new(reach.clone(), &limits).with_proxy(proxy.as_ref(), tls.ca.as_deref());
    let endpoint = find_endpoint(&request.address);
    let credentials = match &request.user {
        Some((username, password)) => Credentials::Basic {
            username: username.clone(),
            password: SecretBytes::new(password.clone()),
        },
        None => Credentials::Anonymous,
    };
    let mut client = HttpClient::new(dialer, &endpoint, &credentials, &tls, AGENT);
    let message = HttpRequest {
        method: match request.method {
            Method::Get => http::Method::GET,
            Method::Post => http::Method::POST,
        },
        endpoint,
        target: request.address.target(),
        headers: make_headers(request)?,
        body: Bytes::from(request.body.clone()),
        shown: "the receiver".to_owned(),
    };
    let answer = client.send(&message).await?;
    let status = answer.status().as_u16();
    let retry_after = answer.retry_after();
    let mut body = Vec::new();
    if request.answer_bytes > 0 {
        answer.refuse_encoding()?;
        let most = request.answer_bytes as u64;
        let read = answer.into_body().take(most + 1).read_to_end(&mut body).await;
        read.map_err(|_| api_error("it broke in the middle of its answer"))?;
        if body.len() > request.answer_bytes {
            return Err(api_error("its answer is too long"));
        }
    }
    Ok(Answer {
        status,
        retry_after,
        body,
    })
}

fn find_endpoint(address: &Address) -> Endpoint {
    let scheme = if address.is_https { Scheme::Https } else { Scheme::Http };
    Endpoint {
        scheme,
        host: address.host.clone(),
        port: address.port.unwrap_or(scheme.default_port()),
    }
}

fn make_headers(request: &NotificationRequest) -> Result<HeaderMap, FetchError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &request.headers {
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| api_error("the Secret has a header with an invalid name"))?;
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| api_error("a header, or the token, has characters that no header can have"))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

fn api_error(problem: &'static str) -> FetchError {
    FetchError::HttpApi {
        url: String::new(),
        problem: problem.to_owned(),
    }
}

/// Describes an error without its address; callers that may show the address add it.
fn describe_error(error: &FetchError) -> NotificationFailure {
    let (message, is_transient) = match error {
        FetchError::AddressDenied(denied) => (
            format!(
                "connection denied: it is {}, which may not be reached; an administrator allows it by starting the controllers with --allow-source SCHEME://HOST:PORT of this server",
                denied.class
            ),
            false,
        ),
        FetchError::NotOpened(refusal) => match refusal.failure {
            ConnectFailure::Denied => (
                "connection denied: it is an address that may not be reached; an administrator allows it by starting the controllers with --allow-source SCHEME://HOST:PORT of this server"
                    .to_owned(),
                false,
            ),
            ConnectFailure::Unreachable => ("the connection failed".to_owned(), true),
        },
        FetchError::Resolve { .. } => ("its host name has no address".to_owned(), true),
        FetchError::Connect { source, .. } => (format!("the connection failed: {}", source.kind()), true),
        FetchError::Tls { .. } => (
            "TLS failed: its certificate is not trusted, or it wants a client certificate; set ca.crt, tls.crt and tls.key in the Secret of spec.certSecretRef"
                .to_owned(),
            true,
        ),
        FetchError::Broken { .. } => ("the connection broke before there was an answer".to_owned(), true),
        FetchError::TooLarge { .. } => ("its answer is too long".to_owned(), false),
        FetchError::HttpApi { problem, .. } => (problem.clone(), false),
        // The words of these errors contain no values.
        FetchError::InvalidSecret { problem } => (format!("the certificates can't be used: {problem}"), false),
        FetchError::InvalidProxy { problem } => (format!("the proxy can't be used: {problem}"), false),
        FetchError::Unauthorized { .. } | FetchError::HttpStatus { .. } => {
            ("the proxy refuses to connect to it".to_owned(), true)
        }
        _ => ("it gives no answer that can be used".to_owned(), false),
    };
    NotificationFailure { message, is_transient }
}
