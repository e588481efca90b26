//! `cargo xtask scenarios`: the scenarios that also run on the embedded control plane, run against another API server. Owns which
//! suites these are, and how many run at once; refuses nothing by itself: a cluster that is not marked as made for tests is refused by
//! `crates/testkit`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::cargo;

/// The suites: what Tenure needs of an API server (`crates/testkit`), Tenure's controllers on it (`crates/controllers`), its doors
/// (`crates/admission`), and the program as a process (`crates/tenure`: install, run, uninstall). The whole
/// workspace is named so that what `cargo test` has built is not built again with fewer features.
const SUITES: [&str; 3] = ["--workspace", "--test", "scenarios"];

/// The variable that lets the suite of the controllers run `tenure run` in place of controllers in the test's own process.
const PROGRAM: &str = "TENURE_TEST_PROGRAM";

/// The variable that says where the lanes of that program run.
const LANES: &str = "TENURE_TEST_LANES";

/// The variable that names the cluster.
const KUBECONFIG: &str = "TENURE_TEST_KUBECONFIG";

/// The program that starts a real control plane and runs a command beside it.
const WITH_KUBERNETES: &str = "with_kubernetes";

/// How many suites run at once, each beside a control plane of its own: they wait for it half of their time.
const AT_ONCE: usize = 2;

/// The tests of one crate.
struct Suite {
    program: PathBuf,
    folder: PathBuf,
}

/// Runs them against the cluster of a kubeconfig, or against real control planes that are started for them.
pub(crate) fn run(
    kubeconfig: Option<&Path>,
    process: bool,
    lanes: Option<&str>,
    only: Option<&str>,
) -> anyhow::Result<()> {
    let mut suites = build()?;
    if let Some(only) = only {
        suites = find_suites_with(suites, only)?;
    }
    let prepare = |suite: &Suite, beside: Option<&Path>| {
        let mut command = match beside {
            Some(beside) => {
                let mut command = cargo::command(beside);
                command.arg(&suite.program);
                command
            }
            None => cargo::command(&suite.program),
        };
        // One at a time: they share the cluster, and each begins with what the last one left removed.
        command.args(["--quiet", "--test-threads=1"]).args(only);
        command
            .current_dir(&suite.folder)
            .env("CARGO_MANIFEST_DIR", &suite.folder);
        if let Some(kubeconfig) = kubeconfig {
            command.env(KUBECONFIG, kubeconfig);
        }
        if process || lanes.is_some() {
            command.env(PROGRAM, cargo::target().join("debug/tenure"));
        }
        if let Some(lanes) = lanes {
            command.env(LANES, lanes);
        }
        command
    };
    if kubeconfig.is_some() {
        return finish_all(suites.iter().map(|suite| cargo::finish(prepare(suite, None))));
    }
    let beside = cargo::target().join("debug/examples").join(WITH_KUBERNETES);
    let waiting = Mutex::new(suites.into_iter());
    let next = || waiting.lock().ok().and_then(|mut waiting| waiting.next());
    let work = || {
        let ended = std::iter::from_fn(|| {
            let suite = next()?;
            Some(run_aside(&suite, prepare(&suite, Some(&beside))))
        });
        finish_all(ended)
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        finish_all(workers.into_iter().map(|worker| match worker.join() {
            Ok(ended) => ended,
            Err(_) => bail!("what ran the scenarios panicked"),
        }))
    })
}

/// Goes on after a failure, and ends with the first.
fn finish_all(ended: impl Iterator<Item = anyhow::Result<()>>) -> anyhow::Result<()> {
    ended.fold(Ok(()), Result::and)
}

/// Builds the suites and what they run, the largest suite first.
fn build() -> anyhow::Result<Vec<Suite>> {
    let mut command = cargo::command("cargo");
    command.args([
        "test",
        "--quiet",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]);
    command
        .args(["--example", WITH_KUBERNETES, "--bin", "tenure"])
        .args(SUITES);
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("the scenarios do not build");
    }
    let mut suites: Vec<Suite> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(read_suite)
        .collect();
    suites.sort_by_key(|suite| std::cmp::Reverse(suite.program.metadata().map(|file| file.len()).unwrap_or_default()));
    Ok(suites)
}

/// A suite, if this is cargo's message that one was built.
fn read_suite(line: &str) -> Option<Suite> {
    let message: Value = serde_json::from_str(line).ok()?;
    let target = message.get("target")?;
    let is_suite = target.get("name")? == "scenarios" && message.pointer("/profile/test")?.as_bool()?;
    Some(Suite {
        program: message.get("executable")?.as_str().filter(|_| is_suite)?.into(),
        folder: Path::new(message.get("manifest_path")?.as_str()?).parent()?.to_owned(),
    })
}

/// The suites that have a test of that name: a control plane for the others would be started for nothing.
fn find_suites_with(suites: Vec<Suite>, only: &str) -> anyhow::Result<Vec<Suite>> {
    let mut found = Vec::new();
    for suite in suites {
        let mut command = cargo::command(&suite.program);
        command
            .args(["--list", "--format=terse", only])
            .current_dir(&suite.folder);
        let output = command.output().with_context(|| suite.program.display().to_string())?;
        if output
            .stdout
            .split(|byte| *byte == b'\n')
            .any(|line| line.ends_with(b": test"))
        {
            found.push(suite);
        }
    }
    if found.is_empty() {
        bail!("no scenario is called {only}");
    }
    Ok(found)
}

/// Runs a suite whose words would be mixed with those of another: they are printed when it is at its end.
fn run_aside(suite: &Suite, mut command: Command) -> anyhow::Result<()> {
    let name = suite
        .folder
        .file_name()
        .unwrap_or(OsStr::new("scenarios"))
        .display()
        .to_string();
    let log = cargo::target().join(format!("scenarios-{name}.log"));
    let file = File::create(&log).with_context(|| log.display().to_string())?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    writeln!(std::io::stdout(), "{name}: begins, in {}", log.display())?;
    let ended = cargo::finish(command);
    let text = std::fs::read(&log).unwrap_or_default();
    let mut out = std::io::stdout().lock();
    writeln!(out, "{name}:")?;
    out.write_all(&text)?;
    ended
}
