//! `cargo xtask bench`: builds the program and the bench in release and runs it. What is measured and how is
//! `crates/bench`; refuses to measure a debug build.

use anyhow::bail;

use crate::tidy;

/// Builds, then measures with the given arguments.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let root = tidy::root();
    let cargo = |arguments: &[&str], more: &[String]| {
        let status = std::process::Command::new("cargo")
            .args(arguments)
            .args(more)
            .current_dir(&root)
            .status()?;
        if status.success() {
            Ok(())
        } else {
            bail!("cargo {}: {status}", arguments.join(" "))
        }
    };
    cargo(&["build", "--release", "--package", "tenure"], &[])?;
    cargo(&["run", "--release", "--package", "tenure-bench", "--"], arguments)
}
