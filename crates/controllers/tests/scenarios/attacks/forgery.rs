//! Forged statuses, labels and owners, written by a user that gains from them.

use serde_json::{Value, json};

use super::Scene;
use crate::stage::{CONFIG_MAP, GIT_REPOSITORY, KUSTOMIZATION, condition, config_map};
use crate::tenants::{surface, surface_ready};

fn entries(ids: &[&str]) -> Value {
    let entries: Vec<Value> = ids.iter().map(|id| json!({ "id": id, "v": "v1" })).collect();
    json!({ "status": { "inventory": { "entries": entries } } })
}

/// Objects that a forged inventory names. They must survive.
const FOREIGN: [(&str, &str, &str); 5] = [
    ("v1", "ConfigMap", "ALPHA"),
    ("v1", "ConfigMap", "tenure-system"),
    ("v1", "ServiceAccount", "ALPHA"),
    ("v1", "Namespace", ""),
    ("capsule.clastix.io/v1beta2", "Tenant", ""),
];

fn choose_name(kind: &str) -> &'static str {
    match kind {
        "ServiceAccount" => "ALPHA-gitops",
        "Namespace" | "Tenant" => "ALPHA",
        _ => "precious",
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_inventory_deletes_nothing_of_others() {
    let scene = Scene::set("attacks-h").await;
    let (evil, stage) = (scene.evil.as_str(), &scene.stage);
    let labels = json!({ "kustomize.toolkit.fluxcd.io/name": "app", "kustomize.toolkit.fluxcd.io/namespace": "EVIL" });
    // Objects of others have the attacker's owner labels: copied there, or applied under a colliding name.
    for (api_version, kind, namespace) in FOREIGN {
        let patch = scene.value(&json!({ "metadata": { "labels": labels } }));
        let target = (scene.fill(namespace), scene.fill(choose_name(kind)));
        if kind == "ConfigMap" {
            let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": target.1, "namespace": target.0 } });
            stage.admin.apply(object).await.unwrap();
        }
        stage
            .admin
            .patch((api_version, kind), (&target.0, &target.1), patch)
            .await
            .unwrap();
    }
    // Its own objects: one that it applied once and may prune, and one with another Kustomization's labels.
    for (name, owner) in [("mine", "app"), ("not-mine", "another")] {
        let object = scene.value(&json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": name, "namespace": "EVIL", "labels": {
                "kustomize.toolkit.fluxcd.io/name": owner, "kustomize.toolkit.fluxcd.io/namespace": "EVIL"
            } }
        }));
        scene.mallory.apply(object).await.unwrap();
    }
    let repository = scene.serve(&[("a.yaml".to_owned(), config_map("a", "1"))]).await;
    scene
        .mallory
        .apply(scene.kustomization("app", &json!({})))
        .await
        .unwrap();
    let first = repository.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit((evil, "app"), &first).await;

    let forged = [
        "ALPHA_precious__ConfigMap",
        "tenure-system_precious__ConfigMap",
        "ALPHA_ALPHA-gitops__ServiceAccount",
        "_ALPHA__Namespace",
        "_ALPHA_capsule.clastix.io_Tenant",
        "EVIL_not-mine__ConfigMap",
        "EVIL_mine__ConfigMap",
        "EVIL_../../ALPHA/configmaps/precious__ConfigMap",
        "EVIL/../ALPHA_precious__ConfigMap",
        "nonsense",
        "",
    ];
    let patch = scene.value(&entries(&forged));
    scene
        .mallory
        .patch_status(KUSTOMIZATION, (evil, "app"), patch.clone())
        .await
        .unwrap();
    let second = crate::stage::commit(&repository, &[("a.yaml", &config_map("a", "2"))]).await;
    stage.wait_for_commit((evil, "app"), &second).await;
    // The control: an object within its rights and with the labels is pruned, so the inventory was used.
    stage
        .wait_for(CONFIG_MAP, (evil, "mine"), |object| object.is_none())
        .await;
    check_survived(&scene).await;

    // Deletion of the Kustomization goes the same way.
    scene
        .mallory
        .patch_status(KUSTOMIZATION, (evil, "app"), patch)
        .await
        .unwrap();
    scene.mallory.delete(KUSTOMIZATION, (evil, "app")).await.unwrap();
    stage
        .wait_for(KUSTOMIZATION, (evil, "app"), |object| object.is_none())
        .await;
    check_survived(&scene).await;
    scene.shut_down().await;
}

async fn check_survived(scene: &Scene) {
    for (api_version, kind, namespace) in FOREIGN {
        let target = (scene.fill(namespace), scene.fill(choose_name(kind)));
        let object = scene.stage.get((api_version, kind), (&target.0, &target.1)).await;
        let object = object.unwrap_or_else(|| panic!("{kind} {target:?} is gone"));
        assert!(object["metadata"].get("deletionTimestamp").is_none(), "{object:#?}");
    }
    assert!(scene.stage.get(CONFIG_MAP, (&scene.evil, "not-mine")).await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_artifact_is_not_rendered() {
    let scene = Scene::set("attacks-i").await;
    let (evil, alpha, stage) = (scene.evil.as_str(), scene.alpha.as_str(), &scene.stage);
    surface(
        stage,
        alpha,
        "apps",
        &[("a.yaml", &config_map("secret-plan", "1"))],
        json!({}),
    )
    .await;
    surface_ready(stage, (alpha, "apps")).await;
    let theirs = stage.get(GIT_REPOSITORY, (alpha, "apps-app")).await.unwrap()["status"]["artifact"].clone();

    // A source without any fetch, with the forged status of one.
    let broken = json!({ "url": "http://git.example.invalid/none.git", "suspend": true });
    scene.mallory.apply(scene.source("files", "x", &broken)).await.unwrap();
    let ready = json!([{ "type": "Ready", "status": "True", "reason": "Succeeded", "message": "stored", "lastTransitionTime": "2024-01-01T00:00:00Z" }]);
    let mut moved = theirs.clone();
    moved["path"] = json!("../../../etc/passwd");
    moved["url"] = json!("http://169.254.169.254/latest/meta-data/");
    for (name, artifact) in [("copied", &theirs), ("moved", &moved)] {
        let status = json!({ "status": { "artifact": artifact, "conditions": ready, "observedGeneration": 1 } });
        scene
            .mallory
            .patch_status(GIT_REPOSITORY, (evil, "files"), status)
            .await
            .unwrap();
        scene
            .mallory
            .apply(scene.kustomization(name, &json!({})))
            .await
            .unwrap();
        let message = stage
            .ready(KUSTOMIZATION, (evil, name), "False", "ArtifactFailed")
            .await;
        assert!(message.contains("files"), "{message}");
    }
    scene.absent(&[(CONFIG_MAP, "EVIL", "secret-plan")]).await;

    // Only one of the two can own the rendered objects.
    stage.admin.delete(KUSTOMIZATION, (evil, "moved")).await.unwrap();
    stage
        .wait_for(KUSTOMIZATION, (evil, "moved"), |object| object.is_none())
        .await;

    // The control: the source fetches, then its status is forged, and its own files are still rendered.
    scene
        .repository("EVIL-files", &[("a.yaml".to_owned(), config_map("own", "1"))])
        .await;
    scene
        .mallory
        .apply(scene.source("files", "EVIL-files", &json!({ "interval": "1h" })))
        .await
        .unwrap();
    stage
        .ready(KUSTOMIZATION, (evil, "copied"), "True", "ReconciliationSucceeded")
        .await;
    let status = json!({ "status": { "artifact": theirs } });
    scene
        .mallory
        .patch_status(GIT_REPOSITORY, (evil, "files"), status)
        .await
        .unwrap();
    scene
        .mallory
        .apply(scene.kustomization("later", &json!({})))
        .await
        .unwrap();
    stage
        .wait_for(KUSTOMIZATION, (evil, "later"), |object| {
            object
                .and_then(|object| condition(object, "Ready"))
                .is_some_and(|ready| ready["reason"] != "Progressing")
        })
        .await;
    assert!(stage.get(CONFIG_MAP, (evil, "own")).await.is_some());
    scene.absent(&[(CONFIG_MAP, "EVIL", "secret-plan")]).await;
    scene.shut_down().await;
}

/// Statuses and metadata that the schema may allow must not hide a Kustomization from its controller. A change of its spec (an administrator's
/// `suspend`, for example) and its deletion still count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_status_hides_an_object_from_its_controller() {
    let scene = Scene::set("attacks-j").await;
    let (evil, stage) = (scene.evil.as_str(), &scene.stage);
    let condition_with = |field: &str, value: Value| {
        let mut condition = json!({ "type": "Odd", "status": "True", "reason": "A", "message": "", "lastTransitionTime": "2024-01-01T00:00:00Z" });
        condition[field] = value;
        json!({ "conditions": [condition] })
    };
    let statuses = [
        json!({ "observedGeneration": 1.0 }),
        json!({ "observedGeneration": 1e18 }),
        json!({ "observedGeneration": 9_223_372_036_854_775_808_u64 }),
        json!({ "observedGeneration": -9 }),
        condition_with("lastTransitionTime", json!("0000-01-01T00:00:00Z")),
        condition_with("lastTransitionTime", json!("9999-12-31T23:59:60Z")),
        condition_with("lastTransitionTime", json!("2024-01-01t00:00:00.123456789123z")),
        condition_with("lastTransitionTime", json!("2024-01-01T00:00:00+23:59")),
        condition_with("lastTransitionTime", json!("soon")),
        condition_with("status", json!("Perhaps")),
        condition_with("observedGeneration", json!(2.0)),
        json!({ "inventory": {} }),
        json!({ "inventory": { "entries": [{}] } }),
        json!({ "history": [{}] }),
        json!({ "unknown": { "deep": 1 } }),
    ];
    let metadata = [
        json!({ "generation": 1.0 }),
        json!({ "generation": -1 }),
        json!({ "deletionGracePeriodSeconds": 1.0 }),
        json!({ "creationTimestamp": "0000-01-01T00:00:00Z" }),
        json!({ "deletionTimestamp": "soon" }),
        json!({ "labels": { "a": 1 } }),
        json!({ "annotations": { "a": { "b": [] } } }),
        json!({ "annotations": { "reconcile.fluxcd.io/requestedAt": "\u{0}\n" } }),
        json!({ "finalizers": [1] }),
        json!({ "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "x", "controller": "yes" }] }),
        json!({ "unknown": 1 }),
    ];
    let tries: Vec<Value> = statuses
        .into_iter()
        .map(|status| json!({ "status": status }))
        .chain(metadata.into_iter().map(|metadata| json!({ "metadata": metadata })))
        .collect();
    let files: Vec<(String, String)> = (0..=tries.len())
        .map(|number| (format!("v{number}/a.yaml"), config_map("a", &number.to_string())))
        .collect();
    scene.repository("EVIL-files", &files).await;
    let source = scene.source("files", "EVIL-files", &json!({ "interval": "1h" }));
    scene.mallory.apply(source).await.unwrap();
    scene
        .mallory
        .apply(scene.kustomization("app", &json!({ "path": "./v0" })))
        .await
        .unwrap();
    let app = (evil, "app");
    stage.ready(KUSTOMIZATION, app, "True", "ReconciliationSucceeded").await;
    let mut let_through = 0;
    for (number, forged) in (1..).zip(tries) {
        let patched = if forged.get("status").is_some() {
            scene.mallory.patch_status(KUSTOMIZATION, app, forged.clone()).await
        } else {
            scene.mallory.patch(KUSTOMIZATION, app, forged.clone()).await
        };
        if patched.is_err() {
            continue;
        }
        let_through += 1;
        // Only a controller that sees the current object applies this change.
        let spec = json!({ "spec": { "path": format!("./v{number}") } });
        stage.admin.patch(KUSTOMIZATION, app, spec).await.unwrap();
        let value = number.to_string();
        let seen = |object: Option<&Value>| object.is_some_and(|object| object["data"]["value"] == value);
        stage.wait_for(CONFIG_MAP, (evil, "a"), seen).await;
    }
    assert!(let_through > 0, "no status was let through: nothing was tried");
    scene.mallory.delete(KUSTOMIZATION, app).await.unwrap();
    stage.wait_for(KUSTOMIZATION, app, |object| object.is_none()).await;
    scene.shut_down().await;
}
