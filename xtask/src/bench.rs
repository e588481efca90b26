//! `cargo xtask bench`: builds the program and `crates/bench` in release mode and runs the bench.

use crate::cargo;

/// Builds, then measures with the given arguments.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    cargo::run(&["build", "--release", "--package", "tenure"], &[])?;
    cargo::run(&["run", "--release", "--package", "tenure-bench", "--"], arguments)
}
