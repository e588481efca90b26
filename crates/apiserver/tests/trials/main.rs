//! Answers of a real kube-apiserver: one trial for each question about access and for each story of requests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::allow_attributes,
    reason = "tests may panic"
)]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::Value;
use tenure_trials::{Suite, name_of_line};
use tokio::runtime::Runtime;

use access_recorded::Steps;

mod access;
#[path = "../it/access_recorded.rs"]
mod access_recorded;
mod access_served;
#[path = "../it/exchanges.rs"]
mod exchanges;
mod stories;

/// A name, and a check that panics on failure.
struct Case {
    name: String,
    check: Box<dyn FnOnce() + Send>,
}

impl Case {
    fn new(name: String, check: impl FnOnce() + Send + 'static) -> Self {
        let check = Box::new(check);
        Self { name, check }
    }
}

/// Names a question by its texts and its index in the file.
fn name_question(index: usize, question: &Value) -> String {
    fn collect_texts<'a>(value: &'a Value, texts: &mut Vec<&'a str>) {
        match value {
            Value::Object(fields) => fields.values().for_each(|field| collect_texts(field, texts)),
            Value::Array(items) => items.iter().for_each(|item| collect_texts(item, texts)),
            Value::String(text) => texts.push(text),
            _ => {}
        }
    }
    let mut texts = Vec::new();
    collect_texts(question, &mut texts);
    name_of_line(index + 1, &texts.join(" "))
}

/// Groups attempts to impersonate into one story per caller, in the recorded order.
fn by_caller(questions: Steps) -> BTreeMap<String, Steps> {
    let mut stories: BTreeMap<String, Steps> = BTreeMap::new();
    for (question, want) in questions {
        let caller = question["caller"].as_str().unwrap().to_owned();
        stories.entry(caller).or_default().push((question, want));
    }
    stories
}

/// Starts the runtime for the requests of a trial.
fn start_runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

fn main() -> ExitCode {
    let mut suite = Suite::default();
    let mut add = |group: &str, least, cases: Vec<Case>| {
        let checks = cases.into_iter().map(|case| {
            let check = case.check;
            (case.name, move || {
                check();
                Ok(())
            })
        });
        suite.add(group, least, checks);
    };
    let asked = Arc::new(access_served::Asked::new());
    add("reviews", 58, access::reviews());
    add("escalations", 46, access::escalations());
    add("impersonations", 12, access::impersonations());
    add("served_reviews", 58, access_served::reviews(&asked));
    add("served_escalations", 46, access_served::escalations(&asked));
    add("served_impersonations", 12, access_served::impersonations(&asked));
    add("stories", 26, stories::cases());
    let code = suite.run();
    asked.close();
    code
}
