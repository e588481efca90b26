//! Growth in a process that has only a share of a budget: it waits for the process with the whole budget to grant more. The wait is bounded, and the wanted bytes are
//! published meanwhile. It never waits for bytes that other holders have: two holders could wait for each other for ever.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::{ByteBudget, OverBudget, Shared};

/// The longest wait. An answer is quick, and takes longer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);

/// Wakes the holders that wait for more bytes of a share, after more bytes may be free.
#[derive(Default)]
pub(super) struct GrowthNotifier {
    tasks: Notify,
    /// Counts the notifications, for threads.
    count: Mutex<u64>,
    threads: Condvar,
}

impl GrowthNotifier {
    /// Notifies all waiters that more bytes may be free.
    pub(super) fn notify_waiters(&self) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        *count = count.wrapping_add(1);
        drop(count);
        self.threads.notify_all();
        self.tasks.notify_waiters();
    }

    fn count(&self) -> u64 {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks the thread until a notification after the one that was `counted`. Returns whether it came in time.
    fn wait(&self, counted: u64, deadline: std::time::Instant) -> bool {
        let left = deadline.saturating_duration_since(std::time::Instant::now());
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.threads.wait_timeout_while(count, left, |count| *count == counted);
        let (count, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *count != counted
    }
}

/// The published number of bytes that a waiting holder wants. Dropping it withdraws the number.
struct PublishedDemand<'a> {
    shared: &'a Shared,
    ticket: u64,
}

impl<'a> PublishedDemand<'a> {
    fn new(shared: &'a Shared) -> Self {
        let ticket = shared.lock().next_ticket();
        Self { shared, ticket }
    }

    /// Sets the number of wanted bytes.
    fn set_wanted(&self, bytes: u64) {
        let before = self.shared.lock().growing.insert(self.ticket, bytes);
        if before != Some(bytes) {
            self.shared.changed.notify_one();
        }
    }
}

impl Drop for PublishedDemand<'_> {
    fn drop(&mut self) {
        if self.shared.lock().growing.remove(&self.ticket).is_some() {
            self.shared.changed.notify_one();
        }
    }
}

/// Returns the refused bytes if a larger share would have sufficed.
fn find_lacking(refused: &OverBudget) -> Option<u64> {
    match refused {
        OverBudget::Full {
            needed, is_share: true, ..
        } => Some(*needed),
        _ => None,
    }
}

impl ByteBudget {
    /// Calls `take`, which must not wait, and repeats it while only the share is too small and an answer may come.
    ///
    /// # Errors
    /// The error of the last call.
    pub async fn take_patiently<T>(&self, take: impl FnMut() -> Result<T, OverBudget> + Send) -> Result<T, OverBudget> {
        self.take_until(Instant::now() + PATIENCE, take).await
    }

    /// Repeats `take` as [`ByteBudget::take_patiently`], at most until the deadline.
    pub(super) async fn take_until<T>(
        &self,
        deadline: Instant,
        mut take: impl FnMut() -> Result<T, OverBudget> + Send,
    ) -> Result<T, OverBudget> {
        let mut wanted = None;
        loop {
            let more = self.shared.growth.tasks.notified();
            tokio::pin!(more);
            // Before the try, so that a notification during the try is noticed.
            more.as_mut().enable();
            let taken = take();
            let Some(lacking) = taken.as_ref().err().and_then(find_lacking) else {
                return taken;
            };
            wanted
                .get_or_insert_with(|| PublishedDemand::new(&self.shared))
                .set_wanted(lacking);
            if tokio::time::timeout_at(deadline, more).await.is_err() {
                return taken;
            }
        }
    }

    /// Calls `take` like [`ByteBudget::take_patiently`], on a thread that may block.
    ///
    /// # Errors
    /// The error of the last call.
    pub fn take_patiently_blocking<T>(&self, mut take: impl FnMut() -> Result<T, OverBudget>) -> Result<T, OverBudget> {
        let deadline = std::time::Instant::now() + PATIENCE;
        let mut wanted = None;
        loop {
            let counted = self.shared.growth.count();
            let taken = take();
            let Some(lacking) = taken.as_ref().err().and_then(find_lacking) else {
                return taken;
            };
            wanted
                .get_or_insert_with(|| PublishedDemand::new(&self.shared))
                .set_wanted(lacking);
            if !self.shared.growth.wait(counted, deadline) {
                return taken;
            }
        }
    }
}
