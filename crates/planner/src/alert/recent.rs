//! What was told lately: the same news is told once in a while, as in Flux. Remembers digests, and no more than so many.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::news::News;

/// How long the same is not told again (Flux's default).
pub const SAME_FOR: Duration = Duration::from_secs(300);
/// How many are remembered; whoever makes more of them is told of some twice.
pub const RECENT: usize = 4096;

/// What was told lately. Times count from any moment that stays the same.
#[derive(Debug, Default)]
pub struct Recent {
    told: HashMap<[u8; 32], Duration>,
    /// The oldest first.
    order: VecDeque<[u8; 32]>,
}

impl Recent {
    /// Whether it is new; then it is remembered.
    pub fn take(&mut self, news: &News, now: Duration) -> bool {
        while let Some(oldest) = self.order.front().copied() {
            let is_over = self.told.get(&oldest).is_none_or(|at| now >= *at + SAME_FOR);
            if !is_over && self.order.len() < RECENT {
                break;
            }
            self.order.pop_front();
            self.told.remove(&oldest);
        }
        let key: [u8; 32] = Sha256::digest(news.write_key().as_bytes()).into();
        if self.told.contains_key(&key) {
            return false;
        }
        self.told.insert(key, now);
        self.order.push_back(key);
        true
    }
}
