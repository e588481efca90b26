//! Artifacts that are made from other artifacts' files: from the commit to the applied objects, and their removal with their generator.

use serde_json::{Value, json};
use tenure_registry_server::{Answer, RegistryServer, compute_digest, pack_files};

use crate::stage::{
    ARTIFACT_GENERATOR, CONFIG_MAP, EXTERNAL_ARTIFACT, KUSTOMIZATION, Stage, commit, condition, config_map,
};

fn generator(namespace: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": ARTIFACT_GENERATOR.0, "kind": ARTIFACT_GENERATOR.1,
        "metadata": { "name": name, "namespace": namespace }, "spec": spec
    })
}

fn uses(name: &str, path: &str) -> Value {
    json!({ "sourceRef": { "kind": "ExternalArtifact", "name": name }, "path": path })
}

fn has(value: &'static str) -> impl Fn(Option<&Value>) -> bool {
    move |map: Option<&Value>| map.is_some_and(|map| map["data"]["value"] == value)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn artifact_from_two_repositories_is_applied_and_followed() {
    let mut stage = Stage::set("artifacts").await;
    let web = stage
        .repository(
            "artifacts",
            "web",
            &[
                ("deploy/map.yaml", &config_map("web", "one")),
                ("deploy/README.md", "words"),
                ("api/map.yaml", &config_map("api", "one")),
            ],
        )
        .await;
    stage
        .repository(
            "artifacts",
            "base",
            &[("values.yaml", "a: 1\n"), ("base/map.yaml", &config_map("base", "one"))],
        )
        .await;
    let spec = json!({
        "sources": [
            { "alias": "web", "kind": "GitRepository", "name": "web" },
            { "alias": "base", "kind": "GitRepository", "name": "base", "namespace": "artifacts" },
        ],
        "artifacts": [
            { "name": "all", "originRevision": "@web", "copy": [
                { "from": "@web/deploy/**", "to": "@artifact/web/", "exclude": ["*.md"] },
                { "from": "@base/base/map.yaml", "to": "@artifact/base.yaml" },
            ] },
            { "name": "api", "revision": "@web", "copy": [{ "from": "@web/api/**", "to": "@artifact/" }] },
        ],
        "commonMetadata": { "labels": { "team": "green" } },
    });
    stage.admin.apply(generator("artifacts", "gen", &spec)).await.unwrap();
    stage.kustomization("artifacts", "all", "all", uses("all", "./")).await;
    stage.kustomization("artifacts", "api", "api", uses("api", "./")).await;

    for name in ["web", "base", "api"] {
        stage.wait_for(CONFIG_MAP, ("artifacts", name), has("one")).await;
    }
    let message = stage
        .ready(ARTIFACT_GENERATOR, ("artifacts", "gen"), "True", "Succeeded")
        .await;
    assert_eq!(message, "reconciliation succeeded, generated 2 artifact(s)");
    let live_generator = stage.get(ARTIFACT_GENERATOR, ("artifacts", "gen")).await.unwrap();
    let made = stage.get(EXTERNAL_ARTIFACT, ("artifacts", "all")).await.unwrap();
    let artifact = &made["status"]["artifact"];
    let digest = artifact["digest"].as_str().unwrap();
    assert_eq!(artifact["revision"], format!("latest@{digest}"));
    assert!(
        artifact["metadata"]["org.opencontainers.image.revision"]
            .as_str()
            .unwrap()
            .starts_with("main@sha1:")
    );
    assert_eq!(made["metadata"]["labels"]["team"], "green");
    let inventory = live_generator["status"]["inventory"].as_array().unwrap();
    assert!(
        inventory
            .iter()
            .any(|made| made["name"] == "all" && made["digest"] == digest),
        "{live_generator:#}"
    );
    let api = stage.get(EXTERNAL_ARTIFACT, ("artifacts", "api")).await.unwrap();
    assert!(
        api["status"]["artifact"]["revision"]
            .as_str()
            .unwrap()
            .starts_with("main@sha1:"),
        "{api:#}"
    );

    // A commit that changes one part makes a new artifact of that part. The other keeps its digest, and so its revision.
    let second = commit(&web, &[("deploy/map.yaml", &config_map("web", "two"))]).await;
    stage.wait_for(CONFIG_MAP, ("artifacts", "web"), has("two")).await;
    stage
        .wait_for(EXTERNAL_ARTIFACT, ("artifacts", "all"), |made| {
            let origin =
                made.map(|made| made["status"]["artifact"]["metadata"]["org.opencontainers.image.revision"].clone());
            origin
                .and_then(|origin| Some(origin.as_str()?.ends_with(&second)))
                .unwrap_or_default()
        })
        .await;
    stage
        .wait_for(EXTERNAL_ARTIFACT, ("artifacts", "api"), |made| {
            made.is_some_and(|made| {
                let artifact = &made["status"]["artifact"];
                artifact["revision"]
                    .as_str()
                    .is_some_and(|revision| revision.ends_with(&second))
                    && artifact["digest"] == api["status"]["artifact"]["digest"]
            })
        })
        .await;

    // Stored artifacts are found again after a restart, and followed.
    stage.restart().await;
    commit(&web, &[("deploy/map.yaml", &config_map("web", "three"))]).await;
    stage.wait_for(CONFIG_MAP, ("artifacts", "web"), has("three")).await;

    // A failure to make an artifact is reported, and the previous artifact stays.
    let mut broken = spec.clone();
    broken["artifacts"][0]["copy"][1]["from"] = json!("@base/none.yaml");
    stage.admin.apply(generator("artifacts", "gen", &broken)).await.unwrap();
    let message = stage
        .ready(ARTIFACT_GENERATOR, ("artifacts", "gen"), "False", "BuildFailed")
        .await;
    assert!(
        message.contains("all build failed") && message.contains("source 'none.yaml' does not exist"),
        "{message}"
    );
    assert!(stage.get(CONFIG_MAP, ("artifacts", "base")).await.is_some());

    // An artifact that the generator no longer lists is removed, and the rest with the generator.
    let mut fewer = spec.clone();
    fewer["artifacts"].as_array_mut().unwrap().pop();
    stage.admin.apply(generator("artifacts", "gen", &fewer)).await.unwrap();
    stage
        .wait_for(EXTERNAL_ARTIFACT, ("artifacts", "api"), |made| made.is_none())
        .await;
    stage
        .ready(ARTIFACT_GENERATOR, ("artifacts", "gen"), "True", "Succeeded")
        .await;
    stage
        .admin
        .delete(ARTIFACT_GENERATOR, ("artifacts", "gen"))
        .await
        .unwrap();
    stage
        .wait_for(EXTERNAL_ARTIFACT, ("artifacts", "all"), |made| made.is_none())
        .await;
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folders_that_match_a_pattern_become_artifacts() {
    let stage = Stage::set("artifacts-p").await;
    let mono = stage
        .repository(
            "artifacts-p",
            "mono",
            &[
                ("apps/Web/map.yaml", &config_map("web", "one")),
                ("apps/api/map.yaml", &config_map("api", "one")),
                ("lib/x", "x"),
            ],
        )
        .await;
    let spec = json!({
        "sources": [{ "alias": "mono", "kind": "GitRepository", "name": "mono" }],
        "pathPattern": "@mono/apps/{app}",
        "artifacts": [{ "name": "app-{app}", "copy": [{ "from": "@mono/apps/{app}/**", "to": "@artifact/" }] }],
    });
    stage.admin.apply(generator("artifacts-p", "gen", &spec)).await.unwrap();
    stage
        .ready(EXTERNAL_ARTIFACT, ("artifacts-p", "app-api"), "True", "Succeeded")
        .await;
    let web = stage
        .wait_for(EXTERNAL_ARTIFACT, ("artifacts-p", "app-web"), |made| made.is_some())
        .await
        .unwrap();
    assert_eq!(web["metadata"]["labels"]["app"], "web");
    stage
        .kustomization("artifacts-p", "web", "web", uses("app-web", "./"))
        .await;
    stage.wait_for(CONFIG_MAP, ("artifacts-p", "web"), has("one")).await;
    // A new folder becomes a new artifact, and another generator may use a made artifact.
    commit(&mono, &[("apps/new/map.yaml", &config_map("new", "one"))]).await;
    stage
        .ready(EXTERNAL_ARTIFACT, ("artifacts-p", "app-new"), "True", "Succeeded")
        .await;
    let above = json!({
        "sources": [{ "alias": "web", "kind": "ExternalArtifact", "name": "app-web" }],
        "artifacts": [{ "name": "above", "copy": [{ "from": "@web/", "to": "@artifact/inner/" }] }],
    });
    stage
        .admin
        .apply(generator("artifacts-p", "above", &above))
        .await
        .unwrap();
    let mut inner = uses("above", "./inner");
    inner["namePrefix"] = json!("above-");
    stage.kustomization("artifacts-p", "above", "above", inner).await;
    stage
        .ready(
            KUSTOMIZATION,
            ("artifacts-p", "above"),
            "True",
            "ReconciliationSucceeded",
        )
        .await;
    // Suspended as Flux's generator, it follows nothing.
    let switch =
        |value: Value| json!({ "metadata": { "annotations": { "source.extensions.fluxcd.io/reconcile": value } } });
    stage
        .admin
        .patch(ARTIFACT_GENERATOR, ("artifacts-p", "gen"), switch(json!("disabled")))
        .await
        .unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let before = stage.get(EXTERNAL_ARTIFACT, ("artifacts-p", "app-web")).await.unwrap();
    commit(&mono, &[("apps/Web/map.yaml", &config_map("web", "two"))]).await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let after = stage.get(EXTERNAL_ARTIFACT, ("artifacts-p", "app-web")).await.unwrap();
    assert_eq!(before["status"], after["status"]);
    // The control: after the suspension ends, it does.
    stage
        .admin
        .patch(ARTIFACT_GENERATOR, ("artifacts-p", "gen"), switch(Value::Null))
        .await
        .unwrap();
    stage.wait_for(CONFIG_MAP, ("artifacts-p", "web"), has("two")).await;
    assert!(condition(&after, "Ready").is_some());
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn external_artifact_is_applied_where_administrator_allows_it() {
    let namespace = "artifacts-e";
    let archive = pack_files(&[("map.yaml", &config_map("external", "one"))]);
    let digest = compute_digest(&archive);
    let server = RegistryServer::start().await.unwrap();
    server.answer_with(move |_| Some(Answer::new(200, archive.clone())));
    let address = server.address();
    let named = format!("{namespace}/named=http://{address}/artifacts/");
    let other = format!("{namespace}/wrong=http://{address}/artifacts/");
    let stage = Stage::set_taking(namespace, &[format!("http://{address}")], &[named, other]).await;
    let make_status = |digest: &str, path: &str| {
        json!({ "status": {
            "artifact": {
                "digest": digest, "lastUpdateTime": "2026-01-01T00:00:00Z", "path": "x", "revision": format!("v1@{digest}"),
                "url": format!("http://{address}{path}")
            },
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "Succeeded", "message": "made", "lastTransitionTime": "2026-01-01T00:00:00Z"
            }]
        } })
    };
    let wrong = format!("sha256:{}", "0".repeat(64));
    for (name, digest, path) in [
        ("named", digest.as_str(), "/artifacts/x.tar.gz"),
        // An artifact of a builder that is not allowed, one with a wrong digest, and one at a forbidden address.
        ("unnamed", digest.as_str(), "/artifacts/x.tar.gz"),
        ("wrong", wrong.as_str(), "/artifacts/x.tar.gz"),
    ] {
        let source_ref = json!({ "apiVersion": "example.com/v1", "kind": "Builder", "name": "x" });
        let object = json!({
            "apiVersion": EXTERNAL_ARTIFACT.0, "kind": EXTERNAL_ARTIFACT.1,
            "metadata": { "name": name, "namespace": namespace }, "spec": { "sourceRef": source_ref }
        });
        stage.admin.apply(object).await.unwrap();
        stage
            .admin
            .patch_status(EXTERNAL_ARTIFACT, (namespace, name), make_status(digest, path))
            .await
            .unwrap();
        stage.kustomization(namespace, name, name, uses(name, "./")).await;
    }
    stage.wait_for(CONFIG_MAP, (namespace, "external"), has("one")).await;
    let applied = stage
        .ready(KUSTOMIZATION, (namespace, "named"), "True", "ReconciliationSucceeded")
        .await;
    assert!(applied.contains(&format!("v1@{digest}")), "{applied}");
    for name in ["unnamed", "wrong"] {
        stage
            .ready(KUSTOMIZATION, (namespace, name), "False", "ArtifactFailed")
            .await;
    }
    // Only its maker writes its status.
    let made = stage.get(EXTERNAL_ARTIFACT, (namespace, "named")).await.unwrap();
    assert_eq!(made["status"], make_status(&digest, "/artifacts/x.tar.gz")["status"]);
    // A forbidden address changes nothing, and the fetched artifact stays applied.
    let elsewhere = make_status(&digest, "/other/x.tar.gz");
    stage
        .admin
        .patch_status(EXTERNAL_ARTIFACT, (namespace, "wrong"), elsewhere)
        .await
        .unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    stage
        .ready(KUSTOMIZATION, (namespace, "wrong"), "False", "ArtifactFailed")
        .await;
    // The control: from an allowed address it is fetched.
    stage
        .admin
        .patch_status(
            EXTERNAL_ARTIFACT,
            (namespace, "wrong"),
            make_status(&digest, "/artifacts/y.tar.gz"),
        )
        .await
        .unwrap();
    stage
        .wait_for(KUSTOMIZATION, (namespace, "wrong"), |object| {
            object
                .and_then(|object| condition(object, "Ready"))
                .is_some_and(|ready| ready["reason"] != "ArtifactFailed")
        })
        .await;
    stage.shut_down().await;
}
