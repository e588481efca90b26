//! What the program around a server tells through it: what it counts, at `/metrics`, and whether it is ready, at `/readyz`.
//! Owns the two lists; refuses to know what is behind them.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;

/// A number of the program around a server that only grows.
#[derive(Debug, Clone, Copy)]
pub struct Counter {
    /// Its name at `/metrics`.
    pub name: &'static str,
    /// Reads it.
    pub read: fn() -> u64,
}

type Passes = Arc<dyn Fn() -> bool + Send + Sync>;

/// Everything that a server is told to tell.
#[derive(Default)]
pub(crate) struct Surroundings {
    counters: Vec<Counter>,
    checks: RwLock<Vec<(&'static str, Passes)>>,
}

impl Surroundings {
    pub(crate) fn new(counters: Vec<Counter>) -> Self {
        Self {
            counters,
            checks: RwLock::default(),
        }
    }

    pub(crate) fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.counters.iter().map(|counter| (counter.name, (counter.read)()))
    }

    pub(crate) fn add_check(&self, name: &'static str, passes: Passes) {
        self.checks.write().push((name, passes));
    }

    /// Each check and whether it passes. None of them may take long.
    pub(crate) fn checks(&self) -> Vec<(&'static str, bool)> {
        let checks = self.checks.read().clone();
        checks.into_iter().map(|(name, passes)| (name, passes())).collect()
    }
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Surroundings").finish_non_exhaustive()
    }
}
