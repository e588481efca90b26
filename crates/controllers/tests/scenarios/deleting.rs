//! Kustomizations that are deleted while the API server doesn't answer, and in namespaces that are being deleted.

use http::Method;
use serde_json::{Value, json};

use crate::stage::{CONFIG_MAP, KUSTOMIZATION, Stage, config_map};

const EVENT: (&str, &str) = ("v1", "Event");
const NAMESPACE: (&str, &str) = ("v1", "Namespace");
const TOKEN: &str = "/serviceaccounts/default/token";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_kept_while_no_token_is_given() {
    let mut stage = Stage::set("deleting-a").await;
    if !stage.is_embedded() {
        return stage.shut_down().await;
    }
    let repository = stage
        .repository("deleting-a", "app", &[("a.yaml", &config_map("a", "1"))])
        .await;
    stage.kustomization("deleting-a", "app", "app", json!({})).await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit(("deleting-a", "app"), &first).await;
    for code in [500, 403, 404] {
        stage.faults.clear();
        stage.faults.refuse(Method::POST, TOKEN, code);
        // A new process has no tokens.
        stage.restart().await;
        stage.admin.delete(KUSTOMIZATION, ("deleting-a", "app")).await.unwrap();
        stage
            .ready(KUSTOMIZATION, ("deleting-a", "app"), "False", "IdentityMissing")
            .await;
        assert!(stage.get(CONFIG_MAP, ("deleting-a", "a")).await.is_some());
    }
    stage.faults.clear();
    stage
        .wait_for(KUSTOMIZATION, ("deleting-a", "app"), |object| object.is_none())
        .await;
    assert!(stage.get(CONFIG_MAP, ("deleting-a", "a")).await.is_none());
    stage.shut_down().await;
}

/// An event in the platform's namespace names the objects that stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespace_deletion_completes_and_leftovers_are_reported() {
    let mut stage = Stage::set("deleting-b").await;
    if !stage.is_embedded() {
        return stage.shut_down().await;
    }
    stage.namespace("deleting-b-other").await;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": "neighbour", "namespace": "deleting-b-other" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "applier" },
        "subjects": [{ "kind": "ServiceAccount", "name": "default", "namespace": "deleting-b" }]
    });
    stage.admin.apply(binding).await.unwrap();
    let repository = stage
        .repository("deleting-b", "app", &[("a.yaml", &config_map("a", "1"))])
        .await;
    let spec = json!({ "targetNamespace": "deleting-b-other", "timeout": "1s" });
    stage.kustomization("deleting-b", "app", "app", spec).await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit(("deleting-b", "app"), &first).await;
    stage.faults.refuse(Method::POST, TOKEN, 500);
    stage.restart().await;
    stage.admin.delete(NAMESPACE, ("", "deleting-b")).await.unwrap();
    stage
        .wait_for(NAMESPACE, ("", "deleting-b"), |object| object.is_none())
        .await;
    let kept = stage.get(CONFIG_MAP, ("deleting-b-other", "a")).await;
    assert!(kept.is_some());
    let events = stage.admin.list(EVENT, "tenure-system").await.unwrap();
    let is_about_leftover = |event: &&Value| {
        let message = event["message"].as_str().unwrap_or_default();
        message.contains("Kustomization/deleting-b/app") && message.contains("ConfigMap/deleting-b-other/a")
    };
    let event = events
        .iter()
        .find(is_about_leftover)
        .unwrap_or_else(|| panic!("{events:#?}"));
    assert_eq!(event["related"]["name"], "app", "{event:#}");
    stage.shut_down().await;
}
