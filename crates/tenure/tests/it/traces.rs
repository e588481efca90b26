//! Traces as a collector gets them: their content, the excluded content, and that no controller waits for the collector.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tenure_test_ports::reserve_port;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::commands::{Place, apply};
use crate::process::{client, fails};

/// A text that no span may contain.
const CANARY: &str = "canary-77c2";

/// A collector that stores posted data.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<(String, Value)>>>);

impl Collector {
    async fn listen(self, listener: TcpListener) {
        while let Ok((mut line, _)) = listener.accept().await {
            let collector = self.clone();
            tokio::spawn(async move {
                let mut bytes = Vec::new();
                let mut buffer = [0; 1 << 16];
                while let Ok(read) = line.read(&mut buffer).await {
                    if read == 0 {
                        return;
                    }
                    bytes.extend_from_slice(&buffer[..read]);
                    let Some((head, body)) = split(&bytes) else { continue };
                    collector
                        .0
                        .lock()
                        .unwrap()
                        .push((head, serde_json::from_slice(&body).unwrap()));
                    bytes.clear();
                    let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
                    line.write_all(answer.as_bytes()).await.unwrap();
                }
            });
        }
    }

    fn spans(&self) -> Vec<Value> {
        let taken = self.0.lock().unwrap();
        let spans = taken
            .iter()
            .flat_map(|(_, body)| body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap());
        spans.cloned().collect()
    }
}

/// Returns the head and the body of a complete request.
fn split(bytes: &[u8]) -> Option<(String, Vec<u8>)> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))?
        .trim()
        .parse::<usize>()
        .unwrap();
    (bytes.len() >= end + length).then(|| (head, bytes[end..end + length].to_vec()))
}

fn attribute<'a>(span: &'a Value, name: &str) -> &'a str {
    let list = span["attributes"].as_array().unwrap();
    let found = list
        .iter()
        .find(|attribute| attribute["key"] == format!("tenure.{name}"));
    found.map_or("", |attribute| attribute["value"]["stringValue"].as_str().unwrap())
}

fn write_files(folder: &std::path::Path) -> std::path::PathBuf {
    let files = folder.join("files");
    std::fs::create_dir(&files).unwrap();
    let secret =
        format!("apiVersion: v1\nkind: Secret\nmetadata:\n  name: hidden\nstringData:\n  password: {CANARY}\n");
    std::fs::write(files.join("secret.yaml"), secret).unwrap();
    files
}

/// Starts a control plane that traces to an address, with this mode of lanes, and a Kustomization of a folder in the platform's namespace.
async fn trace(endpoint: &str, lanes: &str) -> Place {
    let folder = tempfile::tempdir().unwrap();
    let files = write_files(folder.path());
    let port = reserve_port().to_string();
    let served = format!("web={}", files.display());
    let flags = [
        "--repository",
        &served,
        "--repository-port",
        &port,
        "--traces-endpoint",
        endpoint,
        "--lanes",
        lanes,
    ];
    let place = Place::with(folder, &flags);
    let data = place.folder.path().join("data");
    let namespace = "tenure-system";
    let metadata = |name: &str| json!({"name": name, "namespace": namespace});
    let rbac = "rbac.authorization.k8s.io";
    for (object, path) in [
        (
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata("applier")}),
            "/api/v1/namespaces/tenure-system/serviceaccounts/applier",
        ),
        (
            json!({"apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": metadata("applier"),
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "edit"},
                "subjects": [{"kind": "ServiceAccount", "name": "applier", "namespace": namespace}]}),
            "/apis/rbac.authorization.k8s.io/v1/namespaces/tenure-system/rolebindings/applier",
        ),
        (
            json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": metadata("web"),
                "spec": {"interval": "1h", "url": format!("http://127.0.0.1:{port}/web.git"), "ref": {"branch": "main"}}}),
            "/apis/source.toolkit.fluxcd.io/v1/namespaces/tenure-system/gitrepositories/web",
        ),
        (
            json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": metadata("web"),
                "spec": {"interval": "1h", "prune": true, "path": "./", "serviceAccountName": "applier", "targetNamespace": namespace,
                    "sourceRef": {"kind": "GitRepository", "name": "web"}}}),
            "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/tenure-system/kustomizations/web",
        ),
    ] {
        apply(&data, object, path).await;
    }
    let deadline = Instant::now() + Duration::from_secs(180);
    loop {
        let request = http::Request::get("/api/v1/namespaces/tenure-system/secrets/hidden")
            .body(Vec::new())
            .unwrap();
        if client(&data).await.request::<Value>(request).await.is_ok() {
            return place;
        }
        assert!(Instant::now() < deadline, "it is not applied");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Each attempt has a span, and so does each of its parts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn collector_gets_spans_of_attempts_without_values() {
    expect_spans("task").await;
}

/// The process of a lane opens no connection: it sends spans to the hub, which forwards them.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn collector_gets_spans_of_process_lanes() {
    expect_spans("process").await;
}

async fn expect_spans(lanes: &str) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}/collect", listener.local_addr().unwrap());
    let collector = Collector::default();
    tokio::spawn(collector.clone().listen(listener));
    let _place = trace(&endpoint, lanes).await;
    let deadline = Instant::now() + Duration::from_secs(180);
    let spans = loop {
        let spans = collector.spans();
        let is_whole = ["GitRepository", "Kustomization"].iter().all(|kind| {
            let ends =
                |span: &&Value| attribute(span, "kind") == *kind && attribute(span, "reason").ends_with("Succeeded");
            spans.iter().any(|span| ends(&span))
        });
        if is_whole {
            break spans;
        }
        assert!(Instant::now() < deadline, "{spans:#?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let named = |kind: &str| {
        let mut found = spans
            .iter()
            .filter(|span| attribute(span, "kind") == kind && !attribute(span, "revision").is_empty());
        found
            .next()
            .unwrap_or_else(|| panic!("no {kind} with a revision: {spans:#?}"))
    };
    for kind in ["GitRepository", "Kustomization"] {
        let span = named(kind);
        assert_eq!(span["name"], "reconcile");
        assert_eq!(
            (attribute(span, "namespace"), attribute(span, "name")),
            ("tenure-system", "web")
        );
        assert!(attribute(span, "revision").starts_with("main@sha1:"), "{span:#}");
        assert!(span.get("parentSpanId").is_none());
    }
    for (kind, parts) in [
        ("GitRepository", &["fetch", "plan"][..]),
        ("Kustomization", &["render", "plan", "apply"]),
    ] {
        for part in parts {
            let is_part = |span: &&Value| {
                span["name"] == *part
                    && spans.iter().any(|parent| {
                        span["parentSpanId"] == parent["spanId"]
                            && span["traceId"] == parent["traceId"]
                            && attribute(parent, "kind") == kind
                    })
            };
            assert!(
                spans.iter().any(|span| is_part(&span)),
                "no {part} of a {kind}: {spans:#?}"
            );
        }
    }
    let taken = collector.0.lock().unwrap();
    for (head, body) in taken.iter() {
        assert!(head.starts_with("post /collect/v1/traces "), "{head}");
        assert!(
            !body.to_string().contains(CANARY) && !body.to_string().contains("password"),
            "{body:#}"
        );
    }
}

/// A missing or silent collector delays no controller.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_collector_delays_nothing() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for endpoint in [
        format!("http://127.0.0.1:{}", reserve_port()),
        format!("http://{}", silent.local_addr().unwrap()),
    ] {
        trace(&endpoint, "task").await;
    }
    fails(
        &["up", "--data", "/nonexistent/x", "--traces-endpoint", "collector"],
        2,
        &["--traces-endpoint", "4318"],
    );
}
