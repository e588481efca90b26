//! Fields of a spec besides applying: health, force, suspension, deletion policies, CRDs, credentials.

use serde_json::json;

use crate::guards::allow_deletion;
use crate::stage::{CONFIG_MAP, GIT_REPOSITORY, KUSTOMIZATION, Stage, commit, config_map};

const DEPLOYMENT: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  replicas: 1\n  selector:\n    matchLabels: {app: web}\n  template:\n    metadata:\n      labels: {app: web}\n    spec:\n      containers:\n        - name: web\n          image: example.com/web:1\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_is_waited_for() {
    let stage = Stage::set("lifecycle-a").await;
    // A cluster without nodes runs no Pods: there, only a workload without Pods is rolled out.
    let file = if stage.is_embedded() {
        DEPLOYMENT.to_owned()
    } else {
        DEPLOYMENT.replace("replicas: 1", "replicas: 0")
    };
    let repository = stage.repository("lifecycle-a", "app", &[("a.yaml", &file)]).await;
    stage
        .kustomization("lifecycle-a", "app", "app", json!({ "wait": true }))
        .await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    let applied = stage.wait_for_commit(("lifecycle-a", "app"), &first).await;
    assert_eq!(crate::stage::condition(&applied, "Healthy").unwrap()["status"], "True");
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_immutable_field_needs_force() {
    let stage = Stage::set("lifecycle-b").await;
    let immutable = |value: &str| format!("{}immutable: true\n", config_map("a", value));
    let repository = stage
        .repository("lifecycle-b", "app", &[("a.yaml", &immutable("1"))])
        .await;
    stage.kustomization("lifecycle-b", "app", "app", json!({})).await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit(("lifecycle-b", "app"), &first).await;
    let second = commit(&repository, &[("a.yaml", &immutable("2"))]).await;
    let message = stage
        .ready(KUSTOMIZATION, ("lifecycle-b", "app"), "False", "ReconciliationFailed")
        .await;
    assert!(message.contains("immutable"), "{message}");
    assert_eq!(
        stage.get(CONFIG_MAP, ("lifecycle-b", "a")).await.unwrap()["data"]["value"],
        "1"
    );
    stage
        .kustomization("lifecycle-b", "app", "app", json!({ "force": true }))
        .await;
    stage.wait_for_commit(("lifecycle-b", "app"), &second).await;
    assert_eq!(
        stage.get(CONFIG_MAP, ("lifecycle-b", "a")).await.unwrap()["data"]["value"],
        "2"
    );
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suspended_kustomization_is_skipped_and_orphaned_objects_stay() {
    let stage = Stage::set("lifecycle-c").await;
    let repository = stage
        .repository("lifecycle-c", "app", &[("app/a.yaml", &config_map("a", "1"))])
        .await;
    stage
        .kustomization("lifecycle-c", "app", "app", json!({ "path": "./app" }))
        .await;
    stage
        .kustomization("lifecycle-c", "witness", "app", json!({ "path": "./witness" }))
        .await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit(("lifecycle-c", "app"), &first).await;
    stage
        .kustomization(
            "lifecycle-c",
            "app",
            "app",
            json!({ "path": "./app", "suspend": true, "deletionPolicy": "Orphan" }),
        )
        .await;
    let changed = [
        ("app/a.yaml", config_map("a", "2")),
        ("witness/b.yaml", config_map("b", "2")),
    ];
    let changed: Vec<(&str, &str)> = changed.iter().map(|(path, text)| (*path, text.as_str())).collect();
    let second = commit(&repository, &changed).await;
    stage.wait_for_commit(("lifecycle-c", "witness"), &second).await;
    assert_eq!(
        stage.get(CONFIG_MAP, ("lifecycle-c", "a")).await.unwrap()["data"]["value"],
        "1"
    );
    stage
        .kustomization(
            "lifecycle-c",
            "app",
            "app",
            json!({ "path": "./app", "suspend": false, "deletionPolicy": "Orphan" }),
        )
        .await;
    stage.wait_for_commit(("lifecycle-c", "app"), &second).await;
    stage.admin.delete(KUSTOMIZATION, ("lifecycle-c", "app")).await.unwrap();
    stage
        .wait_for(KUSTOMIZATION, ("lifecycle-c", "app"), |object| object.is_none())
        .await;
    assert_eq!(
        stage.get(CONFIG_MAP, ("lifecycle-c", "a")).await.unwrap()["data"]["value"],
        "2"
    );
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reconcile_annotations_hold_for_apply_and_prune() {
    let namespace = "lifecycle-h";
    let stage = Stage::set(namespace).await;
    let prefix = "kustomize.toolkit.fluxcd.io";
    let policies = [
        ("once", Some(("ssa", "IfNotPresent"))),
        ("kept", Some(("prune", "disabled"))),
        ("plain", None),
    ];
    // These exist already with their own annotations, which are not in Git.
    let left = [("ignored", "ssa", "Ignore"), ("paused", "reconcile", "disabled")];
    for (name, key, value) in left {
        let mut annotations = serde_json::Map::new();
        annotations.insert(format!("{prefix}/{key}"), json!(value));
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "value": "by hand" },
            "metadata": { "namespace": namespace, "name": name, "annotations": annotations } });
        stage.admin.apply(object).await.unwrap();
    }
    let write = |value: &str| {
        let known = policies.iter().map(|(name, policy)| {
            let annotations = policy.map(|(key, value)| format!("  annotations:\n    {prefix}/{key}: {value}\n"));
            let metadata = format!("metadata:\n  name: {name}\n{}", annotations.unwrap_or_default());
            format!("apiVersion: v1\nkind: ConfigMap\n{metadata}data:\n  value: \"{value}\"\n")
        });
        let left = left.iter().map(|(name, ..)| config_map(name, value));
        known.chain(left).collect::<Vec<_>>().join("---\n")
    };
    let values = async || {
        let mut found = Vec::new();
        for name in ["plain", "once", "kept", "ignored", "paused"] {
            let object = stage.get(CONFIG_MAP, (namespace, name)).await;
            found.push(object.map(|object| object["data"]["value"].as_str().unwrap().to_owned()));
        }
        found
    };
    let some = |values: [&str; 5]| values.map(|value| Some(value.to_owned())).to_vec();
    let repository = stage.repository(namespace, "app", &[("all.yaml", &write("1"))]).await;
    stage.kustomization(namespace, "app", "app", json!({})).await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit((namespace, "app"), &first).await;
    assert_eq!(values().await, some(["1", "1", "1", "by hand", "by hand"]));

    let second = commit(&repository, &[("all.yaml", &write("2"))]).await;
    stage.wait_for_commit((namespace, "app"), &second).await;
    assert_eq!(values().await, some(["2", "1", "2", "by hand", "by hand"]));

    let third = commit(&repository, &[("all.yaml", &config_map("plain", "2"))]).await;
    stage.wait_for_commit((namespace, "app"), &third).await;
    stage
        .wait_for(CONFIG_MAP, (namespace, "once"), |object| object.is_none())
        .await;
    let [plain, _, kept, ignored, paused] = ["2", "", "2", "by hand", "by hand"].map(|value| Some(value.to_owned()));
    assert_eq!(values().await, [plain, None, kept, ignored, paused]);
    // They also stay when the Kustomization is deleted.
    stage.admin.delete(KUSTOMIZATION, (namespace, "app")).await.unwrap();
    stage
        .wait_for(CONFIG_MAP, (namespace, "plain"), |object| object.is_none())
        .await;
    stage
        .wait_for(KUSTOMIZATION, (namespace, "app"), |object| object.is_none())
        .await;
    for name in ["kept", "ignored", "paused"] {
        assert!(stage.get(CONFIG_MAP, (namespace, name)).await.is_some(), "{name}");
    }
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_definition_and_its_object_come_from_one_repository() {
    let stage = Stage::set("lifecycle-d").await;
    let definition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: widgets.example.com\nspec:\n  group: example.com\n  names: {kind: Widget, plural: widgets}\n  scope: Namespaced\n  versions:\n    - name: v1\n      served: true\n      storage: true\n      schema:\n        openAPIV3Schema:\n          type: object\n          properties:\n            spec:\n              type: object\n              properties:\n                size: {type: integer}\n";
    let widget = "apiVersion: example.com/v1\nkind: Widget\nmetadata:\n  name: a\nspec:\n  size: 3\n";
    for object in [
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "lifecycle-d" },
            "rules": [{ "apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": ["*"] }]
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "lifecycle-d" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "lifecycle-d" },
            "subjects": [{ "kind": "ServiceAccount", "name": "default", "namespace": "lifecycle-d" }]
        }),
    ] {
        stage.admin.apply(object).await.unwrap();
    }
    let repository = stage
        .repository("lifecycle-d", "app", &[("a.yaml", widget), ("b.yaml", definition)])
        .await;
    stage.kustomization("lifecycle-d", "app", "app", json!({})).await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit(("lifecycle-d", "app"), &first).await;
    let found = stage
        .get(("example.com/v1", "Widget"), ("lifecycle-d", "a"))
        .await
        .unwrap();
    assert_eq!(found["spec"]["size"], 3);
    stage.admin.delete(KUSTOMIZATION, ("lifecycle-d", "app")).await.unwrap();
    allow_deletion(&stage, ("lifecycle-d", "app")).await;
    stage
        .wait_for(KUSTOMIZATION, ("lifecycle-d", "app"), |object| object.is_none())
        .await;
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_are_read_as_the_identity() {
    let stage = Stage::set("lifecycle-e").await;
    let private = &stage.private;
    let repository = private.create("app").await.unwrap();
    commit(&repository, &[("a.yaml", &config_map("a", "1"))]).await;
    let source = json!({
        "apiVersion": GIT_REPOSITORY.0, "kind": GIT_REPOSITORY.1, "metadata": { "name": "app", "namespace": "lifecycle-e" },
        "spec": {
            "url": private.http_url("app"), "ref": { "branch": "main" }, "interval": "1s", "secretRef": { "name": "git" }
        }
    });
    stage.admin.apply(source).await.unwrap();
    let target = ("lifecycle-e", "app");
    let message = stage
        .ready(GIT_REPOSITORY, target, "False", "AuthenticationFailed")
        .await;
    assert!(
        message.contains("system:serviceaccount:lifecycle-e:default"),
        "{message}"
    );
    stage
        .admin
        .apply(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "git", "namespace": "lifecycle-e" },
            "stringData": { "username": "git", "password": "sesame" }
        }))
        .await
        .unwrap();
    stage.ready(GIT_REPOSITORY, target, "True", "Succeeded").await;

    // Without the right to read it, the Secret is useless.
    stage
        .admin
        .delete(
            ("rbac.authorization.k8s.io/v1", "RoleBinding"),
            ("lifecycle-e", "applier"),
        )
        .await
        .unwrap();
    let message = stage
        .ready(GIT_REPOSITORY, target, "False", "AuthenticationFailed")
        .await;
    assert!(message.contains("secrets \"git\" is forbidden"), "{message}");
    assert!(!message.contains("sesame"), "{message}");
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_say_what_was_done() {
    let stage = Stage::set("lifecycle-f").await;
    let repository = stage
        .repository("lifecycle-f", "app", &[("a.yaml", &config_map("a", "1"))])
        .await;
    stage.kustomization("lifecycle-f", "app", "app", json!({})).await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit(("lifecycle-f", "app"), &first).await;
    let about = |events: &[serde_json::Value], kind: &str, text: &str| {
        events.iter().any(|event| {
            event["involvedObject"]["kind"] == kind
                && event["message"].as_str().is_some_and(|message| message.contains(text))
        })
    };
    let found = tenure_testkit::eventually(tenure_testkit::SOON, || async {
        let events = stage.admin.list(("v1", "Event"), "lifecycle-f").await.unwrap();
        let revision = events.iter().any(|event| {
            event["metadata"]["annotations"]["kustomize.toolkit.fluxcd.io/revision"] == format!("main@sha1:{first}")
        });
        let all = revision
            && about(&events, "GitRepository", "stored artifact")
            && about(&events, "Kustomization", "ConfigMap/lifecycle-f/a created");
        if all { Ok(()) } else { Err(events) }
    });
    found.await.unwrap();
    // The last event also names its revision.
    stage.admin.delete(KUSTOMIZATION, ("lifecycle-f", "app")).await.unwrap();
    let found = tenure_testkit::eventually(tenure_testkit::SOON, || async {
        let events = stage.admin.list(("v1", "Event"), "lifecycle-f").await.unwrap();
        let deletions: Vec<&serde_json::Value> = events
            .iter()
            .filter(|event| {
                about(
                    std::slice::from_ref(event),
                    "Kustomization",
                    "ConfigMap/lifecycle-f/a deleted",
                )
            })
            .collect();
        let revision = |event: &&serde_json::Value| {
            event["metadata"]["annotations"]["kustomize.toolkit.fluxcd.io/revision"] == format!("main@sha1:{first}")
        };
        if deletions.iter().any(revision) {
            Ok(())
        } else {
            Err(events)
        }
    });
    found.await.unwrap();
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kustomization_whose_identity_is_gone_can_be_deleted() {
    let stage = Stage::set("lifecycle-g").await;
    let repository = stage
        .repository("lifecycle-g", "app", &[("a.yaml", &config_map("a", "1"))])
        .await;
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "passing", "namespace": "lifecycle-g" }
    });
    stage.admin.apply(account).await.unwrap();
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": "passing", "namespace": "lifecycle-g" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "applier" },
        "subjects": [{ "kind": "ServiceAccount", "name": "passing", "namespace": "lifecycle-g" }]
    });
    stage.admin.apply(binding).await.unwrap();
    stage
        .kustomization("lifecycle-g", "app", "app", json!({ "serviceAccountName": "passing" }))
        .await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit(("lifecycle-g", "app"), &first).await;
    stage
        .admin
        .delete(("v1", "ServiceAccount"), ("lifecycle-g", "passing"))
        .await
        .unwrap();
    stage.admin.delete(KUSTOMIZATION, ("lifecycle-g", "app")).await.unwrap();
    stage
        .wait_for(KUSTOMIZATION, ("lifecycle-g", "app"), |object| object.is_none())
        .await;
    // Another API server may accept the token for some more seconds.
    if stage.is_embedded() {
        assert!(
            stage.get(CONFIG_MAP, ("lifecycle-g", "a")).await.is_some(),
            "nobody may delete it"
        );
    }
    stage.shut_down().await;
}
