//! ValidatingAdmissionPolicies as a real kube-apiserver has them, and what somebody might try against them.

use serde_json::json;
use tenure_apiserver::{Config, Server};

use crate::exchanges::differing;

/// What may be said in policies and bindings, who may say it, and what becomes of requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_hold_as_on_a_real_server() {
    let directory = tempfile::tempdir().unwrap();
    // Recorded without a controller manager, which would write into the policies' status meanwhile.
    let config = Config {
        controllers: false,
        ..Config::new(directory.path())
    };
    let server = Server::open(config).await.unwrap();
    let names = [("@NS", "x123456789")];
    let out = differing(&server, "policies", &names, || json!([])).await;
    server.close().await;
    assert!(out.is_empty(), "{out}");
}

/// What the status of a policy says its expressions get wrong, once the controller has looked at them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn types_are_checked_as_by_a_real_controller() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::open(Config::new(directory.path())).await.unwrap();
    let names = [("@NS", "x123456789")];
    let out = differing(&server, "policy_status", &names, || json!([])).await;
    server.close().await;
    assert!(out.is_empty(), "{out}");
}
