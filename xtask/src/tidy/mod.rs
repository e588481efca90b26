//! Checks the project's structural rules, which no compiler checks. It only reports: each finding has the file and the solution.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

mod circles;
mod files;
mod fuzz_targets;
mod layers;
mod map;
mod messages;
mod names;
mod plain;
mod promises;

/// One broken rule: its place, and the solution.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// The file or crate, relative to the root.
    place: String,
    /// The problem and the solution.
    what: String,
}

impl Finding {
    fn new(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            what: what.into(),
        }
    }
}

/// Returns the root of the checkout.
pub(crate) fn find_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs every check and fails if there is a finding.
pub(crate) fn run() -> anyhow::Result<()> {
    let root = find_root();
    let mut findings = Vec::new();
    findings.extend(layers::check(&root)?);
    findings.extend(circles::check(&root)?);
    findings.extend(files::check(&root)?);
    findings.extend(fuzz_targets::check(&root)?);
    findings.extend(map::check(&root)?);
    findings.extend(names::check(&root)?);
    findings.extend(promises::check(&root)?);
    findings.extend(plain::check(&root)?);
    findings.sort();
    let lines: Vec<String> = findings
        .iter()
        .map(|finding| format!("{}: {}", finding.place, finding.what))
        .collect();
    if lines.is_empty() {
        Ok(())
    } else {
        bail!("{} findings\n{}", lines.len(), lines.join("\n"))
    }
}

/// Prints the sentences that have to be read twice, below some paths or everywhere.
pub(crate) fn list_plain(below: &[String]) -> anyhow::Result<()> {
    use std::io::Write;
    let text = plain::list_flagged(&find_root(), below)?;
    let _reader_gone = write!(std::io::stdout(), "{text}");
    Ok(())
}

/// Prints the messages that the program can show to a user, below some paths or everywhere.
pub(crate) fn list_messages(below: &[String]) -> anyhow::Result<()> {
    use std::io::Write;
    let text = messages::list_messages(&find_root(), below)?;
    let _reader_gone = write!(std::io::stdout(), "{text}");
    Ok(())
}

/// Lists the files that git tracks or would track, relative to the root.
fn list_tracked_files(root: &Path) -> anyhow::Result<Vec<String>> {
    let output = std::process::Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("git ls-files: is git installed?")?;
    if !output.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?
        .lines()
        .filter(|path| root.join(path).exists())
        .map(str::to_owned)
        .collect())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_project_is_tidy() {
        super::run().expect("tidy");
    }
}
