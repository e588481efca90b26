//! How much of what one lane's process says the hub hears, and keeps: the hub is everybody's, and a process may say anything.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::key::Key;

/// Bytes that are heard at once.
const AT_ONCE: u64 = 16 << 20;
/// Bytes that are heard in a second, in the long run.
const IN_A_SECOND: u64 = 2 << 20;
/// What a frame counts for besides its bytes.
const FRAME: u64 = 512;

/// How fast a process is heard.
#[derive(Debug)]
pub(super) struct Pace {
    /// Bytes that may be heard at once.
    left: u64,
    at: Instant,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self { left: AT_ONCE, at: now }
    }

    /// Takes a frame of so many bytes; how long to wait before it is seen to, and before the next is read.
    pub(super) fn take(&mut self, bytes: usize, now: Instant) -> Duration {
        let passed = u64::try_from(now.saturating_duration_since(self.at).as_micros()).unwrap_or(u64::MAX);
        let earned = passed.saturating_mul(IN_A_SECOND) / 1_000_000;
        self.left = self.left.saturating_add(earned).min(AT_ONCE);
        self.at = self.at.max(now);
        let cost = (bytes as u64).saturating_add(FRAME);
        let missing = cost.saturating_sub(self.left);
        self.left = self.left.saturating_sub(cost);
        if missing == 0 {
            return Duration::ZERO;
        }
        let wait = Duration::from_micros(missing.saturating_mul(1_000_000) / IN_A_SECOND);
        // What is earned while it waits pays for this one.
        self.at += wait;
        wait
    }
}

/// What is kept of what a process says, by the object that it says it of: so many things, all together.
#[derive(Debug)]
pub(super) struct Keeping {
    most: usize,
    kept: HashMap<Key, usize>,
    all: usize,
}

impl Keeping {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            kept: HashMap::new(),
            all: 0,
        }
    }

    /// Whether there is room for so many things of an object, in place of those that were kept of it.
    pub(super) fn keep(&mut self, key: &Key, count: usize) -> bool {
        let before = self.kept.get(key).copied().unwrap_or_default();
        let all = self.all.saturating_sub(before).saturating_add(count);
        if all > self.most {
            return false;
        }
        self.all = all;
        if count == 0 {
            self.kept.remove(key);
        } else {
            self.kept.insert(key.clone(), count);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconciled::Reconciled as _;

    #[test]
    fn who_talks_without_end_is_heard_slowly() {
        let began = Instant::now();
        let mut pace = Pace::new(began);
        // What one with a thousand Kustomizations says at its start.
        for _ in 0..2000 {
            assert_eq!(pace.take(2048, began), Duration::ZERO);
        }
        let mut now = began;
        let mut heard = 0_u64;
        while now < began + Duration::from_secs(60) {
            now += pace.take(1 << 20, now);
            heard += 1 << 20;
        }
        assert!(heard <= AT_ONCE + 61 * IN_A_SECOND, "{heard}");
        // Who is silent for a while is heard at once again.
        let later = now + Duration::from_secs(60);
        assert_eq!(pace.take(1 << 20, later), Duration::ZERO);
        // And one that says little, often, too.
        let mut frames = 0_u32;
        let (mut now, until) = (later, later + Duration::from_secs(60));
        while now < until {
            now += pace.take(10, now);
            frames += 1;
        }
        assert!(frames < 300_000, "{frames}");
    }

    #[test]
    fn what_is_kept_is_bounded_for_all_objects_together() {
        let key = |number: u32| Key::new(tenure_api::Kustomization::KIND, "team", &number.to_string());
        let mut keeping = Keeping::new(100);
        let taken = (0..50).filter(|number| keeping.keep(&key(*number), 9)).count();
        assert_eq!(taken, 11);
        assert!(keeping.keep(&key(0), 1), "less than before");
        assert!(keeping.keep(&key(50), 9), "there is room again");
        for number in 0..=50 {
            assert!(keeping.keep(&key(number), 0));
        }
        assert!(keeping.keep(&key(0), 100));
    }
}
