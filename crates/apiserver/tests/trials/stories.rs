//! Recorded stories of requests (`tests/exchanges/`), each sent to a server of its own.

use serde_json::json;
use tenure_apiserver::{Config, Server};

use crate::Case;
use crate::exchanges::list_scenario_differences;

/// Files that are not stories, and stories that need more than a server, which other tests run.
const ELSEWHERE: &[&str] = &[
    "audit",
    "audit_webhook_answers",
    "audit_webhooks",
    "conversion",
    "conversion_answers",
    "match_conditions",
    "policies",
    "policy_status",
    "webhook_answers",
    "webhooks",
];

/// Returns all stories that need only a server.
pub(crate) fn cases() -> Vec<Case> {
    let folder = format!("{}/tests/exchanges", env!("CARGO_MANIFEST_DIR"));
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .filter_map(|entry| {
            let file = entry.unwrap().file_name();
            file.to_str()?.strip_suffix(".json").map(str::to_owned)
        })
        .filter(|name| !ELSEWHERE.contains(&name.as_str()))
        .collect();
    names.sort();
    names
        .into_iter()
        .map(|name| Case::new(name.clone(), move || crate::start_runtime().block_on(check(&name))))
        .collect()
}

async fn check(story: &str) {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::open(Config::new(directory.path())).await.unwrap();
    let names = [("@NS", "x123456789")];
    let out = list_scenario_differences(&server, story, &names, || json!([])).await;
    server.close().await;
    assert!(out.is_empty(), "{story}:\n{out}");
}
