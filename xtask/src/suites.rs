//! Test programs as cargo has built them: lists them, and runs some of them at once.
//!
//! The outputs of programs are not mixed, and a failing program doesn't stop the others. Programs are built with the features of `cargo test --workspace`: for fewer
//! packages, cargo would build all their dependencies again.

use std::borrow::Cow;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::cargo;

/// The tests of one target of a package.
pub(crate) struct Suite {
    /// The name of the target, such as `scenarios`.
    pub(crate) name: String,
    /// The built program.
    pub(crate) program: PathBuf,
    /// The package's folder, in which its tests run.
    pub(crate) folder: PathBuf,
}

impl Suite {
    /// Returns the name of the package's folder.
    pub(crate) fn package(&self) -> Cow<'_, str> {
        self.folder.file_name().unwrap_or_default().to_string_lossy()
    }

    /// Returns the name for users: package and target.
    pub(crate) fn describe(&self) -> String {
        format!("{}-{}", self.package(), self.name)
    }

    /// Makes a command in the package's folder, with cargo's variables.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = cargo::make_command(program);
        command
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }

    /// Lists the tests whose names contain one of these, or all.
    pub(crate) fn list_tests(&self, only: &[String]) -> anyhow::Result<Vec<String>> {
        let mut command = cargo::make_command(&self.program);
        command
            .args(["--list", "--format=terse"])
            .args(only)
            .current_dir(&self.folder);
        let output = command.output().with_context(|| self.program.display().to_string())?;
        // A program that can't start is an error, not a program without tests.
        if !output.status.success() {
            bail!("{} --list: {}", self.program.display(), output.status);
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let tests = text.lines().filter_map(|line| line.strip_suffix(": test"));
        Ok(tests.map(str::to_owned).collect())
    }

    /// Splits tests into parts of at most this many, and names the parts.
    pub(crate) fn split(&self, tests: &[String], part: usize) -> Vec<(String, Vec<String>)> {
        let many = tests.len().div_ceil(part);
        // Tests are distributed in turn, because slow ones are often adjacent.
        let parts = (0..many).map(|first| {
            let tests = tests.iter().skip(first).step_by(many).cloned();
            let name = match many {
                1 => self.describe(),
                _ => format!("{}-{}", self.describe(), first + 1),
            };
            (name, tests.collect())
        });
        parts.collect()
    }
}

/// Builds the targets as `cargo test --workspace` does. The largest programs come first, because they take longest.
pub(crate) fn build_suites(targets: &[&str]) -> anyhow::Result<Vec<Suite>> {
    let mut command = cargo::make_command("cargo");
    command
        .args(["test", "--quiet", "--workspace", "--locked", "--no-run"])
        .arg("--message-format=json-render-diagnostics")
        .args(targets);
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("the tests do not build");
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut suites: Vec<Suite> = text.lines().filter_map(read_suite).collect();
    suites.sort_by_key(|suite| std::cmp::Reverse(suite.program.metadata().map(|file| file.len()).unwrap_or_default()));
    Ok(suites)
}

/// Reads a suite from cargo's message about a built program.
fn read_suite(line: &str) -> Option<Suite> {
    let message: Value = serde_json::from_str(line).ok()?;
    let target = message.get("target")?;
    let is_suite = message.pointer("/profile/test")?.as_bool()?;
    Some(Suite {
        name: target.get("name")?.as_str()?.to_owned(),
        program: message.get("executable")?.as_str().filter(|_| is_suite)?.into(),
        folder: Path::new(message.get("manifest_path")?.as_str()?).parent()?.to_owned(),
    })
}

/// A command that runs tests, with a name for the output.
pub(crate) struct Run {
    /// The name for users.
    pub(crate) name: String,
    /// The command.
    pub(crate) command: Command,
}

/// Runs the commands in this order, this many at once. Continues after a failure, and returns an error at the end.
pub(crate) fn run_at_once(runs: Vec<Run>, at_once: usize) -> anyhow::Result<()> {
    let waiting = Mutex::new(runs.into_iter());
    let next = || waiting.lock().ok().and_then(|mut waiting| waiting.next());
    let work = || finish_all(std::iter::from_fn(next).map(run_aside));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        finish_all(workers.into_iter().map(|worker| match worker.join() {
            Ok(ended) => ended,
            Err(_) => bail!("what ran the tests panicked"),
        }))
    })
}

/// Continues after a failure, and returns the first one.
pub(crate) fn finish_all(ended: impl Iterator<Item = anyhow::Result<()>>) -> anyhow::Result<()> {
    ended.fold(Ok(()), Result::and)
}

/// Returns the file with the output of a program of this name.
pub(crate) fn name_log(name: &str) -> PathBuf {
    cargo::find_target().join("suites").join(format!("{name}.log"))
}

/// Runs tests whose output would be mixed with that of others: it is printed at their end.
fn run_aside(Run { name, mut command }: Run) -> anyhow::Result<()> {
    let log = name_log(&name);
    if let Some(folder) = log.parent() {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let file = File::create(&log).with_context(|| log.display().to_string())?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    writeln!(std::io::stdout(), "{name}: begins, in {}", log.display())?;
    let ended = cargo::run_command(command);
    let text = std::fs::read(&log).unwrap_or_default();
    let mut out = std::io::stdout().lock();
    writeln!(out, "{name}:")?;
    out.write_all(&text)?;
    ended
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn make_suite(program: &str) -> Suite {
        Suite {
            name: "scenarios".to_owned(),
            program: program.into(),
            folder: std::env::temp_dir(),
        }
    }

    #[test]
    fn failure_to_list_tests_is_an_error() {
        assert!(make_suite("false").list_tests(&[]).is_err());
    }

    #[test]
    fn every_test_is_in_one_part() {
        let tests: Vec<String> = (0..131).map(|number| number.to_string()).collect();
        let parts = make_suite("true").split(&tests, 65);
        assert!(parts.iter().all(|(_, part)| part.len() <= 65), "{parts:?}");
        let names: BTreeSet<&String> = parts.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), 3);
        let mut split: Vec<String> = parts.iter().flat_map(|(_, part)| part.clone()).collect();
        let mut all = tests;
        split.sort();
        all.sort();
        assert_eq!(split, all);
    }
}
