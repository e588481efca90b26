//! The open connections and their activity, so that idle ones are closed to admit new ones. This module limits their
//! number, and the time of an idle one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tenure_auth::identity::UserInfo;
use tokio_util::sync::CancellationToken;

use crate::responses::UnreadResponses;

/// Limit for open connections, if the process may have as many files.
const CONNECTIONS: usize = 4096;
/// Files that are reserved for other purposes.
const OTHER_FILES: usize = 128;
/// Longest time without a request, before the first one and after the last: kube-apiserver's times.
const BEFORE_FIRST: Duration = Duration::from_secs(32);
const IDLE: Duration = Duration::from_secs(90);

/// The requests and unread answers of one connection, which decide when an idle connection is closed.
#[derive(Debug)]
pub(crate) struct Activity {
    opened: Instant,
    /// Milliseconds from `opened` to the end of the last request.
    last: AtomicU64,
    /// Requests since the connection was opened.
    requests: AtomicUsize,
    /// Requests that are being answered, including watches.
    running: AtomicUsize,
    /// Whether an authenticated user has used the connection.
    known: AtomicBool,
    /// Answers that are being sent.
    pub(crate) unread: Arc<UnreadResponses>,
    /// Ends the connection, to make room for another.
    pub(crate) evicted: CancellationToken,
}

impl Activity {
    fn new() -> Self {
        Self {
            opened: Instant::now(),
            last: AtomicU64::new(0),
            requests: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            known: AtomicBool::new(false),
            unread: Arc::default(),
            evicted: CancellationToken::new(),
        }
    }

    /// Counts a request as running until the returned value is dropped.
    pub(crate) fn count_request(self: &Arc<Self>) -> ActiveRequest {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.running.fetch_add(1, Ordering::Relaxed);
        ActiveRequest(self.clone())
    }

    /// Marks that an authenticated user uses this connection.
    pub(crate) fn mark_authenticated(&self, user: &UserInfo) {
        if !self.known.load(Ordering::Relaxed) && *user != UserInfo::anonymous() {
            self.known.store(true, Ordering::Relaxed);
        }
    }

    /// Waits until the connection has been idle for too long.
    pub(crate) async fn wait_until_idle(&self) {
        loop {
            let patience = if self.requests.load(Ordering::Relaxed) == 0 {
                BEFORE_FIRST
            } else {
                IDLE
            };
            let quiet = self
                .opened
                .elapsed()
                .saturating_sub(Duration::from_millis(self.last.load(Ordering::Relaxed)));
            let busy = self.running.load(Ordering::Relaxed) > 0;
            if !busy && quiet >= patience {
                return;
            }
            let wait = if busy { patience } else { patience.saturating_sub(quiet) };
            tokio::time::sleep(wait.max(Duration::from_millis(10))).await;
        }
    }
}

/// A request that counts as running on its connection until this is dropped.
#[derive(Debug)]
pub(crate) struct ActiveRequest(Arc<Activity>);

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let passed = u64::try_from(self.0.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.last.store(passed, Ordering::Relaxed);
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The open connections of a server, in the order of their opening, and the limit for their number.
#[derive(Debug)]
pub(crate) struct Connections {
    limit: usize,
    open: Mutex<(u64, BTreeMap<u64, Arc<Activity>>)>,
}

/// The entry of an open connection in [`Connections`]; dropping it removes the entry.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    connections: Arc<Connections>,
    number: u64,
    pub(crate) activity: Arc<Activity>,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.connections.open.lock().1.remove(&self.number);
    }
}

impl Connections {
    /// Returns a table with as many connections as this process may have.
    pub(crate) fn new() -> Arc<Self> {
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
        Self::with_limit(open_files(&limits).map_or(CONNECTIONS, |files| {
            files.saturating_sub(OTHER_FILES).clamp(16, CONNECTIONS)
        }))
    }

    fn with_limit(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            open: Mutex::default(),
        })
    }

    /// Admits one more connection. At the limit, the oldest connection without an authenticated user is closed for
    /// it, else the one with the longest idle time. If all connections have running requests, the new one is refused.
    pub(crate) fn open(self: &Arc<Self>) -> Option<OpenConnection> {
        let mut table = self.open.lock();
        let (next, open) = &mut *table;
        if open.len() >= self.limit {
            let unknown = open
                .iter()
                .find(|(_, activity)| !activity.known.load(Ordering::Relaxed));
            let idle = || {
                open.iter()
                    .filter(|(_, activity)| activity.running.load(Ordering::Relaxed) == 0)
                    .min_by_key(|(_, activity)| {
                        activity.opened + Duration::from_millis(activity.last.load(Ordering::Relaxed))
                    })
            };
            let number = *unknown.or_else(idle)?.0;
            if let Some(activity) = open.remove(&number) {
                activity.evicted.cancel();
            }
        }
        *next += 1;
        let activity = Arc::new(Activity::new());
        open.insert(*next, activity.clone());
        Some(OpenConnection {
            connections: self.clone(),
            number: *next,
            activity,
        })
    }
}

/// Reads the soft limit of open files from the text of `/proc/self/limits`.
fn open_files(limits: &str) -> Option<usize> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_user() -> UserInfo {
        UserInfo {
            name: "somebody".to_owned(),
            ..UserInfo::default()
        }
    }

    #[test]
    fn unauthenticated_connections_are_evicted_first() {
        let connections = Connections::with_limit(3);
        let known = connections.open().expect("room");
        known.activity.mark_authenticated(&make_user());
        let stranger = connections.open().expect("room");
        stranger.activity.mark_authenticated(&UserInfo::anonymous());
        let younger = connections.open().expect("room");
        let _new = connections.open().expect("room");
        assert!(stranger.activity.evicted.is_cancelled());
        assert!(!known.activity.evicted.is_cancelled() && !younger.activity.evicted.is_cancelled());
    }

    #[test]
    fn connection_with_open_requests_is_not_evicted() {
        let connections = Connections::with_limit(2);
        let [first, second] = [(); 2].map(|()| connections.open().expect("room"));
        for open in [&first, &second] {
            open.activity.mark_authenticated(&make_user());
        }
        let working = first.activity.count_request();
        let also = second.activity.count_request();
        assert!(connections.open().is_none());
        drop(also);
        let _third = connections.open().expect("room");
        assert!(second.activity.evicted.is_cancelled() && !first.activity.evicted.is_cancelled());
        drop(working);
    }

    #[test]
    fn a_closed_connection_is_forgotten() {
        let connections = Connections::with_limit(1);
        for _ in 0..3 {
            let open = connections.open().expect("room");
            open.activity.mark_authenticated(&make_user());
            let _working = open.activity.count_request();
        }
        assert!(connections.open.lock().1.is_empty());
    }

    #[test]
    fn limits_are_read() {
        let text = "Limit                     Soft Limit           Hard Limit           Units\n\
                    Max open files            1024                 524288               files     \n";
        assert_eq!(open_files(text), Some(1024));
        assert_eq!(
            open_files("Max open files            unlimited   unlimited  files"),
            None
        );
    }
}
