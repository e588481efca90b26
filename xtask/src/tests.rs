//! `cargo xtask tests`: what `cargo test --workspace` runs, some programs at once. Owns nothing but that; documentation's examples are cargo's own to
//! run. What needs a real control plane in the scenarios is left to `cargo xtask scenarios`.

use crate::scenarios::{BINARIES, SUITE};
use crate::suites::Run;
use crate::{cargo, suites};

/// How many programs run at once: most of them wait for half of their time. With three, two processors have nothing to
/// do for a twentieth of it.
const AT_ONCE: usize = 3;

/// Runs all tests.
pub(crate) fn run() -> anyhow::Result<()> {
    let suites = suites::build(&[])?;
    let runs = suites.iter().map(|suite| {
        let mut command = suite.command(&suite.program);
        command.arg("--quiet");
        // Real control planes of their own are started for them by `cargo xtask scenarios`: once is enough.
        if suite.name == SUITE {
            command.env_remove(BINARIES);
        }
        Run {
            name: suite.describe(),
            command,
        }
    });
    suites::run_at_once(runs.collect(), AT_ONCE)?;
    cargo::run(&["test", "--quiet", "--workspace", "--locked", "--doc"], &[])
}
