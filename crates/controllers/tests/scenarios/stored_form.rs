//! Server-side apply of fields that Kubernetes stores under another name, that kubectl set, and that a controller of Kubernetes writes.

use serde_json::{Value, json};

use crate::deploy_keys::SECRET;
use crate::stage::{DEPLOYMENT, KUSTOMIZATION, Stage, commit, condition};

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

/// A value that leaves such a field in Git leaves the cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_stored_under_another_name_are_removed_too() {
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
    stage.wait_for_commit((NAMESPACE, "app"), &first).await;
    let data = async |name: &str| stage.get(SECRET, (NAMESPACE, name)).await.unwrap()["data"].clone();
    let spec = async || stage.get(DEPLOYMENT, (NAMESPACE, "web")).await.unwrap()["spec"]["template"]["spec"].clone();
    assert_eq!(data("s").await, json!({ "keep": "MQ==", "withdrawn": "c2VjcmV0" }));
    assert_eq!(data("earlier").await, json!({ "keep": "MQ==" }));
    assert_eq!(spec().await["serviceAccountName"], "default");
    let second = json!({ "keep": "2" });
    let files = write(&[secret("s", &second), secret("earlier", &second), deployment(&json!({}))]);
    let second = commit(&repository, &[("a.yaml", &files)]).await;
    stage.wait_for_commit((NAMESPACE, "app"), &second).await;
    for name in ["s", "earlier"] {
        assert_eq!(data(name).await, json!({ "keep": "Mg==" }), "{name}");
    }
    assert_eq!(spec().await.get("serviceAccountName"), None);
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn variable_set_by_kubectl_is_replaced_by_reference() {
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
    stage.wait_for_commit((namespace, "app"), &first).await;
    let live = stage.get(DEPLOYMENT, (namespace, "web")).await.unwrap();
    let variable = &live["spec"]["template"]["spec"]["containers"][0]["env"][0];
    assert_eq!(variable, &json!({ "name": "A", "valueFrom": source }));
    stage.shut_down().await;
}

/// Kubernetes' aggregation controller writes the rules of an aggregated role. `rules: []`, as its documentation writes the role, takes none of them away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aggregated_role_keeps_its_added_rules() {
    let namespace = "cozy-stored-form";
    let group = "rbac.authorization.k8s.io";
    let version = format!("{group}/v1");
    let cluster_role = (version.as_str(), "ClusterRole");
    let stage = Stage::set(namespace).await;
    // Only an administrator may write a role that aggregates. So the namespace has a lane of its own, and the lane may request this account's token.
    let bind = |kind: &str, name: &str, role: (&str, &str), subject: (&str, &str)| {
        let metadata = match kind {
            "RoleBinding" => json!({ "name": name, "namespace": namespace }),
            _ => json!({ "name": name }),
        };
        json!({
            "apiVersion": version, "kind": kind, "metadata": metadata,
            "roleRef": { "apiGroup": group, "kind": role.0, "name": role.1 },
            "subjects": [{ "kind": "ServiceAccount", "name": subject.1, "namespace": subject.0 }]
        })
    };
    let lane = format!("tenure-lane-protected-{namespace}");
    for object in [
        bind(
            "ClusterRoleBinding",
            namespace,
            ("ClusterRole", "cluster-admin"),
            (namespace, "default"),
        ),
        json!({
            "apiVersion": version, "kind": "Role", "metadata": { "name": "mints", "namespace": namespace },
            "rules": [{
                "apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["mint-administrator"], "resourceNames": ["default"]
            }]
        }),
        bind("RoleBinding", "mints", ("Role", "mints"), ("tenure-system", &lane)),
    ] {
        stage.admin.apply(object).await.unwrap();
    }
    let whole = |labels: Value| {
        json!({
            "apiVersion": version, "kind": "ClusterRole", "metadata": { "name": "stored-form-whole", "labels": labels },
            "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { "example.org/for": namespace } }] }, "rules": []
        })
    };
    let part = |resource: &str| {
        json!({
            "apiVersion": version, "kind": "ClusterRole",
            "metadata": { "name": "stored-form-part", "labels": { "example.org/for": namespace } },
            "rules": [{ "apiGroups": [""], "resources": [resource], "verbs": ["get"] }]
        })
    };
    let files = write(&[whole(json!({})), part("endpoints")]);
    let repository = stage.repository(namespace, "app", &[("a.yaml", &files)]).await;
    stage.kustomization(namespace, "app", "app", json!({})).await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit((namespace, "app"), &first).await;
    let grants = |role: Option<&Value>, resource: &str| {
        role.is_some_and(|role| role["rules"] == part(resource)["rules"] && role["aggregationRule"].is_object())
    };
    let target = ("", "stored-form-whole");
    stage
        .wait_for(cluster_role, target, |role| grants(role, "endpoints"))
        .await;
    // Both change in one commit. The role has the old rules or the new ones, and never none.
    let files = write(&[whole(json!({ "changed": "yes" })), part("services")]);
    let second = commit(&repository, &[("a.yaml", &files)]).await;
    stage.wait_for_commit((namespace, "app"), &second).await;
    let role = stage.get(cluster_role, target).await;
    assert!(
        grants(role.as_ref(), "endpoints") || grants(role.as_ref(), "services"),
        "{role:#?}"
    );
    let role = stage
        .wait_for(cluster_role, target, |role| grants(role, "services"))
        .await;
    let role = role.unwrap();
    assert_eq!(role["metadata"]["labels"]["changed"], "yes");
    // Nobody but the aggregation controller has set the rules.
    let managers = role["metadata"]["managedFields"].as_array().unwrap();
    let own = managers
        .iter()
        .find(|entry| entry["manager"] == "kustomize-controller")
        .unwrap();
    assert_eq!(own["fieldsV1"].get("f:rules"), None, "{own}");
    let kustomization = stage.get(KUSTOMIZATION, (namespace, "app")).await.unwrap();
    assert_eq!(condition(&kustomization, "Contested"), None);
    let bound = (version.as_str(), "ClusterRoleBinding");
    stage.admin.delete(bound, ("", namespace)).await.unwrap();
    stage.shut_down().await;
}
