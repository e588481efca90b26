//! Attacks on Packages: by writers of HelmReleases, and by a tenant whose namespace a Package wants.

use serde_json::{Value, json};

use super::Scene;
use crate::packages::{
    ACCOUNT, HELM_RELEASE, NAMESPACE, PACKAGE, PACKAGE_SOURCE, PACKAGE_VALUES, clear, package, prepare, recorded,
    source,
};
use crate::stage::{KUSTOMIZATION, Stage, condition};

const SECRET: (&str, &str) = ("v1", "Secret");

/// Returns a HelmRelease that claims to be a Package's, with everything that its writer can choose.
fn forge(package: &Value, (namespace, name): (&str, &str)) -> Value {
    let owner = json!({
        "apiVersion": PACKAGE.0, "kind": PACKAGE.1, "name": package["metadata"]["name"], "uid": package["metadata"]["uid"], "controller": true
    });
    json!({
        "apiVersion": HELM_RELEASE.0, "kind": HELM_RELEASE.1,
        "metadata": {
            "name": name, "namespace": namespace, "ownerReferences": [owner],
            "labels": { "cozystack.io/package": package["metadata"]["name"] },
            "annotations": { "tenure.dev/creation-proof": "0".repeat(64) }
        },
        "spec": { "interval": "7m", "chartRef": { "kind": "ExternalArtifact", "name": "evil" } }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_release_is_neither_used_nor_deleted() {
    let stage = Stage::set_packaging("attacks-p-a", ACCOUNT).await.planting(&[]).await;
    prepare(&stage).await;
    let name = "attacks-p-a.app";
    let own = ("attacks-p-a", "own");
    // The control: a release of the Package.
    source(&stage, name, &[("own", json!({ "namespace": own.0 }))], json!({})).await;
    package(&stage, name, json!({})).await;
    let first = recorded(&stage, name, own).await;
    let held = stage.get(PACKAGE, ("", name)).await.unwrap();
    let forged = [("attacks-p-a", "wanted"), ("attacks-p-a", "unwanted")];
    for target in forged {
        stage.admin.apply(forge(&held, target)).await.unwrap();
    }
    let components = [
        ("own", json!({ "namespace": own.0 })),
        ("wanted", json!({ "namespace": own.0 })),
    ];
    source(&stage, name, &components, json!({})).await;
    stage.ready(PACKAGE, ("", name), "False", "ReleaseConflict").await;
    // The removal of all releases of the Package concerns those that it made.
    package(
        &stage,
        name,
        json!({ "components": { "own": { "enabled": false }, "wanted": { "enabled": false } } }),
    )
    .await;
    let pending = stage
        .wait_for(PACKAGE, ("", name), |found| {
            found.is_some_and(|found| condition(found, "RemovalPending").is_some())
        })
        .await
        .unwrap();
    let message = condition(&pending, "RemovalPending").unwrap()["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        message.contains("HelmRelease/attacks-p-a/own") && !message.contains("wanted"),
        "{message}"
    );
    let (_, digest) = message.split_once("tenure.dev/allow-deletion=").unwrap();
    let digest = digest.split(['.', ';']).next().unwrap();
    let allow = json!({ "metadata": { "annotations": { "tenure.dev/allow-deletion": digest } } });
    stage.admin.patch(PACKAGE, ("", name), allow).await.unwrap();
    stage.wait_for(HELM_RELEASE, own, |found| found.is_none()).await;
    for target in forged {
        let found = stage.get(HELM_RELEASE, target).await.unwrap();
        assert_eq!(found["spec"]["interval"], "7m");
    }
    assert!(first["metadata"]["ownerReferences"].is_null());
    clear(&stage, &[name], &[]).await;
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_changed_after_its_plan_is_put_back() {
    let stage = Stage::set_packaging("attacks-p-b", ACCOUNT).await.planting(&[]).await;
    prepare(&stage).await;
    let (name, target) = ("attacks-p-b.app", ("attacks-p-b", "app"));
    source(&stage, name, &[("app", json!({ "namespace": target.0 }))], json!({})).await;
    package(&stage, name, json!({})).await;
    let planned = recorded(&stage, name, target).await;
    for spec in [
        json!({ "serviceAccountName": "cluster-admin" }),
        json!({ "chartRef": { "kind": "ExternalArtifact", "name": "evil", "namespace": "evil" } }),
        json!({ "valuesFrom": [{ "kind": "Secret", "name": "evil" }] }),
        json!({ "kubeConfig": { "secretRef": { "name": "evil" } } }),
        json!({ "targetNamespace": "kube-system", "storageNamespace": "evil" }),
    ] {
        stage
            .admin
            .patch(HELM_RELEASE, target, json!({ "spec": spec }))
            .await
            .unwrap();
        stage
            .wait_for(HELM_RELEASE, target, |found| {
                found.is_some_and(|found| found["spec"] == planned["spec"])
            })
            .await;
    }
    // The control: a change that helm-controller's users need stays.
    stage
        .admin
        .patch(
            HELM_RELEASE,
            target,
            json!({ "spec": { "suspend": true, "interval": "9h" } }),
        )
        .await
        .unwrap();
    let found = stage
        .wait_for(HELM_RELEASE, target, |found| {
            found.is_some_and(|found| found["spec"]["interval"] == planned["spec"]["interval"])
        })
        .await
        .unwrap();
    assert_eq!(found["spec"]["suspend"], true);
    clear(&stage, &[name], &[]).await;
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn package_installs_nothing_in_namespace_of_tenant() {
    let scene = Scene::set_on(Stage::set_packaging("attacks-p-c", ACCOUNT).await, "attacks-p-c").await;
    let stage = &scene.stage;
    prepare(stage).await;
    let name = "attacks-p-c.app";
    let evil = scene.evil.as_str();
    // The tenant writes the values that each release of the platform reads in its namespace.
    let values = json!({
        "apiVersion": SECRET.0, "kind": SECRET.1, "metadata": { "name": "cozystack-values", "namespace": evil },
        "stringData": { "values.yaml": "image: evil" }
    });
    scene.mallory.apply(values).await.unwrap();
    let components = [
        ("theirs", json!({ "namespace": evil })),
        ("privileged", json!({ "namespace": evil, "privileged": true })),
        ("ours", json!({ "namespace": "attacks-p-c" })),
    ];
    let labels = stage.get(NAMESPACE, ("", evil)).await.unwrap()["metadata"]["labels"].clone();
    source(stage, name, &components, json!({})).await;
    package(stage, name, json!({})).await;
    let message = stage.ready(PACKAGE, ("", name), "False", "AccessDenied").await;
    assert!(message.contains(&format!("Tenant/{evil}")), "{message}");
    // The control: a namespace without a tenant.
    recorded(stage, name, ("attacks-p-c", "ours")).await;
    assert!(stage.admin.list(HELM_RELEASE, evil).await.unwrap().is_empty());
    assert_eq!(
        stage.get(NAMESPACE, ("", evil)).await.unwrap()["metadata"]["labels"],
        labels
    );
    clear(stage, &[name], &[]).await;
    scene.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenant_writes_no_package() {
    let scene = Scene::set_on(Stage::set_packaging("attacks-p-d", ACCOUNT).await, "attacks-p-d").await;
    let stage = &scene.stage;
    prepare(stage).await;
    let name = "attacks-p-d.app";
    let objects = [
        json!({ "apiVersion": PACKAGE.0, "kind": PACKAGE.1, "metadata": { "name": name }, "spec": {} }),
        json!({ "apiVersion": PACKAGE_SOURCE.0, "kind": PACKAGE_SOURCE.1, "metadata": { "name": name }, "spec": {} }),
    ];
    for object in &objects {
        let refused = scene.mallory.apply(object.clone()).await.unwrap_err().to_string();
        assert!(refused.contains("forbidden"), "{refused}");
    }
    // The repository of the tenant does not get further.
    let files: Vec<(String, String)> = objects
        .iter()
        .zip(["package.yaml", "source.yaml"])
        .map(|(object, file)| (format!("packages/{file}"), object.to_string()))
        .chain([("control/a.yaml".to_owned(), crate::stage::config_map("control", "1"))])
        .collect();
    scene.serve(&files).await;
    for (app, path) in [("packages", "./packages"), ("control", "./control")] {
        scene
            .mallory
            .apply(scene.kustomization(app, &json!({ "path": path })))
            .await
            .unwrap();
    }
    let failed = |found: Option<&Value>| {
        found
            .and_then(|found| condition(found, "Ready"))
            .is_some_and(|ready| ready["status"] == "False")
    };
    stage.wait_for(KUSTOMIZATION, (&scene.evil, "packages"), failed).await;
    let works = |found: Option<&Value>| {
        found
            .and_then(|found| condition(found, "Ready"))
            .is_some_and(|ready| ready["status"] == "True")
    };
    stage.wait_for(KUSTOMIZATION, (&scene.evil, "control"), works).await;
    for kind in [PACKAGE, PACKAGE_SOURCE] {
        assert!(stage.get(kind, ("", name)).await.is_none());
    }
    clear(stage, &[], &[]).await;
    scene.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn value_reference_needs_right_to_read() {
    let stage = Stage::set_packaging("attacks-p-e", ACCOUNT).await.planting(&[]).await;
    let (name, own) = ("attacks-p-e.app", "attacks-p-e");
    for object in grant_values_but_no_secrets(own) {
        stage.admin.apply(object).await.unwrap();
    }
    let editor = stage.bearing(own, "editor").await;
    let write = |references: Value, label: &str| {
        let object = json!({
            "apiVersion": PACKAGE_VALUES.0, "kind": PACKAGE_VALUES.1, "metadata": { "name": name, "labels": { "x": label } },
            "spec": { "components": { "app": { "values": { "a": 1 } } }, "valuesFrom": references }
        });
        let editor = &editor;
        async move { editor.apply(object).await }
    };
    let refer = |kind: &str, namespace: &str, object: &str, key: &str| json!({ "component": "app", "path": format!("/{object}"), "kind": kind, "namespace": namespace, "name": object, "key": key });
    // The controls: values without references, and a reference to the Secret that the editor may read.
    write(json!([]), "a").await.unwrap();
    let allowed = refer("Secret", own, "readable", "password");
    write(json!([allowed]), "a").await.unwrap();
    let refused = [
        refer("Secret", own, "other", "password"),
        refer("Secret", "kube-system", "readable", "password"),
        refer("ConfigMap", own, "readable", "password"),
    ];
    for reference in &refused {
        for references in [json!([reference]), json!([allowed, reference])] {
            let error = write(references, "a").await.unwrap_err().to_string();
            assert!(
                error.contains("(value-references)") && error.contains("may not get"),
                "{error}"
            );
        }
    }
    // Right after all allowed ones, and in a new object.
    let many = |last: &Value| {
        let allowed = (0..15).map(|index| refer("Secret", own, "readable", &format!("k{index}")));
        Value::Array(allowed.chain([last.clone()]).collect())
    };
    write(many(&allowed), "a").await.unwrap();
    let error = write(many(&refused[0]), "a").await.unwrap_err().to_string();
    assert!(error.contains("(value-references)"), "{error}");
    stage.admin.delete(PACKAGE_VALUES, ("", name)).await.unwrap();
    let error = write(json!([refused[0]]), "a").await.unwrap_err().to_string();
    assert!(error.contains("(value-references)"), "{error}");
    // A reference of an administrator stays while the editor changes something else, and gets no other key from the editor.
    let administered = json!({
        "apiVersion": PACKAGE_VALUES.0, "kind": PACKAGE_VALUES.1, "metadata": { "name": name },
        "spec": { "valuesFrom": [refused[0]] }
    });
    stage.admin.apply(administered).await.unwrap();
    let labelled =
        json!({ "metadata": { "labels": { "x": "b" } }, "spec": { "components": { "app": { "enabled": true } } } });
    editor.patch(PACKAGE_VALUES, ("", name), labelled).await.unwrap();
    let mut other = refused[0].clone();
    other["path"] = json!("/shown");
    let moved = json!({ "spec": { "valuesFrom": [other] } });
    let error = editor
        .patch(PACKAGE_VALUES, ("", name), moved)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("(value-references)"), "{error}");
    stage.admin.delete(PACKAGE_VALUES, ("", name)).await.unwrap();
    stage.shut_down().await;
}

/// Lists the objects that let the account `editor` of a namespace write PackageValues, and read one Secret.
fn grant_values_but_no_secrets(namespace: &str) -> [Value; 5] {
    let subjects = json!([{ "kind": "ServiceAccount", "name": "editor", "namespace": namespace }]);
    let (group, cluster_role) = ("rbac.authorization.k8s.io", format!("{namespace}-editor"));
    let version = format!("{group}/v1");
    [
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "editor", "namespace": namespace } }),
        json!({
            "apiVersion": version, "kind": "ClusterRole", "metadata": { "name": cluster_role },
            "rules": [{ "apiGroups": ["cozystack.io"], "resources": ["packagevalues"], "verbs": ["get", "create", "patch", "update"] }]
        }),
        json!({
            "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": { "name": cluster_role },
            "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": cluster_role }, "subjects": subjects
        }),
        json!({
            "apiVersion": version, "kind": "Role", "metadata": { "name": "reads-one", "namespace": namespace },
            "rules": [{ "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["readable"], "verbs": ["get"] }]
        }),
        json!({
            "apiVersion": version, "kind": "RoleBinding", "metadata": { "name": "reads-one", "namespace": namespace },
            "roleRef": { "apiGroup": group, "kind": "Role", "name": "reads-one" }, "subjects": subjects
        }),
    ]
}
