//! Deletions that need knowledge or permission: a large prune, an object that can't be changed, a dropped version.

use serde_json::{Value, json};

use crate::stage::{CONFIG_MAP, KUSTOMIZATION, Stage, commit, config_map};

/// Waits until a guard has stopped a deletion, and allows it with the annotation that Ready names. Returns the message of Ready.
pub(crate) async fn allow_deletion(stage: &Stage, target: (&str, &str)) -> String {
    let message = stage.ready(KUSTOMIZATION, target, "False", "DeletionGuarded").await;
    let (_, digest) = message.rsplit_once("tenure.dev/allow-deletion=").unwrap();
    let digest = digest.lines().next().unwrap();
    let allow = json!({ "metadata": { "annotations": { "tenure.dev/allow-deletion": digest } } });
    stage.admin.patch(KUSTOMIZATION, target, allow).await.unwrap();
    message
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_prune_waits_for_its_digest() {
    let stage = Stage::set("guards-a").await;
    let all: Vec<String> = (0..12).map(|n| config_map(&format!("m{n}"), "1")).collect();
    let repository = stage
        .repository("guards-a", "app", &[("a.yaml", &all.join("---\n"))])
        .await;
    stage.kustomization("guards-a", "app", "app", json!({})).await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit(("guards-a", "app"), &first).await;
    let second = commit(&repository, &[("a.yaml", &config_map("m0", "2"))]).await;
    let message = stage
        .ready(KUSTOMIZATION, ("guards-a", "app"), "False", "DeletionGuarded")
        .await;
    assert!(message.contains("11 of the 12 objects"), "{message}");
    for n in 0..12 {
        let name = format!("m{n}");
        assert!(stage.get(CONFIG_MAP, ("guards-a", &name)).await.is_some(), "{name}");
    }
    allow_deletion(&stage, ("guards-a", "app")).await;
    stage.wait_for_commit(("guards-a", "app"), &second).await;
    assert!(stage.get(CONFIG_MAP, ("guards-a", "m0")).await.is_some());
    for n in 1..12 {
        let name = format!("m{n}");
        assert!(stage.get(CONFIG_MAP, ("guards-a", &name)).await.is_none(), "{name}");
    }
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn force_recreates_for_immutable_fields_and_for_nothing_else() {
    let stage = Stage::set("guards-b").await;
    let job = |image: &str, completions: &str| {
        format!(
            "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: once\nspec:\n  suspend: false\n  completions: {completions}\n  template:\n    spec:\n      restartPolicy: Never\n      containers:\n        - name: once\n          image: {image}\n"
        )
    };
    let repository = stage
        .repository("guards-b", "app", &[("a.yaml", &job("example.com/a:1", "1"))])
        .await;
    stage
        .kustomization("guards-b", "app", "app", json!({ "force": true }))
        .await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit(("guards-b", "app"), &first).await;
    let kind = ("batch/v1", "Job");
    let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap().to_owned();
    let before = uid(&stage.get(kind, ("guards-b", "once")).await.unwrap());

    // An immutable field with an invalid value: a re-creation would be refused, so the object stays.
    commit(&repository, &[("a.yaml", &job("example.com/a:2", "-1"))]).await;
    let message = stage
        .ready(KUSTOMIZATION, ("guards-b", "app"), "False", "ReconciliationFailed")
        .await;
    assert!(message.contains("spec.completions"), "{message}");
    assert_eq!(uid(&stage.get(kind, ("guards-b", "once")).await.unwrap()), before);

    let third = commit(&repository, &[("a.yaml", &job("example.com/a:2", "1"))]).await;
    stage.wait_for_commit(("guards-b", "app"), &third).await;
    let after = stage.get(kind, ("guards-b", "once")).await.unwrap();
    assert_ne!(uid(&after), before);
    assert_eq!(
        after["spec"]["template"]["spec"]["containers"][0]["image"],
        "example.com/a:2"
    );
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn object_of_removed_version_is_still_pruned() {
    let stage = Stage::set("guards-c").await;
    let definition = |old_is_served: bool| {
        let version = |name: &str, served: bool, storage: bool| {
            json!({
                "name": name, "served": served, "storage": storage,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } }
            })
        };
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": "carts.example.com" },
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": { "kind": "Cart", "plural": "carts", "singular": "cart", "listKind": "CartList" },
                "versions": [version("v2beta2", old_is_served, false), version("v2", true, true)]
            }
        })
    };
    stage.admin.apply(definition(true)).await.unwrap();
    let cart = "apiVersion: example.com/v2beta2\nkind: Cart\nmetadata:\n  name: c\n";
    let repository = stage
        .repository(
            "guards-c",
            "app",
            &[("a.yaml", &config_map("a", "1")), ("c.yaml", cart)],
        )
        .await;
    stage.kustomization("guards-c", "app", "app", json!({})).await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit(("guards-c", "app"), &first).await;
    let new = ("example.com/v2", "Cart");
    assert!(stage.get(new, ("guards-c", "c")).await.is_some());

    stage.admin.apply(definition(false)).await.unwrap();
    let second = commit(&repository, &[("c.yaml", &config_map("b", "1"))]).await;
    stage.wait_for_commit(("guards-c", "app"), &second).await;
    assert!(stage.get(new, ("guards-c", "c")).await.is_none(), "it was forgotten");
    stage
        .admin
        .delete(
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
            ("", "carts.example.com"),
        )
        .await
        .unwrap();
    stage.shut_down().await;
}

/// When a Kustomization is deleted, adopted objects stay. Deleting its own claim needs permission.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletion_keeps_adopted_objects_and_waits_for_permission() {
    let namespace = "guards-adopted";
    let stage = Stage::set(namespace).await;
    let kind = ("v1", "PersistentVolumeClaim");
    let claim = |name: &str| {
        format!(
            "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{ name: {name}, namespace: {namespace} }}\n\
             spec: {{ accessModes: [ReadWriteOnce], resources: {{ requests: {{ storage: 1Gi }} }} }}\n"
        )
    };
    let before = json!({
        "apiVersion": kind.0, "kind": kind.1, "metadata": { "name": "before", "namespace": namespace },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    stage.admin.apply_as("kubectl", before).await.unwrap();
    let files = [claim("before"), claim("own"), config_map("a", "1")].join("---\n");
    let repository = stage.repository(namespace, "app", &[("a.yaml", &files)]).await;
    stage.kustomization(namespace, "app", "app", json!({})).await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    let applied = stage.wait_for_commit((namespace, "app"), &first).await;
    let entries = applied["status"]["inventory"]["entries"].as_array().unwrap();
    let adopted = entries.iter().filter(|entry| entry["adopted"] == true);
    let adopted: Vec<&str> = adopted.filter_map(|entry| entry["id"].as_str()).collect();
    assert_eq!(adopted, ["guards-adopted_before__PersistentVolumeClaim"]);

    stage.admin.delete(KUSTOMIZATION, (namespace, "app")).await.unwrap();
    let message = allow_deletion(&stage, (namespace, "app")).await;
    assert!(
        message.contains("PersistentVolumeClaim/guards-adopted/own") && !message.contains("/before"),
        "{message}"
    );
    stage
        .wait_for(KUSTOMIZATION, (namespace, "app"), |object| object.is_none())
        .await;
    stage
        .wait_for(kind, (namespace, "own"), |object| object.is_none())
        .await;
    assert!(stage.get(CONFIG_MAP, (namespace, "a")).await.is_none());
    let kept = stage.get(kind, (namespace, "before")).await.unwrap();
    assert!(kept["metadata"].get("deletionTimestamp").is_none());
    stage.shut_down().await;
}

/// An operator's object owns the claims with its data, and Kubernetes deletes them with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_indirect_owner_of_claim_needs_permission() {
    let namespace = "guards-owners";
    let stage = Stage::set(namespace).await;
    let rights = json!({ "apiGroups": ["guards.example.org"], "resources": ["stores", "storenodes"], "verbs": ["*"] });
    for (plural, kind) in [("stores", "Store"), ("storenodes", "StoreNode")] {
        let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{plural}.guards.example.org") },
            "spec": {
                "group": "guards.example.org", "scope": "Namespaced", "names": { "plural": plural, "kind": kind },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }],
            },
        });
        stage.admin.apply(definition).await.unwrap();
    }
    for object in [
        json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": { "name": "stores", "namespace": namespace }, "rules": [rights] }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": "stores", "namespace": namespace },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "stores" },
            "subjects": [{ "kind": "ServiceAccount", "name": "default", "namespace": namespace }],
        }),
    ] {
        stage.admin.apply(object).await.unwrap();
    }
    let store = ("guards.example.org/v1", "Store");
    let write = |name: &str| {
        format!(
            "apiVersion: {}\nkind: {}\nmetadata: {{ name: {name} }}\n",
            store.0, store.1
        )
    };
    let all = [write("full"), write("empty"), config_map("a", "1")].join("---\n");
    let repository = stage.repository(namespace, "app", &[("a.yaml", &all)]).await;
    stage.kustomization(namespace, "app", "app", json!({})).await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit((namespace, "app"), &first).await;
    let full = stage.get(store, (namespace, "full")).await.unwrap();
    let owned = |kind: &str, name: &str, owner: &Value, spec: Value| {
        json!({
            "apiVersion": if kind == "StoreNode" { store.0 } else { "v1" }, "kind": kind,
            "metadata": { "name": name, "namespace": namespace, "ownerReferences": [{
                "apiVersion": owner["apiVersion"], "kind": owner["kind"],
                "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
            }] },
            "spec": spec,
        })
    };
    let node = stage
        .admin
        .apply(owned("StoreNode", "full-0", &full, json!({})))
        .await
        .unwrap();
    let spec = json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
    let claim = owned("PersistentVolumeClaim", "data-full-0", &node, spec);
    stage.admin.apply(claim).await.unwrap();

    let second = commit(&repository, &[("a.yaml", &config_map("a", "2"))]).await;
    let message = allow_deletion(&stage, (namespace, "app")).await;
    assert!(
        message.contains("Store/guards-owners/full (owns PersistentVolumeClaims)") && !message.contains("/empty"),
        "{message}"
    );
    stage.wait_for_commit((namespace, "app"), &second).await;
    for name in ["full", "empty"] {
        stage
            .wait_for(store, (namespace, name), |object| object.is_none())
            .await;
    }
    stage.shut_down().await;
}
