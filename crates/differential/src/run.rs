//! One story on both servers, side by side, until an answer differs.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Map, Value};
use tenure_testkit::exchange::{Normal, Saved, Step, differences};

use crate::known::{self, Verdict};
use crate::servers::{Servers, make_namespace};

/// An answer that differs.
#[derive(Debug, Clone)]
pub struct Difference {
    /// The step that was answered differently, counted from 0.
    pub step: usize,
    /// What tells it from others: the request's kind, and where and how the answers differ.
    pub signature: String,
    /// Path, the real server's value, the embedded server's.
    pub found: Vec<(String, Value, Value)>,
}

/// What came of a story.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The steps that were asked, with the real server's normal answers.
    pub recorded: Vec<Step>,
    /// The first difference; the story ends there.
    pub difference: Option<Difference>,
}

/// Namespaces are never used twice.
static STORIES: AtomicU64 = AtomicU64::new(0);

/// Asks both servers.
///
/// # Errors
/// If a server can't be reached.
pub async fn run(servers: &Servers, steps: &[Step]) -> anyhow::Result<Outcome> {
    let number = STORIES.fetch_add(1, Ordering::Relaxed);
    let namespace = format!("story-{:06x}-{number}x", std::process::id());
    tokio::try_join!(
        make_namespace(&servers.real, &namespace),
        make_namespace(&servers.embedded, &namespace)
    )?;
    let (mut real_saved, mut embedded_saved) = (Saved::new(), Saved::new());
    let names = [("@NS", namespace.as_str())];
    let (mut real_normal, mut embedded_normal) = (Normal::new(&names), Normal::new(&names));
    let mut recorded = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let (real, embedded) = tokio::try_join!(
            step.ask(&servers.real, &names, &real_saved),
            step.ask(&servers.embedded, &names, &embedded_saved)
        )?;
        if let Some(name) = &step.save {
            let body = |answer: &Value| answer.get("body").cloned().unwrap_or_default();
            real_saved.insert(name.clone(), body(&real));
            embedded_saved.insert(name.clone(), body(&embedded));
        }
        let (want, got) = (real_normal.normal(&real), embedded_normal.normal(&embedded));
        let mut step = step.clone();
        step.want = want.clone();
        recorded.push(step.clone());
        let found = match known::judge(&step, &want, &got, differences(&want, &got, &Map::new())) {
            Verdict::Same => continue,
            Verdict::Ends => break,
            Verdict::Differs(found) => found,
        };
        let Some(first) = found.first() else { continue };
        let difference = Difference {
            step: index,
            signature: signature(&step, &want, &got, first),
            found,
        };
        return Ok(Outcome {
            recorded,
            difference: Some(difference),
        });
    }
    Ok(Outcome {
        recorded,
        difference: None,
    })
}

fn signature(step: &Step, want: &Value, got: &Value, (path, ..): &(String, Value, Value)) -> String {
    let status = |answer: &Value| answer.get("status").and_then(Value::as_u64).unwrap_or_default();
    let path_of_request = step.path.split('?').next().unwrap_or_default();
    let mut segments = path_of_request
        .split('/')
        .skip_while(|segment| *segment != "@NS")
        .skip(1);
    let plural = segments.next().unwrap_or_default();
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
