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
