//! How fast a lane that is a process is heard: the hub is everybody's, and a process may say anything.

use std::time::{Duration, Instant};

/// Bytes that are heard at once.
const AT_ONCE: u64 = 16 << 20;
/// Bytes that are heard in a second, in the long run.
const IN_A_SECOND: u64 = 2 << 20;
/// What a frame counts for besides its bytes.
const FRAME: u64 = 512;

/// How fast a process is heard.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Bytes that may be heard at once.
    left: u64,
    at: Instant,
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Self {
        Self { left: AT_ONCE, at: now }
    }

    /// Takes a frame of so many bytes; how long to wait before it is seen to, and before the next is read.
    pub(crate) fn take(&mut self, bytes: usize, now: Instant) -> Duration {
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
