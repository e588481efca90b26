//! The lane's end of the second line. The lane opens no sockets itself, which the kernel enforces, and asks the hub for each connection.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tenure_sources::{Connect, ConnectFailure, ConnectRefusal, Endpoint};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};

use crate::lane::lane_references::Reference;
use crate::lane_protocol::dial_channel::{AT_ONCE, DialAnswer, DialChannel, DialRequest, DialTarget};

/// The time limit for the hub: longer than the hub's own limit.
const ANSWER: Duration = Duration::from_secs(90);
/// The part of the concurrent connections that is reserved for the API server.
const FOR_SERVER: usize = 8;

/// The hub's answer to a request: a descriptor, or none if the lane only asked whether an address is allowed.
type Answered = Result<Option<OwnedFd>, ConnectRefusal>;
/// The descriptor of an opened socket or file, or why the hub opened none.
type Opened = Result<OwnedFd, ConnectRefusal>;

/// Requests connections and artifacts from the hub over the second line, and waits for the answers.
#[derive(Debug)]
pub(super) struct HubDialer {
    line: DialChannel,
    number: AtomicU64,
    asked: Mutex<HashMap<u64, oneshot::Sender<Answered>>>,
    endpoints: Semaphore,
    server: Semaphore,
}

impl HubDialer {
    pub(super) fn new(line: DialChannel) -> Arc<Self> {
        Arc::new(Self {
            line,
            number: AtomicU64::new(0),
            asked: Mutex::default(),
            endpoints: Semaphore::new(AT_ONCE - FOR_SERVER),
            server: Semaphore::new(FOR_SERVER),
        })
    }

    fn lock_questions(&self) -> std::sync::MutexGuard<'_, HashMap<u64, oneshot::Sender<Answered>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receives the hub's answers until the line ends.
    pub(super) async fn take_all(&self) -> io::Error {
        loop {
            let (answer, opened) = match self.line.receive_with::<DialAnswer>().await {
                Ok((Some(answer), opened)) => (answer, opened),
                Ok((None, _)) => return io::Error::new(io::ErrorKind::InvalidData, "an answer that can't be read"),
                Err(error) => return error,
            };
            let opened = match answer.refusal {
                Some(refusal) => Err(refusal),
                None => Ok(opened),
            };
            // The caller may have given up. Then the connection is closed.
            let waiting = self.lock_questions().remove(&answer.number);
            drop(waiting.map(|waiting| waiting.send(opened)));
        }
    }

    /// Requests a connection or an artifact.
    async fn open(&self, target: DialTarget) -> Opened {
        let missing = || make_refusal(&io::Error::other("no socket came with the answer"));
        self.ask(target).await?.ok_or_else(missing)
    }

    async fn ask(&self, target: DialTarget) -> Answered {
        let room = match target {
            DialTarget::Server => &self.server,
            DialTarget::Endpoint { .. } | DialTarget::Check { .. } | DialTarget::Artifact { .. } => &self.endpoints,
        };
        let _room = room.acquire().await;
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let (send, receive) = oneshot::channel();
        self.lock_questions().insert(number, send);
        // Also removes the request if the caller drops this future.
        let _entry = PendingQuestion { dialer: self, number };
        let answered = async {
            self.line
                .send(&DialRequest { number, target })
                .await
                .map_err(|error| make_refusal(&error))?;
            let gone = |_| make_refusal(&io::ErrorKind::BrokenPipe.into());
            receive.await.map_err(gone)?
        };
        let late = |_| Err(make_refusal(&io::ErrorKind::TimedOut.into()));
        tokio::time::timeout(ANSWER, answered).await.unwrap_or_else(late)
    }

    /// Opens a connection to the API server.
    pub(super) async fn connect_to_server(&self) -> io::Result<TcpStream> {
        let socket = self.open(DialTarget::Server).await.map_err(io::Error::other)?;
        adopt_socket(socket)
    }

    /// Opens an artifact that another lane has fetched, for a reference from a namespace here.
    pub(super) async fn open_artifact(&self, reference: &Reference, digest: &str) -> Result<File, ConnectRefusal> {
        let (reference, digest) = (reference.clone(), digest.to_owned());
        let opened = self.open(DialTarget::Artifact { reference, digest }).await?;
        Ok(File::from(opened))
    }
}

impl Connect for HubDialer {
    fn connect<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        behind: Option<&'a Endpoint>,
        patience: Duration,
    ) -> BoxFuture<'a, Result<TcpStream, ConnectRefusal>> {
        let target = DialTarget::Endpoint {
            endpoint: endpoint.clone(),
            behind: behind.cloned(),
            patience,
        };
        async move { adopt_socket(self.open(target).await?).map_err(|error| make_refusal(&error)) }.boxed()
    }

    fn check<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        behind: Option<&'a Endpoint>,
    ) -> BoxFuture<'a, Result<(), ConnectRefusal>> {
        let target = DialTarget::Check {
            endpoint: endpoint.clone(),
            behind: behind.cloned(),
        };
        async move { self.ask(target).await.map(drop) }.boxed()
    }
}

/// A request that waits for the hub's answer. Dropping this value forgets the request.
struct PendingQuestion<'a> {
    dialer: &'a HubDialer,
    number: u64,
}

impl Drop for PendingQuestion<'_> {
    fn drop(&mut self) {
        self.dialer.lock_questions().remove(&self.number);
    }
}

fn adopt_socket(socket: OwnedFd) -> io::Result<TcpStream> {
    let socket = std::net::TcpStream::from(socket);
    socket.set_nonblocking(true)?;
    TcpStream::from_std(socket)
}

fn make_refusal(error: &io::Error) -> ConnectRefusal {
    ConnectRefusal {
        failure: ConnectFailure::Unreachable,
        message: format!("the controllers open no connection: {error}"),
    }
}
