//! Recorded requests with a real kube-apiserver's answers (`tests/exchanges/`): sending and comparison. Scenarios
//! that need only a server are trials (`tests/trials`).

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_apiserver::Server;
use tenure_testkit::exchange::{Names, Normal, Saved, Step, list_differences, strip_numbers};

/// How long a step that waits for controllers is repeated: longer than they take on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// Sends the steps of a scenario, as the admin if a step has no token. Returns the differences from the recorded
/// answers. `seen` returns other observations of a step, if the recording has some.
pub(crate) async fn list_scenario_differences(
    server: &Server,
    scenario: &str,
    names: Names<'_>,
    mut seen: impl FnMut() -> Value,
) -> String {
    let admin = kube::Client::new(server.admin_service(), "default");
    let anyone = kube::Client::new(server.service(), "default");
    let path = format!("{}/tests/exchanges/{scenario}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let steps: Vec<Step> = serde_json::from_str(&text).unwrap();
    // Older recordings only mark generated values; newer ones also number equal values.
    let numbered = ["<rv:", "<uid:", "<name:"].iter().any(|token| text.contains(token));
    let mut saved = Saved::new();
    let mut normal = Normal::new(names);
    let plain = |value: &Value, normal: &mut Normal| {
        let value = normal.normal(value);
        if numbered { value } else { strip_numbers(&value) }
    };
    let mut out = String::new();
    for (index, step) in steps.iter().enumerate() {
        let client = if step.headers.contains_key("authorization") {
            &anyone
        } else {
            &admin
        };
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let got = loop {
            let got = step.ask(client, names, &saved).await.unwrap();
            if step.is_settled(&got) || tokio::time::Instant::now() > deadline {
                break got;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        if let Some(name) = &step.save {
            saved.insert(name.clone(), got["body"].clone());
        }
        let mut as_recorded = Normal::default();
        let want = plain(&step.want, &mut as_recorded);
        let mut found = list_differences(&want, &plain(&got, &mut normal), &step.known);
        let want = json!({"seen": plain(&json!(step.seen), &mut as_recorded)});
        let got = json!({"seen": plain(&seen(), &mut normal)});
        found.extend(list_differences(&want, &got, &step.known));
        if !found.is_empty() {
            writeln!(out, "step {index}: {} {} {}", step.method, step.path, step.body).unwrap();
        }
        for (path, want, got) in found {
            writeln!(out, "  {path}\n    want {want}\n    got  {got}").unwrap();
        }
    }
    out
}
