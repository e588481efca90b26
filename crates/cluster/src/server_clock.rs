//! The time of the API server. Two processes agree on this clock even if the clocks of their machines differ.
//!
//! The clock reads the header `Date` of answers, which counts seconds. If the difference is below two seconds, the machine's own clock counts as right.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use http::HeaderMap;
use http::header::DATE;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;

/// The apparent difference that rounding to seconds and the answer's travel time can cause.
const RESOLUTION_MILLISECONDS: i64 = 2_000;

/// The milliseconds by which the API server's clock is ahead of this machine's. Cheap to clone; all clones share one state.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerClock(Arc<AtomicI64>);

impl ServerClock {
    /// Learns the time from the head of an answer, if the head has a date.
    pub(crate) fn update(&self, headers: &HeaderMap) {
        self.update_at(headers, Timestamp::now());
    }

    fn update_at(&self, headers: &HeaderMap, now: Timestamp) {
        let date = headers.get(DATE).and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| DateTimeParser::new().parse_timestamp(date).ok());
        let Some(date) = date else { return };
        let ahead = date.as_millisecond().saturating_sub(now.as_millisecond());
        let is_same = ahead.unsigned_abs() <= RESOLUTION_MILLISECONDS.unsigned_abs();
        self.0.store(if is_same { 0 } else { ahead }, Ordering::Relaxed);
    }

    /// Returns the time of the API server.
    pub(crate) fn now(&self) -> Timestamp {
        self.correct(Timestamp::now())
    }

    fn correct(&self, now: Timestamp) -> Timestamp {
        let there = now.as_millisecond().saturating_add(self.0.load(Ordering::Relaxed));
        Timestamp::from_millisecond(there).unwrap_or(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(date: &str) -> HeaderMap {
        HeaderMap::from_iter([(DATE, date.parse().unwrap())])
    }

    #[test]
    fn server_date_counts_unless_missing_or_close() {
        let now: Timestamp = "2026-05-01T12:00:00.700Z".parse().unwrap();
        let clock = ServerClock::default();
        for (date, there) in [
            ("Fri, 01 May 2026 12:00:00 GMT", "2026-05-01T12:00:00.700Z"),
            ("Sat, 02 May 2026 12:00:00 GMT", "2026-05-02T12:00:00Z"),
            // An unreadable date changes nothing.
            ("yesterday", "2026-05-02T12:00:00Z"),
            ("Thu, 30 Apr 2026 12:00:00 GMT", "2026-04-30T12:00:00Z"),
            ("Fri, 01 May 2026 12:00:02 GMT", "2026-05-01T12:00:00.700Z"),
        ] {
            clock.clone().update_at(&answer(date), now);
            assert_eq!(clock.correct(now), there.parse().unwrap(), "{date}");
        }
        clock.update_at(&HeaderMap::new(), now);
        assert_eq!(clock.correct(now), now);
    }
}
