//! What grows where a share is all that there is: it waits for whoever has the whole to grant more. Owns for how long, and that it is known how much is wanted
//! meanwhile; refuses to wait for room that others hold, as who holds something and waits for others may do so for ever.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::{ByteBudget, OverBudget, Shared};

/// For how long at most. An answer takes a moment, on a machine that has much to do a longer one.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where those who wait hear that there may be more.
#[derive(Default)]
pub(super) struct Growth {
    tasks: Notify,
    /// How often there may have been more, for threads.
    count: Mutex<u64>,
    threads: Condvar,
}

impl Growth {
    /// There may be more.
    pub(super) fn tell(&self) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        *count = count.wrapping_add(1);
        drop(count);
        self.threads.notify_all();
        self.tasks.notify_waiters();
    }

    fn count(&self) -> u64 {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks the thread until there may be more than when it was counted; whether that was in time.
    fn wait(&self, counted: u64, deadline: std::time::Instant) -> bool {
        let left = deadline.saturating_duration_since(std::time::Instant::now());
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.threads.wait_timeout_while(count, left, |count| *count == counted);
        let (count, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *count != counted
    }
}

/// Says how much is wanted, while it is.
struct Wanted<'a> {
    shared: &'a Shared,
    ticket: u64,
}

impl<'a> Wanted<'a> {
    fn new(shared: &'a Shared) -> Self {
        let ticket = shared.lock().ticket();
        Self { shared, ticket }
    }

    /// How much it is now.
    fn tell(&self, bytes: u64) {
        let before = self.shared.lock().growing.insert(self.ticket, bytes);
        if before != Some(bytes) {
            self.shared.changed.notify_one();
        }
    }
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        if self.shared.lock().growing.remove(&self.ticket).is_some() {
            self.shared.changed.notify_one();
        }
    }
}

/// How much was refused, if a larger share would do.
fn find_lacking(refused: &OverBudget) -> Option<u64> {
    match refused {
        OverBudget::Full {
            needed, is_share: true, ..
        } => Some(*needed),
        _ => None,
    }
}

impl ByteBudget {
    /// Takes more of it by a function that doesn't wait, again and again while nothing but the share is too small and an answer may come.
    ///
    /// # Errors
    /// As the function's last one.
    pub async fn take_patiently<T>(&self, take: impl FnMut() -> Result<T, OverBudget> + Send) -> Result<T, OverBudget> {
        self.take_until(Instant::now() + PATIENCE, take).await
    }

    pub(super) async fn take_until<T>(
        &self,
        deadline: Instant,
        mut take: impl FnMut() -> Result<T, OverBudget> + Send,
    ) -> Result<T, OverBudget> {
        let mut wanted = None;
        loop {
            let more = self.shared.growth.tasks.notified();
            tokio::pin!(more);
            // Before it is tried: what comes meanwhile is heard of.
            more.as_mut().enable();
            let taken = take();
            let Some(lacking) = taken.as_ref().err().and_then(find_lacking) else {
                return taken;
            };
            wanted.get_or_insert_with(|| Wanted::new(&self.shared)).tell(lacking);
            if tokio::time::timeout_at(deadline, more).await.is_err() {
                return taken;
            }
        }
    }

    /// The same, on a thread that may block.
    ///
    /// # Errors
    /// As the function's last one.
    pub fn take_patiently_blocking<T>(&self, mut take: impl FnMut() -> Result<T, OverBudget>) -> Result<T, OverBudget> {
        let deadline = std::time::Instant::now() + PATIENCE;
        let mut wanted = None;
        loop {
            let counted = self.shared.growth.count();
            let taken = take();
            let Some(lacking) = taken.as_ref().err().and_then(find_lacking) else {
                return taken;
            };
            wanted.get_or_insert_with(|| Wanted::new(&self.shared)).tell(lacking);
            if !self.shared.growth.wait(counted, deadline) {
                return taken;
            }
        }
    }
}
