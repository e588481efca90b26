//! The cost of a Kustomization for the API server: every request for its objects and for itself, by kind. A growing number is a failure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::program;
use crate::stage::{DEPLOYMENT, GIT_REPOSITORY, KUSTOMIZATION, Stage, condition};

const OBJECTS: &str = r#"
apiVersion: v1
kind: ServiceAccount
metadata: { name: app }
---
apiVersion: v1
kind: ConfigMap
metadata: { name: app }
data: { a: b }
---
apiVersion: v1
kind: Service
metadata: { name: app }
spec: { selector: { app: app }, ports: [{ port: 80 }] }
---
apiVersion: apps/v1
kind: Deployment
metadata: { name: app }
spec:
  replicas: 0
  selector: { matchLabels: { app: app } }
  template:
    metadata: { labels: { app: app } }
    spec: { containers: [{ name: app, image: "registry.example/app:v1" }] }
"#;

/// Returns the requests for the objects and for the Kustomization. Tokens serve all work of an account, and events are counted where they are stored.
fn of_the_kustomization(mut counted: BTreeMap<String, usize>) -> BTreeMap<String, usize> {
    let kinds = [
        "serviceaccounts",
        "configmaps",
        "services",
        "deployments",
        "kustomizations",
    ];
    counted.retain(|kind, _| {
        let resource = kind.split(' ').nth(1).unwrap();
        kinds.contains(&resource.split('/').next().unwrap()) && !resource.ends_with("/token")
    });
    counted
}

/// The Kustomization has four objects.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_kustomization_makes_twelve_requests_and_resync_one() {
    if program::find().is_some() {
        println!("skipped: what a program of its own asks for can't be seen here");
        return;
    }
    let namespace = "requests-a";
    let stage = Stage::set_failing(namespace).await;
    let repository = stage.repository(namespace, "app", &[("app.yaml", OBJECTS)]).await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    let is_fetched = |object: Option<&Value>| {
        object.is_some_and(|object| condition(object, "Ready").is_some_and(|ready| ready["status"] == "True"))
    };
    stage.wait_for(GIT_REPOSITORY, (namespace, "app"), is_fetched).await;

    stage.faults.count_kinds();
    stage.kustomization(namespace, "app", "app", json!({})).await;
    stage.wait_for_commit((namespace, "app"), &first).await;
    // Another writer annotates the Deployment, as its controller does.
    let noted = json!({
        "apiVersion": DEPLOYMENT.0, "kind": DEPLOYMENT.1,
        "metadata": { "name": "app", "namespace": namespace, "annotations": { "example.com/noted": "1" } },
    });
    stage.admin.apply_as("deployment-controller", noted).await.unwrap();
    // Requested again: everything is read, nothing is tried, and the status reports the handled request.
    let handle = async |token: &str| {
        let asked = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": token } } });
        stage
            .admin
            .patch(KUSTOMIZATION, (namespace, "app"), asked)
            .await
            .unwrap();
        let is_handled =
            |object: Option<&Value>| object.is_some_and(|object| object["status"]["lastHandledReconcileAt"] == token);
        stage.wait_for(KUSTOMIZATION, (namespace, "app"), is_handled).await;
    };
    handle("once").await;
    let mut expected: BTreeMap<String, usize> = [
        ("dry-run serviceaccounts", 1),
        ("dry-run configmaps", 1),
        ("dry-run services", 1),
        ("dry-run deployments", 1),
        ("PATCH serviceaccounts", 1),
        ("PATCH configmaps", 1),
        ("PATCH services", 1),
        ("PATCH deployments", 1),
        // The finalizer.
        ("PATCH kustomizations", 1),
        // For the planned apply, the finished apply, and the handled request.
        ("PATCH kustomizations/status", 3),
    ]
    .into_iter()
    .map(|(kind, times)| (kind.to_owned(), times))
    .collect();
    assert_eq!(of_the_kustomization(stage.faults.count_kinds()), expected);
    let read_messages = async || {
        let events = stage.admin.list(("v1", "Event"), namespace).await.unwrap();
        let about = events
            .into_iter()
            .filter(|event| event["involvedObject"]["kind"] == "Kustomization");
        about
            .map(|event| event["message"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    // The following attempt has ended, so the events of the previous one are written.
    let events = read_messages().await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0].starts_with("Reconciliation finished in "), "{events:?}");
    assert!(events[0].contains("Deployment/requests-a/app created"), "{events:?}");

    handle("twice").await;
    expected.clear();
    expected.insert("PATCH kustomizations/status".to_owned(), 1);
    assert_eq!(of_the_kustomization(stage.faults.count_kinds()), expected);
    assert_eq!(read_messages().await.len(), 1);
    stage.shut_down().await;
}
