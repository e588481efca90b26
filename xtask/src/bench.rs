//! `cargo xtask bench`: builds the program and the bench in release and runs it. What is measured and how is
//! `crates/bench`; refuses to measure a debug build.

use crate::cargo;

/// Builds, then measures with the given arguments.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    cargo::run(&["build", "--release", "--package", "tenure"], &[])?;
    cargo::run(&["run", "--release", "--package", "tenure-bench", "--"], arguments)
}
