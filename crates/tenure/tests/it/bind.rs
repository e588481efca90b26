//! A control plane that listens on all addresses: its certificate and its kubeconfig work for its clients.

use std::net::{IpAddr, TcpListener};
use std::path::Path;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ListParams};
use kube::config::Kubeconfig;

use crate::process::{Up, connect, fails};

fn kubeconfig(data: &Path) -> Kubeconfig {
    Kubeconfig::read_from(data.join("kubeconfig")).unwrap()
}

/// Returns the host and the port in the administrator's kubeconfig.
fn server(data: &Path) -> (IpAddr, u16) {
    let url = kubeconfig(data).clusters[0]
        .cluster
        .as_ref()
        .unwrap()
        .server
        .clone()
        .unwrap();
    let address: std::net::SocketAddr = url.strip_prefix("https://").unwrap().parse().unwrap();
    (address.ip(), address.port())
}

/// Lists namespaces at `url`, and accepts a server with a certificate for `name`.
async fn ask(data: &Path, url: Option<String>, name: Option<&str>) {
    let mut kubeconfig = kubeconfig(data);
    let cluster = kubeconfig.clusters[0].cluster.as_mut().unwrap();
    if let Some(url) = url {
        cluster.server = Some(url);
    }
    cluster.tls_server_name = name.map(str::to_owned);
    let api: Api<Namespace> = Api::all(connect(kubeconfig).await);
    assert!(!api.list(&ListParams::default()).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn wildcard_listener_is_reachable_at_kubeconfig_address() {
    for (wildcard, loopback) in [("0.0.0.0", "127.0.0.1"), ("::", "[::1]")] {
        if TcpListener::bind((wildcard.parse::<IpAddr>().unwrap(), 0)).is_err() {
            println!("skipped: {wildcard} can't be listened on here");
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        let _up = Up::start(data, &["--bare", "--bind", wildcard]);
        let (host, port) = server(data);
        assert!(!host.is_unspecified(), "{host}");
        ask(data, None, None).await;
        ask(data, Some(format!("https://{loopback}:{port}")), None).await;
    }
}

#[tokio::test]
async fn another_address_makes_another_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let certificate = || std::fs::read(data.join("pki/server.crt")).unwrap();
    let up = Up::start(data, &["--bare"]);
    assert_eq!(server(data).0.to_string(), "127.0.0.1");
    let before = certificate();
    up.kill();
    let up = Up::start(data, &["--bare", "--advertise-address", "203.0.113.5"]);
    let (host, port) = server(data);
    assert_eq!(host.to_string(), "203.0.113.5");
    assert_ne!(certificate(), before);
    // No server has this address. The server at another address proves the name with its certificate.
    ask(data, Some(format!("https://127.0.0.1:{port}")), Some("203.0.113.5")).await;
    up.kill();
    let renewed = certificate();
    let _up = Up::start(data, &["--bare", "--advertise-address", "203.0.113.5"]);
    assert_eq!(certificate(), renewed, "the same names, the same certificate");
    fails(
        &[
            "up",
            "--bare",
            "--data",
            data.to_str().unwrap(),
            "--advertise-address",
            "0.0.0.0",
        ],
        2,
        &["no client can reach 0.0.0.0"],
    );
}
