//! `cargo xtask tests`: what `cargo test --workspace` runs, two programs at once. Owns nothing but that; documentation's examples are cargo's own to
//! run.

use crate::{cargo, suites};

/// Runs all tests.
pub(crate) fn run() -> anyhow::Result<()> {
    let suites = suites::build(&[])?;
    suites::run_at_once(suites, |suite| {
        let mut command = suite.command(&suite.program);
        command.arg("--quiet");
        command
    })?;
    cargo::run(&["test", "--quiet", "--workspace", "--locked", "--doc"], &[])
}
