//! `cargo xtask scenarios`: the scenarios that also run on the embedded control plane, run against another API server. Owns which
//! suites these are; refuses nothing by itself: a cluster that is not marked as made for tests is refused by `crates/testkit`.

use std::path::Path;

use crate::cargo;

/// The suites: what Tenure needs of an API server (`crates/testkit`), Tenure's controllers on it (`crates/controllers`), and the program as a
/// process (`crates/tenure`: install, run, uninstall). The whole
/// workspace is named so that what `cargo test` has built is not built again with fewer features.
const SUITES: [&str; 3] = ["--workspace", "--test", "scenarios"];

/// The variable that lets the suite of the controllers run `tenure run` in place of controllers in the test's own process.
const PROGRAM: &str = "TENURE_TEST_PROGRAM";

/// The variable that says where the lanes of that program run.
const LANES: &str = "TENURE_TEST_LANES";

/// The program that starts a real control plane and runs a command beside it.
const WITH_KUBERNETES: &str = "with_kubernetes";

/// Runs them against the cluster of a kubeconfig, or against a real control plane that is started for them.
pub(crate) fn run(
    kubeconfig: Option<&Path>,
    process: bool,
    lanes: Option<&str>,
    only: Option<&str>,
) -> anyhow::Result<()> {
    let target = cargo::target();
    let run = |program: &Path, words: &[&str]| {
        let mut command = cargo::command(program);
        command.args(words);
        if let Some(kubeconfig) = kubeconfig {
            command.env("TENURE_TEST_KUBECONFIG", kubeconfig);
        }
        if process || lanes.is_some() {
            command.env(PROGRAM, target.join("debug/tenure"));
        }
        if let Some(lanes) = lanes {
            command.env(LANES, lanes);
        }
        cargo::finish(command)
    };
    let cargo = Path::new("cargo");
    // Built before a server waits for them.
    let build = [
        "test",
        "--quiet",
        "--no-run",
        "--example",
        WITH_KUBERNETES,
        "--bin",
        "tenure",
    ];
    run(cargo, &[&build, &SUITES[..]].concat())?;
    // One at a time: they share the cluster, and each begins with what the last one left removed.
    let after: Vec<&str> = ["--", "--test-threads=1"].into_iter().chain(only).collect();
    let tests = [&["test", "--quiet", "--no-fail-fast"], &SUITES[..], &after].concat();
    if kubeconfig.is_some() {
        return run(cargo, &tests);
    }
    let beside = target.join("debug/examples").join(WITH_KUBERNETES);
    run(&beside, &[&["cargo"], &tests[..]].concat())
}
