//! Artifacts that `tenure run` serves: it authenticates clients at the cluster's API server, with the controller's own rights. Commands of owners get file and line from
//! them.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tenure_git_server::{GitServer, Options, Repository};
use tenure_test_ports::reserve_port;
use tenure_testkit::{SOON, eventually};

use crate::process::tenure;
use crate::world::{Cluster, Controllers, PATIENCE, describe, path, prepare_shop, wait_for_greeting};

const RBAC: &str = "rbac.authorization.k8s.io";

/// Returns the answer for a token: the status, and the length of the body.
fn fetch(port: u16, path: &str, token: &str) -> (u16, usize) {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("connect");
    let request = format!("GET {path} HTTP/1.1\r\nhost: artifacts\r\nauthorization: Bearer {token}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("ask");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head.split(' ').nth(1).expect("a status").parse().expect("a number");
    (status, answer.len() - end - 4)
}

/// The applied repository of a shop, whose artifacts the controllers serve at a loopback port.
struct Shop {
    cluster: Cluster,
    controllers: Controllers,
    port: u16,
    _repository: Repository,
    _git: GitServer,
    _git_folder: tempfile::TempDir,
}

impl Shop {
    async fn open() -> Self {
        let cluster = Cluster::start_installed().await;
        let git_folder = tempfile::tempdir().unwrap();
        let git = GitServer::start(git_folder.path(), Options::default()).await.unwrap();
        let repository = prepare_shop(&cluster.admin, &git).await;
        let port = reserve_port();
        let (address, allowed) = (format!("127.0.0.1:{port}"), format!("http://{}", git.http_address()));
        let more = ["--artifact-address", &address, "--allow-source", &allowed];
        let controllers = Controllers::start(&cluster.kubeconfig, &cluster.data("run"), &more);
        cluster.admin.wait_for_leader(&controllers.candidate).await;
        wait_for_greeting(&cluster.admin, 1).await;
        Self {
            cluster,
            controllers,
            port,
            _repository: repository,
            _git: git,
            _git_folder: git_folder,
        }
    }

    /// Makes an account that may get objects of these groups and kinds in the namespace, and returns its token.
    async fn make_reader(&self, name: &str, readable: &[(&str, &str)]) -> String {
        let metadata = json!({"namespace": "shop", "name": name});
        let rules: Vec<Value> = readable
            .iter()
            .map(|(group, resource)| json!({"apiGroups": [group], "resources": [resource], "verbs": ["get"]}))
            .collect();
        let version = format!("{RBAC}/v1");
        for object in [
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
            json!({"apiVersion": version, "kind": "Role", "metadata": metadata, "rules": rules}),
            json!({"apiVersion": version, "kind": "RoleBinding", "metadata": metadata,
                "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
                "subjects": [{"kind": "ServiceAccount", "namespace": "shop", "name": name}]}),
        ] {
            self.cluster.admin.apply(object).await;
        }
        self.cluster.make_token("shop", name).await
    }

    /// Writes a kubeconfig with a token, which names an artifact server or none. The folder of the file has no artifacts.
    fn write_kubeconfig(&self, name: &str, token: &str, server: Option<&str>) -> PathBuf {
        let mut kubeconfig = kube::config::Kubeconfig::read_from(&self.cluster.kubeconfig).expect("kubeconfig");
        for named in &mut kubeconfig.auth_infos {
            named.auth_info = Some(serde_json::from_value(json!({"token": token})).expect("a user"));
        }
        for named in &mut kubeconfig.clusters {
            let cluster = named.cluster.as_mut().expect("a cluster");
            cluster.extensions = server.map(|server| {
                vec![kube::config::NamedExtension {
                    name: "tenure.dev/artifacts".to_owned(),
                    extension: json!({"server": server}),
                }]
            });
        }
        let folder = self.cluster.data(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        let file = folder.join("kubeconfig");
        std::fs::write(&file, serde_json::to_vec(&kubeconfig).expect("JSON")).expect("a kubeconfig");
        file
    }
}

#[tokio::test]
async fn artifacts_are_served_with_the_rights_of_an_installation() {
    let shop = Shop::open().await;
    let (admin, port) = (&shop.cluster.admin, shop.port);
    let source = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": {"namespace": "shop", "name": "shop"}});
    let found = admin.find(&source).await.expect("the source");
    let artifact = &found["status"]["artifact"];
    let url = artifact["url"].as_str().expect("an address");
    let path = url
        .strip_prefix(&format!("http://127.0.0.1:{port}"))
        .unwrap_or_else(|| panic!("{url}"));
    let taker = shop
        .make_reader("taker", &[("source.toolkit.fluxcd.io", "gitrepositories")])
        .await;
    let stranger = shop.make_reader("stranger", &[]).await;
    let reviews = reviews();
    if admin.find(&reviews).await.is_none() {
        assert_eq!(fetch(port, path, &taker).0, 503);
        shop.controllers.expect("system:auth-delegator");
    }
    admin.apply(reviews).await;
    let size = usize::try_from(artifact["size"].as_u64().expect("a size")).expect("a number");
    let started = Instant::now();
    // An API server needs a moment for a new right.
    while fetch(port, path, &taker) != (200, size) {
        assert!(started.elapsed() < PATIENCE, "{:?}", fetch(port, path, &taker));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(fetch(port, path, &stranger).0, 403);
    assert_eq!(fetch(port, path, "nonsense").0, 401);
}

/// The binding that `tenure install --artifact-secret` makes, as for metrics.
fn reviews() -> Value {
    json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "tenure-metrics-reviews"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "system:auth-delegator"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "tenure-system", "name": "tenure-controller"}]})
}

const WHO: [&str; 5] = ["who", "configmap/greeting", ".data.number", "-n", "shop"];

/// Asks for the origin of a field; returns the exit code and the output.
fn ask_who(kubeconfig: &Path, more: &[&str]) -> (Option<i32>, String) {
    let mut command = tenure(&[&WHO[..], more].concat());
    let output = command.env("KUBECONFIG", kubeconfig).output().expect("run tenure");
    (output.status.code(), describe(&output))
}

/// An owner that may get the source sees file and line by the API alone. An account of another tenant sees neither.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_sees_file_and_line_without_a_folder() {
    let shop = Shop::open().await;
    shop.cluster.admin.apply(reviews()).await;
    let objects = [("", "configmaps"), ("kustomize.toolkit.fluxcd.io", "kustomizations")];
    let source = ("source.toolkit.fluxcd.io", "gitrepositories");
    let owner = shop.make_reader("owner", &[&objects[..], &[source]].concat()).await;
    let stranger = shop.make_reader("neighbour", &objects).await;
    let server = format!("http://127.0.0.1:{}", shop.port);

    let kubeconfig = shop.write_kubeconfig("with-server", &owner, Some(&server));
    // An API server needs a moment for a new right.
    let seen = eventually(SOON, || async {
        let (code, output) = ask_who(&kubeconfig, &[]);
        match code == Some(0) && output.contains("app.yaml:6") {
            true => Ok(output),
            false => Err(format!("{code:?}: {output}")),
        }
    });
    let seen = seen.await.expect("file and line");
    assert!(!seen.contains("not known here") && !seen.contains(&owner), "{seen}");

    let neighbour = shop.write_kubeconfig("neighbour", &stranger, Some(&server));
    let refused = eventually(SOON, || async {
        let (code, output) = ask_who(&neighbour, &[]);
        match code == Some(0) && output.contains("gitrepositories") && output.contains("forbidden") {
            true => Ok(output),
            false => Err(format!("{code:?}: {output}")),
        }
    });
    let refused = refused.await.expect("a refusal");
    assert!(!refused.contains("app.yaml"), "{refused}");
    assert_eq!(refused.matches("forbidden").count(), 1, "{refused}");

    let without = shop.write_kubeconfig("without-server", &owner, None);
    let closed = format!("http://127.0.0.1:{}", reserve_port());
    for (kubeconfig, more, code, words) in [
        (&without, vec![], 0, "the kubeconfig names no artifact server"),
        (&without, vec!["--artifact-server", server.as_str()], 0, "app.yaml:6"),
        (
            &without,
            vec!["--artifact-server", closed.as_str()],
            0,
            "nothing listens at",
        ),
        (
            &kubeconfig,
            vec!["--artifact-server", closed.as_str()],
            0,
            "nothing listens at",
        ),
        (
            &without,
            vec!["--artifact-server", "http://192.0.2.1:9790"],
            2,
            "a token would cross the network in the clear",
        ),
        (
            &without,
            vec!["--artifact-server", server.as_str(), "--artifact-ca", "none.pem"],
            2,
            "none.pem",
        ),
    ] {
        let (found, output) = ask_who(kubeconfig, &more);
        assert_eq!(found, Some(code), "{more:?}: {output}");
        assert!(output.contains(words) && !output.contains(&owner), "{more:?}: {output}");
    }

    // An administrator names the folder, and no server is asked.
    let folder = shop.cluster.data("run").join("artifacts");
    let more = ["--artifacts", path(&folder)];
    shop.cluster.check(&[&WHO[..], &more].concat(), 0, &["app.yaml:6"]);
}
