//! A client that costs as little as possible, so that the server dominates the measurement: one HTTP/2 connection over TLS, prepared bodies, and answers that are read
//! and dropped. Both servers get the same client. It never retries: an answer without success is an error.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::HeaderValue;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The window of Go's clients: a stream never waits for it in these measurements.
const WINDOW: u32 = 4 << 20;

/// The address of a server, and the client's credentials.
#[derive(Clone)]
pub(crate) struct Target {
    host: String,
    port: u16,
    tls: Arc<rustls::ClientConfig>,
    roots: Arc<rustls::RootCertStore>,
    /// Sent with every request, if a token replaces the client certificate.
    authorization: Option<HeaderValue>,
}

impl Target {
    /// Reads a kubeconfig with a client certificate.
    pub(crate) async fn read(kubeconfig: &Path) -> anyhow::Result<Self> {
        let config = kube::config::Kubeconfig::read_from(kubeconfig)?;
        let config = kube::Config::from_custom_kubeconfig(config, &kube::config::KubeConfigOptions::default()).await?;
        let mut roots = rustls::RootCertStore::empty();
        for certificate in config.root_cert.iter().flatten() {
            roots.add(CertificateDer::from(certificate.clone()))?;
        }
        // The serialized identity contains its key.
        let identity = serde_json::to_value(&config.auth_info)?;
        let field = |name: &str| -> anyhow::Result<Vec<u8>> {
            use base64::Engine as _;
            let text = identity.get(name).and_then(serde_json::Value::as_str);
            let text = text.with_context(|| format!("{}: no {name} in it", kubeconfig.display()))?;
            Ok(base64::engine::general_purpose::STANDARD.decode(text)?)
        };
        let certificate = field("client-certificate-data")?;
        let key = field("client-key-data")?;
        let chain = CertificateDer::pem_slice_iter(&certificate).collect::<Result<Vec<_>, _>>()?;
        let roots = Arc::new(roots);
        let mut tls = rustls::ClientConfig::builder()
            .with_root_certificates(roots.clone())
            .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(&key)?)?;
        tls.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self {
            host: config.cluster_url.host().unwrap_or_default().to_owned(),
            port: config.cluster_url.port_u16().unwrap_or(443),
            tls: Arc::new(tls),
            roots,
            authorization: None,
        })
    }

    /// Returns the same server with this token in place of a certificate.
    pub(crate) fn with_token(&self, token: &str) -> anyhow::Result<Self> {
        let mut tls = rustls::ClientConfig::builder()
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let mut authorization = HeaderValue::try_from(format!("Bearer {token}"))?;
        authorization.set_sensitive(true);
        Ok(Self {
            tls: Arc::new(tls),
            authorization: Some(authorization),
            ..self.clone()
        })
    }

    /// Opens a connection.
    pub(crate) async fn connect(&self) -> anyhow::Result<Connection> {
        self.connect_with_windows(WINDOW, WINDOW * 16).await
    }

    /// Opens a connection with these windows for each stream and for all streams together.
    pub(crate) async fn connect_with_windows(&self, stream: u32, connection: u32) -> anyhow::Result<Connection> {
        let (stream_window, connection_window) = (stream, connection);
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(self.host.clone())?;
        let stream = TlsConnector::from(self.tls.clone()).connect(name, stream).await?;
        let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(stream_window)
            .initial_connection_window_size(connection_window)
            .handshake(TokioIo::new(stream))
            .await?;
        tokio::spawn(connection);
        Ok(Connection {
            sender,
            authorization: self.authorization.clone(),
        })
    }

    /// Opens several connections.
    pub(crate) async fn connections(&self, count: usize) -> anyhow::Result<Vec<Connection>> {
        futures::future::try_join_all((0..count).map(|_| self.connect())).await
    }
}

/// One connection; clones share it.
#[derive(Clone)]
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    authorization: Option<HeaderValue>,
}

impl Connection {
    /// Sends a request and reads its answer to the end.
    pub(crate) async fn call(&self, method: &str, path: &str, form: &str, body: Bytes) -> anyhow::Result<Bytes> {
        let answer = self.send(method, path, form, body).await?;
        Ok(answer.collect().await?.to_bytes())
    }

    /// Sends a request and returns the answer's body before it has arrived.
    pub(crate) async fn send(&self, method: &str, path: &str, form: &str, body: Bytes) -> anyhow::Result<Incoming> {
        let mut request = http::Request::builder()
            .method(method)
            .uri(format!("https://localhost{path}"))
            .header(http::header::ACCEPT, "application/json")
            .header(http::header::USER_AGENT, "bench/1");
        if !form.is_empty() {
            request = request.header(http::header::CONTENT_TYPE, form);
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(http::header::AUTHORIZATION, authorization);
        }
        let mut sender = self.sender.clone();
        sender.ready().await?;
        let answer = sender.send_request(request.body(Full::new(body))?).await?;
        let status = answer.status();
        if !status.is_success() {
            let text = answer.into_body().collect().await?.to_bytes();
            bail!("{method} {path}: {status}: {}", String::from_utf8_lossy(&text));
        }
        Ok(answer.into_body())
    }

    /// Sends a GET.
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Bytes> {
        self.call("GET", path, "", Bytes::new())
            .await
            .with_context(|| path.to_owned())
    }
}
