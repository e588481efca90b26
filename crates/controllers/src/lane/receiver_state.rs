//! State that requests leave about a Receiver: the cost of its expressions, and that its token changed. By name; removed with the Receiver.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tenure_planner::expression::EvaluationBudget;

/// The state of the Receivers of one namespace.
#[derive(Debug, Default)]
pub(crate) struct ReceiverStateTable(Mutex<HashMap<String, ReceiverState>>);

/// The cost budget of a Receiver's expressions, and whether its path no longer belongs to its token.
#[derive(Clone, Debug, Default)]
struct ReceiverState {
    purse: EvaluationBudget,
    is_outdated: bool,
}

impl ReceiverStateTable {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, ReceiverState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the path no longer belongs to the token.
    pub(crate) fn note_outdated(&self, name: &str) {
        self.lock().entry(name.to_owned()).or_default().is_outdated = true;
    }

    /// Returns whether [`Self::note_outdated`] was called since the token was last read.
    pub(crate) fn is_outdated(&self, name: &str) -> bool {
        self.lock().get(name).is_some_and(|book| book.is_outdated)
    }

    /// Clears the record, because the token is read again.
    pub(crate) fn clear_outdated(&self, name: &str) {
        if let Some(book) = self.lock().get_mut(name) {
            book.is_outdated = false;
        }
    }

    /// Returns the cost budget of a Receiver's expressions.
    pub(crate) fn read_budget(&self, name: &str) -> EvaluationBudget {
        self.lock().get(name).map(|book| book.purse.clone()).unwrap_or_default()
    }

    /// Stores the cost budget of a Receiver's expressions.
    pub(crate) fn store_budget(&self, name: &str, purse: EvaluationBudget) {
        self.lock().entry(name.to_owned()).or_default().purse = purse;
    }

    /// Removes the state of a deleted Receiver.
    pub(crate) fn forget(&self, name: &str) {
        self.lock().remove(name);
    }
}
