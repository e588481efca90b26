//! Expressions of a Kustomization: the health of its objects, the readiness of its dependencies, and the fields that it ignores.

use serde_json::{Value, json};
use tenure_testkit::{SOON, eventually};

use crate::stage::{CONFIG_MAP, KUSTOMIZATION, Stage, commit, condition, config_map};

/// Waits for an event with this text.
async fn wait_for_event(stage: &Stage, namespace: &str, reason: &str, words: &str) {
    let looked = eventually(SOON, || async {
        let events = stage.admin.list(("v1", "Event"), namespace).await.unwrap();
        let says =
            |event: &Value| event["reason"] == reason && event["message"].as_str().unwrap_or_default().contains(words);
        if events.iter().any(says) { Ok(()) } else { Err(events) }
    });
    looked.await.unwrap();
}

/// Writes as another manager, beside Git.
async fn write(stage: &Stage, manager: &str, (namespace, name): (&str, &str), data: Value) {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": namespace }, "data": data,
    });
    stage.admin.apply_as(manager, object).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_is_healthy_when_its_expressions_say_so() {
    let stage = Stage::set("expressions-a").await;
    let target = ("expressions-a", "app");
    let repository = stage
        .repository("expressions-a", "app", &[("a.yaml", &config_map("a", "1"))])
        .await;
    let checks = json!([{
        "apiVersion": "v1", "kind": "ConfigMap",
        "failed": "has(data.phase) && data.phase == 'broken'", "current": "data.phase == 'ready'",
    }]);
    stage
        .kustomization(
            "expressions-a",
            "app",
            "app",
            json!({ "wait": true, "healthCheckExprs": checks }),
        )
        .await;
    stage
        .wait_for(KUSTOMIZATION, target, |object| {
            let healthy = object.and_then(|object| condition(object, "Healthy"));
            healthy.is_some_and(|healthy| healthy["status"] == "Unknown")
        })
        .await;
    write(&stage, "worker", ("expressions-a", "a"), json!({ "phase": "ready" })).await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    let ready = stage.wait_for_commit(target, &first).await;
    assert_eq!(condition(&ready, "Healthy").unwrap()["status"], "True");

    write(&stage, "worker", ("expressions-a", "a"), json!({ "phase": "broken" })).await;
    let message = stage.ready(KUSTOMIZATION, target, "False", "HealthCheckFailed").await;
    assert!(
        message.contains("ConfigMap/expressions-a/a status: 'Failed'"),
        "{message}"
    );

    let broken = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "current": "data." }]);
    stage
        .kustomization(
            "expressions-a",
            "app",
            "app",
            json!({ "wait": true, "healthCheckExprs": broken }),
        )
        .await;
    let message = stage
        .ready(KUSTOMIZATION, target, "False", "InvalidCELExpression")
        .await;
    assert!(
        message.starts_with("spec.healthCheckExprs[0].current: ERROR: <input>:1:6:"),
        "{message}"
    );
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newer_revision_cancels_health_checks_of_older_one() {
    let stage = Stage::set("expressions-b").await;
    let target = ("expressions-b", "app");
    let repository = stage
        .repository("expressions-b", "app", &[("a.yaml", &config_map("a", "1"))])
        .await;
    let checks = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "current": "data.value == '2'" }]);
    let spec = json!({ "wait": true, "timeout": "10m", "healthCheckExprs": checks });
    stage.kustomization("expressions-b", "app", "app", spec).await;
    stage
        .wait_for(KUSTOMIZATION, target, |object| {
            let healthy = object.and_then(|object| condition(object, "Healthy"));
            healthy.is_some_and(|healthy| healthy["status"] == "Unknown")
        })
        .await;
    let second = commit(&repository, &[("a.yaml", &config_map("a", "2"))]).await;
    stage.wait_for_commit(target, &second).await;
    let words = "Health checks canceled due to new reconciliation triggered by GitRepository/expressions-b/app";
    wait_for_event(&stage, "expressions-b", "HealthCheckCanceled", words).await;
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dependency_is_ready_when_an_expression_says_so() {
    let stage = Stage::set("expressions-c").await;
    let files = [
        ("one/a.yaml", config_map("one", "1")),
        ("two/a.yaml", config_map("two", "1")),
    ];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    let repository = stage.repository("expressions-c", "app", &files).await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    // Its source does not exist, so it is never Ready.
    stage
        .kustomization("expressions-c", "one", "none", json!({ "path": "./one" }))
        .await;
    let expression = "dep.metadata.?labels.?go.orValue('') == self.metadata.name";
    let spec = json!({ "path": "./two", "dependsOn": [{ "name": "one", "readyExpr": expression }] });
    stage.kustomization("expressions-c", "two", "app", spec).await;
    let message = stage
        .ready(KUSTOMIZATION, ("expressions-c", "two"), "False", "DependencyNotReady")
        .await;
    assert_eq!(
        message,
        "dependency 'expressions-c/one' is not ready according to readyExpr eval"
    );
    stage
        .admin
        .patch(
            KUSTOMIZATION,
            ("expressions-c", "one"),
            json!({ "metadata": { "labels": { "go": "two" } } }),
        )
        .await
        .unwrap();
    stage.wait_for_commit(("expressions-c", "two"), &first).await;
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn circular_dependencies_are_reported_with_their_path() {
    let stage = Stage::set("expressions-d").await;
    let names = ["a", "b", "c"];
    let files = names.map(|name| (format!("{name}/m.yaml"), config_map(name, "1")));
    let files = files.each_ref().map(|(name, text)| (name.as_str(), text.as_str()));
    let repository = stage.repository("expressions-d", "app", &files).await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    for (name, on) in [("a", "b"), ("b", "c"), ("c", "a")] {
        let spec = json!({ "path": format!("./{name}"), "dependsOn": [{ "name": on }] });
        stage.kustomization("expressions-d", name, "app", spec).await;
    }
    for (name, way) in [
        ("a", "a -> b -> c -> a"),
        ("b", "b -> c -> a -> b"),
        ("c", "c -> a -> b -> c"),
    ] {
        let words = format!("dependsOn forms a cycle: {way};");
        stage
            .wait_for(KUSTOMIZATION, ("expressions-d", name), |object| {
                let ready = object.and_then(|object| condition(object, "Ready"));
                ready.is_some_and(|ready| {
                    ready["reason"] == "DependencyNotReady" && ready["message"].as_str().unwrap().contains(&words)
                })
            })
            .await;
    }
    stage
        .kustomization("expressions-d", "c", "app", json!({ "path": "./c", "dependsOn": [] }))
        .await;
    for name in names {
        stage.wait_for_commit(("expressions-d", name), &first).await;
    }
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ignored_fields_keep_values_of_other_writers() {
    let stage = Stage::set("expressions-e").await;
    let (app, map) = (("expressions-e", "app"), ("expressions-e", "a"));
    let file = |value: &str, other: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata: {{value: '{value}', other: '{other}'}}\n"
        )
    };
    let repository = stage
        .repository("expressions-e", "app", &[("a.yaml", &file("git", "git"))])
        .await;
    let ignore = json!([{ "paths": ["/data/value"], "target": { "kind": "Config.*", "name": "a" } }]);
    stage
        .kustomization("expressions-e", "app", "app", json!({ "ignore": ignore }))
        .await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit(app, &first).await;
    let data = |object: Option<&Value>, value: &str, other: &str| {
        object.is_some_and(|object| object["data"] == json!({ "value": value, "other": other }))
    };
    stage
        .wait_for(CONFIG_MAP, map, |object| data(object, "git", "git"))
        .await;

    // A hand edit: ignored fields stay, and the other fields are reverted.
    let patch = json!({ "data": { "value": "by hand", "other": "by hand" } });
    stage.admin.patch(CONFIG_MAP, map, patch).await.unwrap();
    stage
        .wait_for(CONFIG_MAP, map, |object| data(object, "by hand", "git"))
        .await;

    // Another applier's write: ignored fields are left out of the apply.
    write(&stage, "another", map, json!({ "value": "another's" })).await;
    let second = commit(&repository, &[("a.yaml", &file("new", "new"))]).await;
    stage.wait_for_commit(app, &second).await;
    let object = stage
        .wait_for(CONFIG_MAP, map, |object| data(object, "another's", "new"))
        .await
        .unwrap();
    let owns = |manager: &str| {
        let mut entries = object["metadata"]["managedFields"].as_array().unwrap().iter();
        entries.any(|entry| entry["manager"] == manager && entry.pointer("/fieldsV1/f:data/f:value").is_some())
    };
    assert!(owns("another") && !owns("kustomize-controller"), "{object:#}");

    // Without the rule, the field belongs to Git again.
    stage
        .kustomization("expressions-e", "app", "app", json!({ "ignore": [] }))
        .await;
    stage
        .wait_for(CONFIG_MAP, map, |object| data(object, "new", "new"))
        .await;
    stage.shut_down().await;
}
