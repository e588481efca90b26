//! The order of deletion: a Kustomization may contain its own rights, and child Kustomizations with the rights that these need.

use serde_json::{Value, json};

use crate::stage::{CONFIG_MAP, KUSTOMIZATION, Stage, commit, config_map};

const ROLE_BINDING: (&str, &str) = ("rbac.authorization.k8s.io/v1", "RoleBinding");
const SERVICE_ACCOUNT: (&str, &str) = ("v1", "ServiceAccount");

/// A ServiceAccount, and a RoleBinding that gives it nearly everything in a namespace.
fn account(namespace: &str, name: &str) -> [Value; 2] {
    [
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name, "namespace": namespace } }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": name, "namespace": namespace },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": namespace }]
        }),
    ]
}

fn write(objects: &[Value]) -> String {
    objects.iter().map(|object| format!("---\n{object}\n")).collect()
}

/// Waits until all of these are gone.
async fn until_gone(stage: &Stage, namespace: &str, objects: &[((&str, &str), &str)]) {
    for (kind, name) in objects {
        stage
            .wait_for(*kind, (namespace, *name), |object| object.is_none())
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kustomization_with_its_own_rights_can_be_deleted() {
    let namespace = "removal-a";
    let stage = Stage::set(namespace).await;
    let own = account(namespace, "gitops");
    for object in &own {
        stage.admin.apply(object.clone()).await.unwrap();
    }
    let files = format!("{}---\n{}", write(&own), config_map("c", "1"));
    let repository = stage.repository(namespace, "app", &[("a.yaml", &files)]).await;
    stage
        .kustomization(namespace, "app", "app", json!({ "serviceAccountName": "gitops" }))
        .await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit((namespace, "app"), &first).await;
    stage.admin.delete(KUSTOMIZATION, (namespace, "app")).await.unwrap();
    until_gone(
        &stage,
        namespace,
        &[(KUSTOMIZATION, "app"), (CONFIG_MAP, "c"), (ROLE_BINDING, "gitops")],
    )
    .await;
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_goes_before_the_rights_that_it_needs() {
    let namespace = "removal-b";
    let stage = Stage::set(namespace).await;
    stage
        .repository(namespace, "child", &[("a.yaml", &config_map("of-child", "1"))])
        .await;
    let [parent, binding] = account(namespace, "parent");
    stage.admin.apply(parent).await.unwrap();
    stage.admin.apply(binding).await.unwrap();
    let child = json!({
        "apiVersion": KUSTOMIZATION.0, "kind": KUSTOMIZATION.1, "metadata": { "name": "child", "namespace": namespace },
        "spec": {
            "interval": "10m", "retryInterval": "1s", "prune": true, "path": "./", "targetNamespace": namespace,
            "serviceAccountName": "child", "sourceRef": { "kind": "GitRepository", "name": "child" }
        }
    });
    let mut objects = account(namespace, "child").to_vec();
    objects.push(child);
    let of_parent = [("a.yaml", write(&objects)), ("b.yaml", config_map("stays", "1"))];
    let of_parent: Vec<(&str, &str)> = of_parent.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let repository = stage.repository(namespace, "parent", &of_parent).await;
    stage
        .kustomization(
            namespace,
            "parent",
            "parent",
            json!({ "serviceAccountName": "parent", "wait": true }),
        )
        .await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit((namespace, "parent"), &first).await;
    assert!(stage.get(CONFIG_MAP, (namespace, "of-child")).await.is_some());
    // One commit drops the child and the account that it acts as.
    let second = commit(&repository, &[("a.yaml", &config_map("new", "1"))]).await;
    stage.wait_for_commit((namespace, "parent"), &second).await;
    until_gone(
        &stage,
        namespace,
        &[
            (KUSTOMIZATION, "child"),
            (CONFIG_MAP, "of-child"),
            (ROLE_BINDING, "child"),
            (SERVICE_ACCOUNT, "child"),
        ],
    )
    .await;
    stage.shut_down().await;
}

/// The repository of each contains the next one. All three are deleted in the same second, so their times don't show which began.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cycle_of_kustomizations_can_be_deleted() {
    let namespace = "removal-c";
    let stage = Stage::set(namespace).await;
    for object in account(namespace, "gitops") {
        stage.admin.apply(object).await.unwrap();
    }
    let names = ["a", "b", "c"];
    let write = |name: &str| {
        json!({
            "apiVersion": KUSTOMIZATION.0, "kind": KUSTOMIZATION.1, "metadata": { "name": name, "namespace": namespace },
            "spec": {
                "interval": "10m", "retryInterval": "1s", "timeout": "10m", "prune": true, "path": "./", "targetNamespace": namespace,
                "serviceAccountName": "gitops", "sourceRef": { "kind": "GitRepository", "name": name }
            }
        })
    };
    for (name, next) in names.iter().zip(["b", "c", "a"]) {
        let files = format!("{}\n---\n{}", write(next), config_map(&format!("of-{name}"), "1"));
        stage.repository(namespace, name, &[("a.yaml", &files)]).await;
    }
    stage.admin.apply(write("a")).await.unwrap();
    for (name, owner) in names.iter().zip(["c", "a", "b"]) {
        let is_applied = |object: Option<&Value>| {
            object.is_some_and(|object| {
                object["metadata"]["labels"]["kustomize.toolkit.fluxcd.io/name"] == owner
                    && object["status"]["inventory"]
                        .to_string()
                        .contains(&format!("of-{name}"))
            })
        };
        stage.wait_for(KUSTOMIZATION, (namespace, name), is_applied).await;
    }
    stage.admin.delete(KUSTOMIZATION, (namespace, "a")).await.unwrap();
    let all = names.map(|name| (KUSTOMIZATION, name));
    until_gone(&stage, namespace, &all).await;
    for name in names {
        let name = format!("of-{name}");
        assert!(stage.get(CONFIG_MAP, (namespace, &name)).await.is_none(), "{name}");
    }
    stage.shut_down().await;
}
