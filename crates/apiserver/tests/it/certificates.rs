//! The certificates of a server of its own: created once, kept and renewed. An error names a broken file.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tenure_apiserver::certificates::{Authority, AuthorityError, loopback_names};
use tenure_apiserver::{Config, Server};

fn now() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().unwrap()
}

fn after_days(days: i64) -> Timestamp {
    now().checked_add(SignedDuration::from_hours(24 * days)).unwrap()
}

fn admin(directory: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(&fs::read(directory.join("admin.crt")).unwrap()).unwrap()
}

#[test]
fn a_second_start_finds_what_the_first_made() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pki");
    let first = Authority::open(&path, &loopback_names(), now())
        .unwrap()
        .kubeconfig("https://127.0.0.1:1", &[]);
    let second = Authority::open(&path, &loopback_names(), after_days(1))
        .unwrap()
        .kubeconfig("https://127.0.0.1:1", &[]);
    assert_eq!(first, second);
    assert!(first.contains("server: https://127.0.0.1:1\n"));
    assert!(!first.contains("extensions"), "{first}");
    for (file, mode) in [
        ("", 0o700),
        ("ca.key", 0o600),
        ("admin.key", 0o600),
        ("server.key", 0o600),
        ("service-account.key", 0o600),
    ] {
        let found = fs::metadata(path.join(file)).unwrap().permissions().mode() & 0o777;
        assert_eq!(found, mode, "{file}");
    }
}

/// The admin's certificate identifies a member of system:masters. Foreign, expired and malformed certificates are refused.
#[test]
fn admin_certificate_is_accepted_and_foreign_ones_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let ours = Authority::open(&directory.path().join("a"), &loopback_names(), now()).unwrap();
    Authority::open(&directory.path().join("b"), &loopback_names(), now()).unwrap();
    let clients = ours.client_certificates().unwrap();
    for _ in 0..2 {
        let user = clients
            .identify(&[admin(&directory.path().join("a"))], now())
            .unwrap()
            .unwrap();
        assert_eq!(
            (user.name.as_str(), user.groups.as_slice()),
            ("kubernetes-admin", &["system:masters".to_owned()][..])
        );
    }
    clients
        .identify(&[admin(&directory.path().join("b"))], now())
        .unwrap_err();
    clients
        .identify(&[admin(&directory.path().join("a"))], after_days(400))
        .unwrap_err();
    clients
        .identify(&[CertificateDer::from(vec![1, 2, 3])], now())
        .unwrap_err();
    assert_eq!(clients.identify(&[], now()).unwrap(), None);
    // A serving certificate is not valid for clients.
    let serving = CertificateDer::from_pem_slice(&fs::read(directory.path().join("a/server.crt")).unwrap()).unwrap();
    clients.identify(&[serving], now()).unwrap_err();
}

#[test]
fn certificates_are_renewed_before_expiry_and_for_new_names() {
    let directory = tempfile::tempdir().unwrap();
    let open = |names: &[String], now| {
        let authority = Authority::open(directory.path(), names, now).unwrap();
        let files = ["ca.crt", "server.crt", "admin.crt"].map(|file| fs::read(directory.path().join(file)).unwrap());
        (authority, files)
    };
    let (authority, first) = open(&loopback_names(), now());
    assert!(!authority.renew(after_days(330)).unwrap());
    assert!(authority.renew(after_days(336)).unwrap());
    let (_, second) = open(&loopback_names(), after_days(336));
    assert_eq!(first[0], second[0]);
    assert_ne!(first[1], second[1]);
    assert_ne!(first[2], second[2]);
    let mut names = loopback_names();
    names.push("tenure.example".to_owned());
    let (_, third) = open(&names, after_days(336));
    assert_ne!(second[1], third[1]);
    assert_eq!(second[2], third[2]);
}

#[test]
fn a_broken_file_is_named() {
    for (file, content, want) in [
        ("ca.crt", "garbage", "ca.crt does not hold a valid certificate"),
        ("ca.key", "garbage", "ca.key does not hold a valid private key"),
        ("server.key", "", "server.key does not hold a valid private key"),
        (
            "admin.crt",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "admin.crt does not hold a valid certificate",
        ),
        (
            "service-account.key",
            "x",
            "service-account.key does not hold a valid private key",
        ),
    ] {
        let directory = tempfile::tempdir().unwrap();
        Authority::open(directory.path(), &loopback_names(), now()).unwrap();
        fs::write(directory.path().join(file), content).unwrap();
        let error = Authority::open(directory.path(), &loopback_names(), now()).unwrap_err();
        assert!(error.to_string().contains(want), "{error}");
    }
}

#[test]
fn a_ca_without_its_key_is_not_replaced_silently() {
    let directory = tempfile::tempdir().unwrap();
    Authority::open(directory.path(), &loopback_names(), now()).unwrap();
    fs::remove_file(directory.path().join("ca.key")).unwrap();
    let error = Authority::open(directory.path(), &loopback_names(), now()).unwrap_err();
    assert!(matches!(error, AuthorityError::Mismatch { .. }), "{error}");
}

#[test]
fn a_start_that_was_cut_short_is_completed() {
    let directory = tempfile::tempdir().unwrap();
    Authority::open(directory.path(), &loopback_names(), now()).unwrap();
    for file in ["ca.crt", "server.crt", "admin.key"] {
        fs::remove_file(directory.path().join(file)).unwrap();
    }
    fs::write(directory.path().join("server.crt.new"), "half").unwrap();
    let authority = Authority::open(directory.path(), &loopback_names(), now()).unwrap();
    let clients = authority.client_certificates().unwrap();
    assert!(clients.identify(&[admin(directory.path())], now()).unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_server_are_readable_by_owner_alone() {
    let directory = tempfile::tempdir().unwrap();
    let opened = Server::open(Config::new(directory.path())).await.unwrap();
    opened.close().await;
    drop(opened);
    // Modes as an older program set them.
    let mode = |folder: &Path| fs::metadata(folder).unwrap().permissions().mode() & 0o777;
    for folder in [directory.path().to_owned(), directory.path().join("pki")] {
        assert_eq!(mode(&folder), 0o700, "{}", folder.display());
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let server = Server::open(Config::new(directory.path())).await.unwrap();
    let address = ([127, 0, 0, 1], 6443).into();
    server
        .write_admin_kubeconfig(&directory.path().join("kubeconfig"), address)
        .unwrap();
    for file in [
        "objects.redb",
        "objects-0.log",
        "objects-1.log",
        "kubeconfig",
        "pki/ca.key",
        "pki/admin.key",
        "pki/server.key",
        "pki/service-account.key",
    ] {
        let found = fs::metadata(directory.path().join(file)).unwrap().permissions().mode() & 0o777;
        assert_eq!(found, 0o600, "{file}");
    }
    for folder in [directory.path().to_owned(), directory.path().join("pki")] {
        assert_eq!(mode(&folder), 0o700, "{}", folder.display());
    }
    server.shutdown();
}

#[tokio::test]
async fn kubeconfig_keeps_cluster_extensions_after_renewal() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::open(Config::new(directory.path())).await.unwrap();
    let (path, address) = (directory.path().join("kubeconfig"), ([127, 0, 0, 1], 6443).into());
    let extension =
        serde_json::json!({"name": "a.example/b", "extension": {"server": "https://a.example:1", "text": "\" # '"}});
    server
        .write_extended_kubeconfig(&path, address, vec![extension.clone()])
        .unwrap();
    let read = || {
        let kubeconfig = fs::read_to_string(&path).unwrap();
        let line = kubeconfig
            .lines()
            .find_map(|line| line.strip_prefix("    extensions: "));
        serde_json::from_str::<serde_json::Value>(line.unwrap()).unwrap()
    };
    assert_eq!(read(), serde_json::json!([extension]));
    fs::remove_file(&path).unwrap();
    let later = Timestamp::now()
        .checked_add(SignedDuration::from_hours(24 * 340))
        .unwrap();
    assert!(server.renew_certificates(later).unwrap());
    assert_eq!(read(), serde_json::json!([extension]));
    server.shutdown();
}
