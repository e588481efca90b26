//! Artifacts that `tenure run` serves: it authenticates clients at the cluster's API server, with the controller's own rights.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use serde_json::json;
use tenure_git_server::{GitServer, Options};
use tenure_test_ports::reserve_port;

use crate::world::{Cluster, Controllers, PATIENCE, prepare_shop, wait_for_greeting};

/// Returns the answer for a token: the status, and the length of the body.
fn take(port: u16, path: &str, token: &str) -> (u16, usize) {
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

#[tokio::test]
async fn artifacts_are_served_with_the_rights_of_an_installation() {
    let cluster = Cluster::start_installed().await;
    let admin = &cluster.admin;
    let git_folder = tempfile::tempdir().unwrap();
    let git = GitServer::start(git_folder.path(), Options::default()).await.unwrap();
    let _repository = prepare_shop(admin, &git).await;
    let rbac = "rbac.authorization.k8s.io/v1";
    for object in [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": "shop", "name": "taker"}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": "shop", "name": "stranger"}}),
        json!({"apiVersion": rbac, "kind": "Role", "metadata": {"namespace": "shop", "name": "takes-artifacts"},
            "rules": [{"apiGroups": ["source.toolkit.fluxcd.io"], "resources": ["gitrepositories"], "verbs": ["get"]}]}),
        json!({"apiVersion": rbac, "kind": "RoleBinding", "metadata": {"namespace": "shop", "name": "takes-artifacts"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "takes-artifacts"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "shop", "name": "taker"}]}),
    ] {
        admin.apply(object).await;
    }
    let port = reserve_port();
    let (address, allowed) = (format!("127.0.0.1:{port}"), format!("http://{}", git.http_address()));
    let more = ["--artifact-address", &address, "--allow-source", &allowed];
    let controllers = Controllers::start(&cluster.kubeconfig, &cluster.data("run"), &more);
    admin.wait_for_leader(&controllers.candidate).await;
    wait_for_greeting(admin, 1).await;

    let source = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": {"namespace": "shop", "name": "shop"}});
    let found = admin.find(&source).await.expect("the source");
    let artifact = &found["status"]["artifact"];
    let url = artifact["url"].as_str().expect("an address");
    let path = url
        .strip_prefix(&format!("http://{address}"))
        .unwrap_or_else(|| panic!("{url}"));
    let taker = cluster.make_token("shop", "taker").await;
    let stranger = cluster.make_token("shop", "stranger").await;
    // The binding that `tenure install --artifact-secret` makes, as for metrics.
    let reviews = json!({"apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": {"name": "tenure-metrics-reviews"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:auth-delegator"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "tenure-system", "name": "tenure-controller"}]});
    if admin.find(&reviews).await.is_none() {
        assert_eq!(take(port, path, &taker).0, 503);
        controllers.expect("system:auth-delegator");
    }
    admin.apply(reviews).await;
    let size = usize::try_from(artifact["size"].as_u64().expect("a size")).expect("a number");
    let started = Instant::now();
    // An API server needs a moment for a new right.
    while take(port, path, &taker) != (200, size) {
        assert!(started.elapsed() < PATIENCE, "{:?}", take(port, path, &taker));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(take(port, path, &stranger).0, 403);
    assert_eq!(take(port, path, "nonsense").0, 401);
}
