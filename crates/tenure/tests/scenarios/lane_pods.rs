//! Lanes with Pods of their own, on a real control plane of each test. The tests check that Deployments are made and removed, that Pods prove their identity, and that
//! a killed Pod comes back without an effect on other lanes. No node runs: `tenure_testkit::Kubelet` starts the containers of Pods.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tenure_git_server::{GitServer, Options};
use tenure_test_ports::reserve_port;
use tenure_testkit::Kubelet;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::lanes::{Shop, is_there, wait_until};
use crate::world::{Admin, Cluster, Controllers};

/// Two tenants, and controllers whose lanes are Pods.
struct Scene {
    blue: Shop,
    red: Shop,
    address: SocketAddr,
    _controllers: Controllers,
    _kubelet: Kubelet,
    cluster: Cluster,
    _git: GitServer,
    _git_folder: tempfile::TempDir,
}

impl Scene {
    /// Starts the scene; `None` without a real control plane, because no other server makes Pods of Deployments.
    async fn set(more: &[&str]) -> Option<Self> {
        let cluster = Cluster::start_real(&["--lanes", "deployment"]).await?;
        let git_folder = tempfile::tempdir().unwrap();
        let git = GitServer::start(git_folder.path(), Options::default()).await.unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], reserve_port()));
        let (allowed, place) = (format!("http://{}", git.http_address()), address.to_string());
        let mut arguments = vec!["--lanes", "deployment", "--lane-address", &place, "--lane-url", &place];
        arguments.extend(["--lane-image", tenure_testkit::LANE_IMAGE, "--allow-source", &allowed]);
        arguments.extend(more);
        let controllers = Controllers::start(&cluster.kubeconfig, &cluster.data("run"), &arguments);
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_tenure"));
        let administrator = tenure_testkit::Admin::new(cluster.admin.0.clone());
        let kubelet = Kubelet::start(&administrator, program, &cluster.data("pods"));
        cluster.admin.wait_for_leader(&controllers.candidate).await;
        let scene = Self {
            blue: Shop::prepare(&cluster.admin, &git, "blue").await,
            red: Shop::prepare(&cluster.admin, &git, "red").await,
            address,
            _controllers: controllers,
            _kubelet: kubelet,
            cluster,
            _git: git,
            _git_folder: git_folder,
        };
        for shop in [&scene.blue, &scene.red] {
            shop.wait_until_applied(&scene.cluster.admin).await;
            shop.wait_until_well(&scene.cluster.admin).await;
        }
        Some(scene)
    }

    /// Waits for the process of a tenant's lane and its relay to the hub, other than the previous ones.
    async fn wait_for_lane(&self, tenant: &str, before: Option<Pid>) -> (Pid, i32) {
        let name = format!("tenant/{tenant}");
        let hub = format!("--hub={}", self.address);
        wait_until(&format!("there is another process of {name}"), async || {
            let lanes = find_processes(&name).into_iter();
            let mut ours = lanes.filter(|(_, relay)| {
                let line = std::fs::read_to_string(format!("/proc/{relay}/cmdline")).unwrap_or_default();
                line.split('\0').any(|word| word == hub)
            });
            ours.find(|(lane, _)| Some(*lane) != before)
        })
        .await
    }

    fn admin(&self) -> &Admin {
        &self.cluster.admin
    }

    /// Connects with a token and sends the greeting, without reading an answer.
    async fn greet(&self, token: &str) -> TlsStream<TcpStream> {
        let authority = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "tenure-system", "name": "tenure-lanes"}});
        let authority = self.admin().find(&authority).await.expect("an authority");
        let mut roots = RootCertStore::empty();
        let pem = authority["data"]["ca.crt"].as_str().unwrap();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(self.address.ip().to_string()).unwrap();
        let stream = TcpStream::connect(self.address).await.unwrap();
        let mut stream = TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
            .unwrap();
        let hello = json!({"version": env!("CARGO_PKG_VERSION"), "token": token, "folder": "/"}).to_string();
        let length = u32::try_from(hello.len()).unwrap().to_be_bytes();
        stream
            .write_all(&[&length[..], hello.as_bytes()].concat())
            .await
            .unwrap();
        stream.flush().await.unwrap();
        stream
    }

    /// Returns a token of a ServiceAccount of the controllers' namespace for these audiences, bound to a Pod if one is given.
    async fn make_token(&self, account: &str, audience: Option<&str>, pod: Option<&Value>) -> String {
        let mut spec = json!({"expirationSeconds": 600});
        if let Some(audience) = audience {
            spec["audiences"] = json!([audience]);
        }
        if let Some(pod) = pod {
            spec["boundObjectRef"] = json!({"apiVersion": "v1", "kind": "Pod",
                "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]});
        }
        let wanted = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
        let path = format!("/api/v1/namespaces/tenure-system/serviceaccounts/{account}/token");
        let request = http::Request::post(path).header("content-type", "application/json");
        let request = request.body(wanted.to_string().into_bytes()).unwrap();
        let granted: Value = self.admin().0.request(request).await.unwrap();
        granted["status"]["token"].as_str().unwrap().to_owned()
    }

    /// Returns the Pod of a tenant's lane.
    async fn find_pod(&self, tenant: &str) -> Value {
        let path = format!("/api/v1/namespaces/tenure-system/pods?labelSelector=tenure.dev/lane-of={tenant}");
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        let pods: Value = self.admin().0.request(request).await.unwrap();
        pods["items"][0].clone()
    }
}

/// Returns the processes with a name, each with its parent.
fn find_processes(name: &str) -> Vec<(Pid, i32)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|id| id.parse::<i32>().ok()) else {
            continue;
        };
        let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().trim().to_owned()
        };
        if field("Name:") == name && !field("State:").starts_with('Z') {
            found.push((Pid::from_raw(id), field("PPid:").parse().unwrap_or_default()));
        }
    }
    found
}

fn deployment(tenant: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": "tenure-system", "name": format!("tenure-lane-tenant-{tenant}")}})
}

#[tokio::test]
async fn killed_lane_pod_comes_back_and_surface_says_why() {
    let Some(mut scene) = Scene::set(&[]).await else { return };
    let (red, _) = scene.wait_for_lane("red", None).await;
    // The relay between the lane and the hub reports how the lane ended.
    let (blue, relay) = scene.wait_for_lane("blue", None).await;
    kill(blue, Signal::SIGKILL).unwrap();
    scene.red.check_that_it_goes_on(&scene.cluster.admin).await;
    scene
        .blue
        .wait_for_event(scene.admin(), "it was killed (signal 9); it is started again at ")
        .await;
    let (blue, same) = scene.wait_for_lane("blue", Some(blue)).await;
    assert_eq!(same, relay, "no container has to start anew for that");
    // After the relay's death, no process can report the end.
    kill(Pid::from_raw(relay), Signal::SIGKILL).unwrap();
    scene.red.check_that_it_goes_on(&scene.cluster.admin).await;
    scene
        .blue
        .wait_for_event(
            scene.admin(),
            "its connection ended, as it does when its Pod is killed or deleted",
        )
        .await;
    let (blue, _) = scene.wait_for_lane("blue", Some(blue)).await;
    scene.blue.check_that_it_goes_on(&scene.cluster.admin).await;
    scene.blue.wait_until_well(scene.admin()).await;
    // A deleted Pod gets a signal and ends in good order, and a new Pod follows.
    let pod = scene.find_pod("blue").await;
    scene
        .admin()
        .delete(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": pod["metadata"]}))
        .await;
    scene
        .blue
        .wait_for_event(scene.admin(), "its Pod was asked to end")
        .await;
    scene.wait_for_lane("blue", Some(blue)).await;
    scene.blue.check_that_it_goes_on(&scene.cluster.admin).await;
    let (still, _) = scene.wait_for_lane("red", None).await;
    assert_eq!(still, red, "the other lane was ended, too");
    // Without anything to reconcile for the tenant, its Deployment is deleted, and the other tenant's stays.
    let surface = json!({"apiVersion": "tenure.dev/v1alpha1", "kind": "Surface",
        "metadata": {"namespace": "blue", "name": "apps"}});
    scene.admin().delete(&surface).await;
    scene.admin().wait_until_gone(&surface).await;
    scene.admin().wait_until_gone(&deployment("blue")).await;
    assert!(scene.admin().find(&deployment("red")).await.is_some());
    scene.red.check_that_it_goes_on(&scene.cluster.admin).await;
}

#[tokio::test]
async fn stalled_or_starved_lane_pod_ends_alone() {
    let Some(mut scene) = Scene::set(&["--lane-patience", "3"]).await else {
        return;
    };
    let (red, _) = scene.wait_for_lane("red", None).await;
    // Only the lane hangs, so the relay ends it.
    let (blue, relay) = scene.wait_for_lane("blue", None).await;
    kill(blue, Signal::SIGSTOP).unwrap();
    scene.red.check_that_it_goes_on(&scene.cluster.admin).await;
    let silent = "it gave no answer for 3 s and was ended";
    scene.blue.wait_for_event(scene.admin(), silent).await;
    scene.blue.check_that_it_goes_on(&scene.cluster.admin).await;
    assert!(!is_there(blue), "the one that stood still was left behind");
    let (blue, same) = scene.wait_for_lane("blue", Some(blue)).await;
    assert_eq!(same, relay, "no container has to start anew for that");
    scene.blue.wait_until_well(scene.admin()).await;
    // The whole Pod hangs, as on a hanging node. Nothing ends it until its liveness probe fails.
    scene.blue.delete_events(scene.admin()).await;
    for process in [blue.as_raw(), relay] {
        kill(Pid::from_raw(process), Signal::SIGSTOP).unwrap();
    }
    scene.red.check_that_it_goes_on(&scene.cluster.admin).await;
    scene.blue.wait_for_event(scene.admin(), silent).await;
    for process in [relay, blue.as_raw()] {
        kill(Pid::from_raw(process), Signal::SIGKILL).unwrap();
    }
    scene.blue.check_that_it_goes_on(&scene.cluster.admin).await;
    let (blue, _) = scene.wait_for_lane("blue", Some(blue)).await;
    scene.blue.wait_until_well(scene.admin()).await;
    scene.blue.starve(blue).await;
    scene.red.check_that_it_goes_on(&scene.cluster.admin).await;
    let starved = "(signal 6), as it does without memory";
    scene.blue.wait_for_event(scene.admin(), starved).await;
    scene.blue.check_that_it_goes_on(&scene.cluster.admin).await;
    let (still, _) = scene.wait_for_lane("red", None).await;
    assert_eq!(still, red, "the other lane was ended, too");
}

#[tokio::test]
async fn only_a_lanes_own_pod_gets_its_orders() {
    let Some(mut scene) = Scene::set(&[]).await else { return };
    let pod = scene.find_pod("blue").await;
    let (account, audience) = ("tenure-lane-tenant-blue", Some("tenure-lanes.tenure-system"));
    let refused = [
        "no token at all".to_owned(),
        // The token that the lane has for the API server.
        scene.make_token(account, None, Some(&pod)).await,
        scene.make_token(account, Some("somebody-else"), Some(&pod)).await,
        // A token that any user with the right to request tokens of the account can get, without a Pod.
        scene.make_token(account, audience, None).await,
        scene.make_token("tenure-controller", audience, None).await,
    ];
    for (number, token) in refused.iter().enumerate() {
        let mut stream = scene.greet(token).await;
        let mut received = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut received)).await;
        assert!(read.is_ok(), "{number}: it was let in");
        assert!(received.is_empty(), "{number}: it received something: {received:?}");
    }
    // The control: the token of the lane's Pod is accepted. The connection gets no orders while another Pod works, and that Pod continues.
    let token = scene.make_token(account, audience, Some(&pod)).await;
    let mut stream = scene.greet(&token).await;
    scene.blue.check_that_it_goes_on(&scene.cluster.admin).await;
    scene.red.check_that_it_goes_on(&scene.cluster.admin).await;
    let received = tokio::time::timeout(Duration::from_millis(10), stream.read_u8()).await;
    assert!(received.is_err(), "a second Pod received something: {received:?}");
    // The lane is confined as it is beside a hub.
    let lane = scene.wait_for_lane("blue", None).await.0;
    let status = std::fs::read_to_string(format!("/proc/{lane}/status")).unwrap();
    assert!(status.contains("NoNewPrivs:\t1\n"), "{status}");
    if std::path::Path::new("/proc/sys/kernel/seccomp").exists() {
        assert!(status.contains("Seccomp:\t2\n"), "{status}");
    }
    let line = std::fs::read_to_string(format!("/proc/{lane}/cmdline")).unwrap();
    assert_eq!(line, "tenure\0lane\0", "what others may read says nothing");
}
