//! Server-side apply of fields that Kubernetes stores under another name, and of fields that kubectl set.

use serde_json::{Value, json};

use crate::deploy_keys::SECRET;
use crate::stage::{DEPLOYMENT, Stage, commit};

const NAMESPACE: &str = "stored-form-a";

fn secret(name: &str, texts: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": NAMESPACE }, "stringData": texts })
}

fn deployment(account: &Value) -> Value {
    let labels = json!({ "app": "web" });
    let mut spec = json!({ "containers": [{ "name": "c", "image": "example.com/c:1" }] });
    spec.as_object_mut()
        .unwrap()
        .extend(account.as_object().unwrap().clone());
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web", "namespace": NAMESPACE },
        "spec": { "replicas": 0, "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels }, "spec": spec } }
    })
}

fn write(objects: &[Value]) -> String {
    objects.iter().map(|object| format!("---\n{object}\n")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_leaves_such_a_field_in_git_leaves_the_cluster() {
    let stage = Stage::set(NAMESPACE).await;
    // As an earlier version applied it: the API server remembers `stringData`.
    let mut earlier = secret("earlier", &json!({ "keep": "1", "withdrawn": "secret" }));
    earlier["metadata"]["labels"] = json!({
        "kustomize.toolkit.fluxcd.io/name": "app", "kustomize.toolkit.fluxcd.io/namespace": NAMESPACE
    });
    stage.admin.apply_as("kustomize-controller", earlier).await.unwrap();
    let both = json!({ "keep": "1", "withdrawn": "secret" });
    let account = json!({ "serviceAccount": "default" });
    let files = write(&[
        secret("s", &both),
        secret("earlier", &json!({ "keep": "1" })),
        deployment(&account),
    ]);
    let repository = stage.repository(NAMESPACE, "app", &[("a.yaml", &files)]).await;
    stage.kustomization(NAMESPACE, "app", "app", json!({})).await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    stage.applied((NAMESPACE, "app"), &first).await;
    let data = async |name: &str| stage.get(SECRET, (NAMESPACE, name)).await.unwrap()["data"].clone();
    let spec = async || stage.get(DEPLOYMENT, (NAMESPACE, "web")).await.unwrap()["spec"]["template"]["spec"].clone();
    assert_eq!(data("s").await, json!({ "keep": "MQ==", "withdrawn": "c2VjcmV0" }));
    assert_eq!(data("earlier").await, json!({ "keep": "MQ==" }));
    assert_eq!(spec().await["serviceAccountName"], "default");
    let second = json!({ "keep": "2" });
    let files = write(&[secret("s", &second), secret("earlier", &second), deployment(&json!({}))]);
    let second = commit(&repository, &[("a.yaml", &files)]).await;
    stage.applied((NAMESPACE, "app"), &second).await;
    for name in ["s", "earlier"] {
        assert_eq!(data(name).await, json!({ "keep": "Mg==" }), "{name}");
    }
    assert_eq!(spec().await.get("serviceAccountName"), None);
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_variable_that_kubectl_set_gets_its_value_from_elsewhere() {
    let namespace = "stored-form-b";
    let stage = Stage::set(namespace).await;
    let labels = json!({ "app": "web" });
    let with = |variable: Value| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web", "namespace": namespace },
            "spec": { "replicas": 0, "selector": { "matchLabels": labels }, "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "c", "image": "example.com/c:1", "env": [variable] }] }
            } }
        })
    };
    let by_kubectl = with(json!({ "name": "A", "value": "1" }));
    stage.admin.apply_as("kubectl", by_kubectl).await.unwrap();
    let source = json!({ "configMapKeyRef": { "name": "c", "key": "a" } });
    let files = write(&[with(json!({ "name": "A", "valueFrom": source }))]);
    let repository = stage.repository(namespace, "app", &[("a.yaml", &files)]).await;
    stage.kustomization(namespace, "app", "app", json!({})).await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    stage.applied((namespace, "app"), &first).await;
    let live = stage.get(DEPLOYMENT, (namespace, "web")).await.unwrap();
    let variable = &live["spec"]["template"]["spec"]["containers"][0]["env"][0];
    assert_eq!(variable, &json!({ "name": "A", "valueFrom": source }));
    stage.end().await;
}
