//! Runs cargo and programs of the workspace. A failure of a program is an error of the task.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::bail;

use crate::tidy;

/// Runs cargo in the project's folder; `more` is passed on unchanged.
pub(crate) fn run(arguments: &[&str], more: &[String]) -> anyhow::Result<()> {
    let mut cargo = make_command("cargo");
    cargo.args(arguments).args(more);
    run_command(cargo)
}

/// Returns cargo's target folder.
pub(crate) fn find_target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| tidy::find_root().join("target"), Into::into)
}

/// Runs a program of a package that has tests called `tests`, as `cargo test --workspace` has built it. A build of the package alone would build all dependencies again
/// with fewer features.
pub(crate) fn run_beside_tests(program: &str, tests: &str, arguments: &[String]) -> anyhow::Result<()> {
    run(&["test", "--quiet", "--workspace", "--no-run", "--test", tests], &[])?;
    let mut command = make_command(find_target().join("debug").join(program));
    command.args(arguments);
    run_command(command)
}

/// Makes a command in the project's folder, without cargo's variables for xtask. With them, build scripts that read these variables would run again, and all dependants
/// would be built again.
pub(crate) fn make_command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(tidy::find_root());
    for (name, _) in std::env::vars_os() {
        if let Some(name) = name.to_str()
            && (name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
        {
            command.env_remove(name);
        }
    }
    command
}

/// Runs a program and waits for its end.
pub(crate) fn run_command(mut command: Command) -> anyhow::Result<()> {
    let status = command.status()?;
    if status.success() {
        return Ok(());
    }
    let words: Vec<_> = command.get_args().map(OsStr::to_string_lossy).collect();
    bail!("{} {}: {status}", command.get_program().display(), words.join(" "))
}
