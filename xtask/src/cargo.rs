//! Programs of ours that a task runs. Owns how cargo is called; refuses to hide that it failed.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::bail;

use crate::tidy;

/// Runs cargo in the project's folder; `more` is handed on as it is.
pub(crate) fn run(arguments: &[&str], more: &[String]) -> anyhow::Result<()> {
    let mut cargo = command("cargo");
    cargo.args(arguments).args(more);
    finish(cargo)
}

/// Where cargo builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| tidy::root().join("target"), Into::into)
}

/// Runs a program of a package that has tests called `tests`, as `cargo test --workspace` has built it: for the package alone, all that it depends
/// on would be built again with fewer features.
pub(crate) fn run_beside_tests(program: &str, tests: &str, arguments: &[String]) -> anyhow::Result<()> {
    run(&["test", "--quiet", "--workspace", "--no-run", "--test", tests], &[])?;
    let mut command = command(target().join("debug").join(program));
    command.args(arguments);
    finish(command)
}

/// A program in the project's folder, without what cargo told this one about xtask: build scripts that look at these variables would
/// be run again, and everything above them built again.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(tidy::root());
    for (name, _) in std::env::vars_os() {
        if let Some(name) = name.to_str()
            && (name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
        {
            command.env_remove(name);
        }
    }
    command
}

/// Runs a program to its end.
pub(crate) fn finish(mut command: Command) -> anyhow::Result<()> {
    let status = command.status()?;
    if status.success() {
        return Ok(());
    }
    let words: Vec<_> = command.get_args().map(OsStr::to_string_lossy).collect();
    bail!("{} {}: {status}", command.get_program().display(), words.join(" "))
}
