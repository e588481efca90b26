//! The dialer: the only code that opens connections.
//!
//! The dialer resolves a name, checks the exact socket address against the policy, connects to this address, and counts the received bytes. Redirects, retries, http,
//! https and ssh all use it; no other module has a connector. If another process opens the sockets, that process resolves and checks, by the same function, also for a
//! server behind a proxy. The dialer uses only the proxy that a source names. It checks the proxy's address, and the address of the server behind it as far as that is
//! known here.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::connector::Connector;
use crate::error::FetchError;
use crate::limits::{Limits, describe_bytes};
use crate::policy::{Endpoint, Policy, Scheme};
use crate::proxy::Proxy;
use crate::secret::TlsOptions;
use crate::tls;

/// The limit for received bytes over all connections of a fetch, and the bytes received so far.
#[derive(Debug)]
pub(crate) struct Budget {
    received: AtomicU64,
    limit: u64,
}

impl Budget {
    /// Counts received bytes, and fails if they exceed the limit.
    fn count_bytes(&self, bytes: usize) -> io::Result<()> {
        let before = self.received.fetch_add(bytes as u64, Ordering::Relaxed);
        if before.saturating_add(bytes as u64) > self.limit {
            return Err(io::Error::other("more bytes arrived than the limit allows"));
        }
        Ok(())
    }

    /// Returns an error if more arrived than allowed. This is the cause of any error that a protocol reported.
    pub(crate) fn limit_error(&self) -> Option<FetchError> {
        (self.received.load(Ordering::Relaxed) > self.limit).then(|| FetchError::TooLarge {
            what: "received bytes",
            limit: describe_bytes(self.limit),
            advice: "make the repository smaller, or ask an administrator for a larger limit",
        })
    }
}

/// Opens connections that the policy allows, or requests them from another process.
#[derive(Debug, Clone)]
pub(crate) struct Dialer {
    reach: Connector,
    limits: Limits,
    budget: Arc<Budget>,
    proxy: Option<Arc<Proxy>>,
}

impl Dialer {
    pub(crate) fn new(reach: Connector, limits: &Limits) -> Self {
        let budget = Arc::new(Budget {
            received: AtomicU64::new(0),
            limit: limits.received_bytes,
        });
        Self {
            reach,
            limits: *limits,
            budget,
            proxy: None,
        }
    }

    /// Returns this dialer with a proxy, if there is one. An https proxy is verified with the `ca.crt` of its own Secret, else with `ca`, the source's.
    pub(crate) fn with_proxy(mut self, proxy: Option<&Proxy>, ca: Option<&[u8]>) -> Self {
        self.proxy = proxy.map(|proxy| {
            let mut proxy = proxy.clone();
            proxy.ca = proxy.ca.or_else(|| ca.map(<[u8]>::to_vec));
            Arc::new(proxy)
        });
        self
    }

    /// Returns the proxy that gets whole requests for an endpoint instead of a request for a connection: for plain HTTP.
    pub(crate) fn forwarding_proxy(&self, endpoint: &Endpoint) -> Option<&Proxy> {
        self.proxy.as_deref().filter(|_| endpoint.scheme == Scheme::Http)
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Connects to an endpoint, through the proxy if there is one. If [`Dialer::forwarding_proxy`] returns a proxy for the endpoint, this is the connection to the proxy.
    pub(crate) async fn connect(&self, endpoint: &Endpoint) -> Result<Stream, FetchError> {
        let Some(proxy) = &self.proxy else {
            return Ok(Stream::Plain(self.open_counted(endpoint, None).await?));
        };
        let stream = self.open_counted(proxy.endpoint(), Some(endpoint)).await?;
        let mut stream = if proxy.endpoint().scheme == Scheme::Https {
            let options = TlsOptions {
                ca: proxy.ca.clone(),
                client: None,
            };
            let connector = tls::make_connector(&options, false)?;
            Stream::Tls(Box::new(tls::shake_hands(&connector, proxy.endpoint(), stream).await?))
        } else {
            Stream::Plain(stream)
        };
        if self.forwarding_proxy(endpoint).is_none() {
            proxy.ask_for(&mut stream, endpoint).await?;
        }
        Ok(stream)
    }

    /// Opens a counted connection to the endpoint itself. If the endpoint is a proxy, `behind` is the server behind it.
    async fn open_counted(
        &self,
        endpoint: &Endpoint,
        behind: Option<&Endpoint>,
    ) -> Result<Counted<TcpStream>, FetchError> {
        let patience = self.limits.connect_timeout;
        let inner = match &self.reach {
            Connector::Here(policy) => open_connection(policy, endpoint, behind, patience).await?,
            Connector::Through(other) => other.connect(endpoint, behind, patience).await?,
        };
        Ok(Counted {
            inner,
            budget: Arc::clone(&self.budget),
        })
    }
}

/// Refuses a server behind a proxy if the policy denies any address that its name has here. A name without an address here is left to the proxy, which may be the only
/// one to resolve it.
async fn check_behind(policy: &Policy, endpoint: &Endpoint) -> Result<(), FetchError> {
    for address in resolve_endpoint(endpoint).await.unwrap_or_default() {
        policy.check(endpoint, address)?;
    }
    Ok(())
}

/// Checks whether [`open_connection`] would find an address that the policy allows. Opens no connection.
///
/// # Errors
/// A [`FetchError`] that says which address the policy denied, or that the host has no address.
pub async fn check_connection(
    policy: &Policy,
    endpoint: &Endpoint,
    behind: Option<&Endpoint>,
) -> Result<(), FetchError> {
    if let Some(behind) = behind {
        check_behind(policy, behind).await?;
    }
    let mut denied = None;
    for address in resolve_endpoint(endpoint).await? {
        match policy.check(endpoint, address) {
            Ok(()) => return Ok(()),
            Err(denial) => denied = denied.or(Some(denial)),
        }
    }
    Err(denied.map_or_else(|| describe_no_address(endpoint), FetchError::from))
}

/// Resolves the host and connects to its first address that is allowed and answers. An address without an answer is given up after `patience`.
///
/// The checked address is the address of the connection: no code resolves the name again. If the endpoint is a proxy, the policy must allow the server `behind` it, too,
/// as far as its address is known here.
///
/// # Errors
/// A [`FetchError`] that says whether the policy denied it, or why no address answers.
pub async fn open_connection(
    policy: &Policy,
    endpoint: &Endpoint,
    behind: Option<&Endpoint>,
    patience: Duration,
) -> Result<TcpStream, FetchError> {
    if let Some(behind) = behind {
        check_behind(policy, behind).await?;
    }
    let mut denied = None;
    let mut failed = None;
    for address in resolve_endpoint(endpoint).await? {
        if let Err(denial) = policy.check(endpoint, address) {
            denied.get_or_insert(denial);
            continue;
        }
        let attempt = TcpStream::connect(SocketAddr::new(address, endpoint.port));
        let error = match tokio::time::timeout(patience, attempt).await {
            Ok(Ok(stream)) => {
                // Small requests, each of which waits for an answer, must not be delayed. A failure costs only speed.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => error,
            Err(_) => io::Error::new(io::ErrorKind::TimedOut, "no answer"),
        };
        failed = Some(FetchError::Connect {
            host: endpoint.host.clone(),
            port: endpoint.port,
            address,
            source: error,
        });
    }
    // A denial is the better explanation only if the policy allowed no address at all.
    match (failed, denied) {
        (Some(failed), _) => Err(failed),
        (None, Some(denied)) => Err(denied.into()),
        (None, None) => Err(describe_no_address(endpoint)),
    }
}

fn describe_no_address(endpoint: &Endpoint) -> FetchError {
    FetchError::Resolve {
        host: endpoint.host.clone(),
        source: io::Error::new(io::ErrorKind::NotFound, "it has no address"),
    }
}

/// Returns the addresses of an endpoint's host: the address itself, or the answer of the resolver.
async fn resolve_endpoint(endpoint: &Endpoint) -> Result<Vec<IpAddr>, FetchError> {
    if let Ok(address) = endpoint.host.parse::<IpAddr>() {
        return Ok(vec![address]);
    }
    match tokio::net::lookup_host((endpoint.host.as_str(), endpoint.port)).await {
        Ok(addresses) => Ok(addresses.map(|address| address.ip()).collect()),
        Err(source) => Err(FetchError::Resolve {
            host: endpoint.host.clone(),
            source,
        }),
    }
}

/// A connection to a server, or to a proxy that forwards the bytes.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(Counted<TcpStream>),
    /// To a proxy over https.
    Tls(Box<TlsStream<Counted<TcpStream>>>),
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

/// A stream that counts what is read from it against the budget.
#[derive(Debug)]
pub(crate) struct Counted<S> {
    inner: S,
    budget: Arc<Budget>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match Pin::new(&mut self.inner).poll_read(context, buffer) {
            Poll::Ready(Ok(())) => Poll::Ready(self.budget.count_bytes(buffer.filled().len().saturating_sub(before))),
            other => other,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
