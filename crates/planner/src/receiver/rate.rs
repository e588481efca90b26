//! How many requests are taken. A bucket fills by itself, each request takes one from it: a Receiver has one, and a tenant one for all of
//! its Receivers, so that a flood at one hook keeps no other tenant's waiting. What comes too often is answered at once and costs nothing more.

use std::time::Duration;

/// How fast a bucket fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Requests that may come at once.
    pub most: u32,
    /// How long one takes to come back.
    pub each: Duration,
}

/// Of one Receiver: a push to a busy repository says a handful of things at once.
pub const RECEIVER_RATE: Rate = Rate {
    most: 20,
    each: Duration::from_millis(500),
};

/// Of all Receivers of one tenant, or of one namespace that is nobody's.
pub const TENANT_RATE: Rate = Rate {
    most: 100,
    each: Duration::from_millis(100),
};

/// What is left of a rate. Times count from any moment that stays the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// When all that was taken has come back.
    full_at: Duration,
}

impl Bucket {
    /// Takes one, if one is there.
    pub fn take(&mut self, rate: Rate, now: Duration) -> bool {
        let taken_until = self.full_at.max(now).saturating_add(rate.each);
        if taken_until.saturating_sub(now) > rate.each.saturating_mul(rate.most) {
            return false;
        }
        self.full_at = taken_until;
        true
    }

    /// Whether nothing is missing: then it needn't be remembered.
    #[must_use]
    pub fn is_full(&self, now: Duration) -> bool {
        self.full_at <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_what_it_has_and_fills_by_itself() {
        let rate = Rate {
            most: 3,
            each: Duration::from_secs(2),
        };
        let mut bucket = Bucket::default();
        let mut take = |seconds| bucket.take(rate, Duration::from_secs(seconds));
        assert_eq!([take(100), take(100), take(100), take(100)], [true, true, true, false]);
        assert_eq!([take(102), take(102)], [true, false]);
        // No more than it holds, however long nobody came.
        assert_eq!(
            [take(1000), take(1000), take(1000), take(1000)],
            [true, true, true, false]
        );
        assert!(!bucket.is_full(Duration::from_secs(1005)) && bucket.is_full(Duration::from_secs(1006)));
    }

    #[test]
    fn a_flood_of_a_minute_gets_through_as_often_as_the_rate_says() {
        let mut bucket = Bucket::default();
        let taken = (0..60_000).filter(|at| bucket.take(RECEIVER_RATE, Duration::from_millis(*at)));
        assert_eq!(taken.count(), 20 + 119);
    }
}
