//! What requests leave of a Receiver: what its expressions have spent, and that its token is another by now. By name; forgotten with it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tenure_planner::expression::Purse;

/// What is kept of the Receivers of one namespace.
#[derive(Debug, Default)]
pub(crate) struct ReceiverBooks(Mutex<HashMap<String, Book>>);

#[derive(Clone, Debug, Default)]
struct Book {
    purse: Purse,
    is_outdated: bool,
}

impl ReceiverBooks {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Book>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the path is no longer the token's.
    pub(crate) fn note_outdated(&self, name: &str) {
        self.lock().entry(name.to_owned()).or_default().is_outdated = true;
    }

    /// Whether that was noted.
    pub(crate) fn is_outdated(&self, name: &str) -> bool {
        self.lock().get(name).is_some_and(|book| book.is_outdated)
    }

    /// The token is read again.
    pub(crate) fn clear_outdated(&self, name: &str) {
        if let Some(book) = self.lock().get_mut(name) {
            book.is_outdated = false;
        }
    }

    /// What its expressions have spent.
    pub(crate) fn read_purse(&self, name: &str) -> Purse {
        self.lock().get(name).map(|book| book.purse.clone()).unwrap_or_default()
    }

    /// Keeps what its expressions have spent by now.
    pub(crate) fn keep_purse(&self, name: &str, purse: Purse) {
        self.lock().entry(name.to_owned()).or_default().purse = purse;
    }

    /// The Receiver is gone.
    pub(crate) fn forget(&self, name: &str) {
        self.lock().remove(name);
    }
}
