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
mod packages;
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
    for (group, least) in [("package", 23), ("package_source", 9)] {
        let cases = packages::list_names(group).into_iter().map(|name| {
            let scenario = name.clone();
            (name, move || {
                packages::check(group, &scenario);
                Ok(())
            })
        });
        suite.add(group, least, cases);
    }
    suite.run()
}
