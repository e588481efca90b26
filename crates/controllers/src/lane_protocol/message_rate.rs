//! Limits the reading of messages from a lane's process: all lanes share the hub, and a process may send anything.

use std::time::{Duration, Instant};

/// Bytes that may be read at once.
const AT_ONCE: u64 = 16 << 20;
/// Bytes per second that are read on average.
const IN_A_SECOND: u64 = 2 << 20;
/// The cost of a frame besides its bytes.
const FRAME: u64 = 512;

/// A token bucket for the bytes that the hub reads from one lane's process.
#[derive(Debug)]
pub(crate) struct MessageRate {
    /// Bytes that may be read now.
    left: u64,
    at: Instant,
}

impl MessageRate {
    pub(crate) fn new(now: Instant) -> Self {
        Self { left: AT_ONCE, at: now }
    }

    /// Charges a frame of this size. Returns the pause before it is handled and the next frame is read.
    pub(crate) fn charge_frame(&mut self, bytes: usize, now: Instant) -> Duration {
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
        // The bytes earned during the pause pay for this frame.
        self.at += wait;
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_that_sends_without_end_is_read_slowly() {
        let began = Instant::now();
        let mut pace = MessageRate::new(began);
        // The messages of a lane with a thousand Kustomizations at its start.
        for _ in 0..2000 {
            assert_eq!(pace.charge_frame(2048, began), Duration::ZERO);
        }
        let mut now = began;
        let mut received = 0_u64;
        while now < began + Duration::from_secs(60) {
            now += pace.charge_frame(1 << 20, now);
            received += 1 << 20;
        }
        assert!(received <= AT_ONCE + 61 * IN_A_SECOND, "{received}");
        // A lane that was silent for a while is read immediately again.
        let later = now + Duration::from_secs(60);
        assert_eq!(pace.charge_frame(1 << 20, later), Duration::ZERO);
        // A lane with frequent small messages is read too.
        let mut frames = 0_u32;
        let (mut now, until) = (later, later + Duration::from_secs(60));
        while now < until {
            now += pace.charge_frame(10, now);
            frames += 1;
        }
        assert!(frames < 300_000, "{frames}");
    }
}
