//! The embedded control plane and a real kube-apiserver, asked the same things. Stories are random sequences of requests made
//! from a seed; each is told to both servers, and every answer, warnings and owners of fields included, has to be the same once
//! uids, versions, times and generated names have names of their own. What differs is shrunk to the shortest story that shows it, in the form
//! of the recorded exchanges.
//!
//! Refuses to judge: the real server is right, but for the differences that `known` lists.

mod generate;
mod kind;
mod known;
mod random;
mod run;
mod servers;
mod shrink;

use std::collections::BTreeMap;

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tenure_testkit::exchange::Step;

pub use generate::Faults;
pub use run::{Difference, Outcome, replay, run};
pub use servers::{Embedded, Real, Servers};

/// A recorded story: the shortest one that once showed a difference.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Story {
    /// What differed.
    pub title: String,
    /// The steps with the real server's answers.
    pub steps: Vec<Step>,
}

/// Reads stories, one a line.
///
/// # Errors
/// If a line is none.
pub fn read_stories(text: &str) -> anyhow::Result<Vec<Story>> {
    let lines = text.lines().enumerate();
    lines
        .map(|(index, line)| serde_json::from_str(line).with_context(|| format!("line {}", index + 1)))
        .collect()
}

/// What to compare.
#[derive(Debug, Clone)]
pub struct Plan {
    /// How many stories.
    pub sequences: u64,
    /// The seed of the first; the next ones count up.
    pub seed: u64,
    /// Only these kinds; all if there are none.
    pub kinds: Vec<String>,
    /// How much is meant to be refused.
    pub faults: Faults,
    /// How many stories at once.
    pub parallel: usize,
}

/// One way to differ.
#[derive(Debug, Clone)]
pub struct Finding {
    /// How many stories ended so.
    pub count: usize,
    /// The seed of the first of them.
    pub seed: u64,
    /// That story, as short as it could be made.
    pub shortest: Outcome,
}

/// What came of all stories.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Stories told.
    pub stories: u64,
    /// Requests asked of each server.
    pub requests: usize,
    /// The requests that were accepted.
    pub accepted: usize,
    /// Stories that ended early, because the real server had no answer.
    pub unanswered: usize,
    /// What differed, by signature.
    pub findings: BTreeMap<String, Finding>,
}

/// Tells random stories to both servers.
///
/// # Errors
/// If a server can't be reached.
pub async fn compare(servers: &Servers, plan: &Plan) -> anyhow::Result<Report> {
    let generator = generate::Generator::new(&plan.kinds, plan.faults)?;
    let generator = &generator;
    let mut outcomes = stream::iter(plan.seed..plan.seed.saturating_add(plan.sequences))
        .map(|seed| async move {
            let story = generator.story(seed);
            let outcome = run(servers, &story)
                .await
                .with_context(|| format!("the story of seed {seed}"))?;
            anyhow::Ok((seed, story, outcome))
        })
        .buffer_unordered(plan.parallel);
    let mut report = Report::default();
    while let Some((seed, story, outcome)) = outcomes.try_next().await? {
        report.stories += 1;
        report.requests += outcome.recorded.len();
        report.unanswered += usize::from(outcome.unanswered);
        report.accepted += outcome
            .recorded
            .iter()
            .filter(|step| {
                step.want
                    .pointer("/status")
                    .and_then(serde_json::Value::as_u64)
                    .is_some_and(|status| status < 300)
            })
            .count();
        let Some(signature) = outcome
            .difference
            .as_ref()
            .map(|difference| difference.signature.clone())
        else {
            continue;
        };
        match report.findings.get_mut(&signature) {
            Some(finding) => {
                finding.count += 1;
            }
            None => {
                let shortest = shrink::shrink(servers, &story, outcome, &signature).await?;
                report.findings.insert(
                    signature,
                    Finding {
                        count: 1,
                        seed,
                        shortest,
                    },
                );
            }
        }
    }
    Ok(report)
}
