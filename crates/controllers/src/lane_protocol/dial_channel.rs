//! The second line between the hub and a lane's process. The lane requests connections, and archives that another lane has fetched. The hub alone
//! opens sockets, and hands them over.
//!
//! A message is a datagram, so it arrives whole, and an answer may carry one open socket or file. Descriptors in the other direction are refused: the
//! kernel closes a descriptor that a lane attaches, unseen.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram as StandardDatagram;
use std::time::Duration;

use rustix::io::{IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tenure_sources::{ConnectRefusal, Endpoint};
use tokio::io::Interest;
use tokio::net::UnixDatagram;

use crate::lane::lane_references::Reference;

/// The length limit of a message.
const LONGEST: usize = 8 << 10;
/// The kernel's buffer for answers that a lane does not read, as small as possible: open sockets in it count for the hub's user.
const UNREAD: usize = 1;

/// The limit of concurrent connection requests of one lane.
pub(crate) const AT_ONCE: usize = 32;

/// The target of a lane's request: an address to connect to, or an artifact to open.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum DialTarget {
    /// The API server.
    Server,
    /// An address that a source or a kubeconfig names, or a proxy on the way to `behind`. An address is given up after `patience`.
    Endpoint {
        endpoint: Endpoint,
        behind: Option<Endpoint>,
        patience: Duration,
    },
    /// A question whether an address is allowed. The hub opens no connection, and the answer carries no descriptor.
    Check {
        endpoint: Endpoint,
        behind: Option<Endpoint>,
    },
    /// The artifact of another lane's source, to which one of the lane's namespaces refers: a file, not a socket.
    Artifact { reference: Reference, digest: String },
}

/// A lane's request for a connection.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DialRequest {
    pub(crate) number: u64,
    pub(crate) target: DialTarget,
}

/// The hub's answer: the connection comes with it, or it says why not. The answer to a check comes alone.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DialAnswer {
    pub(crate) number: u64,
    pub(crate) refusal: Option<ConnectRefusal>,
}

/// One end of the line.
#[derive(Debug)]
pub(crate) struct DialChannel(UnixDatagram);

impl DialChannel {
    /// Creates the hub's end and the lane's end. The lane's end can be given to a process.
    ///
    /// # Errors
    /// When the system creates none.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (own, theirs) = StandardDatagram::pair()?;
        rustix::net::sockopt::set_socket_send_buffer_size(own.as_fd(), UNREAD)?;
        Ok((Self::from_socket(own)?, theirs.into()))
    }

    /// Wraps the lane's end. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// When it is no socket.
    pub(crate) fn from_socket(socket: StandardDatagram) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self(UnixDatagram::from_std(socket)?))
    }

    /// Sends a message without a descriptor.
    pub(crate) async fn send<T: Serialize>(&self, message: &T) -> io::Result<()> {
        self.0.send(&encode_message(message)?).await.map(drop)
    }

    /// Sends a message with an open socket.
    pub(crate) async fn send_with<T: Serialize>(&self, message: &T, socket: BorrowedFd<'_>) -> io::Result<()> {
        let bytes = encode_message(message)?;
        let sent = self.0.async_io(Interest::WRITABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            let sockets = [socket];
            if !ancillary.push(SendAncillaryMessage::ScmRights(&sockets)) {
                return Err(io::Error::other("no capacity for a socket"));
            }
            Ok(sendmsg(
                &self.0,
                &[IoSlice::new(&bytes)],
                &mut ancillary,
                SendFlags::empty(),
            )?)
        });
        sent.await.map(drop)
    }

    /// Receives the next message. A descriptor in it is closed. Returns `None` for an unreadable message.
    pub(crate) async fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<T>> {
        let mut bytes = vec![0; LONGEST];
        let length = self.0.recv(&mut bytes).await?;
        Ok(decode_message(bytes.get(..length).unwrap_or_default()))
    }

    /// Receives the next message, with its open socket if it carries one.
    pub(crate) async fn receive_with<T: DeserializeOwned>(&self) -> io::Result<(Option<T>, Option<OwnedFd>)> {
        let mut bytes = vec![0; LONGEST];
        let received = self
            .0
            .async_io(Interest::READABLE, || receive_descriptor(self.0.as_fd(), &mut bytes));
        let (length, socket) = received.await?;
        Ok((decode_message(bytes.get(..length).unwrap_or_default()), socket))
    }
}

/// The message that carries a lane's folder: the first on this line.
const FOLDER: &str = "folder";

impl DialChannel {
    /// Hands the lane its open folder.
    pub(crate) async fn hand_folder(&self, folder: BorrowedFd<'_>) -> io::Result<()> {
        self.send_with(&FOLDER, folder).await
    }
}

/// Waits for the folder from the hub, in a process that has no runtime yet.
pub(crate) fn take_folder(line: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut bytes = vec![0; LONGEST];
    let (length, folder) = receive_descriptor(line, &mut bytes)?;
    let message: Option<String> = decode_message(bytes.get(..length).unwrap_or_default());
    let folder = folder.filter(|_| message.is_some_and(|message| message == FOLDER));
    folder.ok_or_else(|| io::Error::other("the controllers handed over no folder"))
}

/// Receives one message, with its descriptor if it carries one.
fn receive_descriptor(line: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(bytes)];
    let received = recvmsg(line, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptor = descriptors.next().and_then(|mut descriptors| descriptors.next());
    Ok((received.bytes, descriptor))
}

fn encode_message<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > LONGEST {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is longer than any message",
        ));
    }
    Ok(bytes)
}

fn decode_message<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    serde_json::from_slice(bytes).ok()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    fn answer(number: u64) -> DialAnswer {
        DialAnswer { number, refusal: None }
    }

    #[tokio::test]
    async fn an_open_socket_comes_with_its_answer() {
        let (hub, lane) = DialChannel::pair().unwrap();
        let lane = DialChannel::from_socket(lane.into()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let opened = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut peer, _) = listener.accept().await.unwrap();
        hub.send(&answer(1)).await.unwrap();
        hub.send_with(&answer(2), opened.as_fd()).await.unwrap();
        drop(opened);
        let (first, nothing) = lane.receive_with::<DialAnswer>().await.unwrap();
        assert_eq!((first.unwrap().number, nothing.is_none()), (1, true));
        let (second, socket) = lane.receive_with::<DialAnswer>().await.unwrap();
        assert_eq!(second.unwrap().number, 2);
        let socket = std::net::TcpStream::from(socket.unwrap());
        socket.set_nonblocking(true).unwrap();
        let mut socket = TcpStream::from_std(socket).unwrap();
        socket.write_all(b"hello").await.unwrap();
        let mut received = [0; 5];
        peer.read_exact(&mut received).await.unwrap();
        assert_eq!(&received, b"hello");
    }

    #[tokio::test]
    async fn descriptors_attached_by_lane_are_closed() {
        let (hub, lane) = DialChannel::pair().unwrap();
        let lane = DialChannel::from_socket(lane.into()).unwrap();
        let (mut own, theirs) = tokio::net::UnixStream::pair().unwrap();
        let request = DialRequest {
            number: 7,
            target: DialTarget::Server,
        };
        lane.send_with(&request, theirs.as_fd()).await.unwrap();
        drop(theirs);
        assert_eq!(hub.receive::<DialRequest>().await.unwrap().unwrap().number, 7);
        // The other end is closed everywhere.
        assert_eq!(own.read(&mut [0; 1]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn invalid_messages_are_skipped_and_unread_answers_are_few() {
        let (hub, lane) = DialChannel::pair().unwrap();
        let lane = DialChannel::from_socket(lane.into()).unwrap();
        lane.send(&"open everything").await.unwrap();
        assert!(hub.receive::<DialRequest>().await.unwrap().is_none());
        let mut sent = 0;
        while tokio::time::timeout(Duration::from_millis(50), hub.send(&answer(sent)))
            .await
            .is_ok()
        {
            sent += 1;
        }
        assert!((1..AT_ONCE as u64).contains(&sent), "{sent}");
    }
}
