//! The clock of the host: the real time, the real time with an offset, or a time that a test sets.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use jiff::{SignedDuration, Timestamp};

/// A clock that a test can set. All clones share one time.
#[derive(Clone, Debug)]
pub(crate) struct Clock(Arc<Mutex<Hand>>);

/// The state of a clock.
#[derive(Clone, Copy, Debug)]
enum Hand {
    /// The clock runs, with this offset from the real time.
    Off(SignedDuration),
    /// The clock stands still at this time.
    At(Timestamp),
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Hand::Off(SignedDuration::ZERO))))
    }

    pub(crate) fn now(&self) -> Timestamp {
        match *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Hand::Off(by) => Timestamp::now().saturating_add(by).unwrap_or(Timestamp::MAX),
            Hand::At(time) => time,
        }
    }

    /// Stops the clock at a time.
    pub(crate) fn set(&self, time: Timestamp) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Hand::At(time);
    }

    /// Moves the clock forward. A running clock goes on running, and a stopped clock stays stopped.
    pub(crate) fn advance(&self, by: SignedDuration) {
        let mut hand = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *hand = match *hand {
            Hand::Off(before) => Hand::Off(before.saturating_add(by)),
            Hand::At(time) => Hand::At(time.saturating_add(by).unwrap_or(Timestamp::MAX)),
        };
    }

    /// Returns the clock in the form that the server of repositories takes.
    pub(crate) fn for_git(&self) -> tenure_git_server::Clock {
        let clock = self.clone();
        Arc::new(move || SystemTime::from(clock.now()))
    }
}
