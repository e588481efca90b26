//! `cargo xtask two-worlds`: runs many stories of a hostile tenant, with the tests of `crates/tenure/tests/two_worlds`.

use clap::{Parser, ValueEnum};

use crate::{cargo, suites};

/// The name of the test target.
const SUITE: &str = "two_worlds";

/// The servers for the stories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// The embedded control plane.
    Embedded,
    /// A real kube-apiserver with policies alone.
    Policies,
    /// A real kube-apiserver with webhooks.
    Webhooks,
    /// A real kube-apiserver with webhooks, and controllers that are killed halfway.
    DyingWebhooks,
}

impl Mode {
    /// Returns the name of its test.
    fn name_test(self) -> &'static str {
        match self {
            Self::Embedded => "hostile_tenant_changes_nothing_on_one_machine",
            Self::Policies => "hostile_tenant_changes_nothing_under_policies",
            Self::Webhooks => "hostile_tenant_changes_nothing_under_webhooks",
            Self::DyingWebhooks => "hostile_tenant_changes_nothing_when_webhooks_die",
        }
    }
}

/// A long run.
#[derive(Parser)]
pub(crate) struct TwoWorlds {
    /// Number of stories on each server.
    #[arg(long, default_value_t = 100)]
    stories: u64,
    /// The first seed; the others follow it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The servers; all if absent. Real ones are started from the binaries in `TENURE_KUBERNETES_BIN`.
    #[arg(long, value_enum)]
    mode: Vec<Mode>,
}

impl TwoWorlds {
    /// Runs the stories, one mode after another, and continues after a failure.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let suites = suites::build_suites(&["--test", SUITE, "--bin", "tenure"])?;
        let modes = match self.mode.as_slice() {
            [] => Mode::value_variants(),
            modes => modes,
        };
        let runs = suites.iter().filter(|suite| suite.name == SUITE).flat_map(|suite| {
            modes.iter().map(|mode| {
                let mut command = suite.command(&suite.program);
                command
                    .args(["--exact", "--nocapture", mode.name_test()])
                    .env("TENURE_TEST_STORIES", self.stories.to_string())
                    .env("TENURE_TEST_SEED", self.seed.to_string());
                cargo::run_command(command)
            })
        });
        suites::finish_all(runs)
    }
}
