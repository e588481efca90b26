//! Messages about Secrets and their rendered content, in all places where controllers report something, and the display of invisible characters in
//! names.

use serde_json::json;

use crate::stage::{KUSTOMIZATION, Stage, commit};

/// The value that must not appear in any status or event, nor in any other searched place.
const VALUE: &str = "7317318246015";

async fn is_nowhere(stage: &Stage, namespace: &str) {
    let status = stage.get(KUSTOMIZATION, (namespace, "app")).await.unwrap()["status"].to_string();
    assert!(!status.contains(VALUE), "{status}");
    for event in stage.admin.list(("v1", "Event"), namespace).await.unwrap() {
        assert!(!event.to_string().contains(VALUE), "{event:#}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_about_refused_secret_names_field_not_value() {
    let namespace = "secrets-a";
    let mut stage = Stage::set(namespace).await.planting(&[]).await;
    stage.listen_beside_git(VALUE);
    let secret = |fields: &str| format!("apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\n{fields}\n");
    let repository = stage
        .repository(namespace, "app", &[("a.yaml", &secret("data: {port: 7317318246015}"))])
        .await;
    stage.kustomization(namespace, "app", "app", json!({})).await;
    let failed = async |field: &str| {
        let is_reported = |object: Option<&serde_json::Value>| {
            let ready = object.and_then(|object| crate::stage::condition(object, "Ready"));
            ready.is_some_and(|ready| ready["status"] == "False" && ready["message"].to_string().contains(field))
        };
        stage.wait_for(KUSTOMIZATION, (namespace, "app"), is_reported).await;
        is_nowhere(&stage, namespace).await;
    };
    failed("data.port must be a string and is a number").await;
    commit(&repository, &[("a.yaml", &secret("data: {word: \"7317318246015!\"}"))]).await;
    failed("data.word must be base64").await;
    commit(&repository, &[("a.yaml", &secret("stringData: [7317318246015]"))]).await;
    failed("stringData must be an object and is a list").await;
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_of_a_secret_are_redacted_in_messages() {
    let namespace = "secrets-b";
    let mut stage = Stage::set(namespace).await.planting(&[]).await;
    stage.listen_beside_git(VALUE);
    let kustomization = "resources: [a.yaml]\nreplacements:\n- source: {kind: Secret, name: s, fieldPath: stringData.p}\n  targets:\n  - select: {kind: ConfigMap, name: m}\n    fieldPaths: [metadata.labels.p]\n";
    let objects = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\nstringData:\n  p: \"7317318246015 is no label\"\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\n  labels:\n    p: x\n";
    stage
        .repository(
            namespace,
            "app",
            &[("kustomization.yaml", kustomization), ("a.yaml", objects)],
        )
        .await;
    stage.kustomization(namespace, "app", "app", json!({})).await;
    let message = stage
        .ready(KUSTOMIZATION, (namespace, "app"), "False", "ReconciliationFailed")
        .await;
    assert!(message.contains("metadata.labels: is not valid"), "{message}");
    is_nowhere(&stage, namespace).await;
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invisible_characters_in_names_are_escaped() {
    let namespace = "secrets-c";
    let stage = Stage::set(namespace).await;
    let file = "a\u{202e}lmay.\u{1b}[31m.yaml";
    stage
        .repository(namespace, "app", &[(file, "apiVersion: v1\nkind: ConfigMap\n")])
        .await;
    stage.kustomization(namespace, "app", "app", json!({})).await;
    let message = stage
        .ready(KUSTOMIZATION, (namespace, "app"), "False", "BuildFailed")
        .await;
    assert!(message.contains("a\\u{202e}lmay.\\u{1b}[31m.yaml"), "{message}");
    let events = stage.admin.list(("v1", "Event"), namespace).await.unwrap();
    let seen = |event: &serde_json::Value| event["message"].as_str().unwrap_or_default().to_owned();
    assert!(events.iter().all(|event| !seen(event).contains(['\u{202e}', '\u{1b}'])));
    stage.shut_down().await;
}
