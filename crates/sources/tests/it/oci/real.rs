//! Fetches from a real registry.

use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tenure_registry_server::{compute_digest, pack_files};
use tenure_remote_requests::fetch::Fetched;
use tenure_remote_requests::oci::FetchRequest;
use tenure_sources::OciError;

use super::Stand;
use crate::bed::find_program;

/// The fetches of the other tests also work with a widely used registry, Debian's `docker-registry`, if it is installed.
#[tokio::test]
async fn a_real_registry_is_understood() {
    let Some(program) = find_program("docker-registry") else {
        println!("skipped: docker-registry is not on PATH");
        return;
    };
    let folder = TempDir::new().unwrap();
    let port = tenure_test_ports::reserve_port();
    let config = format!(
        "version: 0.1\nlog: {{ level: error }}\nstorage: {{ filesystem: {{ rootdirectory: {} }} }}\nhttp: {{ addr: '127.0.0.1:{port}' }}\n",
        folder.path().join("data").display()
    );
    std::fs::write(folder.path().join("config.yml"), config).unwrap();
    let _child = tokio::process::Command::new(program)
        .arg("serve")
        .arg(folder.path().join("config.yml"))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let address = format!("127.0.0.1:{port}");
    for _ in 0..600 {
        if tokio::net::TcpStream::connect(&address).await.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // The artifact is pushed like to the test's own registry; the assertions are about the real registry's answers.
    let layer = pack_files(&[("a.yaml", "a")]);
    let blob = put_blob(&address, &layer).await;
    let config = put_blob(&address, b"{}").await;
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": { "mediaType": "application/vnd.cncf.flux.config.v1+json", "digest": config, "size": 2 },
        "layers": [{ "mediaType": "application/vnd.cncf.flux.content.v1.tar+gzip", "digest": blob, "size": layer.len() }],
    })
    .to_string();
    for tag in ["1.0.0", "1.1.0", "latest"] {
        let status = send(
            &address,
            "PUT",
            &format!("/v2/team/app/manifests/{tag}"),
            "application/vnd.oci.image.manifest.v1+json",
            manifest.as_bytes(),
        )
        .await;
        assert!(status.starts_with("HTTP/1.1 201"), "{status}");
    }
    let mut stand = Stand::new().await;
    stand.allow(&format!("http://{address}"));
    let ask = |reference: Value| FetchRequest {
        url: tenure_api::SourceUrl::new(format!("oci://{address}/team/app")),
        ..stand.make_request(reference)
    };
    let digest = compute_digest(manifest.as_bytes());
    let latest = stand.get(ask(json!({}))).await;
    assert_eq!(latest.facts.revision, format!("latest@{digest}"));
    assert_eq!(stand.list(&latest), ["a.yaml"]);
    let known = FetchRequest {
        known: Some(latest),
        ..ask(json!({}))
    };
    assert!(matches!(stand.fetch(known).await, Ok(Fetched::Unchanged { .. })));
    let newest = stand.get(ask(json!({ "semver": "1.x" }))).await;
    assert_eq!(newest.facts.revision, format!("1.1.0@{digest}"));
    assert_eq!(stand.get(ask(json!({ "digest": digest }))).await.facts.revision, digest);
    let (error, message) = stand.refuse(ask(json!({ "tag": "gone" }))).await;
    assert!(matches!(error, OciError::NotFound { .. }), "{message}");
}

async fn put_blob(address: &str, content: &[u8]) -> String {
    let digest = compute_digest(content);
    let begun = send(address, "POST", "/v2/team/app/blobs/uploads/", "", b"").await;
    let location = begun
        .lines()
        .find_map(|line| line.strip_prefix("Location: "))
        .unwrap()
        .trim();
    let target = location.strip_prefix(&format!("http://{address}")).unwrap_or(location);
    let separator = if target.contains('?') { '&' } else { '?' };
    let target = format!("{target}{separator}digest={digest}");
    let status = send(address, "PUT", &target, "application/octet-stream", content).await;
    assert!(status.starts_with("HTTP/1.1 201"), "{status}");
    digest
}

async fn send(address: &str, method: &str, target: &str, content_type: &str, body: &[u8]) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: {address}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}
