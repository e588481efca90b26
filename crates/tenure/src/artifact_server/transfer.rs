//! The transfer of an artifact, and the time that a client may take. The client has to take some bytes every half minute, and all of them at a rate that every working
//! network exceeds. Only one piece of each artifact is in memory.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use tenure_controllers::ServedArtifact;
use tokio::io::AsyncReadExt as _;
use tokio::time::Instant;

/// The bytes of one read.
const PIECE: u64 = 64 << 10;
/// The longest time without progress.
const STALL: Duration = Duration::from_secs(30);
/// The least average rate in bytes per second.
const RATE: u64 = 128 << 10;

/// The time at which a connection is closed. Each piece that the client takes moves the time forward, up to a final end.
#[derive(Debug)]
pub(super) struct Deadline {
    /// The end without further progress, and the final end.
    moments: Mutex<(Instant, Instant)>,
}

impl Deadline {
    /// Returns a deadline for everything before an artifact.
    pub(super) fn start(patience: Duration) -> Arc<Self> {
        let end = Instant::now() + patience;
        Arc::new(Self {
            moments: Mutex::new((end, end)),
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (Instant, Instant)> {
        self.moments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the transfer of this many bytes.
    fn start_transfer(&self, bytes: u64, now: Instant) {
        *self.lock() = (now + STALL, now + STALL + Duration::from_secs(bytes / RATE));
    }

    /// Records that the client took the previous piece and needs another one.
    fn advance(&self, now: Instant) {
        self.lock().0 = now + STALL;
    }

    /// Returns the current end.
    fn find_end(&self) -> Instant {
        let (next, last) = *self.lock();
        next.min(last)
    }

    /// Waits until the end.
    pub(super) async fn pass(&self) {
        loop {
            let end = self.find_end();
            if end <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(end).await;
        }
    }
}

/// Returns an artifact as the body of an answer. The body holds its slot among the transfers until its end.
pub(super) fn send_artifact(artifact: ServedArtifact, deadline: &Arc<Deadline>) -> UnsyncBoxBody<Bytes, io::Error> {
    let ServedArtifact {
        file, size, transfer, ..
    } = artifact;
    deadline.start_transfer(size, Instant::now());
    let begun = (tokio::fs::File::from_std(file), size, transfer, Arc::clone(deadline));
    let pieces = stream::try_unfold(begun, |(mut file, left, transfer, deadline)| async move {
        deadline.advance(Instant::now());
        if left == 0 {
            return Ok(None);
        }
        let mut piece = Vec::new();
        let wanted = left.min(PIECE);
        (&mut file).take(wanted).read_to_end(&mut piece).await?;
        let read = piece.len() as u64;
        if read == 0 {
            // The file is shorter than announced. The connection ends with an error, so no client takes the part for the whole.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let rest = (file, left.saturating_sub(read), transfer, deadline);
        Ok(Some((Frame::data(Bytes::from(piece)), rest)))
    });
    StreamBody::new(pieces).boxed_unsync()
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, Write as _};

    use super::*;

    fn artifact(content: &[u8], size: u64) -> ServedArtifact {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(content).expect("write");
        file.rewind().expect("rewind");
        ServedArtifact {
            file,
            size,
            stored_at: None,
            transfer: None,
        }
    }

    #[tokio::test]
    async fn transfer_sends_promised_size_or_fails() {
        let content = vec![7; 3 * PIECE as usize + 5];
        let size = content.len() as u64;
        let deadline = Deadline::start(STALL);
        let whole = send_artifact(artifact(&content, size), &deadline)
            .collect()
            .await
            .expect("whole");
        assert_eq!(whole.to_bytes(), content);
        // A file that has grown meanwhile, and a file that has shrunk.
        let cut = send_artifact(artifact(&content, size - 9), &deadline)
            .collect()
            .await
            .expect("cut");
        assert_eq!(cut.to_bytes().len() as u64, size - 9);
        assert!(
            send_artifact(artifact(&content, size + 1), &deadline)
                .collect()
                .await
                .is_err()
        );
    }

    #[tokio::test]
    async fn stalled_and_slow_transfers_are_ended() {
        let now = Instant::now();
        let deadline = Deadline::start(Duration::ZERO);
        // The deadline has passed already.
        deadline.pass().await;
        let after = |seconds: u64| now + Duration::from_secs(seconds);
        deadline.start_transfer(100 * RATE, now);
        assert_eq!(deadline.find_end(), now + STALL);
        // Progress every ten seconds doesn't keep a transfer open forever.
        for seconds in (10..=90).step_by(10) {
            deadline.advance(after(seconds));
            assert_eq!(deadline.find_end(), after(seconds) + STALL);
        }
        for seconds in (100..=120).step_by(10) {
            deadline.advance(after(seconds));
            assert_eq!(deadline.find_end(), after(100) + STALL);
        }
    }
}
