//! `cargo xtask long`: runs that take hours and find bugs that CI's small numbers may miss. Each step is another task with a large number.

use std::io::Write as _;
use std::time::Instant;

use anyhow::bail;
use clap::{Parser, ValueEnum};

use crate::cargo;

/// The variable with which tests try all cases instead of a part.
const LONG: &str = "TENURE_TEST_LONG";

/// The parts of a long run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// All tests, with every kill and every seed.
    Tests,
    /// All scenarios on a real kube-apiserver, with lanes in all three places.
    Scenarios,
    /// Stories of a hostile tenant, on all servers.
    TwoWorlds,
    /// Random requests to a real kube-apiserver and to ours.
    Differential,
    /// Random trees, built by the real kustomize and by ours.
    Kustomize,
    /// Each fuzz target for an hour.
    Fuzz,
}

/// A step of a long run: a task of xtask with its arguments and environment variables.
struct Step {
    part: Part,
    arguments: &'static [&'static str],
    variables: &'static [(&'static str, &'static str)],
    /// Whether a seed can be set.
    has_seed: bool,
}

const LONG_TESTS: &[(&str, &str)] = &[(LONG, "1"), ("TENURE_KILLS", "100"), ("TENURE_TEST_ROTATIONS", "100")];

const STEPS: [Step; 11] = [
    Step::new(Part::Tests, &["tests", "--timings"], LONG_TESTS, false),
    Step::new(Part::Scenarios, &["scenarios", "--timings"], LONG_TESTS, false),
    Step::new(Part::Scenarios, &["scenarios", "--process", "--timings"], &[], false),
    Step::new(
        Part::Scenarios,
        &["scenarios", "--lanes", "process", "--timings"],
        &[],
        false,
    ),
    Step::new(
        Part::Scenarios,
        &["scenarios", "--lanes", "deployment", "--timings"],
        &[],
        false,
    ),
    Step::new(
        Part::TwoWorlds,
        &["two-worlds", "--stories", "1000", "--mode", "embedded"],
        &[],
        true,
    ),
    Step::new(
        Part::TwoWorlds,
        &[
            "two-worlds",
            "--stories",
            "100",
            "--mode",
            "policies",
            "--mode",
            "webhooks",
            "--mode",
            "dying-webhooks",
        ],
        &[],
        true,
    ),
    Step::new(
        Part::Differential,
        &["differential", "--sequences", "2000", "--faults", "few"],
        &[],
        true,
    ),
    Step::new(
        Part::Differential,
        &["differential", "--sequences", "1000", "--faults", "many"],
        &[],
        true,
    ),
    Step::new(Part::Kustomize, &["fuzz-kustomize", "--trees", "20000"], &[], true),
    Step::new(Part::Fuzz, &["fuzz", "--seconds", "3600"], &[], true),
];

impl Step {
    const fn new(
        part: Part,
        arguments: &'static [&'static str],
        variables: &'static [(&'static str, &'static str)],
        has_seed: bool,
    ) -> Self {
        Self {
            part,
            arguments,
            variables,
            has_seed,
        }
    }
}

/// A long run.
#[derive(Parser)]
pub(crate) struct Long {
    /// Only these parts; all when absent.
    #[arg(value_enum)]
    parts: Vec<Part>,
    /// The first seed of random cases.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Long {
    /// Runs the steps one after another, and continues after a failure.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let mut ended = Vec::new();
        let is_meant = |step: &&Step| self.parts.is_empty() || self.parts.contains(&step.part);
        for step in STEPS.iter().filter(is_meant) {
            let mut command = cargo::make_command(std::env::current_exe()?);
            command.args(step.arguments).envs(step.variables.iter().copied());
            if step.has_seed {
                command.args(["--seed", &self.seed.to_string()]);
            }
            let begun = Instant::now();
            let result = cargo::run_command(command);
            ended.push((step.arguments.join(" "), begun.elapsed().as_secs(), result));
        }
        let mut out = std::io::stdout();
        writeln!(out, "\nseconds  step")?;
        for (step, seconds, result) in &ended {
            let failed = if result.is_ok() { "" } else { ": failed" };
            writeln!(out, "{seconds:7}  {step}{failed}")?;
        }
        if ended.iter().any(|(_, _, result)| result.is_err()) {
            bail!("a step failed");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_parses_as_an_xtask_command() {
        for step in &STEPS {
            let seed: &[&str] = if step.has_seed { &["--seed", "1"] } else { &[] };
            let words = [&["xtask"], step.arguments, seed].concat();
            let parsed = crate::Arguments::try_parse_from(&words);
            assert!(parsed.is_ok(), "{words:?}: {:?}", parsed.err());
        }
    }
}
