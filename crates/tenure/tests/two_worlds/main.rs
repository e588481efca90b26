//! Two worlds: a seed plays the story of tenant `alpha` twice. In the first world `alpha` is alone. In the second a hostile tenant `evil` sends requests
//! drawn from a grammar meanwhile. In the end both worlds must look the same from `alpha`'s side and from the platform's: objects, statuses, rights,
//! Secrets, answers. `snapshot::SHARED` lists what may differ, with the reason.
//!
//! A world is a server. A pair of servers plays many stories, some at once, each with names of its own. `TENURE_TEST_STORIES` is the number of stories of
//! each test, `TENURE_TEST_SEED` the first seed. A failure prints its seeds, the differences and what `evil` did. `kept_seeds.txt` has the seeds
//! that once found a difference.
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
mod attacker;
mod cast;
mod endpoints;
mod grammar;
mod host;
mod log;
mod metadata;
mod mutations;
mod platform;
#[path = "../it/process.rs"]
mod process;
mod productions;
mod rights;
mod servers;
mod snapshot;
mod story;
#[path = "../scenarios/world.rs"]
mod world;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use cast::Scene;
use log::Totals;
use servers::{Mode, Server};
use snapshot::Snapshot;
use story::{Evil, Story, play};

/// Lines with a mode, a seed that once found a difference in this mode, and the reason. Each test plays them before random seeds.
const KEPT_SEEDS: &str = include_str!("kept_seeds.txt");

/// The time for both worlds to become equal after the last step.
const SETTLE: Duration = Duration::from_secs(240);

/// The interval at which a running comparison prints the remaining differences.
const REPORT_EVERY: Duration = Duration::from_secs(30);

/// The number of concurrent stories on a pair of servers, and the number of stories before the pair is replaced.
const AT_ONCE: usize = 4;
const PER_SERVER: usize = 48;

/// Returns the seeds of a test: the kept ones of its mode, and as many as the environment or `default` says.
fn list_seeds(mode: Mode, default: u64) -> Vec<u64> {
    let read = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = read("TENURE_TEST_SEED");
    let begins = first.unwrap_or(1);
    let drawn = begins..begins + read("TENURE_TEST_STORIES").unwrap_or(default);
    let kept = KEPT_SEEDS.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let is_of_mode = words.next() == Some(format!("{mode:?}").as_str());
        words.next().filter(|_| is_of_mode)?.parse::<u64>().ok()
    });
    kept.filter(|_| first.is_none()).chain(drawn).collect()
}

/// A pair of servers.
struct Worlds {
    alone: Server,
    shared: Server,
    /// The number of the next story.
    next: usize,
    /// The time for both worlds to become equal.
    settle: Duration,
}

impl Worlds {
    async fn start(mode: Mode) -> Option<Self> {
        let (alone, shared) = tokio::join!(Server::start(mode, "alone"), Server::start(mode, "shared"));
        let (alone, shared) = (alone?, shared?);
        platform::prepare_platform(&alone).await;
        platform::prepare_platform(&shared).await;
        Some(Self {
            alone,
            shared,
            next: 0,
            settle: SETTLE,
        })
    }

    /// Plays stories in both worlds at the same time. Returns the stories beside `evil`, and the remaining differences.
    async fn play(&mut self, seeds: &[u64], evil: Evil) -> (Vec<Story>, Vec<String>) {
        let first = self.next;
        self.next += seeds.len();
        let begun = Instant::now();
        let (mut alone, mut shared) = tokio::join!(
            play(&mut self.alone, first, seeds, Evil::Absent),
            play(&mut self.shared, first, seeds, evil)
        );
        let played = begun.elapsed();
        let mut differences = Vec::new();
        for (one, other) in alone.iter().zip(&shared) {
            if one.answers != other.answers {
                differences.push(format!(
                    "{} was answered {:?}, but beside evil {:?}",
                    one.scene.alpha, one.answers, other.answers
                ));
            }
        }
        let scenes: Vec<Scene> = shared.iter().map(|story| story.scene.clone()).collect();
        differences.extend(self.compare(&scenes).await);
        let equal = begun.elapsed();
        for (server, stories) in [(&self.alone, &mut alone), (&self.shared, &mut shared)] {
            for story in stories {
                story.release(server).await;
                platform::clean_up(server, &story.scene).await;
            }
        }
        println!(
            "seeds {seeds:?}: played in {played:?}, compared by {equal:?}, cleaned up by {:?}",
            begun.elapsed()
        );
        (shared, differences)
    }

    /// Compares both worlds until they are equal or the time is over. Kinds that differ are read again until they don't; then everything is, since what was equal may
    /// have changed.
    async fn compare(&self, scenes: &[Scene]) -> Vec<String> {
        let begun = Instant::now();
        let mut reported = Duration::ZERO;
        let (mut one, mut other) = self.take_snapshots(scenes).await;
        let mut is_whole = true;
        loop {
            let mut differences = snapshot::compare(&one, &other);
            let kinds = snapshot::list_kinds(&one, &other);
            if differences.is_empty() && is_whole {
                differences = rights::compare(self.alone.mode, &one, &other, scenes);
                differences.extend(rights::list_foreign(&self.shared, scenes).await);
                differences.extend(host::list_differences(&self.alone, &self.shared, scenes).await);
                if differences.is_empty() {
                    return differences;
                }
            }
            // Without a difference of these kinds everything has to be read once more.
            if begun.elapsed() >= self.settle && !differences.is_empty() {
                return differences;
            }
            if begun.elapsed() >= reported + REPORT_EVERY {
                reported = begun.elapsed();
                println!("after {reported:?} these still differ:\n  {}", differences.join("\n  "));
            }
            is_whole = kinds.is_empty();
            if !is_whole || !differences.is_empty() {
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
            if is_whole {
                (one, other) = self.take_snapshots(scenes).await;
            } else {
                tokio::join!(
                    one.update(&self.alone, scenes, &kinds),
                    other.update(&self.shared, scenes, &kinds)
                );
            }
        }
    }

    async fn take_snapshots(&self, scenes: &[Scene]) -> (Snapshot, Snapshot) {
        tokio::join!(
            Snapshot::read_all(&self.alone, scenes),
            Snapshot::read_all(&self.shared, scenes)
        )
    }
}

/// Plays stories, and fails with all findings.
async fn check(mode: Mode, default: u64) {
    let begun = Instant::now();
    let mut totals = Totals::default();
    let mut failures = Vec::new();
    let seeds = list_seeds(mode, default);
    for of_a_pair in seeds.chunks(PER_SERVER) {
        let Some(mut worlds) = Worlds::start(mode).await else {
            return;
        };
        for at_once in of_a_pair.chunks(AT_ONCE) {
            let (mut stories, differences) = worlds.play(at_once, Evil::Hostile).await;
            let mut logs = String::new();
            for story in &mut stories {
                let log = story.take_log();
                totals.add(&log);
                let _infallible = writeln!(logs, "{} (seed {}) did:\n{log}", story.scene.evil, story.seed);
            }
            println!(
                "{mode:?}: seeds {at_once:?} after {:?}, {} differences",
                begun.elapsed(),
                differences.len()
            );
            if !differences.is_empty() {
                let failure = format!("{mode:?}, seeds {at_once:?}:\n  {}\n{logs}", differences.join("\n  "));
                println!("{failure}");
                failures.push(failure);
            }
        }
    }
    let (asked, admitted) = totals.sum();
    println!(
        "{mode:?}: {} stories, {asked} requests of evil, {admitted} admitted\n{totals}",
        seeds.len()
    );
    assert!(
        failures.is_empty(),
        "{} rounds of {} stories differ:\n{}",
        failures.len(),
        seeds.len(),
        failures.concat()
    );
    // A grammar with only denied requests proves nothing.
    assert!(admitted * 3 > asked, "{admitted} of {asked} requests were admitted");
    let names = grammar::list_names();
    let never: Vec<&String> = names.iter().filter(|name| !totals.is_admitted(name)).collect();
    assert!(never.is_empty(), "never admitted: {never:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_tenant_changes_nothing_on_one_machine() {
    check(Mode::Embedded, 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_tenant_changes_nothing_under_policies() {
    check(Mode::Policies, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_tenant_changes_nothing_under_webhooks() {
    check(Mode::Webhooks, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_tenant_changes_nothing_when_webhooks_die() {
    check(Mode::DyingWebhooks, 2).await;
}

/// The control: the test notices a tenant with foreign rights.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenant_with_foreign_rights_is_noticed() {
    let mut worlds = Worlds::start(Mode::Embedded).await.unwrap();
    worlds.settle = Duration::ZERO;
    let (_, differences) = worlds.play(&[1], Evil::Privileged).await;
    assert!(
        differences
            .iter()
            .any(|one| one.contains("RoleBinding/alpha000/helper")),
        "{differences:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenant_writes_no_endpoints() {
    assert!(endpoints::try_all(Mode::Embedded).await);
    let _is_real = endpoints::try_all(Mode::Policies).await;
}
