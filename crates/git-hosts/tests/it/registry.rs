//! Credentials for a container registry: Debian's `docker-registry`, with tokens from the fake. The tests use the real `skopeo`, the client of sources, and the probe.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tempfile::TempDir;
use tenure_registry_server::{compute_digest, pack_files};
use tenure_remote_requests::git_host::{CredentialKind, HostKind, MintRequest, ProbeResult, Role};
use tenure_sources::{Connector, SecretData, probe_registry};
use tenure_test_ports::reserve_port;
use tokio::process::{Child, Command};

use crate::bed::{Bed, allow_addresses, find_program, make_order, mint, revoke};
use crate::fetches::fetch_image;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// A registry that trusts a fake.
struct Registry {
    address: String,
    folder: TempDir,
    _child: Child,
}

impl Registry {
    async fn start(bed: &Bed) -> Option<Self> {
        let program = find_program("docker-registry")?;
        let folder = TempDir::new().unwrap();
        let port = reserve_port();
        let address = format!("127.0.0.1:{port}");
        let (realm, issuer, certificate) = bed.forge.registry_authority();
        std::fs::write(folder.path().join("authority.pem"), certificate).unwrap();
        let config = json!({
            "version": 0.1, "log": { "level": "error" },
            "storage": { "filesystem": { "rootdirectory": folder.path().join("data") } },
            "http": { "addr": address },
            "auth": { "token": { "realm": realm, "service": "container_registry", "issuer": issuer,
                "rootcertbundle": folder.path().join("authority.pem") } },
        });
        std::fs::write(folder.path().join("config.yml"), config.to_string()).unwrap();
        let child = Command::new(program)
            .arg("serve")
            .arg(folder.path().join("config.yml"))
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        for _ in 0..600 {
            if tokio::net::TcpStream::connect(&address).await.is_ok() {
                bed.forge.set_registry(&address);
                return Some(Self {
                    address,
                    folder,
                    _child: child,
                });
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("docker-registry does not listen");
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Pushes an image with the token of a person who may push.
    async fn push(&self, bed: &Bed, name: &str) {
        let scope = format!("service=container_registry&scope=repository:{name}:pull,push");
        let basic = format!("Basic {}", STANDARD.encode(format!("owner:{}", bed.token)));
        let headers = [("Authorization", basic.as_str())];
        let answer = send(bed.forge.url(), "GET", &format!("/jwt/auth?{scope}"), &headers, "", b"").await;
        let body = answer.split("\r\n\r\n").nth(1).unwrap();
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        let bearer = format!("Bearer {}", body["token"].as_str().unwrap());
        let headers = [("Authorization", bearer.as_str())];
        let url = self.url();
        let layer = pack_files(&[("a.yaml", "a")]);
        let mut digests = Vec::new();
        for blob in [&b"{}"[..], &layer] {
            let digest = compute_digest(blob);
            let begun = send(&url, "POST", &format!("/v2/{name}/blobs/uploads/"), &headers, "", b"").await;
            let location = begun
                .lines()
                .find_map(|line| line.strip_prefix("Location: "))
                .expect(&begun)
                .trim();
            let target = location.strip_prefix(&url).unwrap_or(location);
            let separator = if target.contains('?') { '&' } else { '?' };
            let target = format!("{target}{separator}digest={digest}");
            let put = send(&url, "PUT", &target, &headers, "application/octet-stream", blob).await;
            assert!(put.starts_with("HTTP/1.1 201"), "{put}");
            digests.push(digest);
        }
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": { "mediaType": "application/vnd.cncf.flux.config.v1+json", "digest": digests[0], "size": 2 },
            "layers": [{ "mediaType": "application/vnd.cncf.flux.content.v1.tar+gzip", "digest": digests[1], "size": layer.len() }],
        });
        let target = format!("/v2/{name}/manifests/latest");
        let put = send(
            &url,
            "PUT",
            &target,
            &headers,
            MANIFEST,
            manifest.to_string().as_bytes(),
        )
        .await;
        assert!(put.starts_with("HTTP/1.1 201"), "{put}");
    }

    fn secret(&self, username: &str, password: &str) -> SecretData {
        let auths = json!({ &self.address: { "username": username, "password": password } });
        let config = json!({ "auths": auths }).to_string().into_bytes();
        SecretData::from([(".dockerconfigjson".to_owned(), config)])
    }

    async fn probe(&self, bed: &Bed, name: &str, username: &str, password: &str) -> ProbeResult {
        let (url, secret, reach) = self.probe_inputs(bed, name, username, password);
        probe_registry(&url, true, &secret, &reach).await
    }

    async fn fetch(&self, bed: &Bed, name: &str, username: &str, password: &str) -> Result<Vec<String>, String> {
        let (url, secret, reach) = self.probe_inputs(bed, name, username, password);
        fetch_image(&url, &secret, &reach).await
    }

    fn probe_inputs(&self, bed: &Bed, name: &str, username: &str, password: &str) -> (String, SecretData, Connector) {
        let url = format!("oci://{}/{name}", self.address);
        (
            url,
            self.secret(username, password),
            allow_addresses(&[&self.url(), bed.forge.url()]),
        )
    }
}

#[tokio::test]
async fn a_token_pulls_until_it_is_revoked() {
    let bed = Bed::new(HostKind::Gitlab).await;
    let Some(registry) = Registry::start(&bed).await else {
        println!("skipped: docker-registry is not on PATH");
        return;
    };
    bed.forge.add_project("group-1/other").await.unwrap();
    for name in ["group-1/project-a", "group-1/project-a/tool", "group-1/other"] {
        registry.push(&bed, name).await;
    }
    let (request, _) = make_order(&bed.target(), CredentialKind::DeployToken, "fa/1");
    let request = MintRequest {
        role: Role::ReadRegistry,
        ..request
    };
    let (id, credential) = mint(&bed.host, &request).await;
    let (username, token) = credential.unwrap();
    let pull = async |name: &str, token: &str| run_skopeo(&registry, name, &username, token).await;

    for name in ["group-1/project-a", "group-1/project-a/tool"] {
        assert_eq!(
            registry.probe(&bed, name, &username, &token).await,
            ProbeResult::Accepted
        );
        assert_eq!(
            registry.fetch(&bed, name, &username, &token).await,
            Ok(vec!["a.yaml".to_owned()])
        );
        assert_ne!(pull(name, &token).await, Some(false));
    }
    // A project's token opens its own images only; a token for Git opens none.
    let (git, _) = make_order(&bed.target(), CredentialKind::DeployToken, "fa/2");
    let (_, git) = mint(&bed.host, &git).await;
    let (git_username, git_token) = git.unwrap();
    for (name, username, token) in [
        ("group-1/other", &username, &token),
        ("group-1/project-a", &git_username, &git_token),
    ] {
        let probed = registry.probe(&bed, name, username, token).await;
        assert!(matches!(probed, ProbeResult::Refused(_)), "{probed:?}");
        assert!(registry.fetch(&bed, name, username, token).await.is_err());
        assert_ne!(run_skopeo(&registry, name, username, token).await, Some(true));
    }
    revoke(&bed.host, &bed.target(), CredentialKind::DeployToken, id)
        .await
        .unwrap();
    let probed = registry.probe(&bed, "group-1/project-a", &username, &token).await;
    assert!(matches!(probed, ProbeResult::Refused(_)), "{probed:?}");
    let refused = registry
        .fetch(&bed, "group-1/project-a", &username, &token)
        .await
        .unwrap_err();
    assert!(!refused.contains(&token), "{refused}");
    assert_ne!(pull("group-1/project-a", &token).await, Some(true));

    // Neither a ban nor a host that is down means the end of a credential.
    use tenure_forge_server::{Fault, Misbehaviour};
    for what in [Misbehaviour::ban(), Misbehaviour::server_error(), Misbehaviour::Cut] {
        bed.forge.misbehave(Fault::always("/jwt/auth", what));
        let probed = registry.probe(&bed, "group-1/project-a", &username, &token).await;
        assert!(matches!(probed, ProbeResult::Unclear(_)), "{probed:?}");
        bed.forge.behave();
    }
    // The host that gives tokens asks for a pause, and not the registry.
    bed.forge
        .misbehave(Fault::always("/jwt/auth", Misbehaviour::rate_limit(90)));
    let probed = registry.probe(&bed, "group-1/project-a", &username, &token).await;
    let ProbeResult::Limited { url, wait, .. } = probed else {
        panic!("{probed:?}");
    };
    assert!(url.starts_with(bed.forge.url()), "{url}");
    assert_eq!(wait, Some(std::time::Duration::from_secs(90)));
}

/// Checks whether the real skopeo pulls an image; `None` if skopeo is missing.
async fn run_skopeo(registry: &Registry, name: &str, username: &str, token: &str) -> Option<bool> {
    let program = find_program("skopeo").unwrap_or_else(|| "skopeo".into());
    let version = Command::new(&program).arg("--version").output().await;
    if !version.is_ok_and(|output| output.status.success()) {
        println!("skipped: there is no skopeo on PATH that runs");
        return None;
    }
    let policy = registry.folder.path().join("policy.json");
    std::fs::write(&policy, r#"{"default":[{"type":"insecureAcceptAnything"}]}"#).unwrap();
    let folder = TempDir::new_in(registry.folder.path()).unwrap();
    let output = Command::new(program)
        .arg("--policy")
        .arg(&policy)
        .args(["copy", "--quiet", "--src-tls-verify=false", "--src-creds"])
        .arg(format!("{username}:{token}"))
        .arg(format!("docker://{}/{name}:latest", registry.address))
        .arg(format!("dir:{}", folder.path().join("image").display()))
        .env("HOME", registry.folder.path())
        .output()
        .await
        .unwrap();
    println!("{}", String::from_utf8_lossy(&output.stderr));
    Some(output.status.success())
}

/// Sends one request unchanged, and returns the answer.
pub(crate) async fn send(
    url: &str,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    content_type: &str,
    body: &[u8],
) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let headers: String = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: {address}\r\n{headers}Content-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}
