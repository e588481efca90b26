//! Scenarios as data, a trial for each.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::allow_attributes,
    clippy::disallowed_methods,
    reason = "tests may panic, and the cases are in files"
)]

use std::process::ExitCode;

use tenure_trials::Suite;

mod builds;
mod checks;
mod execution;
mod facts;
mod scenarios;
mod script;
#[path = "../it/world.rs"]
mod world;

fn main() -> ExitCode {
    let cases = scenarios::list_names().into_iter().map(|name| {
        let scenario = name.clone();
        (name, move || {
            scenarios::check(&scenario);
            Ok(())
        })
    });
    let mut suite = Suite::default();
    suite.add("kustomization", 66, cases);
    suite.run()
}
