//! `tenure attest`: on the embedded control plane all attacks are stopped, holes are found, and nothing stays after any end of the run.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tenure_test_ports::reserve_port;

use crate::commands::{Place, apply};
use crate::process::{client, tenure};

async fn list(data: &Path, path: &str) -> Vec<String> {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    let found: Value = client(data).await.request(request).await.unwrap();
    let names = found["items"].as_array().unwrap().iter();
    names
        .map(|object| object["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

/// Returns all objects with names of an attestation.
async fn list_remains(data: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for path in [
        "/apis/capsule.clastix.io/v1beta2/tenants",
        "/api/v1/namespaces",
        "/api/v1/namespaces/tenure-system/serviceaccounts",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "/apis/node.k8s.io/v1/runtimeclasses",
        "/apis/tenure.dev/v1alpha1/namespaces/tenure-system/accessproviders",
        "/apis/tenure.dev/v1alpha1/namespaces/tenure-system/fluxaccesses",
        "/apis/tenure.dev/v1alpha1/namespaces/tenure-system/fluxaccessrequests",
        "/apis/tenure.dev/v1alpha1/fluxaccesstargets",
        "/apis/rbac.authorization.k8s.io/v1/namespaces/tenure-system/rolebindings",
    ] {
        let names = list(data, path).await.into_iter();
        found.extend(names.filter(|name| name.contains("attest-")));
    }
    found
}

/// Waits until no object is left.
async fn until_nothing_is_left(data: &Path) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(300);
    loop {
        let left = list_remains(data).await;
        if left.is_empty() {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "left: {left:?}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

fn outcomes(report: &Value, outcome: &str) -> Vec<String> {
    let results = report["results"].as_array().unwrap().iter();
    let of_outcome = results.filter(|result| result["outcome"] == outcome);
    of_outcome
        .map(|result| format!("{}: {}", result["name"], result["said"]))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attestation_holds_and_leaves_nothing_behind() {
    // Beside a helm-controller, a HelmRelease without an account would lead to an administrator.
    let port = format!("--artifact-open-address={}", reserve_port());
    let flags = ["--workload-status", "--helm-controller=/bin/true", &port];
    let place = Place::with(tempfile::tempdir().unwrap(), &flags);
    let data = place.folder.path().join("data");
    place.check(
        &["attest"],
        2,
        &[],
        &["there is no terminal for the confirmation", "--yes"],
    );
    assert_eq!(list_remains(&data).await, [""; 0], "nothing is made unasked");

    let page = place.folder.path().join("report.html");
    let output = place.run(&["attest", "--yes", "-o", "json", "--report", page.to_str().unwrap()]);
    let error = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{error}"));
    assert_eq!(outcomes(&report, "not-held"), [""; 0]);
    assert_eq!(output.status.code(), Some(0), "{error}");
    assert_eq!(outcomes(&report, "not-tried"), [""; 0]);
    assert!(outcomes(&report, "held").len() >= 150, "{report:#}");
    // The message for a hand edit names the place in Git.
    let held = outcomes(&report, "held");
    assert!(
        held.contains(&"\"reach\": \"nothing beyond its own namespaces\"".to_owned()),
        "{held:#?}"
    );
    let edits: Vec<&String> = held
        .iter()
        .filter(|outcome| outcome.starts_with("\"hand-edit"))
        .collect();
    assert_eq!(edits.len(), 7, "{held:#?}");
    for part in [
        "/attest-managed, GitRepository ",
        "/attest-absent, path ./attest, attest@sha1:0000",
    ] {
        assert!(edits.iter().all(|outcome| outcome.contains(part)), "{part}: {edits:#?}");
    }
    // The intended rule stopped each attack: RBAC gives the owner the rights that the rules deny.
    for result in report["results"].as_array().unwrap() {
        let (stop, message) = (result["stop"].as_str().unwrap(), result["said"].as_str().unwrap());
        let by_rule = message == "it was accepted, and had no effect"
            || message.ends_with(&format!("({stop})"))
            || message.len() >= 512;
        // The rules of namespaces deny the controller's write before its own bounds do.
        let by_another = stop == "controller-rights" && message.ends_with("(namespace-membership)");
        // The search for reached rights is no request, and neither is the controllers' answer about an AccessProvider's pattern.
        assert!(
            matches!(stop, "rbac" | "reach" | "controllers") || by_rule || by_another || result["outcome"] != "held",
            "{result:#}"
        );
    }
    let page = std::fs::read_to_string(page).unwrap();
    assert!(
        page.contains("namespace-with-a-forged-owner") && !page.contains("<script"),
        "{page}"
    );
    until_nothing_is_left(&data).await;
}

/// The attestation finds and names a binding that an administrator made too wide.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_binding_that_is_too_wide_is_found() {
    let place = Place::new();
    let data = place.folder.path().join("data");
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "too-wide" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view-secrets" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:serviceaccounts" }]
    });
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "view-secrets" },
        "rules": [{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"] }]
    });
    apply(
        &data,
        role,
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/view-secrets",
    )
    .await;
    apply(
        &data,
        binding,
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/too-wide",
    )
    .await;
    let expected = [
        "did not hold: neighbours-secrets: an owner reads another tenant's Secrets\n",
        "did not hold: neighbours-secrets-by-account:",
        "did not hold: secrets-of-the-platform:",
        "rbac: find the binding that gives it",
        "did not hold: author-reads-secrets:",
        "did not hold: author-reads-secrets-of-the-platform:",
        "5 did not hold",
    ];
    place.check(&["attest", "--yes"], 1, &expected, &[]);
    until_nothing_is_left(&data).await;
}

/// An attestation that is killed after its first writes leaves objects that the controllers remove.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_killed_attestation_are_removed() {
    let place = Place::new();
    let data = place.folder.path().join("data");
    let mut child = tenure(&["attest", "--yes", "--expires-after", "2"])
        .env("KUBECONFIG", place.kubeconfig())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let made = lines.find(|line| line.as_ref().unwrap().contains("creating the targets"));
    assert!(made.is_some(), "it ended early");
    child.kill().unwrap();
    child.wait().unwrap();
    // One of them is protected from deletion.
    assert_eq!(list(&data, "/apis/capsule.clastix.io/v1beta2/tenants").await.len(), 2);
    until_nothing_is_left(&data).await;
}

/// After Ctrl-C, the command removes what it created before it ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_attestation_leaves_nothing() {
    let place = Place::new();
    let data = place.folder.path().join("data");
    let mut child = tenure(&["attest", "--yes"])
        .env("KUBECONFIG", place.kubeconfig())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap())
        .lines()
        .map_while(Result::ok);
    assert!(
        lines.any(|line| line.contains("creating the targets")),
        "it ended early"
    );
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    let lines: Vec<String> = lines.collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{lines:?}");
    for words in [
        "interrupted: the created objects are removed",
        "the objects of the attestation are gone",
    ] {
        assert!(lines.iter().any(|line| line.contains(words)), "{lines:?}");
    }
    assert_eq!(list_remains(&data).await, Vec::<String>::new());
}

/// No name, label or annotation alone causes the removal of a user's Tenant, neither by the controllers nor by a later attestation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attestation_removes_no_tenant_of_users() {
    let place = Place::new();
    let data = place.folder.path().join("data");
    let over = "2020-01-01T00:00:00Z";
    let tenants = [
        (
            "team-a",
            json!({"tenure.dev/attest": "true"}),
            json!({"tenure.dev/attest-expires": over}),
        ),
        ("attest-lab", json!({}), json!({"tenure.dev/attest-expires": over})),
        ("attest-class", json!({"tenure.dev/attest": "true"}), json!({})),
    ];
    for (name, labels, annotations) in tenants {
        let tenant = json!({
            "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant",
            "metadata": { "name": name, "labels": labels, "annotations": annotations },
            "spec": { "owners": [{ "kind": "User", "name": "alice" }] }
        });
        apply(
            &data,
            tenant,
            &format!("/apis/capsule.clastix.io/v1beta2/tenants/{name}"),
        )
        .await;
    }
    let left = json!({
        "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant",
        "metadata": { "name": "attest-0", "labels": {"tenure.dev/attest": "true"}, "annotations": {"tenure.dev/attest-expires": over} },
        "spec": { "owners": [{ "kind": "User", "name": "alice" }], "preventDeletion": true }
    });
    apply(&data, left, "/apis/capsule.clastix.io/v1beta2/tenants/attest-0").await;
    // After the expired Tenant is gone and the others are ready, the controllers have examined all of them.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(180);
    loop {
        let request = http::Request::get("/apis/capsule.clastix.io/v1beta2/tenants")
            .body(Vec::new())
            .unwrap();
        let found: Value = client(&data).await.request(request).await.unwrap();
        let items = found["items"].as_array().unwrap();
        let is_ready = |tenant: &Value| tenant["status"]["conditions"][0]["status"] == "True";
        if items.len() == 3 && items.iter().all(is_ready) {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{found:#}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(
        list(&data, "/apis/capsule.clastix.io/v1beta2/tenants").await,
        ["attest-class", "attest-lab", "team-a"]
    );
}

/// A request can impersonate one user only, so the accounts of the attestation would act with the rights of the user behind the kubeconfig.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubeconfig_that_impersonates_is_refused() {
    let place = Place::new();
    let data = place.folder.path().join("data");
    let text = std::fs::read_to_string(place.kubeconfig()).unwrap();
    let mut kubeconfig = kube::config::Kubeconfig::from_yaml(&text).unwrap();
    let user = kubeconfig.auth_infos[0].auth_info.as_mut().unwrap();
    user.impersonate = Some("alice".to_owned());
    user.impersonate_groups = Some(vec!["system:masters".to_owned()]);
    let file = place.folder.path().join("alice");
    std::fs::write(&file, serde_json::to_string(&kubeconfig).unwrap()).unwrap();
    let (file, run) = (file.to_str().unwrap(), place.folder.path().join("run"));
    let expected = ["impersonate user alice, group system:masters already", "--context NAME"];
    place.check(&["attest", "--yes", "--kubeconfig", file], 2, &[], &expected);
    assert_eq!(list_remains(&data).await, [""; 0], "nothing is made");
    let run = ["run", "--kubeconfig", file, "--data", run.to_str().unwrap()];
    place.check(&run, 2, &[], &expected);
}
