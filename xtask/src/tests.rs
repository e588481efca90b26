//! `cargo xtask tests`: what `cargo test --workspace` runs, two programs at once. Owns nothing but that; documentation's examples are cargo's own to
//! run. What needs a real control plane in the scenarios is left to `cargo xtask scenarios`.

use crate::scenarios::{BINARIES, SUITE};
use crate::{cargo, suites};

/// Runs all tests.
pub(crate) fn run() -> anyhow::Result<()> {
    let suites = suites::build(&[])?;
    suites::run_at_once(suites, |suite| {
        let mut command = suite.command(&suite.program);
        command.arg("--quiet");
        // Real control planes of their own are started for them by `cargo xtask scenarios`: once is enough.
        if suite.name == SUITE {
            command.env_remove(BINARIES);
        }
        command
    })?;
    cargo::run(&["test", "--quiet", "--workspace", "--locked", "--doc"], &[])
}
