//! Runs one story on both servers, side by side, until an answer differs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use kube::Client;
use serde_json::{Map, Value};
use tenure_testkit::exchange::{Normal, Saved, Step, list_differences};

use crate::known::{self, Verdict};
use crate::servers::{Embedded, Servers, make_namespace};

/// An answer that differs.
#[derive(Debug, Clone)]
pub struct Difference {
    /// The step with different answers, counted from 0.
    pub step: usize,
    /// The identity of a difference: the request's kind, and where and how the answers differ.
    pub signature: String,
    /// Path, the real server's value, the embedded server's value.
    pub found: Vec<(String, Value, Value)>,
}

/// The result of a story.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The steps that were sent, with the real server's normalized answers.
    pub recorded: Vec<Step>,
    /// The first difference, which ends the story.
    pub difference: Option<Difference>,
    /// Whether the story ended because the real server sent no answer to a request.
    pub unanswered: bool,
}

/// How often a request is repeated while its answer is not yet final, and the pause in between.
const SETTLED: (usize, Duration) = (100, Duration::from_millis(100));

/// A counter, because namespaces are never used twice.
static STORIES: AtomicU64 = AtomicU64::new(0);

fn next_namespace_name() -> String {
    let number = STORIES.fetch_add(1, Ordering::Relaxed);
    format!("story-{:06x}-{number}x", std::process::id())
}

/// The run of a story on one server: its client, its namespace, and the values saved from answers.
struct StorySide<'a> {
    client: &'a Client,
    namespace: &'a str,
    saved: Saved,
    normal: Normal,
}

impl<'a> StorySide<'a> {
    async fn new(client: &'a Client, namespace: &'a str) -> anyhow::Result<Self> {
        make_namespace(client, namespace).await?;
        Ok(Self {
            client,
            namespace,
            saved: Saved::new(),
            normal: Normal::new(&[("@NS", namespace)]),
        })
    }

    /// Sends a step and returns the normalized answer.
    async fn send_step(&mut self, step: &Step) -> anyhow::Result<Value> {
        let names = [("@NS", self.namespace)];
        let mut answer = step.ask(self.client, &names, &self.saved).await?;
        // A server acts on a change only after its own watch has delivered the change.
        for _ in 0..SETTLED.0 {
            if step.is_settled(&answer) {
                break;
            }
            tokio::time::sleep(SETTLED.1).await;
            answer = step.ask(self.client, &names, &self.saved).await?;
        }
        if let Some(name) = &step.save {
            let body = answer.get("body").cloned().unwrap_or_default();
            self.saved.insert(name.clone(), body);
        }
        Ok(self.normal.normal(&answer))
    }
}

/// The result of comparing two answers: whether the story continues.
enum Then {
    GoOn,
    End,
    Differs(Difference),
}

fn compare_answers(index: usize, step: &Step, want: &Value, got: &Value) -> Then {
    let found = match known::judge_differences(step, want, got, list_differences(want, got, &Map::new())) {
        Verdict::Same => return Then::GoOn,
        Verdict::Ends => return Then::End,
        Verdict::Differs(found) => found,
    };
    match found.first() {
        None => Then::GoOn,
        Some(first) => Then::Differs(Difference {
            step: index,
            signature: make_signature(step, want, got, first),
            found,
        }),
    }
}

/// Runs the steps on both servers.
///
/// # Errors
/// If a server can't be reached.
pub async fn run(servers: &Servers, steps: &[Step]) -> anyhow::Result<Outcome> {
    let namespace = next_namespace_name();
    let (mut real, mut embedded) = tokio::try_join!(
        StorySide::new(&servers.real, &namespace),
        StorySide::new(&servers.embedded.client, &namespace)
    )?;
    let mut recorded = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        if let Some(seconds) = step.pause {
            tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
        }
        let (want, got) = tokio::join!(real.send_step(step), embedded.send_step(step));
        let got = got.context("the embedded server")?;
        let want = match want {
            Ok(want) => want,
            // The real server gave up on this request, as it does instead of a panic. It is unknown how much of the request it has done.
            Err(_) if servers.real_is_ready().await => {
                return Ok(Outcome {
                    recorded,
                    difference: None,
                    unanswered: true,
                });
            }
            Err(error) => return Err(error.context("the real server")),
        };
        let mut step = step.clone();
        step.want = want.clone();
        recorded.push(step.clone());
        match compare_answers(index, &step, &want, &got) {
            Then::GoOn => {}
            Then::End => break,
            Then::Differs(difference) => {
                return Ok(Outcome {
                    recorded,
                    difference: Some(difference),
                    unanswered: false,
                });
            }
        }
    }
    Ok(Outcome {
        recorded,
        difference: None,
        unanswered: false,
    })
}

/// Runs a recorded story on the embedded server.
///
/// # Errors
/// If the server can't be reached.
pub async fn replay_story(embedded: &Embedded, steps: &[Step]) -> anyhow::Result<Option<Difference>> {
    let namespace = next_namespace_name();
    let mut teller = StorySide::new(&embedded.client, &namespace).await?;
    for (index, step) in steps.iter().enumerate() {
        let got = teller.send_step(step).await?;
        match compare_answers(index, step, &step.want, &got) {
            Then::GoOn => {}
            Then::End => break,
            Then::Differs(difference) => return Ok(Some(difference)),
        }
    }
    Ok(None)
}

fn make_signature(step: &Step, want: &Value, got: &Value, (path, ..): &(String, Value, Value)) -> String {
    let status = |answer: &Value| answer.get("status").and_then(Value::as_u64).unwrap_or_default();
    let path_of_request = step.path.split('?').next().unwrap_or_default();
    let of_group = usize::from(path_of_request.starts_with("/apis/"));
    let mut segments = path_of_request.split('/').skip(3 + of_group).peekable();
    let mut plural = segments.next().unwrap_or_default();
    if plural == "namespaces" && segments.next_if_eq(&"@NS").is_some() {
        plural = segments.next().unwrap_or_default();
    }
    let subresource = segments.nth(1).map(|name| format!("/{name}")).unwrap_or_default();
    let how = match step.headers.get("content-type").map(String::as_str) {
        Some("application/apply-patch+yaml") => "apply",
        Some("application/merge-patch+json") => "merge",
        Some("application/json-patch+json") => "json",
        Some("application/strategic-merge-patch+json") => "strategic",
        _ => step.method.as_str(),
    };
    let codes = if status(want) == status(got) {
        status(want).to_string()
    } else {
        format!("{} not {}", status(want), status(got))
    };
    let place: Vec<&str> = path
        .split('/')
        .map(|part| if part.parse::<usize>().is_ok() { "#" } else { part })
        .collect();
    format!("{how} {plural}{subresource} {codes} {}", place.join("/"))
}
