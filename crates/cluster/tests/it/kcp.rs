//! Tests against a kcp workspace, if `TENURE_KCP` names a kcp binary. kcp refuses aggregated discovery and lacks kinds.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use tenure_cluster::{ApplyOptions, Client, ClientPool, ClusterError, Connection};

/// The variable that names the binary.
const KCP: &str = "TENURE_KCP";

/// The time for kcp until its root workspace answers.
const READY: Duration = Duration::from_secs(120);

/// A running kcp, which ends when the value is dropped.
struct Kcp(Child);

impl Drop for Kcp {
    fn drop(&mut self) {
        let _already_gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Returns a client of the root workspace's administrator, after the workspace answers.
async fn connect(folder: &Path) -> Client {
    let begun = Instant::now();
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(begun.elapsed() < READY, "kcp did not become ready");
        let Ok(kubeconfig) = Kubeconfig::read_from(folder.join("admin.kubeconfig")) else {
            continue;
        };
        let options = KubeConfigOptions {
            context: Some("root".to_owned()),
            ..KubeConfigOptions::default()
        };
        let Ok(config) = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await else {
            continue;
        };
        let client = ClientPool::new(Connection::over_network(config).unwrap()).controller();
        if client.resource("v1", "ConfigMap").await.is_ok() {
            return client;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_workspace_is_read_and_written() {
    let Some(binary) = std::env::var_os(KCP).filter(|binary| !binary.is_empty()) else {
        println!("skipped: {KCP} names no kcp binary");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let port = tenure_test_ports::reserve_port();
    let started = Command::new(binary)
        .arg("start")
        .arg(format!("--root-directory={}", folder.path().display()))
        .arg("--bind-address=127.0.0.1")
        .arg(format!("--secure-port={port}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _kcp = Kcp(started.unwrap());
    let client = connect(folder.path()).await;
    let unserved = client.resource("networking.k8s.io/v1", "NetworkPolicy").await;
    assert!(
        matches!(unserved, Err(ClusterError::NoKindMatch { .. })),
        "{unserved:?}"
    );
    // A new workspace lacks the namespace `default`.
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "tenure-test" } });
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "tenure", "namespace": "tenure-test" }, "data": { "a": "1" } });
    let options = ApplyOptions {
        manager: "test",
        force: true,
        dry_run: false,
        subresource: None,
    };
    client.apply(&namespace, &options).await.unwrap();
    let applied = client.apply(&map, &options).await.unwrap();
    assert_eq!(applied.object["data"]["a"], "1");
}
