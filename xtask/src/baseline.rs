//! Records the answers of the real `kustomize` into the corpus of the kustomize crate: `want.yaml`, or `want.err` for an error. Only the version that the crate
//! reproduces is accepted. CI replays the corpus without the tool.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The version whose answers are recorded.
const VERSION: &str = "5.8.1";
const CORPUS: &str = "crates/kustomize/tests/corpus";
/// The notes of a case that a new recording keeps: the folder to build, and our library's message where the real tool fails, too (`says`), or builds (`refused`).
const KEPT: [&str; 3] = ["build =", "says =", "refused ="];

/// Records every case, or only those whose name contains `only`. Run it from the root of the workspace, with `kustomize` on PATH.
pub(crate) fn run(only: Option<&str>) -> Result<()> {
    let version = Command::new("kustomize")
        .arg("version")
        .output()
        .context("there is no kustomize on PATH")?;
    let version = String::from_utf8_lossy(&version.stdout).trim().to_owned();
    // A distribution's build may not know its version, and prints (devel).
    if !version.contains(VERSION) && !version.contains("devel") {
        bail!("kustomize {VERSION} is needed, this one says {version}");
    }
    let mut cases: Vec<PathBuf> = fs::read_dir(CORPUS)
        .with_context(|| format!("{CORPUS} can't be read; run this from the root of the workspace"))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()?;
    cases.sort();
    for case in cases {
        let name = case.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if only.is_none_or(|only| name.contains(only)) {
            record_case(&case).with_context(|| format!("recording {name}"))?;
        }
    }
    Ok(())
}

fn record_case(case: &Path) -> Result<()> {
    let notes_path = case.join("origin.toml");
    let notes = fs::read_to_string(&notes_path).unwrap_or_default();
    let kept: Vec<&str> = notes
        .lines()
        .filter(|line| KEPT.iter().any(|key| line.starts_with(key)))
        .collect();
    let inside = kept
        .iter()
        .find_map(|line| line.strip_prefix("build = "))
        .map_or("", |value| value.trim_matches('"'))
        .to_owned();
    let input = case.join("input").canonicalize()?;
    let output = Command::new("kustomize")
        .arg("build")
        .arg(input.join(inside))
        .output()?;
    let (yaml, error) = (case.join("want.yaml"), case.join("want.err"));
    if output.status.success() {
        // A distribution's build may not know the version that it puts into a label.
        let text = String::from_utf8(output.stdout)?.replace("kustomize-(devel)", &format!("kustomize-v{VERSION}"));
        fs::write(yaml, text)?;
        remove_path(&error)?;
    } else {
        let text = String::from_utf8_lossy(&output.stderr).replace(&*input.to_string_lossy(), "INPUT");
        // After a crash only the reason counts; the stacks of goroutines differ from run to run.
        let crashed = text.contains("\ngoroutine ");
        let lines: Vec<String> = text
            .lines()
            .take_while(|line| !(crashed && line.is_empty()))
            .filter(|line| !line.starts_with("# Warning"))
            .map(without_addresses)
            .collect();
        fs::write(error, lines.join("\n").trim().to_owned() + "\n")?;
        remove_path(&yaml)?;
    }
    let mut text = format!("tool = \"kustomize\"\nversion = \"{VERSION}\"\n");
    for line in kept {
        text.push_str(line);
        text.push('\n');
    }
    fs::write(notes_path, text)?;
    Ok(())
}

fn remove_path(path: &Path) -> Result<()> {
    if path.exists() {
        fs::remove_file(path)?;
    }
    Ok(())
}

/// Removes addresses of the tool's memory from a message, because they differ from run to run.
fn without_addresses(line: &str) -> String {
    let mut parts = line.split("0x");
    let mut text = parts.next().unwrap_or("").to_owned();
    for part in parts {
        text.push_str("0x…");
        text.push_str(part.trim_start_matches(|character: char| character.is_ascii_hexdigit()));
    }
    text
}
