//! Successful reconciliations: a commit is applied, changed and pruned, drift is corrected, and dependencies are waited for.

use serde_json::json;

use crate::stage::{CONFIG_MAP, DEPLOYMENT, GIT_REPOSITORY, KUSTOMIZATION, Stage, commit, condition, config_map};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_is_applied_updated_and_pruned() {
    let stage = Stage::set("applying-a").await;
    let files = [("a.yaml", config_map("a", "1")), ("b.yaml", config_map("b", "1"))];
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    let repository = stage.repository("applying-a", "app", &files).await;
    stage.kustomization("applying-a", "app", "app", json!({})).await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    let kustomization = stage.wait_for_commit(("applying-a", "app"), &first).await;
    assert_eq!(
        kustomization["status"]["inventory"]["entries"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    let source = stage.get(GIT_REPOSITORY, ("applying-a", "app")).await.unwrap();
    assert_eq!(source["status"]["artifact"]["revision"], format!("main@sha1:{first}"));
    let a = stage.get(CONFIG_MAP, ("applying-a", "a")).await.unwrap();
    assert_eq!(a["data"]["value"], "1");
    assert_eq!(a["metadata"]["labels"]["kustomize.toolkit.fluxcd.io/name"], "app");

    let id = "applying-a_a__ConfigMap".parse().unwrap();
    let origin = serde_json::from_value(kustomization).unwrap();
    let metadata = serde_json::from_value(source["metadata"].clone()).unwrap();
    let built = tenure_controllers::build_object(&stage.artifacts(), (&origin, &metadata), &id).unwrap();
    assert_eq!(built.locate("/data/value").unwrap().to_string(), "a.yaml:6");

    let second = commit(&repository, &[("a.yaml", &config_map("a", "2"))]).await;
    stage.wait_for_commit(("applying-a", "app"), &second).await;
    assert_eq!(
        stage.get(CONFIG_MAP, ("applying-a", "a")).await.unwrap()["data"]["value"],
        "2"
    );

    let third = repository
        .commit([("b.yaml", tenure_git_server::Content::Removed)], "without b")
        .await
        .unwrap();
    stage.wait_for_commit(("applying-a", "app"), &third).await;
    stage
        .wait_for(CONFIG_MAP, ("applying-a", "b"), |object| object.is_none())
        .await;
    assert!(stage.get(CONFIG_MAP, ("applying-a", "a")).await.is_some());

    stage.admin.delete(KUSTOMIZATION, ("applying-a", "app")).await.unwrap();
    stage
        .wait_for(KUSTOMIZATION, ("applying-a", "app"), |object| object.is_none())
        .await;
    stage
        .wait_for(CONFIG_MAP, ("applying-a", "a"), |object| object.is_none())
        .await;
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drift_is_put_back() {
    let stage = Stage::set("applying-b").await;
    let repository = stage
        .repository("applying-b", "app", &[("a.yaml", &config_map("a", "1"))])
        .await;
    stage.kustomization("applying-b", "app", "app", json!({})).await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit(("applying-b", "app"), &first).await;

    stage
        .admin
        .patch(
            CONFIG_MAP,
            ("applying-b", "a"),
            json!({ "data": { "value": "by hand" } }),
        )
        .await
        .unwrap();
    let put_back = |object: Option<&serde_json::Value>| object.is_some_and(|object| object["data"]["value"] == "1");
    stage.wait_for(CONFIG_MAP, ("applying-b", "a"), put_back).await;

    stage.admin.delete(CONFIG_MAP, ("applying-b", "a")).await.unwrap();
    stage.wait_for(CONFIG_MAP, ("applying-b", "a"), put_back).await;

    // A field that Git never applied is no drift.
    stage
        .admin
        .apply_as(
            "somebody-else",
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": { "name": "a", "namespace": "applying-b" }, "data": { "other": "stays" }
            }),
        )
        .await
        .unwrap();
    stage
        .admin
        .patch(CONFIG_MAP, ("applying-b", "a"), json!({ "data": { "value": "again" } }))
        .await
        .unwrap();
    stage
        .wait_for(CONFIG_MAP, ("applying-b", "a"), |object| {
            object.is_some_and(|object| object["data"]["value"] == "1" && object["data"]["other"] == "stays")
        })
        .await;
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dependency_comes_first() {
    let stage = Stage::set("applying-c").await;
    for name in ["one", "two"] {
        // An existing cluster may hold them from an earlier run.
        stage.admin.delete(CONFIG_MAP, ("applying-c", name)).await.unwrap();
    }
    let one = config_map("one", "1");
    let two = config_map("two", "1");
    let repository = stage
        .repository("applying-c", "app", &[("one/a.yaml", &one), ("two/a.yaml", &two)])
        .await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    stage
        .kustomization(
            "applying-c",
            "two",
            "app",
            json!({ "path": "./two", "dependsOn": [{ "name": "one" }] }),
        )
        .await;
    stage
        .ready(KUSTOMIZATION, ("applying-c", "two"), "False", "DependencyNotReady")
        .await;
    assert!(stage.get(CONFIG_MAP, ("applying-c", "two")).await.is_none());
    stage
        .kustomization("applying-c", "one", "app", json!({ "path": "./one" }))
        .await;
    stage.wait_for_commit(("applying-c", "two"), &first).await;
    assert!(stage.get(CONFIG_MAP, ("applying-c", "one")).await.is_some());
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resync_writes_nothing() {
    let stage = Stage::set("applying-d").await;
    let repository = stage
        .repository("applying-d", "app", &[("a.yaml", &config_map("a", "1"))])
        .await;
    stage
        .kustomization("applying-d", "app", "app", json!({ "interval": "1s" }))
        .await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    let before = stage.wait_for_commit(("applying-d", "app"), &first).await;
    let map = stage.get(CONFIG_MAP, ("applying-d", "a")).await.unwrap();
    let requests = stage.git.requests();
    // Ten more requests to the Git server mean ten resyncs of the source, whose interval the Kustomization has too.
    tenure_testkit::eventually(tenure_testkit::SOON, || async {
        if stage.git.requests() > requests + 4 {
            Ok(())
        } else {
            Err(())
        }
    })
    .await
    .unwrap();
    let after = stage.get(KUSTOMIZATION, ("applying-d", "app")).await.unwrap();
    assert_eq!(
        after["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"],
        "{before:#} {after:#}"
    );
    let map_after = stage.get(CONFIG_MAP, ("applying-d", "a")).await.unwrap();
    assert_eq!(
        map_after["metadata"]["resourceVersion"],
        map["metadata"]["resourceVersion"]
    );
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contested_condition_names_other_writer() {
    let stage = Stage::set("applying-e").await;
    let repository = stage
        .repository("applying-e", "app", &[("a.yaml", &config_map("a", "1"))])
        .await;
    stage.kustomization("applying-e", "app", "app", json!({})).await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit(("applying-e", "app"), &first).await;
    let other = |value: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "a", "namespace": "applying-e" }, "data": { "value": value }
        })
    };
    let contested = |object: Option<&serde_json::Value>| {
        object
            .and_then(|object| condition(object, "Contested"))
            .is_some_and(|contested| contested["status"] == "True")
    };
    for round in 0.. {
        assert!(round < 20, "it goes on for ever");
        stage
            .admin
            .apply_as("fighter", other(&format!("mine {round}")))
            .await
            .unwrap();
        // Reverted, or given up.
        stage
            .wait_for(CONFIG_MAP, ("applying-e", "a"), |object| object.is_some())
            .await;
        let settled = tenure_testkit::eventually(tenure_testkit::SOON, || async {
            let map = stage.get(CONFIG_MAP, ("applying-e", "a")).await.unwrap();
            let given_up = contested(stage.get(KUSTOMIZATION, ("applying-e", "app")).await.as_ref());
            if map["data"]["value"] == "1" || given_up {
                Ok(given_up)
            } else {
                Err(())
            }
        });
        if settled.await.unwrap() {
            break;
        }
    }
    let kustomization = stage.get(KUSTOMIZATION, ("applying-e", "app")).await.unwrap();
    let message = condition(&kustomization, "Contested").unwrap()["message"]
        .as_str()
        .unwrap();
    assert!(message.contains("fighter"), "{message}");
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_process_writes_nothing_that_is_there() {
    let mut stage = Stage::set("applying-f").await;
    let repository = stage
        .repository("applying-f", "app", &[("a.yaml", &config_map("a", "1"))])
        .await;
    stage.kustomization("applying-f", "app", "app", json!({})).await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit(("applying-f", "app"), &first).await;
    let map = stage.get(CONFIG_MAP, ("applying-f", "a")).await.unwrap();
    stage.restart().await;
    let second = commit(&repository, &[("b.yaml", &config_map("b", "1"))]).await;
    stage.wait_for_commit(("applying-f", "app"), &second).await;
    let after = stage.get(CONFIG_MAP, ("applying-f", "a")).await.unwrap();
    assert_eq!(after["metadata"]["resourceVersion"], map["metadata"]["resourceVersion"]);
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn build_includes_overlays_of_spec() {
    let stage = Stage::set("applying-overlay").await;
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  replicas: 0\n  \
                      selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    \
                      spec: {containers: [{name: web, image: nginx:1}]}\n";
    let component =
        "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\ncommonAnnotations: {from: component}\n";
    let files = [
        ("app/web.yaml", deployment),
        ("app/kustomization.yaml", "resources: [web.yaml]\n"),
        ("shared/kustomization.yaml", component),
    ];
    let repository = stage.repository("applying-overlay", "app", &files).await;
    let spec = json!({
        "path": "./app",
        "namePrefix": "blue-",
        "nameSuffix": "-v2",
        "images": [{ "name": "nginx", "newName": "mirror.example/nginx", "newTag": "2" }],
        "patches": [{
            "patch": "- op: add\n  path: /spec/revisionHistoryLimit\n  value: 3\n",
            "target": { "kind": "Deployment" },
        }],
        "components": ["../shared", "../missing"],
        "ignoreMissingComponents": true,
        "buildMetadata": ["originAnnotations"],
        // The controller sets the owner labels of an object, and the Kustomization's author can't.
        "commonMetadata": {
            "labels": { "team": "blue", "kustomize.toolkit.fluxcd.io/name": "somebody-else" },
            "annotations": { "note": "common" },
        },
    });
    stage.kustomization("applying-overlay", "app", "app", spec).await;
    let head = repository.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit(("applying-overlay", "app"), &head).await;

    let web = stage
        .get(DEPLOYMENT, ("applying-overlay", "blue-web-v2"))
        .await
        .unwrap();
    let container = &web["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "mirror.example/nginx:2");
    assert_eq!(web["spec"]["revisionHistoryLimit"], 3);
    let metadata = &web["metadata"];
    assert_eq!(metadata["annotations"]["from"], "component");
    assert_eq!(metadata["annotations"]["note"], "common");
    assert_eq!(
        metadata["annotations"]["config.kubernetes.io/origin"],
        "path: web.yaml\n"
    );
    assert_eq!(metadata["labels"]["team"], "blue");
    assert_eq!(metadata["labels"]["kustomize.toolkit.fluxcd.io/name"], "app");
    stage.shut_down().await;
}

/// An event names the manager and the reverted fields.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_restart_stays_and_kubectl_edit_is_reverted() {
    let stage = Stage::set("applying-kubectl").await;
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  replicas: 0\n  \
                      selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    \
                      spec: {containers: [{name: web, image: nginx:1}]}\n";
    let repository = stage
        .repository("applying-kubectl", "app", &[("a.yaml", deployment)])
        .await;
    stage.kustomization("applying-kubectl", "app", "app", json!({})).await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit(("applying-kubectl", "app"), &first).await;
    let target = ("applying-kubectl", "web");
    let by = async |manager: &str, spec: serde_json::Value| {
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "web", "namespace": "applying-kubectl" }, "spec": spec,
        });
        stage.admin.apply_as(manager, object).await.unwrap();
    };
    let restart =
        json!({ "template": { "metadata": { "annotations": { "kubectl.kubernetes.io/restartedAt": "now" } } } });
    by("kubectl-rollout", restart).await;
    by("kubectl-edit", json!({ "paused": true, "minReadySeconds": 7 })).await;
    let mended = stage
        .wait_for(DEPLOYMENT, target, |object| {
            object.is_some_and(|object| {
                object["spec"].get("paused").is_none() && object["spec"].get("minReadySeconds").is_none()
            })
        })
        .await
        .unwrap();
    let annotations = &mended["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(annotations["kubectl.kubernetes.io/restartedAt"], "now", "{mended:#}");

    let named = tenure_testkit::eventually(tenure_testkit::SOON, || async {
        let events = stage.admin.list(("v1", "Event"), "applying-kubectl").await.unwrap();
        let names = |event: &serde_json::Value| {
            let message = event["message"].as_str().unwrap_or_default();
            ["kubectl-edit", "spec.paused", "spec.minReadySeconds"]
                .iter()
                .all(|word| message.contains(word))
        };
        if events.iter().any(names) { Ok(()) } else { Err(events) }
    });
    named.await.unwrap();
    stage.shut_down().await;
}
