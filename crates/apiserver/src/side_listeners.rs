//! Connections to the small listeners beside an API server: hooks, artifacts, webhooks. This module limits
//! connections, in total and per address, and does the TLS handshake. The requests are the caller's.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls_pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

/// Pause after a connection that could not be accepted. The likely cause is a lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// Limits for the connections of a listener.
#[derive(Clone, Copy, Debug)]
pub struct ListenerBounds {
    /// Number of open connections; further ones wait until one is closed.
    pub connections: usize,
    /// Number of open connections from one address; further ones are closed at once.
    pub of_one: usize,
    /// Longest time for a handshake.
    pub handshake: Duration,
}

/// An accepted connection, with or without TLS.
pub type Stream = Either<TcpStream, TlsStream<TcpStream>>;

/// The peer of a connection: its address, and its certificates from the TLS handshake.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The peer's address.
    pub address: IpAddr,
    /// The certificates from the handshake, leaf first. Only the possession of the key is checked.
    pub certificates: Vec<CertificateDer<'static>>,
}

/// The certificate that a listener presents in the TLS handshake, if it uses TLS.
#[derive(Clone)]
pub enum PresentedCertificate {
    /// None: the connection is plain.
    Nothing,
    /// The current certificate. While there is no certificate, no connection is answered.
    Certificate(Arc<dyn Fn() -> Option<TlsAcceptor> + Send + Sync>),
}

/// Passes each connection to `answer` until this future is dropped. Then all connections end, including those that
/// wait for another request.
pub async fn accept_all<F>(
    listener: TcpListener,
    bounds: ListenerBounds,
    shown: PresentedCertificate,
    answer: impl Fn(Stream, Caller) -> F + Clone + Send + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(bounds.connections));
    let callers = CallerTable::new(bounds.of_one);
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let address = peer.ip().to_canonical();
        // The connection is closed without an answer, because a slow client would also read an answer slowly.
        let Some(counted) = callers.count_connection(address) else {
            continue;
        };
        let (shown, answer) = (shown.clone(), answer.clone());
        connections.spawn(async move {
            let opened = match shown {
                PresentedCertificate::Nothing => Some((Either::Left(stream), Vec::new())),
                PresentedCertificate::Certificate(acceptor) => shake_hands(stream, acceptor(), bounds.handshake).await,
            };
            if let Some((stream, certificates)) = opened {
                answer(stream, Caller { address, certificates }).await;
            }
            drop((place, counted));
        });
    }
}

async fn shake_hands(
    stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
    within: Duration,
) -> Option<(Stream, Vec<CertificateDer<'static>>)> {
    let accepting = acceptor?.accept(stream);
    let stream = tokio::time::timeout(within, accepting).await.ok()?.ok()?;
    let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let certificates = shown.iter().map(|one| one.clone().into_owned()).collect();
    Some((Either::Right(stream), certificates))
}

/// Connections per address. An IPv6 address counts as its network, because a client usually has the whole network.
#[derive(Clone)]
struct CallerTable {
    most: usize,
    counts: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// One counted connection of an address, until it is dropped.
struct Counted {
    callers: CallerTable,
    address: IpAddr,
}

impl CallerTable {
    /// Returns a table with at most this many connections per address.
    fn new(most: usize) -> Self {
        Self {
            most,
            counts: Arc::default(),
        }
    }

    /// Counts one more connection, if the limit allows it.
    fn count_connection(&self, address: IpAddr) -> Option<Counted> {
        let address = match address.to_canonical() {
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
            address @ IpAddr::V4(_) => address,
        };
        let mut counts = self.counts.lock();
        let count = counts.entry(address).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Counted {
            callers: self.clone(),
            address,
        })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = self.callers.counts.lock();
        if let Some(count) = counts.get_mut(&self.address) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_leaves_room_for_others() {
        const OF_ONE: usize = 8;
        let callers = CallerTable::new(OF_ONE);
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let mut held: Vec<Counted> = (0..OF_ONE)
            .filter_map(|number| callers.count_connection(address(&format!("2001:db8::{number:x}"))))
            .collect();
        assert_eq!(held.len(), OF_ONE);
        // An address in the same network, and addresses in other networks.
        assert!(callers.count_connection(address("2001:db8::ffff")).is_none());
        assert!(callers.count_connection(address("2001:db8:0:1::1")).is_some());
        assert!(callers.count_connection(address("192.0.2.1")).is_some());
        held.pop();
        assert!(callers.count_connection(address("2001:db8::1")).is_some());
        drop(held);
        assert!(callers.counts.lock().is_empty(), "nothing is kept of who has gone");
    }
}
