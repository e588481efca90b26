//! The one place that opens connections.
//!
//! Owns resolution, the policy check of the very address a socket is about to be opened to, and the counting of what
//! arrives. Redirects, retries, http, https and ssh all come through here; nothing else in the room has a connector. Where another process
//! opens the sockets, that one does the first two, by the same function. It uses no proxy.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::error::FetchError;
use crate::limits::{Limits, describe_bytes};
use crate::policy::{Endpoint, Policy};
use crate::reach::Reach;

/// How many bytes may still arrive, over all connections of a fetch.
#[derive(Debug)]
pub(crate) struct Budget {
    received: AtomicU64,
    limit: u64,
}

impl Budget {
    fn take(&self, bytes: usize) -> io::Result<()> {
        let before = self.received.fetch_add(bytes as u64, Ordering::Relaxed);
        if before.saturating_add(bytes as u64) > self.limit {
            return Err(io::Error::other("more bytes arrived than the limit allows"));
        }
        Ok(())
    }

    /// Whether more arrived than allowed: the cause of whatever error a protocol made of it.
    pub(crate) fn exceeded(&self) -> Option<FetchError> {
        (self.received.load(Ordering::Relaxed) > self.limit).then(|| FetchError::TooLarge {
            what: "received bytes",
            limit: describe_bytes(self.limit),
            advice: "make the repository smaller, or ask an admin for a larger limit",
        })
    }
}

/// Opens connections that the policy allows, or has them opened.
#[derive(Debug, Clone)]
pub(crate) struct Dialer {
    reach: Reach,
    limits: Limits,
    budget: Arc<Budget>,
}

impl Dialer {
    pub(crate) fn new(reach: Reach, limits: &Limits) -> Self {
        let budget = Arc::new(Budget {
            received: AtomicU64::new(0),
            limit: limits.received_bytes,
        });
        Self {
            reach,
            limits: *limits,
            budget,
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// A connection to the endpoint, counted.
    pub(crate) async fn connect(&self, endpoint: &Endpoint) -> Result<Counted<TcpStream>, FetchError> {
        let patience = self.limits.connect_timeout;
        let inner = match &self.reach {
            Reach::Here(policy) => open_connection(policy, endpoint, patience).await?,
            Reach::Through(other) => other.connect(endpoint, patience).await?,
        };
        Ok(Counted {
            inner,
            budget: Arc::clone(&self.budget),
        })
    }
}

/// Resolves the host and connects to its first address that is allowed and answers; one that doesn't is given up after `patience`.
///
/// The address that was checked is the address that is connected to: nothing resolves the name again.
///
/// # Errors
/// A [`FetchError`] that says whether it was denied, or why nothing answers.
pub async fn open_connection(
    policy: &Policy,
    endpoint: &Endpoint,
    patience: Duration,
) -> Result<TcpStream, FetchError> {
    let mut denied = None;
    let mut failed = None;
    for address in resolve(endpoint).await? {
        if let Err(denial) = policy.check(endpoint, address) {
            denied.get_or_insert(denial);
            continue;
        }
        let attempt = TcpStream::connect(SocketAddr::new(address, endpoint.port));
        let error = match tokio::time::timeout(patience, attempt).await {
            Ok(Ok(stream)) => {
                // Small requests, each waiting for its answer; a failure to set this changes nothing but speed.
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
    // A denial is the better explanation only if no address was allowed at all.
    match (failed, denied) {
        (Some(failed), _) => Err(failed),
        (None, Some(denied)) => Err(denied.into()),
        (None, None) => Err(FetchError::Resolve {
            host: endpoint.host.clone(),
            source: io::Error::new(io::ErrorKind::NotFound, "it has no address"),
        }),
    }
}

async fn resolve(endpoint: &Endpoint) -> Result<Vec<IpAddr>, FetchError> {
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
            Poll::Ready(Ok(())) => Poll::Ready(self.budget.take(buffer.filled().len().saturating_sub(before))),
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
