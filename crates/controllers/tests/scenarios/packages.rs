//! Packages and PackageSources, from charts in Git to HelmReleases. No helm-controller runs: the tests write the status of HelmReleases.

use http::Method;
use serde_json::{Value, json};
use tenure_api::installation::list_writer;
use tenure_testkit::{SOON, eventually};

use crate::faults::Kill;
use crate::stage::{ARTIFACT_GENERATOR, EXTERNAL_ARTIFACT, Stage, condition};

pub(crate) const PACKAGE: (&str, &str) = ("cozystack.io/v1alpha1", "Package");
pub(crate) const PACKAGE_VALUES: (&str, &str) = ("cozystack.io/v1alpha1", "PackageValues");
pub(crate) const PACKAGE_SOURCE: (&str, &str) = ("cozystack.io/v1alpha1", "PackageSource");
pub(crate) const HELM_RELEASE: (&str, &str) = ("helm.toolkit.fluxcd.io/v2", "HelmRelease");
pub(crate) const NAMESPACE: (&str, &str) = ("v1", "Namespace");
const DEFINITION: (&str, &str) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
const HELM_RELEASES: &str = "helmreleases.helm.toolkit.fluxcd.io";
/// The account that writes what Packages generate.
pub(crate) const ACCOUNT: &str = "packages";
const SUPPLY: &str = "cozy-system";

/// Returns a definition of HelmReleases that accepts any spec, as far as these tests need Flux's.
fn define_helm_releases() -> Value {
    let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    json!({
        "apiVersion": DEFINITION.0, "kind": DEFINITION.1, "metadata": { "name": HELM_RELEASES },
        "spec": {
            "group": "helm.toolkit.fluxcd.io", "scope": "Namespaced",
            "names": { "kind": "HelmRelease", "plural": "helmreleases", "singular": "helmrelease", "listKind": "HelmReleaseList" },
            "versions": [{
                "name": "v2", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object", "properties": { "spec": open, "status": open } } }
            }]
        }
    })
}

/// Installs the definition of HelmReleases and the account for Packages.
pub(crate) async fn prepare(stage: &Stage) {
    stage.admin.apply(define_helm_releases()).await.unwrap();
    for object in list_writer(ACCOUNT) {
        stage.admin.apply(object).await.unwrap();
    }
    eventually(SOON, || stage.admin.list(HELM_RELEASE, "")).await.unwrap();
}

/// Removes what the tests after this one would find: the Packages with these names, all HelmReleases, and the namespaces.
pub(crate) async fn clear(stage: &Stage, packages: &[&str], namespaces: &[&str]) {
    for name in packages {
        delete_as_orphan(stage, name).await;
        stage.wait_for(PACKAGE, ("", name), |found| found.is_none()).await;
        stage.admin.delete(PACKAGE_SOURCE, ("", name)).await.unwrap();
    }
    stage.admin.delete(DEFINITION, ("", HELM_RELEASES)).await.unwrap();
    for namespace in namespaces {
        stage.admin.delete(NAMESPACE, ("", namespace)).await.unwrap();
    }
}

/// Deletes a Package and leaves its releases. A Package that is gone, or goes meanwhile, stays gone.
pub(crate) async fn delete_as_orphan(stage: &Stage, name: &str) {
    let orphan = json!({ "metadata": { "annotations": { "tenure.dev/deletion-policy": "Orphan" } } });
    match stage.admin.patch(PACKAGE, ("", name), orphan).await {
        Err(error) if error.is_not_found() => {}
        patched => {
            patched.unwrap();
            stage.admin.delete(PACKAGE, ("", name)).await.unwrap();
        }
    }
}

/// Creates a PackageSource without a source of charts: its Package needs none to write HelmReleases. `components` have their names and installations.
pub(crate) async fn source(stage: &Stage, name: &str, components: &[(&str, Value)], more: Value) {
    let components: Vec<Value> = components
        .iter()
        .map(|(name, install)| json!({ "name": name, "path": name, "install": install }))
        .collect();
    let mut variant = json!({ "name": "default", "components": components });
    for (key, value) in more.as_object().unwrap() {
        variant[key] = value.clone();
    }
    let object = json!({
        "apiVersion": PACKAGE_SOURCE.0, "kind": PACKAGE_SOURCE.1, "metadata": { "name": name },
        "spec": { "variants": [variant] }
    });
    stage.admin.apply(object).await.unwrap();
}

pub(crate) async fn package(stage: &Stage, name: &str, spec: Value) {
    let object = json!({ "apiVersion": PACKAGE.0, "kind": PACKAGE.1, "metadata": { "name": name }, "spec": spec });
    stage.admin.apply(object).await.unwrap();
}

/// Writes the status of a HelmRelease as helm-controller does after a success.
async fn succeed(stage: &Stage, target: (&str, &str)) {
    let generation = stage.get(HELM_RELEASE, target).await.unwrap()["metadata"]["generation"].clone();
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "InstallSucceeded", "message": "done",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": generation
    });
    let status = json!({ "status": { "observedGeneration": generation, "conditions": [ready] } });
    stage.admin.patch_status(HELM_RELEASE, target, status).await.unwrap();
}

/// Waits until a Package records the HelmRelease that exists, and returns the HelmRelease.
pub(crate) async fn recorded(stage: &Stage, package: &str, target: (&str, &str)) -> Value {
    let found = eventually(SOON, || async {
        match stage.get(HELM_RELEASE, target).await {
            Some(release) => Ok(release),
            None => Err(format!("{:#?}", stage.get(PACKAGE, ("", package)).await)),
        }
    });
    let release = found.await.unwrap();
    let uid = release["metadata"]["uid"].clone();
    stage
        .wait_for(PACKAGE, ("", package), |found| {
            let records = found.and_then(|found| found["status"]["releases"].as_array());
            records.is_some_and(|records| {
                records.iter().any(|record| {
                    record["uid"] == uid && record["name"] == target.1 && record["proofDigests"].is_null()
                })
            })
        })
        .await;
    release
}

/// Waits until the condition RemovalPending names the digest that allows a removal, and returns the digest.
async fn read_digest(stage: &Stage, package: &str) -> String {
    let read = |found: &Value| {
        let message = condition(found, "RemovalPending")?["message"].as_str()?.to_owned();
        let (_, rest) = message.split_once("tenure.dev/allow-deletion=")?;
        Some(rest.split([';', ' ']).next()?.trim_end_matches('.').to_owned())
    };
    let found = stage
        .wait_for(PACKAGE, ("", package), |found| found.and_then(read).is_some())
        .await;
    found.as_ref().and_then(read).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn charts_in_git_become_releases_of_a_package() {
    let stage = Stage::set_packaging("packages-a", ACCOUNT).await;
    prepare(&stage).await;
    let (name, target) = ("packages-a.app", ("packages-a-app", "app"));
    stage
        .repository(
            SUPPLY,
            "packages-a",
            &[("packages/app/Chart.yaml", "apiVersion: v2\nname: app\nversion: 1.0.0\n")],
        )
        .await;
    let charts = json!({
        "apiVersion": PACKAGE_SOURCE.0, "kind": PACKAGE_SOURCE.1, "metadata": { "name": name },
        "spec": {
            "sourceRef": { "kind": "GitRepository", "name": "packages-a", "namespace": SUPPLY },
            "variants": [{ "name": "default", "components": [{ "name": "app", "path": "app", "install": { "namespace": target.0 } }] }]
        }
    });
    stage.admin.apply(charts).await.unwrap();
    stage.ready(PACKAGE_SOURCE, ("", name), "True", "Succeeded").await;
    assert!(stage.get(ARTIFACT_GENERATOR, (SUPPLY, name)).await.is_some());
    let chart = "packages-a-app-default-app";
    assert!(stage.get(EXTERNAL_ARTIFACT, (SUPPLY, chart)).await.is_some());

    package(
        &stage,
        name,
        json!({ "components": { "app": { "values": { "size": 3 } } } }),
    )
    .await;
    let release = recorded(&stage, name, target).await;
    assert_eq!(
        release["spec"]["chartRef"],
        json!({ "kind": "ExternalArtifact", "name": chart, "namespace": SUPPLY })
    );
    assert_eq!(release["spec"]["values"], json!({ "size": 3 }));
    let namespace = stage.get(NAMESPACE, ("", target.0)).await.unwrap();
    assert_eq!(namespace["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
    let message = stage.ready(PACKAGE, ("", name), "Unknown", "Progressing").await;
    assert!(message.starts_with("0 of 1"), "{message}");
    succeed(&stage, target).await;
    stage
        .ready(PACKAGE, ("", name), "True", "ReconciliationSucceeded")
        .await;

    // An update replaces the object of the same uid.
    package(
        &stage,
        name,
        json!({ "components": { "app": { "values": { "size": 4, "more": null } } } }),
    )
    .await;
    let updated = stage
        .wait_for(HELM_RELEASE, target, |found| {
            found.is_some_and(|found| found["spec"]["values"]["size"] == 4)
        })
        .await
        .unwrap();
    assert_eq!(updated["metadata"]["uid"], release["metadata"]["uid"]);
    // An edit is put back, and suspend is kept.
    let edit = json!({ "spec": { "suspend": true, "interval": "9h", "postRenderers": [{ "kustomize": {} }], "values": { "size": 5 } } });
    stage.admin.patch(HELM_RELEASE, target, edit).await.unwrap();
    let put_back = stage
        .wait_for(HELM_RELEASE, target, |found| {
            found.is_some_and(|found| found["spec"]["values"]["size"] == 4 && found["spec"]["postRenderers"].is_null())
        })
        .await
        .unwrap();
    assert_eq!(put_back["spec"]["suspend"], true);
    assert_eq!(put_back["spec"]["interval"], updated["spec"]["interval"]);
    // A deleted release is created again.
    stage.admin.delete(HELM_RELEASE, target).await.unwrap();
    stage
        .wait_for(HELM_RELEASE, target, |found| {
            found.is_some_and(|found| found["metadata"]["uid"] != release["metadata"]["uid"])
        })
        .await;
    recorded(&stage, name, target).await;
    clear(&stage, &[name], &[target.0]).await;
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_of_another_writer_stays_as_it_is() {
    let stage = Stage::set_packaging("packages-b", ACCOUNT).await;
    prepare(&stage).await;
    let name = "packages-b.app";
    let foreign = json!({
        "apiVersion": HELM_RELEASE.0, "kind": HELM_RELEASE.1,
        "metadata": { "name": "app", "namespace": "packages-b", "labels": { "cozystack.io/package": name } },
        "spec": { "interval": "7m" }
    });
    stage.admin.apply(foreign).await.unwrap();
    source(
        &stage,
        name,
        &[
            ("app", json!({ "namespace": "packages-b" })),
            ("other", json!({ "namespace": "packages-b" })),
        ],
        json!({}),
    )
    .await;
    package(&stage, name, json!({})).await;
    let message = stage.ready(PACKAGE, ("", name), "False", "ReleaseConflict").await;
    assert!(message.contains("HelmRelease/packages-b/app"), "{message}");
    // The control: the other component is installed.
    recorded(&stage, name, ("packages-b", "other")).await;
    let found = stage.get(HELM_RELEASE, ("packages-b", "app")).await.unwrap();
    assert_eq!(found["spec"], json!({ "interval": "7m" }));
    // Its deletion ends the conflict at once.
    stage.admin.delete(HELM_RELEASE, ("packages-b", "app")).await.unwrap();
    recorded(&stage, name, ("packages-b", "app")).await;
    clear(&stage, &[name], &[]).await;
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_is_removed_only_after_its_digest_allows_it() {
    let stage = Stage::set_packaging("packages-c", ACCOUNT).await;
    prepare(&stage).await;
    let name = "packages-c.app";
    let install = json!({ "namespace": "packages-c" });
    source(&stage, name, &[("one", install.clone()), ("two", install)], json!({})).await;
    package(&stage, name, json!({})).await;
    recorded(&stage, name, ("packages-c", "one")).await;
    recorded(&stage, name, ("packages-c", "two")).await;
    package(&stage, name, json!({ "components": { "one": { "enabled": false } } })).await;
    let digest = read_digest(&stage, name).await;
    let allow = |digest: &str| json!({ "metadata": { "annotations": { "tenure.dev/allow-deletion": digest } } });
    // The digest of something else allows nothing.
    stage.admin.patch(PACKAGE, ("", name), allow("sha256:0")).await.unwrap();
    assert_eq!(read_digest(&stage, name).await, digest);
    assert!(stage.get(HELM_RELEASE, ("packages-c", "one")).await.is_some());
    stage.admin.patch(PACKAGE, ("", name), allow(&digest)).await.unwrap();
    stage
        .wait_for(HELM_RELEASE, ("packages-c", "one"), |found| found.is_none())
        .await;
    stage
        .wait_for(PACKAGE, ("", name), |found| {
            found.is_some_and(|found| condition(found, "RemovalPending").is_none())
        })
        .await;
    assert!(stage.get(HELM_RELEASE, ("packages-c", "two")).await.is_some());

    // A deleted Package waits in the same way.
    stage.admin.delete(PACKAGE, ("", name)).await.unwrap();
    stage.ready(PACKAGE, ("", name), "False", "DeletionGuarded").await;
    let digest = read_digest(&stage, name).await;
    stage.admin.patch(PACKAGE, ("", name), allow(&digest)).await.unwrap();
    stage.wait_for(PACKAGE, ("", name), |found| found.is_none()).await;
    assert!(stage.get(HELM_RELEASE, ("packages-c", "two")).await.is_none());
    clear(&stage, &[name], &[]).await;
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orphaned_releases_outlive_their_package() {
    let stage = Stage::set_packaging("packages-d", ACCOUNT).await;
    prepare(&stage).await;
    let name = "packages-d.app";
    source(
        &stage,
        name,
        &[("app", json!({ "namespace": "packages-d" }))],
        json!({}),
    )
    .await;
    package(&stage, name, json!({})).await;
    let release = recorded(&stage, name, ("packages-d", "app")).await;
    delete_as_orphan(&stage, name).await;
    stage.wait_for(PACKAGE, ("", name), |found| found.is_none()).await;
    let left = stage.get(HELM_RELEASE, ("packages-d", "app")).await.unwrap();
    assert_eq!(left["metadata"]["uid"], release["metadata"]["uid"]);
    assert!(left["metadata"]["deletionTimestamp"].is_null());
    clear(&stage, &[name], &[]).await;
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packages_wake_their_neighbours() {
    let stage = Stage::set_packaging("packages-e", ACCOUNT).await;
    prepare(&stage).await;
    let (base, app, rival) = ("packages-e.base", "packages-e.app", "packages-e.rival");
    let install = |release: &str| json!({ "namespace": "packages-e", "releaseName": release });
    source(
        &stage,
        base,
        &[("base", install("base"))],
        json!({ "dependsOn": [app] }),
    )
    .await;
    source(&stage, app, &[("app", install("app"))], json!({ "dependsOn": [base] })).await;
    package(&stage, base, json!({})).await;
    package(&stage, app, json!({})).await;
    for name in [base, app] {
        let message = stage.ready(PACKAGE, ("", name), "False", "DependencyCycle").await;
        assert!(message.contains(base) && message.contains(app), "{message}");
    }
    assert!(stage.admin.list(HELM_RELEASE, "packages-e").await.unwrap().is_empty());
    // The end of the cycle wakes both.
    source(&stage, base, &[("base", install("base"))], json!({ "dependsOn": [] })).await;
    recorded(&stage, base, ("packages-e", "base")).await;
    let message = stage.ready(PACKAGE, ("", app), "False", "DependenciesNotReady").await;
    assert!(message.contains(base), "{message}");
    succeed(&stage, ("packages-e", "base")).await;
    let release = recorded(&stage, app, ("packages-e", "app")).await;
    assert_eq!(
        release["spec"]["dependsOn"],
        json!([{ "name": "base", "namespace": "packages-e" }])
    );
    // A second Package that wants the release waits for the first one.
    source(&stage, rival, &[("app", install("app"))], json!({})).await;
    package(&stage, rival, json!({})).await;
    let message = stage.ready(PACKAGE, ("", rival), "False", "NameConflict").await;
    assert!(message.contains(app), "{message}");
    delete_as_orphan(&stage, app).await;
    // The release is now nobody's, and still not the second one's.
    stage.ready(PACKAGE, ("", rival), "False", "ReleaseConflict").await;
    clear(&stage, &[base, app, rival], &[]).await;
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_written_for_packages_without_an_account() {
    let stage = Stage::set("packages-f").await;
    prepare(&stage).await;
    let name = "packages-f.app";
    source(
        &stage,
        name,
        &[("app", json!({ "namespace": "packages-f" }))],
        json!({}),
    )
    .await;
    package(&stage, name, json!({})).await;
    for kind in [PACKAGE, PACKAGE_SOURCE] {
        let is_about = |event: &Value| {
            event["involvedObject"]["kind"] == kind.1
                && event["involvedObject"]["name"] == name
                && event["reason"] == "IdentityMissing"
                && event["message"]
                    .as_str()
                    .unwrap()
                    .contains("--packages-service-account")
        };
        stage.wait_for_event("default", is_about).await;
        // Cozystack's operator may report on it.
        assert!(stage.get(kind, ("", name)).await.unwrap()["status"].is_null());
    }
    assert!(stage.admin.list(HELM_RELEASE, "packages-f").await.unwrap().is_empty());
    clear(&stage, &[name], &[]).await;
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_process_finds_its_release_by_the_proof() {
    let mut stage = Stage::set_packaging("packages-g", ACCOUNT).await;
    prepare(&stage).await;
    let name = "packages-g.app";
    let target = ("packages-g", "app");
    source(&stage, name, &[("app", json!({ "namespace": target.0 }))], json!({})).await;
    stage
        .ready(PACKAGE_SOURCE, ("", name), "Unknown", "SourceRefNotSet")
        .await;
    // The writes of a first release: namespace, finalizer, intent (twice: the finalizer's version), release, uid.
    let mut found_by_proof = 0;
    for at in 1..=6 {
        for after_effect in [false, true] {
            stage.life().kill_at_write(Kill { at, after_effect });
            package(&stage, name, json!({})).await;
            let died = tokio::select! {
                () = stage.life().until_dead() => true,
                _ = recorded(&stage, name, target) => stage.life().spare().await,
            };
            let before = stage.get(HELM_RELEASE, target).await;
            let record = stage.get(PACKAGE, ("", name)).await.unwrap()["status"]["releases"][0].clone();
            if died {
                stage.restart_after_death();
            }
            let release = recorded(&stage, name, target).await;
            if let Some(before) = before {
                assert_eq!(
                    before["metadata"]["uid"], release["metadata"]["uid"],
                    "{at} {after_effect}"
                );
                found_by_proof += usize::from(record["uid"].is_null());
            }
            delete_as_orphan(&stage, name).await;
            stage.wait_for(PACKAGE, ("", name), |found| found.is_none()).await;
            stage.admin.delete(HELM_RELEASE, target).await.unwrap();
            stage.wait_for(HELM_RELEASE, target, |found| found.is_none()).await;
        }
    }
    assert!(found_by_proof > 0, "no kill was between the release and its uid");
    clear(&stage, &[name], &[]).await;
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_with_lost_answer_is_not_created_twice() {
    let stage = Stage::set_packaging("packages-h", ACCOUNT).await;
    prepare(&stage).await;
    let name = "packages-h.app";
    source(
        &stage,
        name,
        &[("app", json!({ "namespace": "packages-h" }))],
        json!({}),
    )
    .await;
    stage.faults.lose_answers(Method::POST, "/helmreleases", 500);
    package(&stage, name, json!({})).await;
    recorded(&stage, name, ("packages-h", "app")).await;
    stage.faults.clear();
    // A refused creation is tried again.
    stage.faults.refuse(Method::POST, "/helmreleases", 500);
    stage.admin.delete(HELM_RELEASE, ("packages-h", "app")).await.unwrap();
    let message = stage.ready(PACKAGE, ("", name), "False", "HelmReleaseFailed").await;
    assert!(message.contains("HelmRelease/packages-h/app"), "{message}");
    stage.faults.clear();
    recorded(&stage, name, ("packages-h", "app")).await;
    clear(&stage, &[name], &[]).await;
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definition_without_records_creates_nothing() {
    let stage = Stage::set_packaging("packages-i", ACCOUNT).await;
    prepare(&stage).await;
    let name = "packages-i.app";
    let definition = ("", "packages.cozystack.io");
    let whole = stage.get(DEFINITION, definition).await.unwrap()["spec"]["versions"].clone();
    let mut versions = whole.clone();
    let status = &mut versions[0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"];
    status.as_object_mut().unwrap().remove("releases").unwrap();
    let patch = |versions: &Value| json!({ "spec": { "versions": versions } });
    stage
        .admin
        .patch(DEFINITION, definition, patch(&versions))
        .await
        .unwrap();
    // Until the API server drops the field.
    package(&stage, "packages-i.probe", json!({})).await;
    let dropped = eventually(SOON, || async {
        let status = json!({ "status": { "releases": [{ "component": "a", "name": "a", "namespace": "a" }] } });
        let found = stage
            .admin
            .patch_status(PACKAGE, ("", "packages-i.probe"), status)
            .await;
        match found {
            Ok(found) if found["status"]["releases"].is_null() => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    dropped.await.unwrap();
    source(
        &stage,
        name,
        &[("app", json!({ "namespace": "packages-i" }))],
        json!({}),
    )
    .await;
    package(&stage, name, json!({})).await;
    let message = stage.ready(PACKAGE, ("", name), "False", "RecordNotStored").await;
    assert!(message.contains("status.releases"), "{message}");
    assert!(stage.get(HELM_RELEASE, ("packages-i", "app")).await.is_none());
    // With the whole definition, a request for another attempt creates the release.
    stage.admin.patch(DEFINITION, definition, patch(&whole)).await.unwrap();
    let asked = eventually(SOON, || async {
        let at = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": format!("{:?}", std::time::Instant::now()) } } });
        stage.admin.patch(PACKAGE, ("", name), at).await.unwrap();
        match stage.get(HELM_RELEASE, ("packages-i", "app")).await {
            Some(_) => Ok(()),
            None => Err(format!("{:?}", stage.get(PACKAGE, ("", name)).await)),
        }
    });
    asked.await.unwrap();
    clear(&stage, &[name, "packages-i.probe"], &[]).await;
    stage.shut_down().await;
}
