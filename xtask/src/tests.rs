//! `cargo xtask tests`: runs the tests of `cargo test --workspace`, some programs at once. cargo itself runs the examples in documentation. `cargo xtask scenarios` runs
//! the scenarios that need a real control plane.

use std::io::Write as _;

use crate::scenarios::{BINARIES, SUITE};
use crate::suites::{Run, Suite};
use crate::{cargo, suites, timings};

/// The target of a package's trials.
const TRIALS: &str = "trials";

/// The number of programs at once: most of them wait half of their time. With three, two processors are idle a twentieth of the time.
const AT_ONCE: usize = 3;

/// Runs all tests, and prints their times if requested.
pub(crate) fn run(timings: bool) -> anyhow::Result<()> {
    let suites = suites::build(&[])?;
    let runs = suites.iter().map(|suite| {
        let mut command = suite.command(&suite.program);
        // Trials have another harness, which reports no times.
        match timings && suite.name != TRIALS {
            true => timings::ask(&mut command),
            false => drop(command.arg("--quiet")),
        }
        // `cargo xtask scenarios` starts real control planes for them: once is enough.
        if suite.name == SUITE {
            command.env_remove(BINARIES);
        }
        Run {
            name: suite.describe(),
            command,
        }
    });
    let ended = suites::run_at_once(runs.collect(), AT_ONCE);
    if timings {
        let names: Vec<String> = suites.iter().map(Suite::describe).collect();
        write!(std::io::stdout(), "{}", timings::describe(&names))?;
    }
    ended?;
    cargo::run(&["test", "--quiet", "--workspace", "--locked", "--doc"], &[])
}
