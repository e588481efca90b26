//! `cargo xtask scenarios`: runs the scenarios of the embedded control plane on another API server. Parallel runs have a control plane each. `crates/testkit` refuses a
//! cluster that is not marked as made for tests.

use std::io::Write as _;
use std::path::Path;

use anyhow::bail;

use crate::suites::{self, Run, Suite};
use crate::{cargo, timings};

/// The suites: Tenure's needs of an API server (`crates/testkit`), Tenure's controllers on it (`crates/controllers`), its admission points (`crates/admission`), and the
/// program as a process (`crates/tenure`: install, run, uninstall). After them, the programs that they run.
const TARGETS: [&str; 6] = ["--test", "scenarios", "--example", WITH_KUBERNETES, "--bin", "tenure"];

/// The target of the suites in each package.
pub(crate) const SUITE: &str = "scenarios";

/// The variable with which the controllers' suite runs `tenure run` in place of controllers in the test's own process.
const PROGRAM: &str = "TENURE_TEST_PROGRAM";

/// The variable with the place of that program's lanes.
const LANES: &str = "TENURE_TEST_LANES";

/// The variable with the folder of a real control plane's programs.
pub(crate) const BINARIES: &str = "TENURE_KUBERNETES_BIN";

/// The variable with the kubeconfig of the cluster.
const KUBECONFIG: &str = "TENURE_TEST_KUBECONFIG";

/// The program that starts a real control plane and runs a command beside it.
pub(crate) const WITH_KUBERNETES: &str = "with_kubernetes";

/// The most tests that share a control plane: its start takes as long as some tests.
const PART: usize = 25;

/// The fewest tests that justify a control plane of their own.
const LEAST: usize = 10;

/// The number of control planes at once. With two, a third of two processors was idle: tests wait for a server that follows policies and roles, and the server waits for
/// its watches. With three, a part of `tenure` ran alone at the end.
const AT_ONCE: usize = 4;

/// The packages, those with the longest parts first: a long part at the end would run alone. Four parts of `tenure` took 273 to 410 seconds, of `controllers` 73 to
/// 106, `testkit` 67, `admission` 50.
const LONGEST_FIRST: [&str; 4] = ["tenure", "controllers", "testkit", "admission"];

/// The package whose scenarios run the program, with lanes in the chosen place. The scenarios of other packages don't depend on it.
const OF_PROGRAM: &str = "controllers";

/// The chosen scenarios, by parts of their names.
pub(crate) struct Choice {
    /// The name contains one of these; all names when empty.
    pub(crate) only: Vec<String>,
    /// Package and name begin with none of these.
    pub(crate) without: Vec<String>,
}

impl Choice {
    /// Lists the chosen tests of a suite.
    fn list_tests(&self, suite: &Suite) -> anyhow::Result<Vec<String>> {
        let mut tests = suite.list_tests(&self.only)?;
        let package = suite.package();
        let is_left_out = |test: &str| {
            let name = format!("{package}::{test}");
            self.without.iter().any(|beginning| name.starts_with(beginning))
        };
        tests.retain(|test| !is_left_out(test));
        Ok(tests)
    }
}

/// Runs the scenarios on the cluster of a kubeconfig, or on real control planes that are started for them. With `process` the controllers are a program, whose lanes are
/// in the place `lanes`.
pub(crate) fn run(
    kubeconfig: Option<&Path>,
    (process, lanes): (bool, Option<&str>),
    timings: bool,
    choice: &Choice,
) -> anyhow::Result<()> {
    let of_program = process || lanes.is_some();
    let mut suites = suites::build_suites(&TARGETS)?;
    suites.retain(|suite| suite.name == SUITE && (!of_program || suite.package() == OF_PROGRAM));
    suites.sort_by_key(|suite| LONGEST_FIRST.iter().position(|package| *package == suite.package()));
    let prepare = |suite: &Suite, beside: Option<&Path>, tests: &[String]| {
        let mut command = suite.command(beside.unwrap_or(&suite.program));
        if beside.is_some() {
            command.arg(&suite.program);
        }
        // One at a time: the tests share the cluster, and each needs the cleanup of the previous one.
        command.args(["--test-threads=1", "--exact"]).args(tests);
        match timings {
            true => timings::request_timings(&mut command),
            false => drop(command.arg("--quiet")),
        }
        if let Some(kubeconfig) = kubeconfig {
            command.env(KUBECONFIG, kubeconfig);
        }
        if of_program {
            command.env(PROGRAM, cargo::find_target().join("debug/tenure"));
        }
        if let Some(lanes) = lanes {
            command.env(LANES, lanes);
        }
        command
    };
    let listed = suites.iter().map(|suite| Ok((suite, choice.list_tests(suite)?)));
    let listed = listed.collect::<anyhow::Result<Vec<(&Suite, Vec<String>)>>>()?;
    let part = size_part(listed.iter().map(|(_, tests)| tests.len()).sum());
    let parts = listed.iter().flat_map(|(suite, tests)| {
        let parts = suite.split(tests, part).into_iter();
        parts.map(move |(name, tests)| (name, *suite, tests))
    });
    let parts: Vec<_> = parts.collect();
    if parts.is_empty() {
        bail!("no scenario is called {}", choice.only.join(" or "));
    }
    if kubeconfig.is_some() {
        let ended = parts
            .iter()
            .map(|(_, suite, tests)| cargo::run_command(prepare(suite, None, tests)));
        return suites::finish_all(ended);
    }
    let beside = cargo::find_target().join("debug/examples").join(WITH_KUBERNETES);
    let names: Vec<String> = parts.iter().map(|(name, _, _)| name.clone()).collect();
    let runs = parts.into_iter().map(|(name, suite, tests)| Run {
        name,
        command: prepare(suite, Some(&beside), &tests),
    });
    let ended = suites::run_at_once(runs.collect(), AT_ONCE);
    if timings {
        write!(std::io::stdout(), "{}", timings::describe(&names))?;
    }
    ended
}

/// Returns the number of tests in a part: as many parts as run at once, if they are large enough.
fn size_part(tests: usize) -> usize {
    tests.div_ceil(AT_ONCE).clamp(LEAST, PART)
}
