//! Sends the same requests to the embedded control plane and to a real kube-apiserver, and compares the answers.
//!
//! Stories are random sequences of requests made from a seed. Both servers get each story. Every answer, warnings and field owners included, has to be equal after uids,
//! versions, times and generated names were replaced by placeholders. A difference is shrunk to the shortest story that shows it, in the form of the recorded exchanges.
//! The real server counts as right, except for the differences in `known`.

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
pub use run::{Difference, Outcome, replay_story, run};
pub use servers::{Embedded, Real, Servers};

/// A recorded story: the shortest one that once showed a difference.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Story {
    /// The difference.
    pub title: String,
    /// The steps with the real server's answers.
    pub steps: Vec<Step>,
}

/// Reads stories, one per line.
///
/// # Errors
/// If a line is no story.
pub fn read_stories(text: &str) -> anyhow::Result<Vec<Story>> {
    let lines = text.lines().enumerate();
    lines
        .map(|(index, line)| serde_json::from_str(line).with_context(|| format!("line {}", index + 1)))
        .collect()
}

/// The parameters of a comparison.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The number of stories.
    pub sequences: u64,
    /// The seed of the first story; the following stories count up.
    pub seed: u64,
    /// The kinds to use; all if empty.
    pub kinds: Vec<String>,
    /// How many requests are meant to be refused.
    pub faults: Faults,
    /// The number of stories at the same time.
    pub parallel: usize,
}

/// A kind of difference.
#[derive(Debug, Clone)]
pub struct Finding {
    /// The number of stories that ended with it.
    pub count: usize,
    /// The seed of the first of these stories.
    pub seed: u64,
    /// The first of these stories after shrinking.
    pub shortest: Outcome,
}

/// The results of all stories.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The number of stories.
    pub stories: u64,
    /// The number of requests to each server.
    pub requests: usize,
    /// The number of accepted requests.
    pub accepted: usize,
    /// The number of stories that ended early because the real server sent no answer.
    pub unanswered: usize,
    /// The differences, by signature.
    pub findings: BTreeMap<String, Finding>,
}

/// Runs random stories on both servers.
///
/// # Errors
/// If a server can't be reached.
pub async fn compare_servers(servers: &Servers, plan: &Plan) -> anyhow::Result<Report> {
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
                let shortest = shrink::shrink_story(servers, &story, outcome, &signature).await?;
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
