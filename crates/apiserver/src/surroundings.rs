//! What the program around a server tells through it: what it counts, at `/metrics`, and whether it is ready, at `/readyz`.
//! Owns the lists; refuses to know what is behind them.

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
type WritesFigures = Arc<dyn Fn(&mut String) + Send + Sync>;

/// Everything that a server is told to tell.
#[derive(Default)]
pub(crate) struct Surroundings {
    counters: Vec<Counter>,
    checks: RwLock<Vec<(&'static str, Passes)>>,
    figures: RwLock<Vec<WritesFigures>>,
}

impl Surroundings {
    pub(crate) fn new(counters: Vec<Counter>) -> Self {
        Self {
            counters,
            checks: RwLock::default(),
            figures: RwLock::default(),
        }
    }

    pub(crate) fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.counters.iter().map(|counter| (counter.name, (counter.read)()))
    }

    pub(crate) fn add_figures(&self, write: WritesFigures) {
        self.figures.write().push(write);
    }

    /// Writes families of figures that this server knows nothing of.
    pub(crate) fn write_figures(&self, out: &mut String) {
        let figures = self.figures.read().clone();
        figures.iter().for_each(|write| write(out));
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
