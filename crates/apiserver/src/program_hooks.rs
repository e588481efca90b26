//! Facts from the embedding program: counters at `/metrics` and readiness checks at `/readyz`. This module only keeps
//! the lists.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;

/// A counter of the embedding program, which only grows, for `/metrics`.
#[derive(Debug, Clone, Copy)]
pub struct Counter {
    /// The counter's name at `/metrics`.
    pub name: &'static str,
    /// Reads the counter.
    pub read: fn() -> u64,
}

/// Returns whether a readiness check passes.
type Passes = Arc<dyn Fn() -> bool + Send + Sync>;
/// Writes metric families of the embedding program.
type WritesFigures = Arc<dyn Fn(&mut String) + Send + Sync>;

/// All counters, checks and metrics of the embedding program.
#[derive(Default)]
pub(crate) struct ProgramHooks {
    counters: Vec<Counter>,
    checks: RwLock<Vec<(&'static str, Passes)>>,
    figures: RwLock<Vec<WritesFigures>>,
}

impl ProgramHooks {
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

    /// Writes the embedding program's metric families.
    pub(crate) fn write_figures(&self, out: &mut String) {
        let figures = self.figures.read().clone();
        figures.iter().for_each(|write| write(out));
    }

    pub(crate) fn add_check(&self, name: &'static str, passes: Passes) {
        self.checks.write().push((name, passes));
    }

    /// Returns each check and whether it passes. No check may take long.
    pub(crate) fn checks(&self) -> Vec<(&'static str, bool)> {
        let checks = self.checks.read().clone();
        checks.into_iter().map(|(name, passes)| (name, passes())).collect()
    }
}

impl fmt::Debug for ProgramHooks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ProgramHooks").finish_non_exhaustive()
    }
}
