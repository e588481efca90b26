//! Suppresses duplicate events: equal events within five minutes are sent once, as in Flux. The module remembers a bounded number of digests.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::alert_event::AlertEvent;

/// The time for which an equal event is not sent again (Flux's default).
pub const SAME_FOR: Duration = Duration::from_secs(300);
/// The most remembered events of a lane. A lane with more events within [`SAME_FOR`] can send an event twice.
pub const RECENT: usize = 4096;

/// The digests of the events that a lane sent lately, and when. Times count from any fixed moment.
#[derive(Debug, Default)]
pub struct RecentEvents {
    sent: HashMap<[u8; 32], Duration>,
    /// The keys of `sent`, the oldest first.
    order: VecDeque<[u8; 32]>,
}

impl RecentEvents {
    /// Checks that no equal event was sent lately, and then records this event as sent.
    pub fn record_if_new(&mut self, news: &AlertEvent, now: Duration) -> bool {
        while let Some(oldest) = self.order.front().copied() {
            let is_over = self.sent.get(&oldest).is_none_or(|at| now >= *at + SAME_FOR);
            if !is_over && self.order.len() < RECENT {
                break;
            }
            self.order.pop_front();
            self.sent.remove(&oldest);
        }
        let key: [u8; 32] = Sha256::digest(news.write_key().as_bytes()).into();
        if self.sent.contains_key(&key) {
            return false;
        }
        self.sent.insert(key, now);
        self.order.push_back(key);
        true
    }
}
