//! Two worlds: a seed plays the story of tenant `alpha` twice, each time on a fresh server. In the first world `alpha` is alone. In the second
//! a hostile tenant `evil` sends requests drawn from a grammar meanwhile. In the end both worlds must look the same from `alpha`'s side and
//! from the platform's: objects, statuses, rights, Secrets. `snapshot::SHARED` lists what may differ, with the reason.
//!
//! `TENURE_TEST_STORIES` is the number of stories of each test, `TENURE_TEST_SEED` the first seed. A failure prints its seed, the differences and
//! what `evil` did.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::allow_attributes,
    dead_code,
    reason = "tests may panic, and share what starts processes with others"
)]

mod api;
mod grammar;
mod metadata;
#[path = "../it/process.rs"]
mod process;
mod requests;
mod servers;
mod snapshot;
mod story;
#[path = "../scenarios/world.rs"]
mod world;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use servers::{Mode, Server};
use snapshot::Snapshot;
use story::{Evil, Log, play};

/// Seeds whose stories once found a difference. Each test plays them before those that it draws.
const KEPT_SEEDS: [u64; 0] = [];

/// How long both worlds have to become equal after the last step.
const SETTLE: Duration = Duration::from_secs(60);

/// How many stories a test plays: `default` unless the environment says otherwise.
fn list_seeds(default: u64) -> Vec<u64> {
    let read = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = read("TENURE_TEST_SEED").unwrap_or(1);
    let drawn = first..first + read("TENURE_TEST_STORIES").unwrap_or(default);
    match read("TENURE_TEST_SEED") {
        Some(_) => drawn.collect(),
        None => KEPT_SEEDS.into_iter().chain(drawn).collect(),
    }
}

/// Counts of all stories of a test.
#[derive(Default)]
struct Totals {
    sent: usize,
    admitted: usize,
    reasons: std::collections::BTreeMap<String, usize>,
}

impl Totals {
    fn add(&mut self, log: &Log) {
        self.sent += log.steps.iter().filter(|step| step.is_request()).count();
        self.admitted += log.steps.iter().filter(|step| step.is_admitted()).count();
        for step in &log.steps {
            *self.reasons.entry(step.describe_answer()).or_default() += 1;
        }
    }
}

/// Plays one seed in both worlds. Returns the log of `evil`, or the differences that stay.
async fn play_both(mode: Mode, seed: u64, evil: Evil) -> Option<Result<Log, String>> {
    let mut alone = Server::start(mode, "alone").await?;
    let mut shared = Server::start(mode, "shared").await?;
    let (answers, _) = play(&mut alone, seed, Evil::Absent).await;
    let (answers_beside, log) = play(&mut shared, seed, evil).await;
    let begun = Instant::now();
    let mut differences;
    loop {
        let expected = Snapshot::take(&alone).await;
        let found = Snapshot::take(&shared).await;
        differences = snapshot::compare(&expected, &found);
        if answers != answers_beside {
            differences.push(format!(
                "answers that alpha got: {answers:#?}, but beside evil {answers_beside:#?}"
            ));
        }
        differences.extend(snapshot::list_reached_rights(&shared).await);
        if differences.is_empty() {
            return Some(Ok(log));
        }
        if begun.elapsed() > SETTLE {
            break;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let mut text = format!("{mode:?}, seed {seed}: {} differences\n", differences.len());
    for difference in &differences {
        let _infallible = writeln!(text, "  {difference}");
    }
    let _infallible = writeln!(text, "evil did:\n{log}");
    Some(Err(text))
}

/// Plays stories and fails with everything that they found.
async fn check(mode: Mode, default: u64) {
    let mut totals = Totals::default();
    let mut failures = Vec::new();
    let seeds = list_seeds(default);
    for seed in &seeds {
        match play_both(mode, *seed, Evil::Hostile).await {
            None => return,
            Some(Ok(log)) => totals.add(&log),
            Some(Err(failure)) => {
                println!("{failure}");
                failures.push(failure);
            }
        }
    }
    println!(
        "{mode:?}: {} stories, {} requests of evil, {} admitted",
        seeds.len(),
        totals.sent,
        totals.admitted
    );
    for (reason, count) in &totals.reasons {
        println!("  {count:5} {reason}");
    }
    assert!(
        failures.is_empty(),
        "{} of {} stories differ:\n{}",
        failures.len(),
        seeds.len(),
        failures.concat()
    );
    // A grammar whose requests are all refused proves nothing.
    assert!(
        totals.admitted * 20 > totals.sent,
        "{} of {} requests were admitted",
        totals.admitted,
        totals.sent
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_tenant_changes_nothing_on_one_machine() {
    check(Mode::Embedded, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_tenant_changes_nothing_under_policies() {
    check(Mode::Policies, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_tenant_changes_nothing_under_webhooks() {
    check(Mode::Webhooks, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_tenant_changes_nothing_when_webhooks_die() {
    check(Mode::DyingWebhooks, 1).await;
}

/// The control: a tenant that an administrator let do more is seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenant_with_foreign_rights_is_noticed() {
    let found = play_both(Mode::Embedded, 1, Evil::Privileged).await.unwrap();
    let difference = found.map(|log| log.to_string()).unwrap_err();
    assert!(difference.contains("alpha"), "{difference}");
}
