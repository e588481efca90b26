//! The program under the names of kube-apiserver and etcd, started with the flags that envtest gives to them.

use std::path::PathBuf;
use std::process::Stdio;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Service, ServiceAccount};
use kube::api::{Api, ObjectMeta, PostParams};
use tenure_test_ports::reserve_port;

use crate::process::{Up, fails, make_command};

/// A folder such as `KUBEBUILDER_ASSETS` names, with certificates from another source.
struct Assets {
    folder: tempfile::TempDir,
    etcd: String,
    _etcd: Up,
}

impl Assets {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["kube-apiserver", "etcd"] {
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tenure"), folder.path().join(name)).unwrap();
        }
        // The certificates come from another control plane, so this server did not make them.
        let other = folder.path().join("other");
        Up::start(&other, &["--bare"]).kill();
        let certificates = folder.path().join("certificates");
        std::fs::create_dir(&certificates).unwrap();
        for (from, to) in [("server.crt", "apiserver.crt"), ("server.key", "apiserver.key")] {
            std::fs::copy(other.join("pki").join(from), certificates.join(to)).unwrap();
        }
        let port = reserve_port();
        let url = format!("http://127.0.0.1:{port}");
        let mut command = make_command(&folder.path().join("etcd"));
        command
            .arg("--data-dir")
            .arg(folder.path().join("etcd-data"))
            .args([
                &format!("--listen-client-urls={url}"),
                &format!("--advertise-client-urls={url}"),
            ])
            .arg("--listen-peer-urls=http://localhost:0");
        let child = command.stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().unwrap();
        let begun = std::time::Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begun.elapsed().as_secs() < 60, "etcd does not listen");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        Self {
            folder,
            etcd: url,
            _etcd: Up::wrap(child),
        }
    }

    fn other(&self, file: &str) -> PathBuf {
        self.folder.path().join("other/pki").join(file)
    }

    /// Starts the API server as envtest does; the first printed line has its address.
    fn start(&self) -> (Up, String) {
        let mut command = make_command(&self.folder.path().join("kube-apiserver"));
        let flag = |name: &str, path: PathBuf| format!("--{name}={}", path.display());
        command.args([
            "--allow-privileged=true",
            "--authorization-mode=RBAC",
            "--bind-address=127.0.0.1",
            &flag("cert-dir", self.folder.path().join("certificates")),
            &flag("client-ca-file", self.other("ca.crt")),
            "--disable-admission-plugins=ServiceAccount",
            &format!("--etcd-servers={}", self.etcd),
            "--secure-port=0",
            "--service-account-issuer=https://127.0.0.1:1/",
            &flag("service-account-key-file", self.other("service-account.key")),
            &flag("service-account-signing-key-file", self.other("service-account.key")),
            "--service-cluster-ip-range=10.0.0.0/24",
        ]);
        Up::spawn(command)
    }

    /// Returns a client of an administrator with a certificate of the other control plane's CA.
    async fn client(&self, url: &str) -> kube::Client {
        let text = std::fs::read_to_string(self.folder.path().join("other/kubeconfig")).unwrap();
        let mut kubeconfig = kube::config::Kubeconfig::from_yaml(&text).unwrap();
        kubeconfig.clusters[0].cluster.as_mut().unwrap().server = Some(url.to_owned());
        crate::process::connect(kubeconfig).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_links_are_a_control_plane_without_controllers() {
    let assets = Assets::new();
    let (up, url) = assets.start();
    let client = assets.client(&url).await;
    let services: Api<Service> = Api::namespaced(client.clone(), "default");
    let own = services.get("kubernetes").await.unwrap().spec.unwrap();
    assert_eq!(own.cluster_ip.as_deref(), Some("10.0.0.1"));
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let metadata = |name: &str| ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    };
    let namespace = Namespace {
        metadata: metadata("tested"),
        ..Namespace::default()
    };
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    assert!(namespaces.get_opt("tenure-system").await.unwrap().is_none());
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "tested");
    let map = ConfigMap {
        metadata: metadata("kept"),
        ..ConfigMap::default()
    };
    maps.create(&PostParams::default(), &map).await.unwrap();
    // No ServiceAccount exists for Pods, so the plugin that requires one is disabled.
    let pods: Api<Pod> = Api::namespaced(client.clone(), "tested");
    let pod = serde_json::json!({
        "metadata": { "name": "pod" }, "spec": { "containers": [{ "name": "one", "image": "registry.example/one" }] }
    });
    let pod = pods
        .create(&PostParams::default(), &serde_json::from_value(pod).unwrap())
        .await
        .unwrap();
    assert_eq!(pod.spec.unwrap().service_account_name, None);
    up.kill();

    // The objects are in etcd's folder, so they outlive the API server.
    let (_up, url) = assets.start();
    let client = assets.client(&url).await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "tested");
    maps.get("kept").await.unwrap();
    // A controller manager would have made the account during the restart.
    let accounts: Api<ServiceAccount> = Api::namespaced(client, "tested");
    assert!(accounts.get_opt("default").await.unwrap().is_none());
}

#[test]
fn flags_that_promise_too_much_are_refused() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path().to_str().unwrap();
    let up = |flag: &'static str| ["up", "--data", data, "--port", "0", flag].map(str::to_owned).to_vec();
    for (flag, words) in [
        ("--authorization-mode=AlwaysAllow", "AlwaysAllow"),
        ("--allow-privileged=false", "--allow-privileged=false"),
        ("--service-cluster-ip-range=fd00::/108", "fd00::/108"),
        ("--audit-policy-file=x", "--audit-policy-file"),
    ] {
        let arguments = up(flag);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        fails(&arguments, 2, &[words]);
    }
    fails(
        &[
            "up",
            "--data",
            data,
            "--port",
            "0",
            "--client-ca-file=/nonexistent/ca.crt",
        ],
        3,
        &["/nonexistent/ca.crt"],
    );
    fails(
        &["up", "--port", "0", "--etcd-servers=http://127.0.0.1:1"],
        3,
        &["http://127.0.0.1:1"],
    );
}
