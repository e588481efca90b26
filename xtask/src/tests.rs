//! `cargo xtask tests`: what `cargo test --workspace` runs, some programs at once. Owns nothing but that; documentation's examples are cargo's own to
//! run. What needs a real control plane in the scenarios is left to `cargo xtask scenarios`.

use std::io::Write as _;

use crate::scenarios::{BINARIES, SUITE};
use crate::suites::{Run, Suite};
use crate::{cargo, suites, timings};

/// The target that a package's trials are.
const TRIALS: &str = "trials";

/// How many programs run at once: most of them wait for half of their time. With three, two processors have nothing to
/// do for a twentieth of it.
const AT_ONCE: usize = 3;

/// Runs all tests, and says how long they took if that is asked.
pub(crate) fn run(timings: bool) -> anyhow::Result<()> {
    let suites = suites::build(&[])?;
    let runs = suites.iter().map(|suite| {
        let mut command = suite.command(&suite.program);
        // Trials, which run by another harness, say no times.
        match timings && suite.name != TRIALS {
            true => timings::ask(&mut command),
            false => drop(command.arg("--quiet")),
        }
        // Real control planes of their own are started for them by `cargo xtask scenarios`: once is enough.
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
