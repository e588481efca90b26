//! The bytes of an artifact on their way, and how long whoever takes them may take. Owns the one rule of patience: something has to be taken
//! every half minute, and all of it at a rate that no working network is below. Holds one piece of each artifact in memory.

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

/// Bytes that are read at once.
const PIECE: u64 = 64 << 10;
/// How long nothing may be taken.
const STALL: Duration = Duration::from_secs(30);
/// How many bytes have to be taken in a second, over all.
const RATE: u64 = 128 << 10;

/// When a connection is left, as it goes on.
#[derive(Debug)]
pub(super) struct Deadline {
    /// The next moment, and the last one.
    moments: Mutex<(Instant, Instant)>,
}

impl Deadline {
    /// So long for all that comes before an artifact.
    pub(super) fn of(patience: Duration) -> Arc<Self> {
        let end = Instant::now() + patience;
        Arc::new(Self {
            moments: Mutex::new((end, end)),
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (Instant, Instant)> {
        self.moments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many bytes begin to be taken.
    fn begin(&self, bytes: u64, now: Instant) {
        *self.lock() = (now + STALL, now + STALL + Duration::from_secs(bytes / RATE));
    }

    /// Another piece is wanted: the one before was taken.
    fn advance(&self, now: Instant) {
        self.lock().0 = now + STALL;
    }

    /// When it is over, as it looks now.
    fn end(&self) -> Instant {
        let (next, last) = *self.lock();
        next.min(last)
    }

    /// Waits until it is over.
    pub(super) async fn pass(&self) {
        loop {
            let end = self.end();
            if end <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(end).await;
        }
    }
}

/// An artifact as the body of an answer. Its place among the transfers is held as long as that.
pub(super) fn send(artifact: ServedArtifact, deadline: &Arc<Deadline>) -> UnsyncBoxBody<Bytes, io::Error> {
    let ServedArtifact {
        file, size, transfer, ..
    } = artifact;
    deadline.begin(size, Instant::now());
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
            // What was promised isn't there: the connection ends, and nobody takes the rest for the whole.
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
    async fn as_much_is_sent_as_was_promised_or_it_fails() {
        let content = vec![7; 3 * PIECE as usize + 5];
        let size = content.len() as u64;
        let deadline = Deadline::of(STALL);
        let whole = send(artifact(&content, size), &deadline)
            .collect()
            .await
            .expect("whole");
        assert_eq!(whole.to_bytes(), content);
        // A file that has grown meanwhile, and one that has shrunk.
        let cut = send(artifact(&content, size - 9), &deadline)
            .collect()
            .await
            .expect("cut");
        assert_eq!(cut.to_bytes().len() as u64, size - 9);
        assert!(send(artifact(&content, size + 1), &deadline).collect().await.is_err());
    }

    #[tokio::test]
    async fn who_takes_nothing_is_left_and_who_takes_little_too() {
        let now = Instant::now();
        let deadline = Deadline::of(Duration::ZERO);
        // It is over already.
        deadline.pass().await;
        let after = |seconds: u64| now + Duration::from_secs(seconds);
        deadline.begin(100 * RATE, now);
        assert_eq!(deadline.end(), now + STALL);
        // A piece every ten seconds keeps nothing open for ever.
        for seconds in (10..=90).step_by(10) {
            deadline.advance(after(seconds));
            assert_eq!(deadline.end(), after(seconds) + STALL);
        }
        for seconds in (100..=120).step_by(10) {
            deadline.advance(after(seconds));
            assert_eq!(deadline.end(), after(100) + STALL);
        }
    }
}
