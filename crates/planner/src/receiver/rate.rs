//! The allowed rate of requests. A bucket fills by itself, and each request takes one token from it. A Receiver has one bucket, and a tenant has one for all its
//! Receivers. So a flood at one hook delays no other tenant's requests. A request beyond the rate is answered at once and costs nothing more.

use std::time::Duration;

/// A rate limit: the size of a token bucket, and the time in which it gains a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Requests that may come at once.
    pub most: u32,
    /// The time in which one token comes back.
    pub each: Duration,
}

/// The rate for one Receiver: a push to a busy repository causes a handful of requests at once.
pub const RECEIVER_RATE: Rate = Rate {
    most: 20,
    each: Duration::from_millis(500),
};

/// The rate for all Receivers of one tenant, or of one namespace without a tenant.
pub const TENANT_RATE: Rate = Rate {
    most: 100,
    each: Duration::from_millis(100),
};

/// A token bucket: the state of one rate limit. Times count from any fixed moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenBucket {
    /// The time at which the bucket is full again.
    full_at: Duration,
}

impl TokenBucket {
    /// Takes one token, if the bucket has one.
    pub fn take_token(&mut self, rate: Rate, now: Duration) -> bool {
        let taken_until = self.full_at.max(now).saturating_add(rate.each);
        if taken_until.saturating_sub(now) > rate.each.saturating_mul(rate.most) {
            return false;
        }
        self.full_at = taken_until;
        true
    }

    /// Checks whether the bucket is full. A full bucket need not be stored.
    #[must_use]
    pub fn is_full(&self, now: Duration) -> bool {
        self.full_at <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_refills_up_to_its_maximum() {
        let rate = Rate {
            most: 3,
            each: Duration::from_secs(2),
        };
        let mut bucket = TokenBucket::default();
        let mut take = |seconds| bucket.take_token(rate, Duration::from_secs(seconds));
        assert_eq!([take(100), take(100), take(100), take(100)], [true, true, true, false]);
        assert_eq!([take(102), take(102)], [true, false]);
        // The bucket never holds more than its maximum, however long no request came.
        assert_eq!(
            [take(1000), take(1000), take(1000), take(1000)],
            [true, true, true, false]
        );
        assert!(!bucket.is_full(Duration::from_secs(1005)) && bucket.is_full(Duration::from_secs(1006)));
    }

    #[test]
    fn flood_passes_only_at_allowed_rate() {
        let mut bucket = TokenBucket::default();
        let taken = (0..60_000).filter(|at| bucket.take_token(RECEIVER_RATE, Duration::from_millis(*at)));
        assert_eq!(taken.count(), 20 + 119);
    }
}
