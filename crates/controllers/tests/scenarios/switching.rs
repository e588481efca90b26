//! From Flux to Tenure and back. Objects from Flux's controllers are adopted: nothing is re-created, unchanged objects are not even written, and
//! objects that Git later drops are pruned. Flux's controllers take over objects from Tenure in the same way.
//!
//! Flux's objects were recorded (`tests/data/flux-objects.json`) from its real controllers, on a real kube-apiserver, by the last test here.
//! `TENURE_BESIDE` names the folder with them, `TENURE_TEST_KUBECONFIG` the cluster, and `TENURE_RECORD=1` writes the file again.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use go_yaml::read::{Lines, Source, first_document};
use go_yaml::scalar::Dialect;
use serde_json::{Value, json};
use tenure_test_ports::reserve_port;
use tenure_testkit::TEST_KUBECONFIG;

use crate::stage::{CONFIG_MAP, DEPLOYMENT, GIT_REPOSITORY, KUSTOMIZATION, Stage, commit, config_map};

const NAMESPACE: &str = "switching";
const SECRET: (&str, &str) = ("v1", "Secret");
const SERVICE: (&str, &str) = ("v1", "Service");
/// The applied and observed objects.
const OBJECTS: [((&str, &str), &str); 5] = [
    (CONFIG_MAP, "kept"),
    (CONFIG_MAP, "dropped"),
    (SECRET, "keys"),
    (SERVICE, "web"),
    (DEPLOYMENT, "web"),
];

/// Returns the files of the repository, with fields that Flux converts before it applies them.
fn files(value: &str) -> Vec<(&'static str, String)> {
    let secret = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: keys\nstringData:\n  user: admin\n";
    let service = "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\nspec:\n  selector: {app: web}\n  ports:\n    - port: 80\n";
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  replicas: 0\n  selector:\n    matchLabels: {app: web}\n  \
        template:\n    metadata:\n      labels: {app: web}\n    spec:\n      containers:\n        - name: web\n          image: web:1\n          ports:\n            - containerPort: 80\n";
    vec![
        (
            "kept.yaml",
            format!("{}---\n{}", config_map("kept", value), config_map("dropped", "1")),
        ),
        ("secret.yaml", secret.to_owned()),
        ("service.yaml", service.to_owned()),
        ("deployment.yaml", deployment.to_owned()),
    ]
}

async fn make_repository(stage: &Stage) -> tenure_git_server::Repository {
    let files = files("1");
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    stage.repository(NAMESPACE, "app", &files).await
}

/// Returns the current objects, by kind and name.
async fn read_objects(stage: &Stage) -> Vec<Value> {
    let mut found = Vec::new();
    for (kind, name) in OBJECTS {
        found.extend(stage.get(kind, (NAMESPACE, name)).await);
    }
    found
}

/// Checks that no object was re-created or changed in a relevant field. Identical objects were not even written.
fn check_same(before: &[Value], after: &[Value], names: &[&str]) {
    for before in before {
        let (kind, name) = (
            before["kind"].as_str().unwrap(),
            before["metadata"]["name"].as_str().unwrap(),
        );
        if !names.contains(&name) {
            continue;
        }
        let is_it = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
        let after = after
            .iter()
            .find(is_it)
            .unwrap_or_else(|| panic!("{kind}/{name} is gone"));
        for path in [
            "/metadata/uid",
            "/metadata/generation",
            "/spec",
            "/data",
            "/metadata/labels",
        ] {
            assert_eq!(after.pointer(path), before.pointer(path), "{kind}/{name}: {path}");
        }
        assert_eq!(
            find_applied(after),
            find_applied(before),
            "{kind}/{name} was applied: {before:#}\n{after:#}"
        );
        // The controller that reports a workload's status also writes it.
        if kind != DEPLOYMENT.1 {
            let version = "/metadata/resourceVersion";
            assert_eq!(
                after.pointer(version),
                before.pointer(version),
                "{kind}/{name} was written: {before:#}\n{after:#}"
            );
        }
    }
}

/// Returns the managedFields entries of applies: manager, time and fields.
fn find_applied(object: &Value) -> Vec<&Value> {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    entries.iter().filter(|entry| entry["operation"] == "Apply").collect()
}

/// Asks for a reconciliation, and waits until it was answered at a commit.
async fn reconcile(stage: &Stage, token: &str, commit: &str) {
    let asked = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": token } } });
    for kind in [GIT_REPOSITORY, KUSTOMIZATION] {
        stage
            .admin
            .patch(kind, (NAMESPACE, "app"), asked.clone())
            .await
            .unwrap();
    }
    let is_handled = |object: Option<&Value>| {
        object.is_some_and(|object| {
            let status = &object["status"];
            let revision = status["lastAppliedRevision"].as_str().unwrap_or_default();
            status["lastHandledReconcileAt"] == token && revision.ends_with(commit)
        })
    };
    stage.wait_for(KUSTOMIZATION, (NAMESPACE, "app"), is_handled).await;
    stage.wait_for_commit((NAMESPACE, "app"), commit).await;
}

/// Removes an object from the repository, and changes another.
async fn change(repository: &tenure_git_server::Repository, value: &str) -> String {
    commit(repository, &[("kept.yaml", &config_map("kept", value))]).await
}

async fn check_after_drop(stage: &Stage, before: &[Value]) {
    stage
        .wait_for(CONFIG_MAP, (NAMESPACE, "dropped"), |object| object.is_none())
        .await;
    let after = read_objects(stage).await;
    check_same(before, &after, &["keys", "web"]);
    let uid = |objects: &[Value]| {
        let kept = objects
            .iter()
            .find(|object| object["metadata"]["name"] == "kept")
            .unwrap();
        kept["metadata"]["uid"].clone()
    };
    assert_eq!(uid(&after), uid(before), "what changed was made anew");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_left_by_flux_are_adopted_unchanged() {
    let mut stage = Stage::set(NAMESPACE).await;
    stage.pause().await;
    let recorded: Vec<Value> = serde_json::from_str(include_str!("../data/flux-objects.json")).unwrap();
    assert_eq!(recorded.len(), OBJECTS.len() + 1);
    let repository = make_repository(&stage).await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    for object in &recorded {
        leave(&stage, object).await;
    }
    let before = read_objects(&stage).await;
    assert_eq!(before.len(), OBJECTS.len());
    stage.resume();
    reconcile(&stage, "by-tenure", &first).await;
    check_same(
        &before,
        &read_objects(&stage).await,
        &["kept", "dropped", "keys", "web"],
    );
    let second = change(&repository, "2").await;
    reconcile(&stage, "by-tenure-again", &second).await;
    check_after_drop(&stage, &before).await;
    stage.shut_down().await;
}

/// Creates an object as it was recorded, with the owners of its fields.
async fn leave(stage: &Stage, recorded: &Value) {
    let mut object = recorded.clone();
    let status = object["status"].take();
    object.as_object_mut().unwrap().remove("status");
    let metadata = object["metadata"].as_object_mut().unwrap();
    for made in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
        metadata.remove(made);
    }
    let text = |path: &str| recorded.pointer(path).and_then(Value::as_str).unwrap();
    let (kind, target) = (
        (text("/apiVersion"), text("/kind")),
        (NAMESPACE, text("/metadata/name")),
    );
    stage.admin.create(object).await.unwrap();
    if kind == KUSTOMIZATION {
        let status = json!({ "status": status });
        stage.admin.patch_status(kind, target, status).await.unwrap();
    }
    let owners = json!({ "metadata": { "managedFields": recorded["metadata"]["managedFields"] } });
    stage.admin.patch(kind, target, owners).await.unwrap();
}

/// Flux's real controllers, which end when this is dropped.
struct FluxControllers {
    processes: Vec<Child>,
}

impl FluxControllers {
    fn start(folder: &std::path::Path, storage: &std::path::Path) -> Self {
        let port = || format!("127.0.0.1:{}", reserve_port());
        let kubeconfig = std::env::var_os(TEST_KUBECONFIG).unwrap();
        let start = |name: &str, arguments: &[String]| {
            let log = std::fs::File::create(storage.join(format!("{name}.log"))).unwrap();
            Command::new(folder.join(name))
                .args([
                    "--watch-all-namespaces=false",
                    "--enable-leader-election=false",
                    "--events-addr=",
                ])
                .args(["--metrics-addr", &port(), "--health-addr", &port()])
                .args(arguments)
                .env("KUBECONFIG", &kubeconfig)
                .env("RUNTIME_NAMESPACE", NAMESPACE)
                .stdin(Stdio::null())
                .stdout(log.try_clone().unwrap())
                .stderr(log)
                .spawn()
                .unwrap()
        };
        let address = port();
        let store = [
            format!("--storage-path={}", storage.display()),
            format!("--storage-addr={address}"),
            format!("--storage-adv-addr={address}"),
        ];
        Self {
            processes: vec![start("source-controller", &store), start("kustomize-controller", &[])],
        }
    }
}

impl Drop for FluxControllers {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _gone = process.kill();
            let _gone = process.wait();
        }
    }
}

/// Installs the CRDs of Flux's kinds that Tenure does not bring.
async fn install_other_kinds(stage: &Stage, folder: &std::path::Path) {
    for file in std::fs::read_dir(folder.join("crds")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let source = Source {
            file: 0,
            lines: Lines::After(0),
            maximum_nodes: 1_000_000,
            scanner: Dialect::V2,
        };
        let definition = first_document(&text, source).unwrap().unwrap();
        let definition = go_yaml::json::inner_value(&definition).unwrap();
        let kind = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        let name = definition["metadata"]["name"].as_str().unwrap().to_owned();
        if stage.get(kind, ("", &name)).await.is_none() {
            stage.admin.apply(definition).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flux_hands_over_and_takes_back() {
    let beside = std::env::var_os("TENURE_BESIDE").map(PathBuf::from);
    let beside = beside
        .filter(|folder| folder.join("kustomize-controller").exists() && folder.join("source-controller").exists());
    let (Some(folder), Some(_)) = (beside, std::env::var_os(TEST_KUBECONFIG)) else {
        println!(
            "skipped: TENURE_BESIDE names no folder with Flux's controllers, or {TEST_KUBECONFIG} no cluster for them"
        );
        return;
    };
    let mut stage = Stage::set(NAMESPACE).await;
    stage.pause().await;
    install_other_kinds(&stage, &folder).await;
    let storage = stage.artifacts().with_file_name("flux");
    std::fs::create_dir_all(&storage).unwrap();
    let repository = make_repository(&stage).await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    let account = json!({ "serviceAccountName": "default", "interval": "10m" });
    stage.kustomization(NAMESPACE, "app", "app", account).await;
    let flux = FluxControllers::start(&folder, &storage);
    reconcile(&stage, "by-flux", &first).await;
    drop(flux);

    let before = read_objects(&stage).await;
    if std::env::var_os("TENURE_RECORD").is_some() {
        let mut recorded = before.clone();
        recorded.extend(stage.get(KUSTOMIZATION, (NAMESPACE, "app")).await);
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/flux-objects.json");
        std::fs::write(file, serde_json::to_string_pretty(&recorded).unwrap() + "\n").unwrap();
    }
    stage.resume();
    reconcile(&stage, "by-tenure", &first).await;
    check_same(
        &before,
        &read_objects(&stage).await,
        &["kept", "dropped", "keys", "web"],
    );
    let second = change(&repository, "2").await;
    reconcile(&stage, "by-tenure-again", &second).await;
    check_after_drop(&stage, &before).await;

    // And back.
    stage.pause().await;
    let before = read_objects(&stage).await;
    let flux = FluxControllers::start(&folder, &storage);
    reconcile(&stage, "by-flux-again", &second).await;
    let after = read_objects(&stage).await;
    for (before, after) in before.iter().zip(&after) {
        for path in ["/metadata/uid", "/metadata/generation", "/spec", "/data"] {
            assert_eq!(after.pointer(path), before.pointer(path), "{before:#}");
        }
    }
    let third = change(&repository, "3").await;
    reconcile(&stage, "by-flux-at-last", &third).await;
    let kept = stage.get(CONFIG_MAP, (NAMESPACE, "kept")).await.unwrap();
    assert_eq!(kept["data"]["value"], "3");
    // Flux tracks all objects, and removes them with the Kustomization.
    stage.admin.delete(KUSTOMIZATION, (NAMESPACE, "app")).await.unwrap();
    stage
        .wait_for(KUSTOMIZATION, (NAMESPACE, "app"), |object| object.is_none())
        .await;
    for (kind, name) in OBJECTS {
        stage.wait_for(kind, (NAMESPACE, name), |object| object.is_none()).await;
    }
    drop(flux);
    stage.resume();
    stage.shut_down().await;
}
