//! The audit log: the events match those of a real kube-apiserver under `tests/exchanges/audit_policy.yaml`. Further
//! promises of this server are tested, too: no secrets, and no request without its required event.

use std::path::PathBuf;

use serde_json::{Value, json};
use tenure_apiserver::audit::LogConfig;
use tenure_apiserver::{Config, Server};
use tenure_testkit::Webhook;
use tenure_testkit::exchange::Names;

use crate::exchanges::list_scenario_differences;

fn log(path: PathBuf) -> LogConfig {
    LogConfig {
        path,
        max_size: 0,
        max_backups: 0,
        max_age: 0,
        strict: false,
    }
}

fn policy() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/exchanges/audit_policy.yaml")
}

/// Returns the events of requests from `agent`, in order.
fn events(path: &std::path::Path, agent: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["userAgent"] == agent).collect()
}

/// Completes an event of a client in this process with the fields that a connection and a certificate would add.
fn as_over_network(event: &Value) -> Value {
    let mut event = event.clone();
    if event["user"]["username"] == "kubernetes-admin" {
        event["user"]["username"] = json!("admin");
        event["user"]["extra"] = json!({"authentication.kubernetes.io/credential-id": ["X509SHA256=<hash>"]});
    }
    let mut addresses = event["sourceIPs"].as_array().cloned().unwrap_or_default();
    addresses.push(json!("127.0.0.1"));
    event["sourceIPs"] = Value::from(addresses);
    event
}

/// Sends a scenario under the recorded policy, and compares answers and events. Returns the log.
async fn compare(scenario: &str, names: Names<'_>) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let mut config = Config::new(directory.path().join("data"));
    config.audit = Some((policy(), log(path.clone())));
    let server = Server::open(config).await.unwrap();
    let mut taken = 0;
    let seen = || {
        let all = events(&path, "exchange/1");
        let new: Vec<Value> = all
            .get(taken..)
            .unwrap_or_default()
            .iter()
            .map(as_over_network)
            .collect();
        taken = all.len();
        Value::from(new)
    };
    let out = list_scenario_differences(&server, scenario, names, seen).await;
    server.close().await;
    assert!(out.is_empty(), "{out}");
    std::fs::read_to_string(&path).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_those_of_the_real_server() {
    let text = compare("audit", &[("@NS", "x123456789")]).await;
    assert!(
        !text.contains("hunter2") && !text.contains(&base64("hunter2")),
        "a Secret is in the log"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audit_records_annotations_and_patches_of_webhooks() {
    let answers = include_str!("../exchanges/audit_webhook_answers.json");
    let webhook = Webhook::start(serde_json::from_str(answers).unwrap()).await.unwrap();
    let port = webhook.port.to_string();
    let names = [
        ("@NS", "x123456789"),
        ("@PORT", port.as_str()),
        ("@CA", webhook.ca.as_str()),
    ];
    compare("audit_webhooks", &names).await;
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// A policy that records everything.
const EVERYTHING: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: RequestResponse}]\n";

#[tokio::test]
async fn secrets_and_tokens_are_never_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let policy = directory.path().join("policy.yaml");
    std::fs::write(&policy, EVERYTHING).unwrap();
    let mut config = Config::new(directory.path().join("data"));
    config.audit = Some((policy, log(path.clone())));
    let server = Server::open(config).await.unwrap();
    let client = kube::Client::new(server.admin_service(), "default");
    let ask = async |method: &str, path: &str, form: &str, body: Value| {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", form);
        let body = kube::client::Body::from(body.to_string().into_bytes());
        let response = client.send(request.body(body).unwrap()).await.unwrap();
        let bytes = response.into_body().collect_bytes().await.unwrap();
        serde_json::from_slice::<Value>(&bytes).unwrap_or_default()
    };
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "stringData": {"password": "hunter2"}});
    ask("POST", secrets, "application/json", secret).await;
    let patch = json!({"stringData": {"password": "hunter2"}});
    ask(
        "PATCH",
        &format!("{secrets}/key"),
        "application/merge-patch+json",
        patch,
    )
    .await;
    let broken = json!([{"op": "replace", "path": "/hunter2", "value": "hunter2"}]);
    ask(
        "PATCH",
        &format!("{secrets}/key"),
        "application/json-patch+json",
        broken,
    )
    .await;
    // The error quotes the number, as a real server's error does.
    let wrong = json!({"apiVersion": "v1", "kind": "Secret", "data": {"password": 773_412_345_678_u64}});
    let answer = ask(
        "PATCH",
        &format!("{secrets}/key?fieldManager=a"),
        "application/apply-patch+yaml",
        wrong,
    )
    .await;
    assert!(answer["message"].as_str().unwrap().contains("773412345678"), "{answer}");
    ask("GET", &format!("{secrets}/key"), "", Value::Null).await;
    ask("GET", secrets, "", Value::Null).await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    ask(
        "POST",
        "/api/v1/namespaces/default/serviceaccounts",
        "application/json",
        account,
    )
    .await;
    let wanted = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token = "/api/v1/namespaces/default/serviceaccounts/robot/token";
    let answer = ask("POST", token, "application/json", wanted).await;
    let token = answer["status"]["token"].as_str().unwrap();
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    ask(
        "POST",
        "/apis/authentication.k8s.io/v1/tokenreviews",
        "application/json",
        review,
    )
    .await;
    ask("DELETE", &format!("{secrets}/key"), "", Value::Null).await;
    server.close().await;
    let text = std::fs::read_to_string(&path).unwrap();
    for secret in ["hunter2", &base64("hunter2"), "773412345678", token] {
        assert!(!text.contains(secret), "{secret}");
    }
    let of_secrets: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|event| event["objectRef"]["resource"] == "secrets" && event["objectRef"]["name"] == "key")
        .collect();
    assert!(of_secrets.len() >= 8, "{}", of_secrets.len());
    assert!(of_secrets.iter().all(|event| event["level"] == "Metadata"));
}

#[tokio::test]
async fn a_watch_is_complete_when_it_ends() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let mut config = Config::new(directory.path().join("data"));
    config.audit = Some((policy(), log(path.clone())));
    let server = Server::open(config).await.unwrap();
    let client = kube::Client::new(server.admin_service(), "default");
    let url = "/api/v1/configmaps?watch=true&timeoutSeconds=600";
    let request = http::Request::get(url).header("user-agent", "watcher");
    let watch = client
        .send(request.body(kube::client::Body::empty()).unwrap())
        .await
        .unwrap();
    let stages = || {
        let stages = events(&path, "watcher").into_iter().map(|event| event["stage"].clone());
        stages.collect::<Vec<_>>()
    };
    assert_eq!(stages(), ["RequestReceived", "ResponseStarted"]);
    drop(watch);
    assert_eq!(stages(), ["RequestReceived", "ResponseStarted", "ResponseComplete"]);
    server.close().await;
}

#[tokio::test]
async fn strict_audit_refuses_requests_it_cannot_record() {
    let directory = tempfile::tempdir().unwrap();
    let policy = directory.path().join("policy.yaml");
    std::fs::write(&policy, EVERYTHING).unwrap();
    for strict in [true, false] {
        let mut config = Config::new(directory.path().join(format!("data-{strict}")));
        // Every write to this file fails, as on a full disk.
        let log = LogConfig {
            strict,
            ..log(PathBuf::from("/dev/full"))
        };
        config.audit = Some((policy.clone(), log));
        let server = Server::open(config).await.unwrap();
        let client = kube::Client::new(server.admin_service(), "default");
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}).to_string();
        let path = "/api/v1/namespaces/default/configmaps";
        let request = http::Request::post(path).header("content-type", "application/json");
        let answer = client
            .send(request.body(kube::client::Body::from(body.into_bytes())).unwrap())
            .await
            .unwrap();
        assert_eq!(answer.status().as_u16(), if strict { 500 } else { 201 });
        let text = String::from_utf8(answer.into_body().collect_bytes().await.unwrap().to_vec()).unwrap();
        assert_eq!(strict, text.contains("failed to store audit event"), "{text}");
        let stored = server
            .registry()
            .view()
            .exists("", "configmaps", Some("default"), "one");
        assert_eq!(stored, !strict);
        server.close().await;
    }
}

#[tokio::test]
async fn faults_are_reported_before_anything_is_served() {
    let directory = tempfile::tempdir().unwrap();
    let open = async |policy: PathBuf, path: PathBuf| {
        let mut config = Config::new(directory.path().join("data"));
        config.audit = Some((policy, log(path)));
        Server::open(config).await.unwrap_err().to_string()
    };
    let good = directory.path().join("audit.log");
    assert!(
        open(directory.path().join("none.yaml"), good.clone())
            .await
            .contains("none.yaml")
    );
    let bad = directory.path().join("bad.yaml");
    std::fs::write(
        &bad,
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: All}]\n",
    )
    .unwrap();
    let error = open(bad, good).await;
    assert!(
        error.contains("bad.yaml: rules[0].level: Unsupported value: \"All\""),
        "{error}"
    );
    let error = open(policy(), directory.path().join("no/such/audit.log")).await;
    assert!(error.contains("no/such/audit.log"), "{error}");
}
