//! `cargo xtask tests`: runs the tests of `cargo test --workspace`, some programs at once. cargo itself runs the examples in documentation. `cargo xtask scenarios` runs
//! the scenarios that need a real control plane.

use std::io::Write as _;

use crate::scenarios::{BINARIES, SUITE};
use crate::suites::{Run, Suite};
use crate::{cargo, suites, timings};

/// The target of a package's trials.
const TRIALS: &str = "trials";

/// The number of programs at once. With three, two processors are never idle while scenarios run; later they wait for the disk a third of the time.
const AT_ONCE: usize = 3;

/// The most tests in a part of a program of scenarios: the longest program would run alone at the end, and leave a processor idle.
const PART: usize = 65;

/// Runs all tests, and prints their times if requested.
pub(crate) fn run(timings: bool) -> anyhow::Result<()> {
    let suites = suites::build_suites(&[])?;
    let mut runs = Vec::new();
    for suite in &suites {
        for (name, tests) in split(suite)? {
            let mut command = suite.command(&suite.program);
            if !tests.is_empty() {
                command.arg("--exact").args(tests);
            }
            // Trials have another harness, which reports no times.
            match timings && suite.name != TRIALS {
                true => timings::request_timings(&mut command),
                false => drop(command.arg("--quiet")),
            }
            // `cargo xtask scenarios` starts real control planes for them: once is enough.
            if suite.name == SUITE {
                command.env_remove(BINARIES);
            }
            runs.push(Run { name, command });
        }
    }
    let names: Vec<String> = runs.iter().map(|run| run.name.clone()).collect();
    let ended = suites::run_at_once(runs, AT_ONCE);
    if timings {
        write!(std::io::stdout(), "{}", timings::describe(&names))?;
    }
    ended?;
    cargo::run(&["test", "--quiet", "--workspace", "--locked", "--doc"], &[])
}

/// Splits a program of scenarios into parts. Of every other program the only part names no tests, which runs all of them.
fn split(suite: &Suite) -> anyhow::Result<Vec<(String, Vec<String>)>> {
    if suite.name != SUITE {
        return Ok(vec![(suite.describe(), Vec::new())]);
    }
    Ok(suite.split(&suite.list_tests(&[])?, PART))
}
