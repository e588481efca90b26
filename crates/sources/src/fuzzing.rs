//! Checks of this crate's parsers of outside bytes: for targets of cargo-fuzz, and as tests over the first inputs of these targets.
//!
//! The parsers are private, and stay so. This module exists only for tests and under `cfg(fuzzing)`, which cargo-fuzz sets. A check panics if a parser breaks its
//! promise. `seeds` are the first inputs of a target.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::allow_attributes,
    reason = "a check fails by a panic"
)]

pub mod conversation;
pub mod known_hosts;
pub mod pack;
pub mod pack_model;
pub mod tar;
pub mod texts;

pub use crate::bucket::fuzzing as listing;
pub use crate::helm::fuzzing::{chart, index};
pub use crate::oci::fuzzing::{layer, manifest};

use crate::budget::{BudgetLimits, ByteBudget};
use crate::fetch_budgets::GrowingCharge;

/// Runs work that may hold this many bytes of memory at a time. Targets measure it; tests only run it.
pub type Meter<'a> = &'a dyn Fn(u64, &mut dyn FnMut());

/// Runs work without measuring it.
#[cfg(test)]
pub(crate) fn run(_bytes: u64, work: &mut dyn FnMut()) {
    work();
}

/// Returns a charge without bounds.
pub(crate) fn unlimited_charge() -> GrowingCharge {
    let budget = ByteBudget::new(BudgetLimits::unlimited("bytes"));
    GrowingCharge::new_unused(budget.try_acquire("", 0).unwrap())
}

/// Reads a recorded file of the tests.
pub(crate) fn read_recorded(name: &str) -> Vec<u8> {
    std::fs::read(
        std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/data")
            .join(name),
    )
    .unwrap()
}

/// Runs a check over first inputs, each whole, cut off, and with single bytes changed.
#[cfg(test)]
pub(crate) fn check_around(seeds: &[Vec<u8>], check: impl Fn(&[u8])) {
    assert!(!seeds.is_empty());
    for seed in seeds {
        check(seed);
        let step = (seed.len() / 60).max(1);
        for at in (0..seed.len()).step_by(step) {
            check(&seed[..at]);
            for flip in [0x01, 0x80, 0xff] {
                let mut bytes = seed.clone();
                bytes[at] ^= flip;
                check(&bytes);
            }
        }
    }
}
