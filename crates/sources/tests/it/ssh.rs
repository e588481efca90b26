//! Fetches over ssh.

use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::{Ed25519Keypair, KeypairData};
use russh::keys::{HashAlg, PrivateKey};
use serde_json::json;
use tenure_git_server::{Options, ProtocolVersions, SshOptions};
use tenure_sources::{FetchError, GitRequest};

use crate::bed::{Bed, secret, source};

fn key(seed: u8) -> PrivateKey {
    PrivateKey::new(KeypairData::Ed25519(Ed25519Keypair::from_seed(&[seed; 32])), "test").unwrap()
}

fn text(key: &PrivateKey) -> String {
    key.to_openssh(LineEnding::LF).unwrap().to_string()
}

async fn bed(versions: ProtocolVersions) -> Bed {
    let public = key(1).public_key().to_openssh().unwrap();
    let ssh = Some(SshOptions::loopback(vec![public]));
    let bed = Bed::with(Options {
        ssh,
        versions,
        ..Options::default()
    })
    .await;
    bed.repository.commit([("a", "1")], "first").await.unwrap();
    bed
}

fn request(bed: &Bed) -> GitRequest {
    bed.request_spec(json!({"url": bed.server.ssh_url("app").unwrap(), "ref": {"branch": "main"}}))
}

#[tokio::test]
async fn branches_tags_and_commits_over_both_versions() {
    for versions in [ProtocolVersions::All, ProtocolVersions::OnlyZero] {
        let mut bed = bed(versions).await;
        bed.secret = secret(&[
            ("identity", &text(&key(1))),
            ("known_hosts", &bed.server.known_hosts().unwrap()),
        ]);
        let first = bed.repository.resolve("main").await.unwrap().unwrap();
        bed.repository.annotated_tag("v1", &first, "one").await.unwrap();
        let big: Vec<u8> = (0..100_000_u32)
            .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
            .collect();
        let second = bed
            .repository
            .commit([("a", "2".to_owned().into_bytes()), ("big", big)], "second")
            .await
            .unwrap();
        let url = bed.server.ssh_url("app").unwrap();
        for (reference, revision, files) in [
            (json!({"branch": "main"}), format!("main@sha1:{second}"), 2),
            (json!({"tag": "v1"}), format!("v1@sha1:{first}"), 1),
            (json!({"commit": first}), format!("sha1:{first}"), 1),
        ] {
            let request = bed.request_spec(json!({"url": url, "ref": reference}));
            let (artifact, _) = bed.get_request(&request).await;
            assert_eq!(artifact.revision, revision);
            assert_eq!(bed.load(&artifact).len(), files);
        }
        let (error, _) = bed.refuse_request(&bed.request_spec(json!({"url": url}))).await;
        assert!(matches!(error, FetchError::ReferenceNotFound { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_key_with_a_passphrase() {
    let mut bed = bed(ProtocolVersions::All).await;
    let known = bed.server.known_hosts().unwrap();
    // ssh-keygen is asked, for it writes the form that people have.
    let path = bed.folder.path().join("key");
    std::fs::write(&path, text(&key(1))).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    let made = tokio::process::Command::new("ssh-keygen")
        .args(["-q", "-p", "-N", "open", "-f"])
        .arg(&path)
        .status()
        .await;
    if !made.is_ok_and(|status| status.success()) {
        println!("skipped: there is no ssh-keygen");
        return;
    }
    let locked = std::fs::read_to_string(&path).unwrap();
    bed.secret = secret(&[("identity", &locked), ("known_hosts", &known), ("password", "open")]);
    bed.get_request(&request(&bed)).await;
    for pairs in [
        vec![
            ("identity", locked.as_str()),
            ("known_hosts", &known),
            ("password", "wrong"),
        ],
        vec![("identity", locked.as_str()), ("known_hosts", &known)],
        vec![("identity", "no key"), ("known_hosts", &known)],
    ] {
        bed.secret = secret(&pairs);
        let (error, message) = bed.refuse_request(&request(&bed)).await;
        assert!(matches!(error, FetchError::InvalidSecret { .. }), "{message}");
        assert!(message.contains("identity is no private key"), "{message}");
    }
}

#[tokio::test]
async fn strangers_are_told_apart() {
    let mut bed = bed(ProtocolVersions::All).await;
    let own = text(&key(1));
    let known = bed.server.known_hosts().unwrap();
    let address = bed.server.ssh_address().unwrap();
    let host = format!("[{}]:{}", address.ip(), address.port());
    let other_key = key(9);
    let other = other_key.public_key().to_openssh().unwrap();
    let print = other_key.fingerprint(HashAlg::Sha256).to_string();

    for (known_hosts, words) in [
        (format!("{host} {other}"), "not the key that known_hosts names"),
        (format!("github.com {other}"), "known_hosts names no key for it"),
        (format!("{} {other}", address.ip()), "known_hosts names no key for it"),
        ("# nothing\n".to_owned(), "known_hosts names no key for it"),
        (format!("@revoked {known}{known}"), "as revoked"),
    ] {
        bed.secret = secret(&[("identity", &own), ("known_hosts", &known_hosts)]);
        let (error, message) = bed.refuse_request(&request(&bed)).await;
        assert!(matches!(error, FetchError::HostKey { .. }), "{known_hosts}: {message}");
        assert!(
            message.contains(words) && message.contains("SHA256:") && !message.contains(&print),
            "{message}"
        );
        assert_eq!((error.reason(), error.transient()), ("AuthenticationFailed", false));
    }
    // Several lines about the host, one of them right.
    let lines = format!("{host} {other}\n*,!x {}", known.split_once(' ').unwrap().1);
    bed.secret = secret(&[("identity", &own), ("known_hosts", &lines)]);
    bed.get_request(&request(&bed)).await;

    bed.secret = secret(&[("identity", &text(&key(2))), ("known_hosts", &known)]);
    let (error, message) = bed.refuse_request(&request(&bed)).await;
    assert!(matches!(error, FetchError::Unauthorized { .. }), "{message}");
    assert!(
        message.contains("does not accept the Secret's identity for user \"git\""),
        "{message}"
    );
}

#[tokio::test]
async fn what_the_server_says_is_passed_on() {
    let mut bed = bed(ProtocolVersions::All).await;
    bed.secret = secret(&[
        ("identity", &text(&key(1))),
        ("known_hosts", &bed.server.known_hosts().unwrap()),
    ]);
    let url = bed.server.ssh_url("missing").unwrap();
    let (error, message) = bed.refuse_request(&bed.request_spec(json!({"url": url}))).await;
    assert!(matches!(error, FetchError::Remote { .. }), "{message}");
    assert!(
        message.contains("repository not found, or command not allowed"),
        "{message}"
    );
}

#[tokio::test]
async fn ssh_obeys_the_policy_and_the_bounds() {
    let mut bed = bed(ProtocolVersions::All).await;
    bed.secret = secret(&[
        ("identity", &text(&key(1))),
        ("known_hosts", &bed.server.known_hosts().unwrap()),
    ]);
    let allowed = std::mem::take(&mut bed.policy.allow);
    let port = bed.server.ssh_address().unwrap().port();
    for host in ["127.0.0.1", "localhost", "[::1]", "127.1", "2130706433"] {
        let url = format!("ssh://git@{host}:{port}/app.git");
        let (error, _) = bed.refuse_request(&bed.request_spec(json!({"url": url}))).await;
        assert!(matches!(error, FetchError::AddressDenied(_)), "{url}: {error}");
    }
    assert_eq!(bed.server.requests(), 0);
    bed.policy.allow = allowed;
    bed.limits.received_bytes = 2500;
    let noise: Vec<u8> = (0..20_000_u32)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    bed.repository.commit([("noise", noise)], "noise").await.unwrap();
    let (error, _) = bed.refuse_request(&request(&bed)).await;
    assert!(
        matches!(
            error,
            FetchError::TooLarge {
                what: "received bytes",
                ..
            }
        ),
        "{error}"
    );
    let quoted = format!("ssh://git@127.0.0.1:{port}/it's!.git");
    bed.limits.received_bytes = 1 << 20;
    let (error, _) = bed.refuse_request(&bed.request_spec(json!({"url": quoted}))).await;
    assert!(matches!(error, FetchError::Remote { .. }), "{error}");
    let _ = source();
}
