//! One new connection to the API server. The module checks the server's certificate as the kubeconfig says, and bounds the time for the connection.

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

use super::shared::{NewConnection, OpenError, Opener};
use crate::connection::ConnectionError;
use crate::error::with_causes;

/// The timeout for the TCP connection, and the timeout for the handshake after it.
const CONNECT: Duration = Duration::from_secs(10);
const HANDSHAKE: Duration = Duration::from_secs(10);
/// After this time without data, TCP probes the other end.
const TCP_KEEP_ALIVE: Duration = Duration::from_secs(60);

/// Opens a stream to the API server, without any data sent on it.
pub(crate) type OpenStream = Arc<dyn Fn() -> BoxFuture<'static, std::io::Result<TcpStream>> + Send + Sync>;

/// A dialer: opens TLS connections to the API server, and verifies the server's certificate.
#[derive(Clone)]
pub(super) struct Dial {
    stream: OpenStream,
    tls: TlsConnector,
    name: ServerName<'static>,
}

impl Dial {
    /// Returns a dialer without an open connection. Returns `None` where connections can't be shared: without TLS, no side announces the version of HTTP, and kube
    /// handles proxies.
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
        Arc::new(move || -> BoxFuture<'static, Result<NewConnection, OpenError>> { self.clone().open().boxed() })
    }

    async fn open(self) -> Result<NewConnection, OpenError> {
        let fail = |problem: String| OpenError(problem.into());
        let stream = (self.stream)().await.map_err(|error| fail(with_causes(&error)))?;
        let shaken = tokio::time::timeout(HANDSHAKE, self.tls.connect(self.name.clone(), stream)).await;
        let stream = match shaken {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(fail(format!("TLS failed: {}", with_causes(&error)))),
            Err(_) => return Err(fail("TLS failed: no answer in time".to_owned())),
        };
        Ok(match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => NewConnection::Shareable(Box::new(TokioIo::new(stream))),
            _ => NewConnection::Http1,
        })
    }
}

/// Returns a function that opens streams to an address from this process.
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
