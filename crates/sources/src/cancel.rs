//! Work on a thread for blocking work that ends when its caller is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinError;

/// Runs work on a thread for blocking work. Dropping the future sets the flag; the work has to check the flag and end.
pub(crate) async fn spawn_cancellable<T: Send + 'static>(
    work: impl FnOnce(&AtomicBool) -> T + Send + 'static,
) -> Result<T, JoinError> {
    let cancel = CancelOnDrop::default();
    let cancelled = cancel.share();
    tokio::task::spawn_blocking(move || work(&cancelled)).await
}

/// Sets a flag when it is dropped, so that work on other threads ends.
#[derive(Default)]
pub(crate) struct CancelOnDrop(Arc<AtomicBool>);

impl CancelOnDrop {
    /// Returns the flag that the work checks.
    pub(crate) fn share(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
