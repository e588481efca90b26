//! `cargo xtask scenarios`: the scenarios that also run on the embedded control plane, run against another API server. Owns which
//! suites these are, and that those which run at once have a control plane each; refuses nothing by itself: a cluster that is not marked as made for
//! tests is refused by `crates/testkit`.

use std::path::Path;

use anyhow::{Context as _, bail};

use crate::cargo;
use crate::suites::{self, Suite};

/// The suites: what Tenure needs of an API server (`crates/testkit`), Tenure's controllers on it (`crates/controllers`), its doors
/// (`crates/admission`), and the program as a process (`crates/tenure`: install, run, uninstall). Beside them, what they run.
const TARGETS: [&str; 6] = ["--test", "scenarios", "--example", WITH_KUBERNETES, "--bin", "tenure"];

/// The target that they are in each package.
pub(crate) const SUITE: &str = "scenarios";

/// The variable that lets the suite of the controllers run `tenure run` in place of controllers in the test's own process.
const PROGRAM: &str = "TENURE_TEST_PROGRAM";

/// The variable that says where the lanes of that program run.
const LANES: &str = "TENURE_TEST_LANES";

/// The variable that names the folder with a real control plane's programs.
pub(crate) const BINARIES: &str = "TENURE_KUBERNETES_BIN";

/// The variable that names the cluster.
const KUBECONFIG: &str = "TENURE_TEST_KUBECONFIG";

/// The program that starts a real control plane and runs a command beside it.
const WITH_KUBERNETES: &str = "with_kubernetes";

/// Runs them against the cluster of a kubeconfig, or against real control planes that are started for them.
pub(crate) fn run(
    kubeconfig: Option<&Path>,
    process: bool,
    lanes: Option<&str>,
    only: Option<&str>,
) -> anyhow::Result<()> {
    let mut suites = suites::build(&TARGETS)?;
    suites.retain(|suite| suite.name == SUITE);
    if let Some(only) = only {
        suites = find_suites_with(suites, only)?;
    }
    let prepare = |suite: &Suite, beside: Option<&Path>| {
        let mut command = suite.command(beside.unwrap_or(&suite.program));
        if beside.is_some() {
            command.arg(&suite.program);
        }
        // One at a time: they share the cluster, and each begins with what the last one left removed.
        command.args(["--quiet", "--test-threads=1"]).args(only);
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
        return suites::finish_all(suites.iter().map(|suite| cargo::finish(prepare(suite, None))));
    }
    let beside = cargo::target().join("debug/examples").join(WITH_KUBERNETES);
    suites::run_at_once(suites, |suite| prepare(suite, Some(&beside)))
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
