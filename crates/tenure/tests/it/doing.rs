//! Commands that change objects, as an administrator on the embedded control plane: several objects, `--all`, creation, deletion, and an interruption.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tenure_git_server::{GitServer, Options};

use crate::commands::{Place, apply};
use crate::process::tenure;

/// A control plane, and a Git server that its sources may reach.
async fn start() -> (Place, GitServer, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let git = GitServer::start(folder.path(), Options::default()).await.unwrap();
    let allowed = format!("http://{}", git.http_address());
    let place = Place::with(tempfile::tempdir().unwrap(), &["--allow-source", &allowed]);
    (place, git, folder)
}

fn map(name: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: default}}\n")
}

/// Gives the default account of the namespace the right to apply.
async fn give_rights(place: &Place) {
    let data = place.folder.path().join("data");
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "applies", "namespace": "default"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}]
    });
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings/applies";
    apply(&data, binding, path).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_created_reconciled_and_deleted() {
    let (place, git, _folder) = start().await;
    give_rights(&place).await;
    for name in ["one", "two"] {
        let repository = git.create(name).await.unwrap();
        repository.commit([("map.yaml", map(name))], "first").await.unwrap();
        place.check(
            &[
                "create",
                "source",
                "git",
                name,
                "--url",
                &git.http_url(name),
                "--branch",
                "main",
            ],
            0,
            &[],
            &[
                &format!("► applying GitRepository/default/{name}"),
                &format!("✔ GitRepository/default/{name} created"),
                &format!("◎ waiting for GitRepository/default/{name} to be fetched"),
                &format!("✔ GitRepository/default/{name}: fetched revision main@sha1:"),
            ],
        );
        place.check(
            &["create", "ks", name, "--source", name, "--prune", "--interval", "1h"],
            0,
            &[],
            &[&format!("✔ Kustomization/default/{name}: applied revision main@sha1:")],
        );
    }
    // The same command changes nothing but what its flags say.
    place.check(
        &["create", "ks", "one", "--source", "one", "--prune", "--interval", "2h"],
        0,
        &[],
        &["✔ Kustomization/default/one configured"],
    );
    let both = [
        "✔ Kustomization/default/one: applied revision",
        "✔ Kustomization/default/two: applied revision",
    ];
    place.check(&["reconcile", "ks", "one", "two"], 0, &[], &both);
    place.check(&["reconcile", "ks/one", "ks/two", "--with-source"], 0, &[], &both);
    place.check(
        &["suspend", "ks", "--all"],
        0,
        &["default/one suspended", "default/two suspended"],
        &[],
    );
    place.check(
        &["reconcile", "ks", "--all"],
        0,
        &[],
        &["Kustomization/default/one is suspended, and is left out"],
    );
    place.check(
        &["resume", "ks", "--all"],
        0,
        &["default/one resumed", "default/two resumed"],
        &both,
    );
    place.check(&["reconcile", "ks", "--all"], 0, &[], &both);
    // One of several fails, and the others are reconciled.
    place.check(&["reconcile", "ks", "one", "none"], 1, &[], &["not found", both[0]]);
    place.check(
        &["reconcile", "ks", "one", "--all"],
        2,
        &[],
        &["a name is given", "hint:"],
    );
    place.check(
        &["reconcile", "bucket", "--all"],
        1,
        &[],
        &["no buckets", "nothing is selected"],
    );

    place.check(
        &["delete", "gitrepo/one", "ks/one"],
        2,
        &[],
        &[
            "these Kustomizations keep what they applied, and get no new revision: one",
            "the controllers delete 1 object of its inventory (deletionPolicy MirrorPrune, prune true)",
            "there is no terminal for the confirmation",
        ],
    );
    place.check(&["delete", "configmap/one", "-s"], 2, &[], &["none of Tenure's kinds"]);
    place.check(&["delete", "ks", "one", "-s"], 0, &[], &["✔ Kustomization/default/one"]);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(180);
    while place.run(&["get", "configmap/one"]).status.code() != Some(1) {
        assert!(std::time::Instant::now() < deadline, "the object stays");
    }
    place.check(&["get", "configmap/two"], 0, &["two"], &[]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_never_is_ready_stays_applied() {
    let (place, _git, _folder) = start().await;
    let create = ["create", "ks", "early", "--source", "none"];
    let timeout = [&create[..], &["--timeout", "1s"]].concat();
    place.check(
        &timeout,
        1,
        &[],
        &["is applied, and was not ready in 1 s", "tenure delete"],
    );
    // After Ctrl-C the command says what stays.
    let mut child = tenure(&create)
        .env("KUBECONFIG", place.kubeconfig())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap())
        .lines()
        .map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("◎ waiting for Kustomization/default/early to be applied")));
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    let lines: Vec<String> = lines.collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{lines:?}");
    assert!(
        lines
            .iter()
            .any(|line| line.contains("interrupted: what was applied stays")),
        "{lines:?}"
    );
    place.check(&["get", "ks/early"], 0, &["early"], &[]);
    // Lines are whole: nothing is drawn again where standard error is no terminal.
    assert!(lines.iter().all(|line| !line.contains(['\r', '\u{1b}'])), "{lines:?}");
}

/// With `--workload-status`, the control plane reports Pods as available. A bare one never does.
#[test]
fn an_installation_waits_for_its_pods() {
    let install = [
        "install",
        "--image=tenure:1",
        "--unpinned-image",
        "--without-admission",
        "--without-policies",
        "--wait",
    ];
    Place::new().check(
        &install,
        0,
        &["applied Deployment tenure-controller"],
        &[
            "◎ waiting for Deployment/tenure-system/tenure-controller to be available",
            "✔ Deployment/tenure-system/tenure-controller: 2 of 2 Pods are available",
        ],
    );
    let bare = Place::with(tempfile::tempdir().unwrap(), &["--bare"]);
    bare.check(
        &[&install[..], &["--timeout=1s"]].concat(),
        1,
        &[],
        &[
            "was not ready in 1 s (0 of 2 Pods are available)",
            "the same command waits again",
        ],
    );
}

#[tokio::test]
async fn an_installation_can_be_checked_before() {
    let place = Place::new();
    place.check(
        &["check", "--pre"],
        0,
        &["✔ Kubernetes v1.", "✔ you have the ", "✔ admission webhooks are served"],
        &["an installation works here"],
    );
    place.check(&["check", "--pre", "-o", "json"], 0, &["\"gravity\": \"good\""], &[]);
    place.check(&["check", "--pre", "-o", "sarif"], 2, &[], &["no SARIF form"]);
    place.check(&["check", "--pre", "--tenant", "a"], 2, &[], &["cannot be used with"]);
    place.check(&["check"], 2, &[], &["--pre"]);
    place.check(
        &["logs", "--all"],
        1,
        &[],
        &["embedded control plane", "standard error of the process", "journalctl"],
    );
    place.check(&["logs"], 2, &[], &["KIND/NAME"]);
}
