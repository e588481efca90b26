//! The client of the artifact server, against a server that gives one answer.

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::*;

const TOKEN: &str = "canary-of-a-token";

/// Starts a server that gives one answer. Returns its address, and a task that ends with the head of the request.
async fn serve(head: &str, body: &[u8]) -> (ArtifactBase, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let length = body.len();
    let mut answer = format!("HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n").into_bytes();
    answer.extend_from_slice(body);
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(stream.read_u8().await.expect("a request"));
        }
        // The client may have refused the answer already.
        let _is_sent = stream.write_all(&answer).await;
        let _is_closed = stream.shutdown().await;
        String::from_utf8_lossy(&request).into_owned()
    });
    (format!("http://{address}/of/web").parse().expect("an address"), served)
}

fn config(user: Value) -> kube::Config {
    let mut config = kube::Config::new("https://127.0.0.1:6443".parse().expect("an address"));
    config.auth_info = serde_json::from_value(user).expect("a user");
    config
}

fn open(server: &ArtifactBase) -> ArtifactClient {
    let named = ArtifactExtension {
        server: server.clone(),
        authority: None,
    };
    ArtifactClient::open(config(json!({"token": TOKEN})), named).expect("a client")
}

fn address() -> ArtifactAddress {
    let digest = format!("sha256:{}", "0a".repeat(32));
    ArtifactAddress::new("GitRepository", ("shop", "web"), &digest).expect("an address")
}

async fn refuse(client: &ArtifactClient) -> String {
    let refused = client.load(&address()).await.expect_err("no artifact");
    assert!(!refused.contains(TOKEN) && refused.lines().count() == 1, "{refused}");
    refused
}

#[tokio::test]
async fn each_refusal_has_its_words() {
    // A server could repeat the token.
    let body = format!("Bearer {TOKEN}");
    for (head, words) in [
        ("401 Unauthorized", "accepts no credential of the kubeconfig (401)"),
        (
            "403 Forbidden",
            "you may not get the artifact of GitRepository shop/web at http://127.0.0.1:",
        ),
        ("404 Not Found", "no longer, or is another cluster's (404)"),
        ("429 Too Many Requests", "ask again later"),
        ("503 Service Unavailable", "ask again later"),
        ("500 Internal Server Error", "answered 500"),
        ("204 No Content", "answered 204"),
    ] {
        let (server, served) = serve(head, body.as_bytes()).await;
        let refused = refuse(&open(&server)).await;
        assert!(refused.contains(words), "{head}: {refused}");
        let request = served.await.expect("a request").to_lowercase();
        let path = format!("get /of/web{} http/1.1\r\n", address());
        assert!(request.starts_with(&path), "{request}");
        assert!(
            request.contains(&format!("authorization: bearer {TOKEN}\r\n")),
            "{request}"
        );
    }
}

#[tokio::test]
async fn no_redirect_is_followed() {
    let other = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let location = other.local_addr().expect("an address");
    for status in ["301 Moved Permanently", "302 Found", "307 Temporary Redirect"] {
        let head = format!("{status}\r\nLocation: http://{location}/x");
        let (server, _served) = serve(&head, b"").await;
        let refused = refuse(&open(&server)).await;
        assert!(refused.contains("no credential is sent there"), "{refused}");
    }
    let asked = tokio::time::timeout(Duration::from_millis(50), other.accept()).await;
    assert!(asked.is_err(), "the other server was asked");
}

#[tokio::test]
async fn other_bytes_than_the_digest_names_are_refused() {
    let gzip = [&[0x1f, 0x8b][..], &[0; 30]].concat();
    for (body, words) in [
        (&gzip[..], "sent an artifact with digest sha256:"),
        (b"<html>log in</html>", "no tar archive"),
        (b"", "no tar archive"),
    ] {
        let (server, _served) = serve("200 OK", body).await;
        let refused = refuse(&open(&server)).await;
        assert!(refused.contains(words), "{refused}");
    }
}

#[tokio::test]
async fn size_and_time_are_bounded() {
    let (server, _served) = serve("200 OK", &[0; 1000]).await;
    let mut client = open(&server);
    client.limits.unpacked_bytes = 999;
    let refused = refuse(&client).await;
    assert!(refused.contains("more than 999 bytes"), "{refused}");

    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = silent.local_addr().expect("an address");
    let server = format!("http://{address}").parse().expect("an address");
    let mut client = open(&server);
    client.timeout = Duration::from_millis(1);
    let refused = refuse(&client).await;
    assert!(refused.contains("did not answer in time"), "{refused}");

    drop((client, silent));
    let refused = refuse(&open(&server)).await;
    assert!(refused.contains("nothing listens at http://127.0.0.1:"), "{refused}");
}

#[tokio::test]
async fn credentials_go_where_they_may() {
    let open = |server: &str, user: Value| {
        let named = ArtifactExtension {
            server: server.parse().expect("an address"),
            authority: None,
        };
        ArtifactClient::open(config(user), named).err()
    };
    let token = json!({"token": TOKEN});
    let refused = open("http://artifacts.example", token.clone()).expect("refused");
    assert!(
        refused.contains("in the clear") && !refused.contains(TOKEN),
        "{refused}"
    );
    let impersonating = json!({"token": TOKEN, "as": "alice"});
    let refused = open("https://artifacts.example", impersonating).expect("refused");
    assert!(
        refused.contains("impersonate user alice") && !refused.contains(TOKEN),
        "{refused}"
    );
    let plugin = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", format!("echo {TOKEN}; exit 1")],
        "interactiveMode": "Never"
    }});
    let refused = open("http://127.0.0.1:1", plugin).expect("refused");
    assert!(
        refused.contains("can't be used") && !refused.contains(TOKEN),
        "{refused}"
    );
    assert_eq!(open("http://127.0.0.1:1", token), None);
}

#[tokio::test]
async fn a_password_is_not_sent() {
    let (server, served) = serve("401 Unauthorized", b"").await;
    let user = json!({"username": "alice", "password": TOKEN});
    let named = ArtifactExtension {
        server,
        authority: None,
    };
    let client = ArtifactClient::open(config(user), named).expect("a client");
    refuse(&client).await;
    let request = served.await.expect("a request").to_lowercase();
    assert!(!request.contains("authorization"), "{request}");
}

#[test]
fn a_status_gives_the_digest_and_never_the_server() {
    let kustomization: Kustomization = serde_json::from_value(json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"interval": "1h", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "web"}},
        "status": {"lastAppliedRevision": "main@sha1:1"}
    }))
    .expect("a Kustomization");
    let find = |artifact: Value| {
        let source = json!({"metadata": {"namespace": "shop", "name": "web"}, "status": {"artifact": artifact}});
        find_address(&kustomization, &source)
    };
    let digest = address().digest;
    let whole = json!({"digest": digest, "revision": "main@sha1:1", "url": "http://evil.example/x", "path": "/evil"});
    assert_eq!(find(whole), Ok(address()));
    for (artifact, words) in [
        (Value::Null, "GitRepository shop/web has no artifact"),
        (json!({"revision": "main@sha1:1"}), "has no artifact"),
        (
            json!({"digest": digest, "revision": "main@sha1:2"}),
            "main@sha1:2 is stored now",
        ),
        (
            json!({"digest": "sha256:../x", "revision": "main@sha1:1"}),
            "no artifact with a sha256 digest",
        ),
    ] {
        let refused = find(artifact).expect_err("refused");
        assert!(refused.contains(words), "{refused}");
    }
}
