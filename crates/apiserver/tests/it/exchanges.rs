//! Recorded requests and a real kube-apiserver's answers (`tests/exchanges/`): this server gives the same ones.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::LazyLock;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use regex::Regex;
use serde_json::{Value, json};
use tenure_apiserver::{ApiService, Config, Server};

static UID: LazyLock<Regex> = LazyLock::new(|| Regex::new("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").unwrap());
static TIME: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z").unwrap());
static RECORD: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"in record \(\d+\)").unwrap());
static CURRENT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"current: \d+").unwrap());
static HASH: LazyLock<Regex> = LazyLock::new(|| Regex::new("X509SHA256=[0-9a-f]+").unwrap());
static AGE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^\d+s$").unwrap());
static REFERENCE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\$\{(\w+):([^}]*)\}").unwrap());

/// Replaces what differs from run to run.
pub(crate) fn normal(value: &Value, key: &str) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (key.clone(), normal(value, key)))
            .collect(),
        Value::Array(items) => items.iter().map(|item| normal(item, key)).collect(),
        Value::String(text) => {
            if key == "resourceVersion" && text != "0" && text.parse::<u64>().is_ok() {
                return json!("<rv>");
            }
            if key == "continue" && !text.is_empty() {
                return json!("<continue>");
            }
            let text = UID.replace_all(text, "<uid>");
            let text = RECORD.replace_all(&text, "in record (<rv>)");
            let text = CURRENT.replace_all(&text, "current: <rv>");
            let text = HASH.replace_all(&text, "X509SHA256=<hash>");
            let text = AGE.replace_all(&text, "<age>");
            json!(TIME.replace_all(&text, "<time>"))
        }
        other => other.clone(),
    }
}

/// Lists where two answers differ, apart from what is known.
fn differences(path: &str, want: &Value, got: &Value, known: &Value, out: &mut String) {
    let is_known = known.as_object().into_iter().flatten().any(|(pointer, _)| {
        path == pointer
            || path
                .strip_prefix(pointer.as_str())
                .is_some_and(|rest| rest.starts_with('/'))
    });
    if is_known || want == got {
        return;
    }
    match (want, got) {
        (Value::Object(want), Value::Object(got)) => {
            let mut keys: Vec<&String> = want.keys().chain(got.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                let missing = json!("<missing>");
                let (want, got) = (want.get(key).unwrap_or(&missing), got.get(key).unwrap_or(&missing));
                differences(&format!("{path}/{key}"), want, got, known, out);
            }
        }
        (Value::Array(want), Value::Array(got)) if want.len() == got.len() => {
            for (index, (want, got)) in want.iter().zip(got).enumerate() {
                differences(&format!("{path}/{index}"), want, got, known, out);
            }
        }
        _ => writeln!(out, "  {path}\n    want {want}\n    got  {got}").unwrap(),
    }
}

fn substitute(text: &str, saved: &HashMap<String, Value>) -> String {
    REFERENCE
        .replace_all(text, |captures: &regex::Captures<'_>| {
            let pointer = format!("/{}", &captures[2]);
            saved[&captures[1]]
                .pointer(&pointer)
                .and_then(Value::as_str)
                .unwrap()
                .to_owned()
        })
        .into_owned()
}

async fn ask(service: &ApiService, step: &Value, saved: &HashMap<String, Value>) -> Value {
    let text = substitute(&step.to_string(), saved);
    let step: Value = serde_json::from_str(&text).unwrap();
    let mut request = Request::builder()
        .method(step["method"].as_str().unwrap())
        .uri(step["path"].as_str().unwrap())
        .header("user-agent", "exchange/1");
    for (name, value) in step["headers"].as_object().into_iter().flatten() {
        request = request.header(name, value.as_str().unwrap());
    }
    let body = match &step["body"] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let response = service
        .handle(request.body(Full::new(Bytes::from(body))).unwrap())
        .await;
    let status = response.status().as_u16();
    let warnings: Vec<String> = response
        .headers()
        .get_all("warning")
        .iter()
        .map(|value| value.to_str().unwrap().to_owned())
        .collect();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(body.to_vec()).unwrap();
    let body = serde_json::from_str(&text).unwrap_or_else(|_| {
        let lines: Option<Vec<Value>> = text.lines().map(|line| serde_json::from_str(line).ok()).collect();
        lines
            .filter(|lines| !lines.is_empty())
            .map_or_else(|| json!(text), Value::from)
    });
    json!({"status": status, "body": body, "warnings": warnings})
}

/// What stands for a scenario's surroundings in its file, and what it is in this run.
pub(crate) type Names<'a> = &'a [(&'a str, &'a str)];

fn replaced(text: &str, names: Names<'_>, back: bool) -> String {
    names.iter().fold(text.to_owned(), |text, (stands, is)| {
        let (from, to) = if back { (is, stands) } else { (stands, is) };
        text.replace(from, to)
    })
}

/// Asks what the steps of a scenario ask, and lists where the answers differ from the recorded ones. `seen` says what
/// else was seen during a step, where a step has something recorded.
pub(crate) async fn differing(
    service: &ApiService,
    scenario: &str,
    names: Names<'_>,
    mut seen: impl FnMut() -> Value,
) -> String {
    let path = format!("{}/tests/exchanges/{scenario}.json", env!("CARGO_MANIFEST_DIR"));
    let steps: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut saved = HashMap::new();
    let mut out = String::new();
    for (index, step) in steps.iter().enumerate() {
        let mut asked = step.clone();
        let want = asked.as_object_mut().unwrap().remove("want").unwrap();
        let want_seen = asked.as_object_mut().unwrap().remove("seen").unwrap_or(json!([]));
        let asked: Value = serde_json::from_str(&replaced(&asked.to_string(), names, false)).unwrap();
        let got = ask(service, &asked, &saved).await;
        if let Some(name) = step["save"].as_str() {
            saved.insert(name.to_owned(), got["body"].clone());
        }
        let plain = |value: &Value| -> Value {
            serde_json::from_str(&replaced(&normal(value, "").to_string(), names, true)).unwrap()
        };
        let mut found = String::new();
        differences("", &want, &plain(&got), &step["known"], &mut found);
        differences("/seen", &want_seen, &plain(&seen()), &step["known"], &mut found);
        if !found.is_empty() {
            writeln!(
                out,
                "step {index}: {} {} {}\n{found}",
                step["method"], step["path"], step["body"]
            )
            .unwrap();
        }
    }
    out
}

async fn check(scenario: &str) {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::open(Config::new(directory.path())).await.unwrap();
    let names = [("@NS", "x123456789")];
    let out = differing(&server.admin_service(), scenario, &names, || json!([])).await;
    server.close().await;
    assert!(out.is_empty(), "{scenario}:\n{out}");
}

macro_rules! scenarios {
    ($($name:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                check(stringify!($name)).await;
            }
        )*
    };
}

scenarios! { apply auth crd crud deployment finalizers kinds lists namespaces patch }
