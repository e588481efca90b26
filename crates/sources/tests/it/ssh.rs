//! Fetches over ssh.

use base64::Engine as _;
use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::{Ed25519Keypair, KeypairData};
use russh::keys::{HashAlg, PrivateKey};
use serde_json::json;
use tenure_git_server::{Options, ProtocolVersions, SshOptions};
use tenure_sources::{FetchError, GitRequest};

use crate::bed::{Bed, secret, source};

pub(crate) fn make_key(seed: u8) -> PrivateKey {
    PrivateKey::new(KeypairData::Ed25519(Ed25519Keypair::from_seed(&[seed; 32])), "test").unwrap()
}

pub(crate) fn write_key(key: &PrivateKey) -> String {
    key.to_openssh(LineEnding::LF).unwrap().to_string()
}

async fn start_bed(versions: ProtocolVersions) -> Bed {
    let public = make_key(1).public_key().to_openssh().unwrap();
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

/// Makes a server with ssh, and a Secret with a key that it accepts.
pub(crate) async fn bed_with_key() -> Bed {
    let mut bed = start_bed(ProtocolVersions::All).await;
    bed.secret = secret(&[
        ("identity", &write_key(&make_key(1))),
        ("known_hosts", &bed.server.known_hosts().unwrap()),
    ]);
    bed
}

fn ssh_request(bed: &Bed) -> GitRequest {
    bed.request_spec(json!({"url": bed.server.ssh_url("app").unwrap(), "ref": {"branch": "main"}}))
}

#[tokio::test]
async fn branches_tags_and_commits_over_both_versions() {
    for versions in [ProtocolVersions::All, ProtocolVersions::OnlyZero] {
        let mut bed = start_bed(versions).await;
        bed.secret = secret(&[
            ("identity", &write_key(&make_key(1))),
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
            assert_eq!(artifact.facts.revision, revision);
            assert_eq!(bed.load(&artifact).len(), files);
        }
        let (error, _) = bed.refuse_request(&bed.request_spec(json!({"url": url}))).await;
        assert!(matches!(error, FetchError::ReferenceNotFound { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_key_with_a_passphrase() {
    let mut bed = start_bed(ProtocolVersions::All).await;
    let known = bed.server.known_hosts().unwrap();
    // ssh-keygen writes the key, in the form that users have.
    let path = bed.folder.path().join("key");
    std::fs::write(&path, write_key(&make_key(1))).unwrap();
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
    bed.get_request(&ssh_request(&bed)).await;
    for (identity, password, words) in [
        (locked.as_str(), Some("wrong"), "password is not the passphrase"),
        (
            locked.as_str(),
            None,
            "identity has a passphrase; store it under the key password",
        ),
        ("no key", None, "identity is no private key"),
        (
            "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n",
            None,
            "identity is no private key",
        ),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n",
            None,
            "identity is no private key",
        ),
        (
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
            Some("x"),
            "convert it",
        ),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n",
            Some("x"),
            "convert it",
        ),
        ("PuTTY-User-Key-File-3: ssh-ed25519\n", Some("x"), "convert it"),
        (&"A".repeat(20_000), None, "longer than any private key"),
    ] {
        let mut pairs = vec![("identity", identity), ("known_hosts", known.as_str())];
        pairs.extend(password.map(|password| ("password", password)));
        bed.secret = secret(&pairs);
        let (error, message) = bed.refuse_request(&ssh_request(&bed)).await;
        assert!(matches!(error, FetchError::InvalidSecret { .. }), "{message}");
        assert!(message.contains(words), "{message}");
    }
}

/// A key with an extreme number of rounds for its passphrase is refused before any round.
#[tokio::test]
async fn a_passphrase_is_not_stretched_for_ever() {
    let mut bed = start_bed(ProtocolVersions::All).await;
    let path = bed.folder.path().join("key");
    let mut command = tokio::process::Command::new("ssh-keygen");
    command
        .args(["-q", "-t", "ed25519", "-N", "open", "-a", "2", "-f"])
        .arg(&path);
    if !command.status().await.is_ok_and(|status| status.success()) {
        println!("skipped: there is no ssh-keygen");
        return;
    }
    let text = std::fs::read_to_string(&path).unwrap();
    let body: String = text.lines().filter(|line| !line.starts_with("-----")).collect();
    let engine = base64::engine::general_purpose::STANDARD;
    let mut bytes = engine.decode(body).unwrap();
    // The number of rounds stands behind the salt of 16 bytes.
    let salt = bytes
        .windows(8)
        .position(|window| window == [0, 0, 0, 24, 0, 0, 0, 16])
        .unwrap();
    bytes[salt + 24..salt + 28].copy_from_slice(&u32::MAX.to_be_bytes());
    let body = engine.encode(bytes);
    let lines: Vec<&str> = body
        .as_bytes()
        .chunks(70)
        .map(|line| std::str::from_utf8(line).unwrap())
        .collect();
    let text = format!(
        "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----\n",
        lines.join("\n")
    );
    bed.secret = secret(&[
        ("identity", &text),
        ("known_hosts", &bed.server.known_hosts().unwrap()),
        ("password", "open"),
    ]);
    let (_, message) = bed.refuse_request(&ssh_request(&bed)).await;
    assert!(message.contains("stretched more than 500 rounds"), "{message}");
}

#[tokio::test]
async fn unknown_hosts_are_distinguished() {
    let mut bed = start_bed(ProtocolVersions::All).await;
    let own = write_key(&make_key(1));
    let known = bed.server.known_hosts().unwrap();
    let address = bed.server.ssh_address().unwrap();
    let host = format!("[{}]:{}", address.ip(), address.port());
    let other_key = make_key(9);
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
        let (error, message) = bed.refuse_request(&ssh_request(&bed)).await;
        assert!(matches!(error, FetchError::HostKey { .. }), "{known_hosts}: {message}");
        assert!(
            message.contains(words) && message.contains("SHA256:") && !message.contains(&print),
            "{message}"
        );
        assert_eq!(
            (error.reason().as_str(), error.is_transient()),
            ("AuthenticationFailed", false)
        );
    }
    // Several lines about the host, one of them with the right key.
    let lines = format!("{host} {other}\n*,!x {}", known.split_once(' ').unwrap().1);
    bed.secret = secret(&[("identity", &own), ("known_hosts", &lines)]);
    bed.get_request(&ssh_request(&bed)).await;

    bed.secret = secret(&[("identity", &write_key(&make_key(2))), ("known_hosts", &known)]);
    let (error, message) = bed.refuse_request(&ssh_request(&bed)).await;
    assert!(matches!(error, FetchError::Unauthorized { .. }), "{message}");
    assert!(
        message.contains("does not accept the Secret's identity for user \"git\""),
        "{message}"
    );
}

#[tokio::test]
async fn error_of_ssh_server_is_reported() {
    let mut bed = start_bed(ProtocolVersions::All).await;
    bed.secret = secret(&[
        ("identity", &write_key(&make_key(1))),
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
    let mut bed = start_bed(ProtocolVersions::All).await;
    bed.secret = secret(&[
        ("identity", &write_key(&make_key(1))),
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
    let (error, _) = bed.refuse_request(&ssh_request(&bed)).await;
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
