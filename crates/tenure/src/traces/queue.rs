//! The queue of spans for a collector. Its length is bounded, and excess spans are dropped and counted, so no caller waits.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::otlp::Span;

/// The finished spans that wait for the next request to the collector.
#[derive(Debug)]
pub(super) struct Queue {
    spans: Mutex<VecDeque<Span>>,
    longest: usize,
    dropped: AtomicU64,
    /// Notified when the queue is half full, so the sender waits no longer.
    is_filling: Notify,
}

impl Queue {
    pub(super) fn new(longest: usize) -> Self {
        Self {
            spans: Mutex::new(VecDeque::new()),
            longest,
            dropped: AtomicU64::new(0),
            is_filling: Notify::new(),
        }
    }

    /// Queues a span, or drops it.
    pub(super) fn push(&self, span: Span) {
        let mut spans = self.spans.lock();
        if spans.len() >= self.longest {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        spans.push_back(span);
        if spans.len() == self.longest / 2 {
            self.is_filling.notify_one();
        }
    }

    /// Takes the oldest spans, up to a number.
    pub(super) fn take_oldest(&self, most: usize) -> Vec<Span> {
        let mut spans = self.spans.lock();
        let count = spans.len().min(most);
        spans.drain(..count).collect()
    }

    /// Counts spans that were taken and not delivered.
    pub(super) fn count_lost(&self, spans: usize) {
        self.dropped.fetch_add(spans as u64, Ordering::Relaxed);
    }

    /// Returns the number of dropped spans since the start.
    pub(super) fn count_dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Waits until the queue is half full.
    pub(super) async fn until_filling(&self) {
        self.is_filling.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn full_queue_counts_dropped_spans_and_keeps_oldest() {
        let queue = Queue::new(3);
        for id in 1..=5 {
            queue.push(Span {
                trace: 1,
                id,
                parent: None,
                name: "reconcile",
                begun: SystemTime::UNIX_EPOCH,
                ended: SystemTime::UNIX_EPOCH,
                attributes: Vec::new(),
            });
        }
        assert_eq!(queue.count_dropped(), 2);
        let ids = |spans: Vec<Span>| spans.into_iter().map(|span| span.id).collect::<Vec<_>>();
        assert_eq!(ids(queue.take_oldest(2)), [1, 2]);
        assert_eq!(ids(queue.take_oldest(2)), [3]);
        assert!(queue.take_oldest(2).is_empty());
        queue.count_lost(4);
        assert_eq!(queue.count_dropped(), 6);
    }
}
