//! Real third-party trees through the whole path: Git repository, fetch, render, apply as a ServiceAccount. The objects in the control plane are compared with the
//! output of the real kustomize.
//!
//! The test needs `TENURE_REAL_REPOS`, a folder of such trees, and `kustomize` on PATH. Without them it reports that it was skipped.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use futures::StreamExt;
use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use kube::core::ApiResource;
use serde_json::{Value, json};
use tenure_git_server::{GitServer, Options};

use crate::process::{Up, client};

/// A timeout that is long enough for a slow machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// The namespace of sources and Kustomizations.
const NAMESPACE: &str = "gitops";

#[tokio::test]
async fn every_buildable_folder_is_what_kustomize_prints() {
    let Some(trees) = std::env::var_os("TENURE_REAL_REPOS").map(PathBuf::from) else {
        println!("skipped: TENURE_REAL_REPOS names no folder with real kustomize trees");
        return;
    };
    if Command::new("kustomize").arg("version").output().is_err() {
        println!("skipped: there is no kustomize on PATH");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let git = GitServer::start(folder.path().join("git"), Options::default())
        .await
        .unwrap();
    let up = Up::start(
        &folder.path().join("data"),
        &[
            "--workload-status",
            "--protected-kinds=",
            "--allow-source",
            &format!("http://{}", git.http_address()),
        ],
    );
    let cluster = Cluster::new(client(&folder.path().join("data")).await).await;
    cluster.prepare().await;

    let mut reconciled = 0;
    let mut differences = Vec::new();
    for tree in folders(&trees) {
        let name = tree.file_name().unwrap().to_str().unwrap().to_owned();
        let kustomizations = kustomizations(&tree);
        if kustomizations.is_empty() {
            continue;
        }
        let repository = git.create(&name).await.unwrap();
        repository.import(&tree, "as it is").await.unwrap();
        cluster.create_source(&name, &git.http_url(&name)).await;
        for path in kustomizations {
            let target = format!("real-{reconciled}");
            let Some(wanted) = render_expected(&tree, &path, &target) else {
                continue;
            };
            reconciled += 1;
            if let Err(difference) = cluster.reconcile(&name, &path, &target, &wanted).await {
                differences.push(format!("{name}/{}: {difference}", path.display()));
            }
        }
    }
    drop(up);
    println!("{reconciled} folders reconciled");
    assert!(
        reconciled > 0,
        "{} holds no folder that kustomize builds",
        trees.display()
    );
    assert!(
        differences.is_empty(),
        "{} of {reconciled}:\n{}",
        differences.len(),
        differences.join("\n")
    );
}

fn folders(folder: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    folders
}

/// Returns the folders with a kustomization, relative to the tree.
fn kustomizations(tree: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![tree.to_path_buf()];
    while let Some(folder) = waiting.pop() {
        if ["kustomization.yaml", "kustomization.yml", "Kustomization"]
            .iter()
            .any(|name| folder.join(name).is_file())
        {
            found.push(folder.strip_prefix(tree).unwrap().to_path_buf());
        }
        waiting.extend(folders(&folder));
    }
    found.sort();
    found
}

/// Returns the real kustomize's output for the folder with this test's namespace; `None` if kustomize can't build it.
fn render_expected(tree: &Path, path: &Path, target: &str) -> Option<Vec<Value>> {
    let copy = tempfile::tempdir().unwrap();
    copy_tree(tree, copy.path());
    let folder = copy.path().join(path);
    let plain = Command::new("kustomize").arg("build").arg(&folder).output().unwrap();
    if !plain.status.success() {
        return None;
    }
    let edited = Command::new("kustomize")
        .args(["edit", "set", "namespace", target])
        .current_dir(&folder)
        .output()
        .unwrap();
    assert!(edited.status.success(), "{}", String::from_utf8_lossy(&edited.stderr));
    let built = Command::new("kustomize").arg("build").arg(&folder).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(
        kustomize::read_manifests(
            "kustomize.yaml",
            &String::from_utf8(built.stdout).unwrap(),
            &kustomize::Limits::default(),
        )
        .unwrap()
        .into_iter()
        .map(|manifest| manifest.object)
        .collect(),
    )
}

fn copy_tree(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            std::fs::create_dir_all(&target).unwrap();
            copy_tree(&path, &target);
        } else {
            std::fs::write(&target, std::fs::read(&path).unwrap()).unwrap();
        }
    }
}

/// The control plane, with its served kinds.
struct Cluster {
    client: kube::Client,
}

fn resource(api_version: &str, kind: &str, plural: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource {
        group: group.into(),
        version: version.into(),
        api_version: api_version.into(),
        kind: kind.into(),
        plural: plural.into(),
    }
}

impl Cluster {
    async fn new(client: kube::Client) -> Self {
        Self { client }
    }

    fn kustomizations(&self) -> Api<DynamicObject> {
        Api::namespaced_with(
            self.client.clone(),
            NAMESPACE,
            &resource("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "kustomizations"),
        )
    }

    async fn create(&self, plural: &str, namespaced: bool, object: Value) {
        let resource = resource(
            object["apiVersion"].as_str().unwrap(),
            object["kind"].as_str().unwrap(),
            plural,
        );
        let api: Api<DynamicObject> = if namespaced {
            Api::namespaced_with(self.client.clone(), NAMESPACE, &resource)
        } else {
            Api::all_with(self.client.clone(), &resource)
        };
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap())
            .await
            .unwrap();
    }

    async fn prepare(&self) {
        self.create(
            "namespaces",
            false,
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        )
        .await;
        self.create(
            "serviceaccounts",
            true,
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "gitops"}}),
        )
        .await;
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "real-gitops"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "gitops", "namespace": NAMESPACE}]});
        self.create("clusterrolebindings", false, binding).await;
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "mints-gitops"},
            "rules": [{"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["mint-administrator"], "resourceNames": ["gitops"]}]});
        self.create("roles", true, role).await;
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "mints-gitops"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "mints-gitops"},
            "subjects": [{"kind": "ServiceAccount", "name": "tenure-lane-pool", "namespace": "tenure-system"}]});
        self.create("rolebindings", true, binding).await;
    }

    async fn create_source(&self, name: &str, url: &str) {
        let source = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": {"name": name},
            "spec": {"interval": "1h", "url": url, "ref": {"branch": "main"}, "ignore": ""}});
        self.create("gitrepositories", true, source).await;
    }

    /// Reconciles one folder, compares the objects, and removes them again.
    async fn reconcile(&self, source: &str, path: &Path, target: &str, wanted: &[Value]) -> Result<(), String> {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": target}});
        self.create("namespaces", false, namespace).await;
        let kustomization = json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": {"name": "folder"},
            "spec": {"interval": "1h", "prune": true, "path": path.to_str().unwrap(), "targetNamespace": target,
                     "serviceAccountName": "gitops", "sourceRef": {"kind": "GitRepository", "name": source}}});
        self.create("kustomizations", true, kustomization).await;
        let (status, message) = self.outcome().await;
        // The kinds are read afterwards, because a tree may bring kinds of its own.
        let served = self.list_served().await;
        let unknown: BTreeSet<&str> = wanted
            .iter()
            .filter(|object| plural(&served, object).is_none())
            .filter_map(|object| object["kind"].as_str())
            .collect();
        let mut problems = Vec::new();
        if (status == "True") != unknown.is_empty() {
            problems.push(format!(
                "Ready={status}: {message}; kinds that are not served: {unknown:?}"
            ));
        }
        for kind in &unknown {
            if !message.contains(*kind) {
                problems.push(format!("the condition does not name {kind}: {message}"));
            }
        }
        for object in wanted {
            let Some((plural, namespaced)) = plural(&served, object) else {
                continue;
            };
            let resource = resource(
                object["apiVersion"].as_str().unwrap(),
                object["kind"].as_str().unwrap(),
                &plural,
            );
            let name = object["metadata"]["name"].as_str().unwrap();
            let api: Api<DynamicObject> = if namespaced {
                Api::namespaced_with(
                    self.client.clone(),
                    object["metadata"]["namespace"].as_str().unwrap_or(target),
                    &resource,
                )
            } else {
                Api::all_with(self.client.clone(), &resource)
            };
            match api.get(name).await {
                Ok(live) => compare(
                    object,
                    &serde_json::to_value(live).unwrap(),
                    &format!("{} {name}", resource.kind),
                    &mut problems,
                ),
                Err(error) => problems.push(format!("{} {name}: {error}; {message}", resource.kind)),
            }
        }
        self.kustomizations()
            .delete("folder", &DeleteParams::default())
            .await
            .unwrap();
        self.wait_until(|object| object.is_none().then_some(()))
            .await
            .map_err(|()| "the Kustomization is not deleted".to_owned())?;
        if problems.is_empty() {
            Ok(())
        } else {
            Err(problems.join("; "))
        }
    }

    async fn outcome(&self) -> (String, String) {
        let ended = self
            .wait_until(|object| {
                let conditions = object?.data.pointer("/status/conditions")?.as_array()?.clone();
                let ready = conditions.iter().find(|condition| condition["type"] == "Ready")?;
                let reason = ready["reason"].as_str().unwrap_or_default();
                let waiting = ready["status"] == "Unknown" || reason == "ArtifactFailed" || reason == "Progressing";
                (!waiting).then(|| {
                    (
                        ready["status"].as_str().unwrap().to_owned(),
                        ready["message"].as_str().unwrap_or_default().to_owned(),
                    )
                })
            })
            .await;
        ended.unwrap_or_else(|()| ("never".to_owned(), "no outcome in time".to_owned()))
    }

    async fn wait_until<T>(&self, mut wanted: impl FnMut(Option<&DynamicObject>) -> Option<T>) -> Result<T, ()> {
        let watching = async {
            let mut changes = std::pin::pin!(kube::runtime::watcher::watch_object(self.kustomizations(), "folder"));
            while let Some(change) = changes.next().await {
                if let Some(answer) = wanted(change.unwrap().as_ref()) {
                    return Ok(answer);
                }
            }
            Err(())
        };
        tokio::time::timeout(PATIENCE, watching).await.unwrap_or(Err(()))
    }

    /// Returns apiVersion, kind, plural and scope of all served kinds.
    async fn list_served(&self) -> Vec<(String, String, String, bool)> {
        let discovery = kube::discovery::Discovery::new(self.client.clone())
            .run_aggregated()
            .await
            .unwrap();
        let mut served = Vec::new();
        for group in discovery.groups() {
            for version in group.versions() {
                for (resource, capabilities) in group.versioned_resources(version) {
                    let namespaced = capabilities.scope == kube::discovery::Scope::Namespaced;
                    served.push((resource.api_version, resource.kind, resource.plural, namespaced));
                }
            }
        }
        served
    }
}

fn plural(served: &[(String, String, String, bool)], object: &Value) -> Option<(String, bool)> {
    let (api_version, kind) = (object["apiVersion"].as_str()?, object["kind"].as_str()?);
    served
        .iter()
        .find(|(a, k, ..)| a == api_version && k == kind)
        .map(|(.., plural, namespaced)| (plural.clone(), *namespaced))
}

/// Checks that the live object has everything that kustomize printed. Defaults and the owner labels may be added.
fn compare(wanted: &Value, live: &Value, place: &str, problems: &mut Vec<String>) {
    match (wanted, live) {
        (Value::Object(wanted), Value::Object(live)) => {
            for (key, value) in wanted.iter().filter(|(_, value)| !value.is_null()) {
                match live.get(key) {
                    Some(live) => compare(value, live, &format!("{place}.{key}"), problems),
                    // An empty map or list equals a missing one, and a Secret's stringData becomes data.
                    None if value.as_object().is_some_and(serde_json::Map::is_empty)
                        || value.as_array().is_some_and(Vec::is_empty) => {}
                    None if key == "stringData" => {}
                    None => problems.push(format!("{place}.{key} is missing")),
                }
            }
        }
        (Value::Array(wanted), Value::Array(live)) if wanted.len() == live.len() => {
            for (index, (wanted, live)) in wanted.iter().zip(live).enumerate() {
                compare(wanted, live, &format!("{place}[{index}]"), problems);
            }
        }
        _ if wanted == live => {}
        // Kubernetes writes quantities in their shortest form: "2000m" is stored as "2".
        _ if place.contains(".resources.")
            && thousandths(wanted).is_some()
            && thousandths(wanted) == thousandths(live) => {}
        _ => problems.push(format!("{place}: kustomize has {wanted}, the control plane {live}")),
    }
}

/// Returns a quantity in thousandths, if it is a plain number or one of thousandths.
fn thousandths(quantity: &Value) -> Option<u64> {
    let text = quantity.as_str().map_or_else(|| quantity.to_string(), str::to_owned);
    match text.strip_suffix('m') {
        Some(number) => number.parse().ok(),
        None => text.parse::<u64>().ok()?.checked_mul(1000),
    }
}
