//! Records the corpus' answers from a real kube-apiserver. Run it when cases change:
//!
//! ```text
//! kubectl proxy --port 8001 &          # admin rights; no controller manager may run beside it
//! STRUCTURED_MERGE_ORACLE=127.0.0.1:8001 cargo test -p structured-merge -- --ignored record
//! ```
//!
//! All cases take their n-th step in the n-th second, so that times order entries as they will in a replay.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::corpus::{Answer, Case, Step, folder, kind_file, load, store};
use crate::managers::{GROUP, api_version, time_of_step};

const NAMESPACE: &str = "structured-merge";

#[test]
#[ignore = "needs a real kube-apiserver; see the module's comment"]
fn record() {
    let oracle = Oracle {
        address: std::env::var("STRUCTURED_MERGE_ORACLE").expect("STRUCTURED_MERGE_ORACLE=host:port of kubectl proxy"),
    };
    let only = std::env::var("STRUCTURED_MERGE_CASES").unwrap_or_default();
    oracle.prepare();
    let mut cases: Vec<(String, Case, State)> = load()
        .into_iter()
        .filter(|(name, _)| name.contains(&only))
        .map(|(name, case)| (name, case, State::default()))
        .collect();
    for (name, case, _) in &cases {
        oracle.delete(&case.kind, name);
    }
    let most_steps = cases.iter().map(|(_, case, _)| case.steps.len()).max().unwrap_or(0);
    for index in 0..most_steps {
        for (name, case, state) in &mut cases {
            let kind = case.kind.clone();
            if let Some(step) = case.steps.get_mut(index) {
                step.answer = Some(oracle.run_step(&kind, name, step, index, state));
            }
        }
        // The entries of the next step must be of another second.
        std::thread::sleep(Duration::from_millis(1100));
    }
    for (name, case, _) in &cases {
        oracle.delete(&case.kind, name);
        store(name, case);
    }
}

/// Records the fields of creators, with creates that are dry runs.
#[test]
#[ignore = "needs a real kube-apiserver; see the module's comment"]
fn record_created() {
    let oracle = Oracle {
        address: std::env::var("STRUCTURED_MERGE_ORACLE").expect("STRUCTURED_MERGE_ORACLE=host:port of kubectl proxy"),
    };
    oracle.prepare();
    let mut created = kind_file("created.json");
    for case in created.as_array_mut().unwrap() {
        let body = &case["body"];
        let (api_version, kind) = (body["apiVersion"].as_str().unwrap(), body["kind"].as_str().unwrap());
        let root = if api_version.contains('/') { "apis" } else { "api" };
        let is_namespaced = case["object"]["metadata"].get("namespace").is_some();
        let namespace = if is_namespaced {
            format!("namespaces/{NAMESPACE}/")
        } else {
            String::new()
        };
        let path = format!(
            "/{root}/{api_version}/{namespace}{}?dryRun=All&fieldManager=one",
            plural(kind)
        );
        let (code, answer) = oracle.send("POST", &path, "application/json", body);
        assert_eq!(code, 201, "{path}: {answer}");
        case["object"] = normalise(answer, 0, &mut State::default()).0;
    }
    let cases: Vec<String> = created.as_array().unwrap().iter().map(Value::to_string).collect();
    let text = format!("[\n{}\n]\n", cases.join(",\n"));
    std::fs::write(folder().join("kinds/created.json"), text).unwrap();
}

fn plural(kind: &str) -> String {
    let kind = kind.to_lowercase();
    if kind == "endpoints" {
        kind
    } else if let Some(stem) = kind.strip_suffix('y') {
        format!("{stem}ies")
    } else if kind.ends_with('s') {
        format!("{kind}es")
    } else {
        format!("{kind}s")
    }
}

/// The observed state of one object.
#[derive(Default)]
struct State {
    resource_version: String,
    /// Made-up times by real ones.
    times: HashMap<String, String>,
}

struct Oracle {
    address: String,
}

impl Oracle {
    fn prepare(&self) {
        self.send(
            "POST",
            "/api/v1/namespaces",
            "application/json",
            &json!({"metadata": {"name": NAMESPACE}}),
        );
        self.send(
            "POST",
            &format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts"),
            "application/json",
            &json!({"metadata": {"name": "default"}}),
        );
        for file in ["widget.json", "gadget.json"] {
            let definition = kind_file(file);
            self.send(
                "POST",
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                "application/json",
                &definition,
            );
            let plural = definition["spec"]["names"]["plural"].as_str().unwrap();
            let path = format!("/apis/{GROUP}/v1/namespaces/{NAMESPACE}/{plural}");
            while self.send("GET", &path, "application/json", &Value::Null).0 != 200 {
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        // The kinds' own endpoints need a moment longer than their discovery.
        std::thread::sleep(Duration::from_secs(3));
    }

    fn delete(&self, kind: &str, name: &str) {
        let path = path(kind, "v1", Some(name), None);
        self.send(
            "PATCH",
            &path,
            "application/merge-patch+json",
            &json!({"metadata": {"finalizers": null}}),
        );
        self.send(
            "DELETE",
            &format!("{path}?gracePeriodSeconds=0"),
            "application/json",
            &Value::Null,
        );
    }

    fn run_step(&self, kind: &str, name: &str, step: &Step, index: usize, state: &mut State) -> Answer {
        let version = step.version.as_deref().unwrap_or("v1");
        let subresource = step.subresource.as_deref();
        let named = path(kind, version, Some(name), subresource);
        let manager = &step.manager;
        let (code, answer) = match step.verb.as_str() {
            "create" => self.send(
                "POST",
                &format!("{}?fieldManager={manager}", path(kind, version, None, None)),
                "application/json",
                &step.body,
            ),
            "replace" => {
                let mut body = step.body.clone();
                body["metadata"]["resourceVersion"] = Value::from(state.resource_version.clone());
                self.send(
                    "PUT",
                    &format!("{named}?fieldManager={manager}"),
                    "application/json",
                    &body,
                )
            }
            "merge" => self.send(
                "PATCH",
                &format!("{named}?fieldManager={manager}"),
                "application/merge-patch+json",
                &step.body,
            ),
            "apply" => self.send(
                "PATCH",
                &format!("{named}?fieldManager={manager}&force={}", step.force),
                "application/apply-patch+yaml",
                &step.body,
            ),
            other => panic!("verb {other}"),
        };
        if !(200..300).contains(&code) {
            let text = |field: &str| {
                answer[field]
                    .as_str()
                    .filter(|text| !text.is_empty())
                    .map(str::to_owned)
            };
            let mut causes: Vec<String> = answer["details"]["causes"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|cause| {
                    format!(
                        "{}: {}",
                        cause["field"].as_str().unwrap_or(""),
                        cause["message"].as_str().unwrap_or("")
                    )
                })
                .collect();
            causes.sort();
            return Answer {
                code,
                object: None,
                changed: false,
                message: text("message"),
                reason: text("reason"),
                causes,
            };
        }
        // A Scale is only a view; the comparison needs its effect on the object.
        let answer = if subresource == Some("scale") {
            self.send(
                "GET",
                &path(kind, version, Some(name), None),
                "application/json",
                &Value::Null,
            )
            .1
        } else {
            answer
        };
        let (object, changed) = normalise(answer, index, state);
        Answer {
            code,
            object: Some(object),
            changed,
            message: None,
            reason: None,
            causes: Vec::new(),
        }
    }

    /// Sends one request as HTTP/1.0, which has neither chunks nor connections to keep.
    fn send(&self, method: &str, path: &str, content_type: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nHost: {}\r\nContent-Type: {content_type}\r\nAccept: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let code = head.split(' ').nth(1).unwrap().parse().unwrap();
        (code, serde_json::from_str(body).unwrap_or(Value::Null))
    }
}

fn path(kind: &str, version: &str, name: Option<&str>, subresource: Option<&str>) -> String {
    let api_version = api_version(kind, version);
    let root = if api_version.contains('/') { "apis" } else { "api" };
    let plural = format!("{}s", kind.to_lowercase());
    let mut path = format!("/{root}/{api_version}/namespaces/{NAMESPACE}/{plural}");
    for part in [name, subresource].into_iter().flatten() {
        path.push('/');
        path.push_str(part);
    }
    path
}

/// Replaces the values that differ between recordings. Also returns whether the object was written.
fn normalise(mut object: Value, index: usize, state: &mut State) -> (Value, bool) {
    let metadata = object["metadata"].as_object_mut().unwrap();
    let resource_version = metadata
        .remove("resourceVersion")
        .and_then(|version| version.as_str().map(str::to_owned))
        .unwrap_or_default();
    metadata.remove("generation");
    metadata.insert("uid".to_owned(), Value::from("00000000-0000-0000-0000-000000000001"));
    metadata.insert("creationTimestamp".to_owned(), Value::from("2000-01-01T00:00:00Z"));
    for entry in metadata
        .get_mut("managedFields")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Some(time) = entry.get_mut("time") {
            let real = time.as_str().unwrap().to_owned();
            // A time that a client wrote stays.
            if real.as_str() > "2026" {
                *time = Value::from(
                    state
                        .times
                        .entry(real)
                        .or_insert_with(|| time_of_step(index).to_string())
                        .clone(),
                );
            }
        }
    }
    if let Some(spec) = object
        .get_mut("spec")
        .and_then(Value::as_object_mut)
        .filter(|spec| spec.contains_key("clusterIP"))
    {
        // Addresses are the server's to give.
        spec.insert("clusterIP".to_owned(), Value::from("10.0.0.1"));
        spec.insert("clusterIPs".to_owned(), json!(["10.0.0.1"]));
    }
    let changed = resource_version != state.resource_version;
    state.resource_version = resource_version;
    (object, changed)
}
