//! Files that are sent over a line in pieces: read and sent, received and written. A received file is never longer than agreed, and has no name by
//! which another process could open it. This module does not check the content: the importer of an archive verifies it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use crate::lane_protocol::messages::FrameError;
use crate::lane_protocol::pod_connection::{PIECE, PodWriter};

/// The limit of received pieces of one file that are not written yet.
const WAITING: usize = 16;

/// A message about a requested file.
#[derive(Debug)]
enum FileMessage<R> {
    Piece(Vec<u8>),
    Refused(R),
}

/// The files that one end of a line has requested.
#[derive(Debug)]
pub(crate) struct FileReceiver<R> {
    asked: Mutex<HashMap<u64, mpsc::Sender<FileMessage<R>>>>,
    number: AtomicU64,
}

impl<R> Default for FileReceiver<R> {
    fn default() -> Self {
        Self {
            asked: Mutex::default(),
            number: AtomicU64::new(0),
        }
    }
}

/// Why a file did not arrive.
#[derive(Debug)]
pub(crate) enum TransferError<R> {
    /// The other end has no such file.
    Refused(R),
    /// The transfer broke off, was too long, or could not be written.
    Broken(io::Error),
}

/// One requested file.
pub(crate) struct IncomingFile<'a, R> {
    deliveries: &'a FileReceiver<R>,
    pub(crate) number: u64,
    pieces: mpsc::Receiver<FileMessage<R>>,
}

impl<R> Drop for IncomingFile<'_, R> {
    fn drop(&mut self) {
        self.deliveries.lock_questions().remove(&self.number);
    }
}

impl<R> FileReceiver<R> {
    fn lock_questions(&self) -> MutexGuard<'_, HashMap<u64, mpsc::Sender<FileMessage<R>>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prepares the request of a file.
    pub(crate) fn expect(&self) -> IncomingFile<'_, R> {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let (send, pieces) = mpsc::channel(WAITING);
        self.lock_questions().insert(number, send);
        IncomingFile {
            deliveries: self,
            number,
            pieces,
        }
    }

    /// Handles a received piece, and returns whether a receiver waits for it. A slow writer slows down the line.
    pub(crate) async fn take_piece(&self, number: u64, bytes: Vec<u8>) -> bool {
        let waiting = self.lock_questions().get(&number).cloned();
        match waiting {
            Some(waiting) => waiting.send(FileMessage::Piece(bytes)).await.is_ok(),
            None => false,
        }
    }

    /// Ends a request: the file does not exist.
    pub(crate) async fn refuse(&self, number: u64, refusal: R) {
        let waiting = self.lock_questions().remove(&number);
        if let Some(waiting) = waiting {
            let _given_up = waiting.send(FileMessage::Refused(refusal)).await;
        }
    }
}

impl<R> IncomingFile<'_, R> {
    /// Receives the whole file below a folder, without a name, with at most `most` bytes. The returned file is at its beginning.
    pub(crate) async fn receive(mut self, folder: &Path, most: u64) -> Result<File, TransferError<R>> {
        let folder = folder.to_owned();
        let mut file = run_blocking(move || make_nameless(&folder))
            .await
            .map_err(TransferError::Broken)?;
        let mut left = most;
        loop {
            let bytes = match self.pieces.recv().await {
                Some(FileMessage::Piece(bytes)) if bytes.is_empty() => break,
                Some(FileMessage::Piece(bytes)) => bytes,
                Some(FileMessage::Refused(refusal)) => return Err(TransferError::Refused(refusal)),
                None => return Err(TransferError::Broken(io::ErrorKind::UnexpectedEof.into())),
            };
            left = left.checked_sub(bytes.len() as u64).ok_or_else(|| {
                let problem = format!("it is longer than {most} bytes");
                TransferError::Broken(io::Error::new(io::ErrorKind::FileTooLarge, problem))
            })?;
            file = run_blocking(move || file.write_all(&bytes).map(|()| file))
                .await
                .map_err(TransferError::Broken)?;
        }
        run_blocking(move || file.rewind().map(|()| file))
            .await
            .map_err(TransferError::Broken)
    }
}

/// Sends a file, at most `most` bytes. An empty piece is its end. A file that becomes unreadable ends early, and its digest shows that.
pub(crate) async fn send_file(line: &PodWriter, number: u64, mut file: File, most: u64) -> Result<(), FrameError> {
    let mut left = most;
    while left > 0 {
        let wanted = u64::min(left, PIECE as u64);
        let (read, after) = run_blocking(move || {
            let mut bytes = Vec::new();
            (&mut file).take(wanted).read_to_end(&mut bytes)?;
            Ok((bytes, file))
        })
        .await?;
        file = after;
        if read.is_empty() {
            break;
        }
        left = left.saturating_sub(read.len() as u64);
        line.send_piece(number, &read).await?;
    }
    line.send_piece(number, &[]).await
}

async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// Creates a file that no other process can open: its name is removed before it has content.
fn make_nameless(folder: &Path) -> io::Result<File> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    std::fs::create_dir_all(folder)?;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!("lent-{}-{number}", std::process::id()));
    // A file of that name is left over from a process that had the same number.
    let _not_there = std::fs::remove_file(&path);
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::io::Seek as _;

    use super::*;
    use crate::endpoints::lane_endpoint::PodStream;
    use crate::lane_protocol::pod_connection::{FromPod, Part, read_part};

    /// Sends a file in pieces, and receives it within `most`.
    async fn carry(content: &[u8], most: u64) -> Result<Vec<u8>, TransferError<()>> {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = tokio::io::duplex(64 << 10);
        let (one, other): (PodStream, PodStream) = (Box::pin(one), Box::pin(other));
        let (_, write) = tokio::io::split(one);
        let (mut read, _) = tokio::io::split(other);
        let writer = PodWriter::new(write);
        let mut file = make_nameless(folder.path()).unwrap();
        file.write_all(content).unwrap();
        file.rewind().unwrap();
        let deliveries: FileReceiver<()> = FileReceiver::default();
        let delivery = deliveries.expect();
        let number = delivery.number;
        let feeding = async {
            while let Ok(Some(Part::Piece { number, bytes })) = read_part::<FromPod>(&mut read).await {
                if !deliveries.take_piece(number, bytes).await {
                    return;
                }
            }
        };
        let sending = async {
            let _given_up = send_file(&writer, number, file, u64::MAX).await;
            std::future::pending::<()>().await;
        };
        let receiving = delivery.receive(folder.path(), most);
        let mut received = tokio::select! {
            received = receiving => received?,
            () = async { tokio::join!(feeding, sending); } => unreachable!(),
        };
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "it has a name");
        let mut bytes = Vec::new();
        received.read_to_end(&mut bytes).unwrap();
        Ok(bytes)
    }

    #[tokio::test]
    async fn received_file_equals_sent_file_within_agreed_length() {
        let content: Vec<u8> = (0..200_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        assert_eq!(carry(&content, 200_000).await.unwrap(), content);
        assert!(carry(b"", 10).await.unwrap().is_empty());
        let refused = carry(&content, 199_999).await.unwrap_err();
        assert!(matches!(refused, TransferError::Broken(error) if error.kind() == io::ErrorKind::FileTooLarge));
    }

    #[tokio::test]
    async fn unexpected_pieces_and_refusals_are_reported() {
        let deliveries: FileReceiver<&str> = FileReceiver::default();
        assert!(!deliveries.take_piece(0, vec![1]).await);
        let delivery = deliveries.expect();
        deliveries.refuse(delivery.number, "no").await;
        let folder = tempfile::tempdir().unwrap();
        let refused = delivery.receive(folder.path(), 1).await.unwrap_err();
        assert!(matches!(refused, TransferError::Refused("no")));
        assert!(deliveries.lock_questions().is_empty());
    }
}
