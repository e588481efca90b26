//! A webhook for tests: a server over TLS that answers each path by a table, and records its requests. It also
//! answers requests without a body, so it can stand for any untrusted server.
//!
//! An answer has a `status`, `headers`, and a `body`, in which `@UID` stands for the review's UID and `@ASKED` for
//! the request; or it has rules under [`convert`](conversion). An answer with `held` waits for [`Webhook::release`],
//! and one with `hang` forever. Recordings beside a real server used the same tables.

mod conversion;

use std::convert::Infallible;
use std::sync::Arc;

use anyhow::Context as _;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// The Service that may be in front of a webhook.
const SERVICE: &str = "webhook.default.svc";

/// A webhook server on 127.0.0.1, which answers each path by a table. Dropping it ends the server.
#[derive(Debug)]
pub struct Webhook {
    /// The port on 127.0.0.1.
    pub port: u16,
    /// The CA of its certificate, in the form of a client configuration.
    pub ca: String,
    shared: Shared,
    task: JoinHandle<()>,
}

/// The answers and the recorded requests of a webhook, which all its connections share.
#[derive(Debug, Clone)]
struct Shared {
    answers: Arc<Mutex<Value>>,
    seen: Arc<Mutex<Vec<Value>>>,
    conversions: Arc<Mutex<Vec<Value>>>,
    gate: Arc<Semaphore>,
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Webhook {
    /// Starts a webhook with these answers by path; any other path answers 404.
    ///
    /// # Errors
    /// If the listener can't be opened.
    pub async fn start(answers: Value) -> anyhow::Result<Self> {
        let (tls, authority) = create_certificate()?;
        let ca = STANDARD.encode(authority);
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let shared = Shared {
            answers: Arc::new(Mutex::new(answers)),
            seen: Arc::default(),
            conversions: Arc::default(),
            gate: Arc::new(Semaphore::new(0)),
        };
        let task = tokio::spawn(serve(listener, TlsAcceptor::from(Arc::new(tls)), shared.clone()));
        Ok(Self { port, ca, shared, task })
    }

    /// Returns the client configuration for a path of the webhook.
    #[must_use]
    pub fn client_config(&self, path: &str) -> Value {
        json!({"url": format!("https://127.0.0.1:{}{path}", self.port), "caBundle": self.ca})
    }

    /// Sets the answer for a path.
    pub fn answer(&self, path: &str, answer: Value) {
        if let Some(answers) = self.shared.answers.lock().as_object_mut() {
            answers.insert(path.to_owned(), answer);
        }
    }

    /// Sends all answers that are `held` and wait.
    pub fn release(&self) {
        self.shared.gate.add_permits(Semaphore::MAX_PERMITS / 2);
    }

    /// Returns the reviews for the user `alice` since the last call, oldest first, each with its path.
    #[must_use]
    pub fn take_requests(&self) -> Value {
        Value::from(std::mem::take(&mut *self.shared.seen.lock()))
    }

    /// Returns all ConversionReviews so far, oldest first.
    #[must_use]
    pub fn conversions(&self) -> Vec<Value> {
        self.shared.conversions.lock().clone()
    }
}

/// Creates a certificate for 127.0.0.1 and the Service `webhook` in `default`. Also returns its CA, in PEM.
pub(crate) fn create_certificate() -> anyhow::Result<(rustls::ServerConfig, String)> {
    let ca_key = rcgen::KeyPair::generate()?;
    let mut ca = rcgen::CertificateParams::new(Vec::<String>::new())?;
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca_certificate = ca.self_signed(&ca_key)?;
    let issuer = rcgen::Issuer::new(ca, ca_key);
    let key = rcgen::KeyPair::generate()?;
    let names = ["127.0.0.1", SERVICE].map(str::to_owned);
    let certificate = rcgen::CertificateParams::new(names)?.signed_by(&key, &issuer)?;
    let key = rustls_pki_types::PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)?;
    Ok((config, ca_certificate.pem()))
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, shared: Shared) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, shared) = (acceptor.clone(), shared.clone());
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let service = hyper::service::service_fn(move |request| {
                let shared = shared.clone();
                async move {
                    // An answer that can't be built carries the error, which fails the test.
                    let answered = answer_request(request, &shared).await;
                    Ok::<_, Infallible>(answered.unwrap_or_else(|error| make_error_response(&error)))
                }
            });
            // A client may disconnect, which the test notices itself.
            let _gone = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

fn make_error_response(error: &anyhow::Error) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(format!(
        "the test's webhook is broken: {error:#}"
    ))));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
        .headers_mut()
        .insert("content-type", http::HeaderValue::from_static("text/plain"));
    response
}

async fn answer_request(request: Request<Incoming>, shared: &Shared) -> anyhow::Result<Response<Full<Bytes>>> {
    let uri = request.uri().clone();
    let body = request.into_body().collect().await?.to_bytes();
    let review: Value = if body.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(&body)?
    };
    let text = |pointer: &str| review.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    if text("/request/userInfo/username") == "alice" {
        let seen = json!({"path": uri.to_string(), "review": review});
        shared.seen.lock().push(seen);
    }
    let answer = shared.answers.lock().get(uri.path()).cloned();
    let answer = answer.unwrap_or_else(|| json!({"status": 404}));
    if text("/kind") == "ConversionReview" {
        shared.conversions.lock().push(review.clone());
    }
    if answer.get("held").is_some() {
        let _let_go = shared.gate.acquire().await?;
    }
    if answer.get("hang").is_some() {
        std::future::pending::<()>().await;
    }
    let body = match (answer.get("convert"), answer.get("body")) {
        (Some(rules), _) => conversion::convert_review(&review, rules).to_string(),
        (None, None | Some(Value::Null)) => String::new(),
        (None, Some(Value::String(text))) => text.clone(),
        (None, Some(other)) => other.to_string(),
    };
    let asked = Value::from(conversion::describe_request(&uri.to_string(), &review)).to_string();
    let body = body
        .replace("@ASKED", asked.trim_matches('"'))
        .replace("@UID", text("/request/uid"));
    let status = answer.get("status").and_then(Value::as_u64).unwrap_or(200);
    let mut response = Response::builder()
        .status(u16::try_from(status)?)
        .header("content-type", "application/json");
    for (name, value) in answer.get("headers").and_then(Value::as_object).into_iter().flatten() {
        response = response.header(name, value.as_str().context("a header is a text")?);
    }
    Ok(response.body(Full::new(Bytes::from(body)))?)
}
