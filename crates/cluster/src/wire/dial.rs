//! One new connection to the API server. Owns that its certificate is checked as the kubeconfig says, and how long all of it may take.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use kube::client::ConfigExt as _;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower::ServiceExt as _;

use super::shared::{OpenError, Opened, Opener};
use crate::connection::ConnectionError;
use crate::error::with_causes;

/// How long an address may take to take a connection, and how long the handshake may take after that.
const CONNECT: Duration = Duration::from_secs(10);
const HANDSHAKE: Duration = Duration::from_secs(10);
/// After so long without a word, TCP asks whether the other end is there.
const TCP_KEEP_ALIVE: Duration = Duration::from_secs(60);

/// Opens a stream to the API server, which nothing has been said on.
pub(crate) type OpenStream = Arc<dyn Fn() -> BoxFuture<'static, std::io::Result<TcpStream>> + Send + Sync>;

/// How connections are opened, and how the other end is known.
#[derive(Clone)]
pub(super) struct Dial {
    stream: OpenStream,
    tls: TlsConnector,
    name: ServerName<'static>,
}

impl Dial {
    /// Nothing is opened yet. There is none where connections can't be shared: without TLS nobody says which HTTP is spoken, and what a
    /// proxy is asked for is kube's.
    pub(super) fn over(stream: OpenStream, configuration: &kube::Config) -> Result<Option<Self>, ConnectionError> {
        let address = &configuration.cluster_url;
        if address.scheme() != Some(&http::uri::Scheme::HTTPS) || configuration.proxy_url.is_some() {
            return Ok(None);
        }
        let host = address.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = configuration.tls_server_name.as_deref().unwrap_or(host);
        let Ok(name) = ServerName::try_from(name.to_owned()) else {
            return Ok(None);
        };
        let mut tls = configuration.rustls_client_config().map_err(ConnectionError::from)?;
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Some(Self {
            stream,
            tls: TlsConnector::from(Arc::new(tls)),
            name,
        }))
    }

    pub(super) fn into_opener(self) -> Opener {
        Arc::new(move || -> BoxFuture<'static, Result<Opened, OpenError>> { self.clone().open().boxed() })
    }

    async fn open(self) -> Result<Opened, OpenError> {
        let fail = |problem: String| OpenError(problem.into());
        let stream = (self.stream)().await.map_err(|error| fail(with_causes(&error)))?;
        let shaken = tokio::time::timeout(HANDSHAKE, self.tls.connect(self.name.clone(), stream)).await;
        let stream = match shaken {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(fail(format!("TLS failed: {}", with_causes(&error)))),
            Err(_) => return Err(fail("TLS failed: no answer in time".to_owned())),
        };
        Ok(match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => Opened::Shareable(Box::new(TokioIo::new(stream))),
            _ => Opened::Http1,
        })
    }
}

/// Streams to an address, which this process opens.
pub(super) fn open_to(address: &http::Uri) -> OpenStream {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT));
    connector.set_keepalive(Some(TCP_KEEP_ALIVE));
    let address = address.clone();
    Arc::new(move || {
        let opened = connector.clone().oneshot(address.clone());
        async move {
            let stream = opened
                .await
                .map_err(|error| std::io::Error::other(with_causes(&error)))?;
            Ok(stream.into_inner())
        }
        .boxed()
    })
}
