//! Requests to Receivers over HTTP: those of a Git host, and invalid ones.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{Api, PostParams};
use serde_json::json;
use tenure_api::{Condition, ConditionStatus, GitRepository, Provider, Receiver};
use tenure_test_ports::reserve_port;
use tenure_testkit::{SOON, eventually};

use crate::process::{Up, client};

/// Sends this text and reads the whole answer; returns its status, or 0 without an answer.
fn send(port: u16, head: &str, body: &[u8]) -> u16 {
    let mut line = TcpStream::connect(("127.0.0.1", port)).unwrap();
    line.write_all(format!("{head}\r\nhost: hooks\r\n\r\n").as_bytes())
        .unwrap();
    // The server may have closed the connection after the head.
    let _hung_up = line.write_all(body);
    let mut answer = Vec::new();
    let _hung_up = line.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or_default()
}

fn post(port: u16, path: &str, headers: &str, body: &str) -> u16 {
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\ncontent-length: {length}{headers}");
    send(port, &head, body.as_bytes())
}

/// A source follows a folder of this machine at once, even with a long interval.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn change_in_served_folder_is_reconciled_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (served, data) = (folder.path().join("platform"), folder.path().join("data"));
    std::fs::create_dir(&served).unwrap();
    std::fs::write(served.join("a.yaml"), "a: 1\n").unwrap();
    let named = format!("platform={}", served.display());
    let (_up, lines) = Up::start_telling(&data, &["--repository", &named, "--repository-port", "0"], 3);
    let url = lines[2].strip_prefix("repository ").expect("the clone URL");
    let sources: Api<GitRepository> = Api::namespaced(client(&data).await, "tenure-system");
    let source = json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": {"name": "platform"},
        "spec": {"url": url, "ref": {"branch": "main"}, "interval": "10h"}
    });
    let source = serde_json::from_value(source).unwrap();
    sources.create(&PostParams::default(), &source).await.unwrap();
    let revision_after = async |before: &str| {
        let read_revision = || async {
            let found = sources.get("platform").await.map_err(|error| error.to_string())?;
            let artifact = found.status.as_ref().and_then(|status| status.artifact.as_ref());
            let revision = artifact.map(|artifact| artifact.revision.clone()).unwrap_or_default();
            let is_another = !revision.is_empty() && revision != before;
            is_another
                .then_some(revision)
                .ok_or_else(|| format!("{:?}", found.status))
        };
        eventually(SOON, read_revision).await.unwrap()
    };
    let first = revision_after("").await;
    std::fs::write(served.join("b.yaml"), "b: 1\n").unwrap();
    revision_after(&first).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_come_in_over_http_and_nothing_else_does() {
    let folder = tempfile::tempdir().unwrap();
    let port = reserve_port();
    let _up = Up::start(folder.path(), &["--hook-address", &format!("127.0.0.1:{port}")]);
    let client = client(folder.path()).await;
    let new = PostParams::default();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), "default");
    let sources: Api<GitRepository> = Api::namespaced(client.clone(), "default");
    let receivers: Api<Receiver> = Api::namespaced(client, "default");
    let token = json!({"metadata": {"name": "token"}, "stringData": {"token": "It's a Secret to Everybody"}});
    secrets
        .create(&new, &serde_json::from_value(token).unwrap())
        .await
        .unwrap();
    let binding = json!({
        "metadata": {"name": "default"}, "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    });
    bindings
        .create(&new, &serde_json::from_value(binding).unwrap())
        .await
        .unwrap();
    let source = json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": {"name": "app"},
        "spec": {"url": "http://git.invalid/app", "interval": "1h"}
    });
    sources
        .create(&new, &serde_json::from_value(source).unwrap())
        .await
        .unwrap();
    let receiver = json!({
        "apiVersion": "notification.toolkit.fluxcd.io/v1", "kind": "Receiver", "metadata": {"name": "hook"},
        "spec": {"type": "github", "secretRef": {"name": "token"}, "resources": [{"kind": "GitRepository", "name": "app"}]}
    });
    receivers
        .create(&new, &serde_json::from_value(receiver).unwrap())
        .await
        .unwrap();
    let read_path = || async {
        let found = receivers.get("hook").await.map_err(|error| error.to_string())?;
        let path = found.status.as_ref().and_then(|status| status.webhook_path.clone());
        path.ok_or_else(|| format!("{:?}", found.status))
    };
    let path = eventually(SOON, read_path).await.unwrap();

    // The example from GitHub's documentation.
    let signed = "\r\ncontent-type: application/json\r\nx-github-event: push\r\n\
                  x-hub-signature-256: sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let annotations = async || {
        sources
            .get("app")
            .await
            .unwrap()
            .metadata
            .annotations
            .unwrap_or_default()
    };
    assert!(!annotations().await.contains_key("reconcile.fluxcd.io/requestedAt"));
    assert_eq!(post(port, &path, signed, "Hello, World!"), 200);
    assert!(annotations().await.contains_key("reconcile.fluxcd.io/requestedAt"));
    assert_eq!(post(port, &path, signed, "Hello, World?"), 404);

    let unknown = format!("/hook/{}", "0".repeat(64));
    for (head, status) in [
        (format!("GET {path} HTTP/1.1"), 405),
        (format!("GET {unknown} HTTP/1.1"), 405),
        ("POST / HTTP/1.1\r\ncontent-length: 0".to_owned(), 404),
        ("POST /metrics HTTP/1.1\r\ncontent-length: 0".to_owned(), 404),
        // The server does not wait for an unwanted body.
        (format!("POST {unknown} HTTP/1.1\r\ncontent-length: 1000000000"), 404),
        (format!("POST {path} HTTP/1.1\r\ncontent-length: 1000000000"), 413),
        (format!("POST {path} HTTP/1.1\r\nx-long: {}", "x".repeat(500_000)), 431),
        (format!("POST {path} HTTP/1.1{}", "\r\nx-many: x".repeat(100)), 431),
        ("nonsense".to_owned(), 400),
    ] {
        assert_eq!(send(port, &head, b""), status, "{head:.80}");
    }
    // A body without a length ends at the bound.
    let part = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    let head = format!("POST {path} HTTP/1.1\r\ntransfer-encoding: chunked");
    let status = send(port, &head, part.repeat(64).as_bytes());
    assert!([413, 0].contains(&status), "{status}");
    assert_eq!(post(port, &path, signed, "Hello, World!"), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_receivers_and_denied_providers_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let _up = Up::start(folder.path(), &[]);
    let client = client(folder.path()).await;
    let new = PostParams::default();
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), "default");
    let binding = json!({
        "metadata": {"name": "default"}, "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    });
    let binding = serde_json::from_value(binding).unwrap();
    bindings.create(&new, &binding).await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
    let token = json!({"metadata": {"name": "token"}, "stringData": {"token": "sesame"}});
    secrets
        .create(&new, &serde_json::from_value(token).unwrap())
        .await
        .unwrap();
    let receivers: Api<Receiver> = Api::namespaced(client.clone(), "default");
    let receiver = json!({
        "apiVersion": "notification.toolkit.fluxcd.io/v1", "kind": "Receiver", "metadata": {"name": "hook"},
        "spec": {"type": "github", "secretRef": {"name": "token"}, "resources": [{"kind": "GitRepository", "name": "app"}]}
    });
    receivers
        .create(&new, &serde_json::from_value(receiver).unwrap())
        .await
        .unwrap();
    let providers: Api<Provider> = Api::namespaced(client, "default");
    let provider = json!({
        "apiVersion": "notification.toolkit.fluxcd.io/v1beta3", "kind": "Provider", "metadata": {"name": "chat"},
        "spec": {"type": "generic", "address": "http://127.0.0.1:9/x"}
    });
    providers
        .create(&new, &serde_json::from_value(provider).unwrap())
        .await
        .unwrap();
    let expect = |conditions: Option<Vec<Condition>>, reason: &str, part: &str| {
        let ready = conditions.iter().flatten().find(|condition| condition.type_ == "Ready");
        let is_expected = |ready: &&Condition| {
            ready.status == ConditionStatus::False && ready.reason == reason && ready.message.contains(part)
        };
        ready
            .filter(is_expected)
            .map(drop)
            .ok_or_else(|| format!("{conditions:?}"))
    };
    let read_conditions = || async {
        let found = receivers.get("hook").await.map_err(|error| error.to_string())?;
        expect(
            found.status.map(|status| status.conditions),
            "NoListener",
            "--hook-address",
        )
    };
    eventually(SOON, read_conditions).await.unwrap();
    let read_conditions = || async {
        let found = providers.get("chat").await.map_err(|error| error.to_string())?;
        let flag = "--allow-source http://127.0.0.1:9";
        expect(found.status.map(|status| status.conditions), "AddressDenied", flag)
    };
    eventually(SOON, read_conditions).await.unwrap();
}
