//! What goes wrong, and what its owner reads about it.

use serde_json::json;

use crate::stage::{CONFIG_MAP, GIT_REPOSITORY, KUSTOMIZATION, Stage, config_map};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_acts_for_a_service_account_that_is_missing() {
    let stage = Stage::set("failing-a").await;
    stage
        .repository("failing-a", "app", &[("a.yaml", &config_map("a", "1"))])
        .await;
    stage
        .kustomization("failing-a", "app", "app", json!({ "serviceAccountName": "nobody" }))
        .await;
    let message = stage
        .ready(KUSTOMIZATION, ("failing-a", "app"), "False", "IdentityMissing")
        .await;
    assert!(message.contains("system:serviceaccount:failing-a:nobody"), "{message}");
    assert!(stage.get(CONFIG_MAP, ("failing-a", "a")).await.is_none());
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_forbidden_is_named() {
    let stage = Stage::set("failing-b").await;
    stage.namespace("failing-b-other").await;
    let file = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  namespace: failing-b-other\n";
    stage.repository("failing-b", "app", &[("a.yaml", file)]).await;
    stage
        .kustomization("failing-b", "app", "app", json!({ "targetNamespace": null }))
        .await;
    let message = stage
        .ready(KUSTOMIZATION, ("failing-b", "app"), "False", "ReconciliationFailed")
        .await;
    assert!(message.contains("system:serviceaccount:failing-b:default"), "{message}");
    assert!(stage.get(CONFIG_MAP, ("failing-b-other", "a")).await.is_none());
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_that_is_not_there_is_named() {
    let stage = Stage::set("failing-c").await;
    stage
        .repository("failing-c", "app", &[("a.yaml", &config_map("a", "1"))])
        .await;
    let branch = json!({ "spec": { "ref": { "branch": "mian" } } });
    stage
        .admin
        .patch(GIT_REPOSITORY, ("failing-c", "app"), branch)
        .await
        .unwrap();
    let message = stage
        .ready(GIT_REPOSITORY, ("failing-c", "app"), "False", "GitOperationFailed")
        .await;
    assert!(message.contains("mian") && message.contains("main"), "{message}");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_that_is_unknown_does_not_stop_the_others() {
    let stage = Stage::set("failing-d").await;
    let unknown = "apiVersion: nobody.example.com/v1\nkind: Nothing\nmetadata:\n  name: a\n";
    stage
        .repository(
            "failing-d",
            "app",
            &[("a.yaml", &config_map("a", "1")), ("b.yaml", unknown)],
        )
        .await;
    stage.kustomization("failing-d", "app", "app", json!({})).await;
    stage
        .until(CONFIG_MAP, ("failing-d", "a"), |object| object.is_some())
        .await;
    let message = stage
        .ready(KUSTOMIZATION, ("failing-d", "app"), "False", "UnknownKind")
        .await;
    assert!(message.contains("Nothing"), "{message}");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_that_fails_says_where() {
    let stage = Stage::set("failing-e").await;
    stage
        .repository(
            "failing-e",
            "app",
            &[("kustomization.yaml", "resources:\n  - missing.yaml\n")],
        )
        .await;
    stage.kustomization("failing-e", "app", "app", json!({})).await;
    let message = stage
        .ready(KUSTOMIZATION, ("failing-e", "app"), "False", "BuildFailed")
        .await;
    assert!(message.contains("missing.yaml"), "{message}");
    stage
        .kustomization("failing-e", "other", "app", json!({ "path": "./nowhere" }))
        .await;
    let message = stage
        .ready(KUSTOMIZATION, ("failing-e", "other"), "False", "BuildFailed")
        .await;
    assert!(message.contains("nowhere"), "{message}");
    stage.end().await;
}
