//! Programs of ours that a task runs. Owns how cargo is called; refuses to hide that it failed.

use anyhow::bail;

use crate::tidy;

/// Runs cargo in the project's folder; `more` is handed on as it is.
pub(crate) fn run(arguments: &[&str], more: &[String]) -> anyhow::Result<()> {
    let status = std::process::Command::new("cargo")
        .args(arguments)
        .args(more)
        .current_dir(tidy::root())
        .status()?;
    if status.success() {
        Ok(())
    } else {
        bail!("cargo {}: {status}", arguments.join(" "))
    }
}
