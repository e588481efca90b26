//! PackageValues: the changes reach exactly the HelmReleases that they concern, invalid ones reach none, and the report says so.

use serde_json::{Value, json};

use crate::packages::{
    ACCOUNT, HELM_RELEASE, PACKAGE, PACKAGE_SOURCE, PACKAGE_VALUES, clear, delete_as_orphan, package, prepare,
    recorded, source,
};
use crate::stage::{Stage, condition};

async fn change(stage: &Stage, name: &str, components: Value) {
    let object = json!({
        "apiVersion": PACKAGE_VALUES.0, "kind": PACKAGE_VALUES.1, "metadata": { "name": name },
        "spec": { "components": components }
    });
    stage.admin.apply(object).await.unwrap();
}

/// Waits until conditions of the PackageValues have these statuses and reasons for its present generation.
async fn reported(stage: &Stage, name: &str, expected: &[(&str, &str, &str)]) -> Value {
    let holds = |found: &Value| {
        expected.iter().all(|(type_, status, reason)| {
            condition(found, type_).is_some_and(|condition| {
                condition["status"] == *status
                    && condition["reason"] == *reason
                    && condition["observedGeneration"] == found["metadata"]["generation"]
            })
        })
    };
    let found = stage.wait_for(PACKAGE_VALUES, ("", name), |found| found.is_some_and(holds));
    found.await.unwrap()
}

async fn read_version(stage: &Stage, release: (&str, &str)) -> Value {
    stage.get(HELM_RELEASE, release).await.unwrap()["metadata"]["resourceVersion"].clone()
}

async fn has_values(stage: &Stage, release: (&str, &str), values: &Value) -> Value {
    let holds = |found: Option<&Value>| found.is_some_and(|found| found["spec"]["values"] == *values);
    stage.wait_for(HELM_RELEASE, release, holds).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_reach_the_releases_that_they_concern() {
    let mut stage = Stage::set_packaging("values-a", ACCOUNT).await;
    prepare(&stage).await;
    let (name, one, two) = ("values-a.app", ("values-a", "one"), ("values-a", "two"));
    change(&stage, name, json!({ "one": { "values": { "a": { "b": 2 } } } })).await;
    reported(&stage, name, &[("Accepted", "False", "TargetNotFound")]).await;
    let install = json!({ "namespace": "values-a" });
    source(&stage, name, &[("one", install.clone()), ("two", install)], json!({})).await;
    let own = json!({ "a": { "b": 1, "c": i64::MAX }, "images": [{ "name": "x", "tag": 1 }], "d": 0.1 });
    package(
        &stage,
        name,
        json!({ "components": { "one": { "values": own }, "two": { "values": { "e": null } } } }),
    )
    .await;
    // The first write of the release has the changes already.
    let first = recorded(&stage, name, one).await;
    assert_eq!(first["metadata"]["generation"], 1);
    let merged = json!({ "a": { "b": 2, "c": i64::MAX }, "images": [{ "name": "x", "tag": 1 }], "d": 0.1 });
    assert_eq!(first["spec"]["values"], merged);
    let untouched = recorded(&stage, name, two).await["metadata"]["resourceVersion"].clone();
    let report = reported(
        &stage,
        name,
        &[("Accepted", "True", "Accepted"), ("Merged", "True", "Merged")],
    )
    .await;
    assert_eq!(report["status"]["components"]["one"]["overridden"], json!(["/a/b"]));
    let shown = report["status"]["components"]["one"]["values"].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Value>(shown).unwrap(), merged);

    let changes = json!({ "one": {
        "values": { "images": [{ "name": "y" }] }, "unset": ["/d"], "lists": [{ "path": "images", "key": "name" }]
    } });
    change(&stage, name, changes).await;
    let images = json!([{ "name": "x", "tag": 1 }, { "name": "y" }]);
    let expected = json!({ "a": { "b": 1, "c": i64::MAX }, "images": images, "d": null });
    has_values(&stage, one, &expected).await;
    let report = reported(&stage, name, &[("Merged", "True", "Merged")]).await;
    let shown = report["status"]["components"]["one"]["values"].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Value>(shown).unwrap(), expected, "with its null");

    // A new process writes nothing: it knows the changes before it plans.
    let before = read_version(&stage, one).await;
    stage.restart().await;
    let requested = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": "now" } } });
    stage.admin.patch(PACKAGE, ("", name), requested).await.unwrap();
    stage
        .wait_for(PACKAGE, ("", name), |found| {
            found.is_some_and(|found| found["status"]["lastHandledReconcileAt"] == "now")
        })
        .await;
    assert_eq!(read_version(&stage, one).await, before);

    // Without the PackageValues, the Package's own values come back.
    stage.admin.delete(PACKAGE_VALUES, ("", name)).await.unwrap();
    has_values(&stage, one, &own).await;
    assert_eq!(
        read_version(&stage, two).await,
        untouched,
        "the other release was written"
    );
    clear(&stage, &[name], &[]).await;
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_changes_reach_no_release() {
    let stage = Stage::set_packaging("values-b", ACCOUNT).await;
    prepare(&stage).await;
    let (name, one, two) = ("values-b.app", ("values-b", "one"), ("values-b", "two"));
    let install = json!({ "namespace": "values-b" });
    source(&stage, name, &[("one", install.clone()), ("two", install)], json!({})).await;
    package(
        &stage,
        name,
        json!({ "components": { "one": { "values": { "a": 1 } } } }),
    )
    .await;
    recorded(&stage, name, one).await;
    recorded(&stage, name, two).await;
    change(&stage, name, json!({ "one": { "values": { "a": 2 } } })).await;
    has_values(&stage, one, &json!({ "a": 2 })).await;
    let before = read_version(&stage, one).await;
    // One component has a reserved key, and the other one is changed.
    let both =
        json!({ "one": { "values": { "_cluster": { "host": "x" } } }, "two": { "values": { "b": 1 } }, "three": {} });
    change(&stage, name, both).await;
    has_values(&stage, two, &json!({ "b": 1 })).await;
    let report = reported(
        &stage,
        name,
        &[
            ("Accepted", "False", "Invalid"),
            ("Merged", "False", "Progressing"),
            ("Ready", "False", "Invalid"),
        ],
    )
    .await;
    let message = condition(&report, "Accepted").unwrap()["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(message.starts_with("spec.components[one]: /_cluster: "), "{message}");
    stage.ready(PACKAGE, ("", name), "False", "InvalidConfiguration").await;
    assert_eq!(read_version(&stage, one).await, before, "the release was written");
    // A component that doesn't exist costs the others nothing.
    change(&stage, name, json!({ "one": { "values": { "a": 3 } }, "three": {} })).await;
    has_values(&stage, one, &json!({ "a": 3 })).await;
    let report = reported(
        &stage,
        name,
        &[("Accepted", "False", "ComponentNotFound"), ("Merged", "True", "Merged")],
    )
    .await;
    let message = condition(&report, "Accepted").unwrap()["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        message.contains("does not install three; it installs one, two"),
        "{message}"
    );
    // The Package goes, and the PackageValues says so.
    delete_as_orphan(&stage, name).await;
    reported(&stage, name, &[("Accepted", "False", "Orphaned")]).await;
    stage.admin.delete(PACKAGE_VALUES, ("", name)).await.unwrap();
    clear(&stage, &[name], &[]).await;
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn helm_release_reads_referenced_values() {
    let stage = Stage::set_packaging("values-c", ACCOUNT).await.planting(&[]).await;
    prepare(&stage).await;
    let (name, release) = ("values-c.app", ("values-c", "app"));
    let skips = json!({ "operator.cozystack.io/skip-cozystack-values": "true" });
    source(&stage, name, &[("app", json!({ "namespace": "values-c" }))], json!({})).await;
    let skips = json!({ "metadata": { "annotations": skips } });
    stage.admin.patch(PACKAGE_SOURCE, ("", name), skips).await.unwrap();
    let own = json!({ "database": { "password": "clear", "user": "u" } });
    package(&stage, name, json!({ "components": { "app": { "values": own } } })).await;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "database", "namespace": "values-c" },
        "stringData": { "password": "hidden-in-the-secret" }
    });
    stage.admin.apply(secret).await.unwrap();
    let refer = |namespace: &str| {
        json!({
            "apiVersion": PACKAGE_VALUES.0, "kind": PACKAGE_VALUES.1, "metadata": { "name": name },
            "spec": { "valuesFrom": [{
                "component": "app", "path": "/database/password", "kind": "Secret", "namespace": namespace, "name": "database",
                "key": "password"
            }] }
        })
    };
    stage.admin.apply(refer("values-c")).await.unwrap();
    let found = has_values(&stage, release, &json!({ "database": { "user": "u" } })).await;
    let expected = json!([{
        "kind": "Secret", "name": "database", "valuesKey": "password", "targetPath": "database.password", "literal": true
    }]);
    assert_eq!(found["spec"]["valuesFrom"], expected);
    let merged = [("Accepted", "True", "Accepted"), ("Merged", "True", "Merged")];
    let report = reported(&stage, name, &merged).await;
    assert_eq!(
        report["status"]["components"]["app"]["overridden"],
        json!(["/database/password"])
    );
    for object in [report, stage.get(PACKAGE, ("", name)).await.unwrap(), found] {
        assert!(!object.to_string().contains("hidden-in-the-secret"), "{object}");
    }
    // helm-controller reads no other namespace.
    let before = read_version(&stage, release).await;
    stage.admin.apply(refer("kube-system")).await.unwrap();
    let report = reported(&stage, name, &[("Accepted", "False", "Invalid")]).await;
    let message = condition(&report, "Accepted").unwrap()["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        message.contains("spec.valuesFrom[0].namespace: the release is in namespace values-c"),
        "{message}"
    );
    assert_eq!(read_version(&stage, release).await, before, "the release was written");
    stage.admin.delete(PACKAGE_VALUES, ("", name)).await.unwrap();
    has_values(&stage, release, &own).await;
    clear(&stage, &[name], &[]).await;
    stage.shut_down().await;
}
