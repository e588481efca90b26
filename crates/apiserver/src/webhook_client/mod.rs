//! The call of a webhook: its address and trust from a client configuration, and one HTTPS connection with one POST.
//! Time and size are bounded. A redirect is not followed. The contents of request and answer are the caller's.

mod service;
mod trust;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use serde::Deserialize;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::http::ApiError;
use crate::view::View;
use trust::BundleVerifier;

/// The client configuration of a webhook in an API object: its address and its CA bundle.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ClientConfig {
    url: Option<String>,
    service: Option<Service>,
    ca_bundle: String,
}

impl ClientConfig {
    /// Drops a bundle with nothing but a line end, which some installers leave for a bundle that comes later. Used
    /// where Kubernetes does the same.
    pub(crate) fn without_blank_bundle(mut self) -> Self {
        if STANDARD
            .decode(&self.ca_bundle)
            .is_ok_and(|bundle| bundle.iter().all(u8::is_ascii_whitespace))
        {
            self.ca_bundle.clear();
        }
        self
    }
}

/// The reference to a Service in a client configuration.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Service {
    namespace: String,
    name: String,
    path: String,
    port: Option<u16>,
}

/// The address and the TLS configuration of a webhook, prepared for calls.
#[derive(Debug)]
pub(crate) struct Endpoint {
    place: Destination,
    /// The URL in messages: `https://host:port/path`.
    shown: String,
    path: String,
    tls: Result<(Arc<rustls::ClientConfig>, ServerName<'static>), String>,
}

/// The server to which a call connects.
#[derive(Debug)]
enum Destination {
    /// A host and port.
    Address(String),
    /// A Service in this server. Nothing routes to its cluster IP, so the client connects to its endpoints.
    Service { namespace: String, name: String, port: u16 },
    /// The configuration has no usable address. Each call fails with this error.
    Nowhere(String),
}

impl Endpoint {
    /// Returns the endpoint of a configuration. Each call reports the configuration's faults.
    pub(crate) fn from_config(config: &ClientConfig) -> Self {
        let roots = STANDARD.decode(&config.ca_bundle).unwrap_or_default();
        match (&config.service, &config.url) {
            (Some(service), _) => Self::of_service(service, &roots),
            (None, url) => Self::of_url(url.as_deref().unwrap_or_default(), &roots),
        }
    }

    fn of_url(text: &str, roots: &[u8]) -> Self {
        let parsed = url::Url::parse(text);
        let (place, host, path) = match &parsed {
            Ok(url) => {
                let host = url.host_str().unwrap_or_default().to_owned();
                let address = format!("{host}:{}", url.port_or_known_default().unwrap_or(443));
                (Destination::Address(address), host, clean_path(url.path()))
            }
            Err(error) => (
                Destination::Nowhere(format!("Unparsable URL: {error}")),
                String::new(),
                String::new(),
            ),
        };
        let shown = match &parsed {
            Ok(url) => format!("{}://{}{path}", url.scheme(), url.authority()),
            Err(_) => text.to_owned(),
        };
        Self {
            place,
            shown,
            path,
            tls: make_tls_config(&host, roots),
        }
    }

    fn of_service(service: &Service, roots: &[u8]) -> Self {
        let (namespace, name, port) = (&service.namespace, &service.name, service.port.unwrap_or(443));
        let host = format!("{name}.{namespace}.svc");
        let path = clean_path(&service.path);
        Self {
            shown: format!("https://{host}:{port}{path}"),
            place: Destination::Service {
                namespace: namespace.clone(),
                name: name.clone(),
                port,
            },
            path,
            tls: make_tls_config(&host, roots),
        }
    }
}

/// Returns a path in its shortest form, as Kubernetes requests it. Test suites and installers join addresses and
/// paths with an extra slash, and many servers redirect such a path.
fn clean_path(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

fn system_roots() -> RootCertStore {
    static ROOTS: LazyLock<RootCertStore> = LazyLock::new(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots
    });
    ROOTS.clone()
}

fn make_tls_config(host: &str, bundle: &[u8]) -> Result<(Arc<rustls::ClientConfig>, ServerName<'static>), String> {
    let named: Vec<_> = CertificateDer::pem_slice_iter(bundle).filter_map(Result::ok).collect();
    let roots = if bundle.is_empty() {
        system_roots()
    } else {
        let mut roots = RootCertStore::empty();
        if roots.add_parsable_certificates(named.iter().cloned()).0 == 0 {
            return Err("unable to load root certificates: unable to parse bytes as PEM block".to_owned());
        }
        roots
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(BundleVerifier::new(roots, named)?))
        .with_no_client_auth();
    let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(name).map_err(|_| format!("{host:?} is no name of a server"))?;
    Ok((Arc::new(config), name))
}

/// Limits for the time of a call and the size of its answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) seconds: u64,
    /// The message for a timeout: kube-apiserver has two ways to measure time.
    pub(crate) out_of_time: &'static str,
    pub(crate) bytes: usize,
}

/// Posts a review. Returns the body of the answer, or the error in kube-apiserver's words. `view` serves only to find
/// the webhook, and is dropped before the call.
pub(crate) async fn post_review(
    view: View,
    endpoint: &Endpoint,
    bounds: Bounds,
    review: &Value,
) -> Result<Bytes, String> {
    let query = format!("timeout={}s", bounds.seconds);
    let failed = |why: &str| format!("Post {:?}: {why}", format!("{}?{query}", endpoint.shown));
    let call = call(view, endpoint, &query, bounds.bytes, review);
    match tokio::time::timeout(Duration::from_secs(bounds.seconds), call).await {
        Ok(Ok(answer)) if answer.status.is_success() && answer.body.is_empty() => Err(format!(
            "0-length response with status code: {} and content type: {}",
            answer.status.as_u16(),
            answer.content_type
        )),
        Ok(Ok(answer)) if answer.status.is_success() => Ok(answer.body),
        Ok(Ok(answer)) => Err(describe_refusal(&answer)),
        Ok(Err(why)) => Err(failed(&why)),
        Err(_) => Err(failed(bounds.out_of_time)),
    }
}

/// The status and the body of a webhook's HTTP answer.
struct Answer {
    status: StatusCode,
    content_type: String,
    body: Bytes,
}

/// Opens a connection, posts a review, and reads at most `most` bytes of the answer.
async fn call(view: View, endpoint: &Endpoint, query: &str, most: usize, review: &Value) -> Result<Answer, String> {
    let address = match &endpoint.place {
        Destination::Address(address) => address.clone(),
        Destination::Service { namespace, name, port } => service::resolve_service(&view, namespace, name, *port)?,
        Destination::Nowhere(why) => return Err(why.clone()),
    };
    drop(view);
    let (config, name) = endpoint.tls.as_ref().map_err(Clone::clone)?;
    let dial = |error: std::io::Error| {
        let why = if error.kind() == std::io::ErrorKind::ConnectionRefused {
            "connect: connection refused".to_owned()
        } else {
            error.to_string()
        };
        format!("dial tcp {address}: {why}")
    };
    let stream = TcpStream::connect(&address).await.map_err(dial)?;
    let _ = stream.set_nodelay(true);
    let stream = TlsConnector::from(config.clone())
        .connect(name.clone(), stream)
        .await
        .map_err(|error| tls_failure(&error))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    let body = serde_json::to_vec(review).map_err(|error| error.to_string())?;
    let host = endpoint
        .shown
        .trim_start_matches("https://")
        .split('/')
        .next()
        .unwrap_or_default();
    let request = Request::post(format!("{}?{query}", endpoint.path))
        .header(header::HOST, host)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json, */*")
        .header(header::USER_AGENT, "kube-apiserver-admission")
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| error.to_string())?;
    let exchange = async {
        let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = answer.status();
        let content_type = answer.headers().get(header::CONTENT_TYPE);
        let content_type = content_type
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_owned();
        let body = Limited::new(answer.into_body(), most)
            .collect()
            .await
            .map_err(|error| error.to_string())?;
        Ok(Answer {
            status,
            content_type,
            body: body.to_bytes(),
        })
    };
    // This function drives the connection, so that the connection ends with the call and its time limit.
    let mut exchange = std::pin::pin!(exchange);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        done = &mut exchange => done,
        ended = &mut connection => match ended {
            Ok(()) => exchange.await,
            Err(error) => Err(error.to_string()),
        },
    }
}

fn tls_failure(error: &std::io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer)) => {
            "tls: failed to verify certificate: x509: certificate signed by unknown authority".to_owned()
        }
        Some(other) => format!("tls: failed to verify certificate: {other}"),
        None => error.to_string(),
    }
}

/// Returns the error for a status other than success.
fn describe_refusal(answer: &Answer) -> String {
    let body = &answer.body;
    if let Ok(sent) = serde_json::from_slice::<Value>(body)
        && sent.get("kind").and_then(Value::as_str) == Some("Status")
        && let Some(message) = sent.get("message").and_then(Value::as_str)
    {
        return message.to_owned();
    }
    match answer.status.as_u16() {
        400 => ApiError::bad_request("the server rejected our request for an unknown reason").message,
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 => "forbidden".to_owned(),
        404 => ApiError::no_such_resource().message,
        405 => ApiError::method_not_allowed().message,
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .to_owned()
        }
        code if code >= 500 => {
            let text = String::from_utf8_lossy(body.get(..2048).unwrap_or(body))
                .trim()
                .to_owned();
            let text = if text.is_empty() || !answer.content_type.starts_with("text/") {
                "unknown".to_owned()
            } else {
                text
            };
            format!("an error on the server ({text:?}) has prevented the request from succeeding")
        }
        code => format!("the server responded with the status code {code} but did not return more information"),
    }
}

#[cfg(test)]
mod tests {
    use super::clean_path;

    #[test]
    fn paths_are_asked_for_in_their_shortest_form() {
        for (path, expect) in [
            ("", "/"),
            ("/", "/"),
            ("//validate", "/validate"),
            ("/a//b/", "/a/b"),
            ("/a/./../b", "/b"),
            ("/../a", "/a"),
        ] {
            assert_eq!(clean_path(path), expect, "{path}");
        }
    }
}
