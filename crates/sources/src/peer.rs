//! Connections to the API server of another cluster, for HTTP clients.
//!
//! The dialer opens each connection. The server is verified against the given authorities, or the system's if none are given. Connections are counted, and limited for a
//! lane and for all lanes. There is no way to skip verification, and each address is tried once.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::budget::{ByteBudget, HeldBytes};
use crate::connector::Connector;
use crate::dialer::{Dialer, Stream};
use crate::limits::Limits;
use crate::policy::{Endpoint, Scheme};
use crate::secret::SecretBytes;
use crate::tls::system_roots;

/// The longest handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The longest time that an idle connection stays open, and the most idle connections.
const IDLE: (Duration, usize) = (Duration::from_secs(20), 4);

/// An HTTP client with connections to one API server only.
pub type PeerClient<B> = hyper_util::client::legacy::Client<Peer, B>;

/// The verification of an API server, and the client's certificate.
#[derive(Clone, Debug, Default)]
pub struct PeerTls {
    /// The trusted authorities, in PEM; the system's if absent.
    pub authority: Option<Vec<u8>>,
    /// A certificate, in PEM, and its key.
    pub client: Option<(Vec<u8>, SecretBytes)>,
    /// The name in the server's certificate, if it isn't the host.
    pub server_name: Option<String>,
}

/// Opens connections to one API server. Cheap to clone.
#[derive(Clone)]
pub struct Peer(Arc<Shared>);

/// The settings of a [`Peer`] that all its clones share.
struct Shared {
    reach: Connector,
    endpoint: Endpoint,
    connector: TlsConnector,
    name: ServerName<'static>,
    /// Each connection holds one unit.
    connections: ByteBudget,
    lane: String,
}

/// Why a connection failed. Of the server's words, it contains only those of TLS.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PeerError(String);

impl Peer {
    /// Creates a peer without a connection. Each connection takes one unit of `connections` for the lane.
    ///
    /// # Errors
    /// When the certificates or the key can't be read, by the names of a kubeconfig's fields.
    pub fn new(
        reach: impl Into<Connector>,
        (host, port): (&str, u16),
        tls: &PeerTls,
        (connections, lane): (ByteBudget, &str),
    ) -> Result<Self, PeerError> {
        let name = tls.server_name.as_deref().unwrap_or(host);
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| PeerError("the host of cluster.server can't stand in a certificate".to_owned()))?;
        Ok(Self(Arc::new(Shared {
            reach: reach.into(),
            endpoint: Endpoint {
                scheme: Scheme::Https,
                host: host.to_owned(),
                port,
            },
            connector: make_connector(tls)?,
            name,
            connections,
            lane: lane.to_owned(),
        })))
    }

    /// Creates a client that opens its connections with this peer.
    pub fn client<B>(&self) -> PeerClient<B>
    where
        B: http_body::Body + Send,
        B::Data: Send,
    {
        hyper_util::client::legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE.0)
            .pool_max_idle_per_host(IDLE.1)
            .build(self.clone())
    }

    /// Opens a connection and verifies the server's certificate.
    async fn connect(&self) -> Result<PeerConnection, PeerError> {
        let shared = &self.0;
        let take = || shared.connections.try_acquire(&shared.lane, 1);
        let held = shared.connections.take_patiently(take).await;
        let held = held.map_err(|error| PeerError(error.to_string()))?;
        let limits = Limits {
            received_bytes: u64::MAX,
            ..Limits::default()
        };
        let dialer = Dialer::new(shared.reach.clone(), &limits);
        let stream = dialer.connect(&shared.endpoint).await;
        let stream = stream.map_err(|error| PeerError(error.to_string()))?;
        let endpoint = &shared.endpoint;
        let shaken = tokio::time::timeout(HANDSHAKE, shared.connector.connect(shared.name.clone(), stream)).await;
        let stream = match shaken {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                return Err(PeerError(format!(
                    "TLS with {endpoint} failed: {}",
                    describe_error(&error)
                )));
            }
            Err(_) => return Err(PeerError(format!("TLS with {endpoint} failed: no answer in time"))),
        };
        Ok(PeerConnection {
            io: TokioIo::new(stream),
            _held: held,
        })
    }
}

fn describe_error(error: &std::io::Error) -> String {
    let text = error.to_string();
    let advice = if text.contains("UnknownIssuer") || text.contains("BadSignature") {
        "; put the certificate of its authority into cluster.certificate-authority-data"
    } else if text.contains("NotValidForName") {
        "; its certificate is for another name: cluster.tls-server-name says which"
    } else {
        ""
    };
    format!("{text}{advice}")
}

impl fmt::Debug for Peer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Peer({})", self.0.endpoint)
    }
}

/// Builds the TLS connector from the authorities and the client certificate.
fn make_connector(tls: &PeerTls) -> Result<TlsConnector, PeerError> {
    let wrong = |problem: &str| PeerError(problem.to_owned());
    let roots = match &tls.authority {
        None => system_roots().clone(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(authority) {
                let certificate = certificate.map_err(|_| wrong("cluster.certificate-authority-data is not PEM"))?;
                roots
                    .add(certificate)
                    .map_err(|_| wrong("cluster.certificate-authority-data holds a certificate that can't be read"))?;
            }
            if roots.is_empty() {
                return Err(wrong("cluster.certificate-authority-data holds no certificate in PEM"));
            }
            roots
        }
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| PeerError(error.to_string()))?
        .with_root_certificates(roots);
    let mut config = match &tls.client {
        Some((certificate, key)) => {
            let chain = CertificateDer::pem_slice_iter(certificate)
                .collect::<Result<Vec<_>, _>>()
                .map_err(|_| wrong("user.client-certificate-data is not PEM"))?;
            let key = PrivateKeyDer::from_pem_slice(key.reveal().as_bytes())
                .map_err(|_| wrong("user.client-key-data is not a private key in PEM"))?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|_| wrong("user.client-certificate-data and user.client-key-data do not belong together"))?
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

impl tower::Service<Uri> for Peer {
    type Response = PeerConnection;
    type Error = PeerError;
    type Future = BoxFuture<'static, Result<PeerConnection, PeerError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), PeerError>> {
        Poll::Ready(Ok(()))
    }

    /// Connects to the one API server, whatever the address in the request.
    fn call(&mut self, _: Uri) -> Self::Future {
        let peer = self.clone();
        Box::pin(async move { peer.connect().await })
    }
}

/// An open TLS connection to the API server, counted until it is closed.
pub struct PeerConnection {
    io: TokioIo<TlsStream<Stream>>,
    _held: HeldBytes,
}

impl Connection for PeerConnection {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for PeerConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl Write for PeerConnection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
