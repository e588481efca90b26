//! Work on a thread for blocking work that ends when nobody waits for it any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinError;

/// Does work on a thread for blocking work. When the future is dropped, the work is told so, and it is the work's to look and end.
pub(crate) async fn spawn_cancellable<T: Send + 'static>(
    work: impl FnOnce(&AtomicBool) -> T + Send + 'static,
) -> Result<T, JoinError> {
    let cancel = CancelOnDrop::default();
    let cancelled = cancel.share();
    tokio::task::spawn_blocking(move || work(&cancelled)).await
}

/// Tells work on other threads, when it is dropped, that nobody waits for it any more.
#[derive(Default)]
pub(crate) struct CancelOnDrop(Arc<AtomicBool>);

impl CancelOnDrop {
    /// Where the work looks.
    pub(crate) fn share(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
