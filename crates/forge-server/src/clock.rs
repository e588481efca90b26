//! How late it is for the host: as late as it really is, off by something, or what a test says.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use jiff::{SignedDuration, Timestamp};

/// A clock that can be set. All clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Clock(Arc<Mutex<Hand>>);

#[derive(Clone, Copy, Debug)]
enum Hand {
    /// It goes, and is wrong by this.
    Off(SignedDuration),
    /// It stands.
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

    /// It stands from now on.
    pub(crate) fn set(&self, time: Timestamp) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Hand::At(time);
    }

    /// It is later by this than it was, and goes on as it did.
    pub(crate) fn advance(&self, by: SignedDuration) {
        let mut hand = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *hand = match *hand {
            Hand::Off(before) => Hand::Off(before.saturating_add(by)),
            Hand::At(time) => Hand::At(time.saturating_add(by).unwrap_or(Timestamp::MAX)),
        };
    }

    /// The same, for the server of repositories.
    pub(crate) fn for_git(&self) -> tenure_git_server::Clock {
        let clock = self.clone();
        Arc::new(move || SystemTime::from(clock.now()))
    }
}
