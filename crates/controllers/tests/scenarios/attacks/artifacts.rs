//! Attacks of a tenant with generators: another tenant's files, forged addresses in a status, and endless work.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Attack, Scene, attack};
use crate::stage::{ARTIFACT_GENERATOR, CONFIG_MAP, EXTERNAL_ARTIFACT, KUSTOMIZATION, config_map};

/// Returns a generator of one artifact of its own name.
fn make_outputs(name: &str, from: &str) -> Value {
    json!([{ "name": name, "copy": [{ "from": from, "to": "@artifact/" }] }])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generators_reach_nobody_elses_files() {
    let scene = Scene::set("attacks-q").await;
    // Sources and artifacts of another tenant.
    scene
        .stage
        .repository(&scene.alpha, "secret", &[("map.yaml", &config_map("alpha", "secret"))])
        .await;
    let theirs = json!({
        "apiVersion": ARTIFACT_GENERATOR.0, "kind": ARTIFACT_GENERATOR.1,
        "metadata": { "name": "theirs", "namespace": scene.alpha },
        "spec": { "sources": [{ "alias": "s", "kind": "GitRepository", "name": "secret" }], "artifacts": make_outputs("theirs", "@s/") }
    });
    scene.stage.admin.apply(theirs).await.unwrap();
    scene
        .stage
        .ready(EXTERNAL_ARTIFACT, (&scene.alpha, "theirs"), "True", "Succeeded")
        .await;
    scene.serve(&[("map.yaml".to_owned(), config_map("own", "x"))]).await;
    let source = |kind: &str, name: &str, namespace: &str| json!({ "sources": [{ "alias": "s", "kind": kind, "name": name, "namespace": namespace }] });
    let blocked = |kind: &str, name: &str| {
        format!("can't access '{kind}/ALPHA/{name}', cross-namespace references have been blocked")
    };
    let (their_source, their_artifact) = (
        blocked("GitRepository", "secret"),
        blocked("ExternalArtifact", "theirs"),
    );
    let their_chart = blocked("HelmChart", "theirs");
    let copy =
        |from: &str, to: &str| json!({ "artifacts": [{ "name": "NAME", "copy": [{ "from": from, "to": to }] }] });
    let attacks = [
        attack(
            "generator-source-of-alpha",
            source("GitRepository", "secret", "ALPHA"),
            &their_source,
            json!({}),
        ),
        attack(
            "generator-artifact-of-alpha",
            source("ExternalArtifact", "theirs", "ALPHA"),
            &their_artifact,
            json!({}),
        ),
        attack(
            "generator-from-dots",
            copy("@s/../../x", "@artifact/"),
            "the path has a '..' part",
            json!({}),
        ),
        attack(
            "generator-to-dots",
            copy("@s/map.yaml", "@artifact/../../x"),
            "the path has a '..' part",
            json!({}),
        ),
        attack(
            "generator-to-absolute",
            copy("@s/map.yaml", "@artifact//etc/x"),
            "begins with a second /",
            json!({}),
        ),
        attack(
            "generator-git",
            copy("@s/map.yaml", "@artifact/.git/config"),
            "leads into .git",
            json!({}),
        ),
        attack(
            "generator-chart-of-alpha",
            source("HelmChart", "theirs", "ALPHA"),
            &their_chart,
            json!({}),
        ),
        attack(
            "generator-too-many-names",
            json!({ "pathPattern": "@s/{a}{b}{c}{d}{e}{f}{g}{h}{i}{j}{k}{l}{m}{n}{o}{p}{q}", "artifacts": [{ "name": "{a}", "copy": [{ "from": "@s/", "to": "@artifact/" }] }] }),
            "has more than 64 parts or 16 names",
            json!({}),
        ),
    ];
    let make = |_: &Attack, name: &str, spec: &Value| {
        let usual = json!({
            "sources": [{ "alias": "s", "kind": "GitRepository", "name": "files" }], "artifacts": make_outputs(name, "@s/map.yaml")
        });
        let object = scene.object(ARTIFACT_GENERATOR, name, usual, spec);
        serde_json::from_str(&object.to_string().replace("NAME", name)).unwrap()
    };
    scene.check(&attacks, make).await;
    scene.shut_down().await;
}

/// Two generators that feed each other, one that feeds itself, and their earlier artifacts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generator_cycles_are_reported_and_stop() {
    let scene = Scene::set("attacks-r").await;
    let evil = scene.evil.as_str();
    scene.serve(&[("map.yaml".to_owned(), config_map("own", "x"))]).await;
    let generator = |name: &str, sources: Value, copies: Value| {
        scene.object(
            ARTIFACT_GENERATOR,
            name,
            json!({ "sources": sources, "artifacts": [{ "name": name, "copy": copies }] }),
            &json!({}),
        )
    };
    let files = json!({ "alias": "f", "kind": "GitRepository", "name": "files" });
    let other = |name: &str| json!({ "alias": "o", "kind": "ExternalArtifact", "name": name });
    let own = json!([{ "from": "@f/map.yaml", "to": "@artifact/" }]);
    let grow = json!([{ "from": "@f/map.yaml", "to": "@artifact/" }, { "from": "@o/", "to": "@artifact/more/" }]);
    // First each has an artifact, then they are changed to feed each other.
    scene
        .mallory
        .apply(generator("a", json!([files]), own.clone()))
        .await
        .unwrap();
    scene
        .stage
        .ready(ARTIFACT_GENERATOR, (evil, "a"), "True", "Succeeded")
        .await;
    scene
        .mallory
        .apply(generator("b", json!([files, other("a")]), grow.clone()))
        .await
        .unwrap();
    // The control: without a cycle, one is made from the other.
    scene
        .stage
        .ready(ARTIFACT_GENERATOR, (evil, "b"), "True", "Succeeded")
        .await;
    scene
        .mallory
        .apply(generator("a", json!([files, other("b")]), grow.clone()))
        .await
        .unwrap();
    for name in ["a", "b"] {
        let message = scene
            .stage
            .ready(ARTIFACT_GENERATOR, (evil, name), "False", "ValidationFailed")
            .await;
        assert!(message.contains("generators form a cycle"), "{message}");
    }
    scene
        .mallory
        .apply(generator("self", json!([files, other("self")]), grow))
        .await
        .unwrap();
    // The artifact does not exist before, so the cycle is reported later.
    let seen = scene.stage.get(EXTERNAL_ARTIFACT, (evil, "a")).await.unwrap();
    let revision = seen["status"]["artifact"]["digest"].clone();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let later = scene.stage.get(EXTERNAL_ARTIFACT, (evil, "a")).await.unwrap();
    assert_eq!(later["status"]["artifact"]["digest"], revision, "it grows no more");
    let message = scene
        .stage
        .ready(ARTIFACT_GENERATOR, (evil, "self"), "False", "ValidationFailed")
        .await;
    assert!(message.contains(&format!("{evil}/self -> {evil}/self")), "{message}");
    // After the cycle is removed, both are made.
    scene.mallory.apply(generator("a", json!([files]), own)).await.unwrap();
    for name in ["a", "b"] {
        scene
            .stage
            .ready(ARTIFACT_GENERATOR, (evil, name), "True", "Succeeded")
            .await;
    }
    scene.shut_down().await;
}

/// A status names an address and a digest. Both are ignored, whatever generator the object names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_external_artifact_is_neither_fetched_nor_applied() {
    let scene = Scene::set("attacks-s").await;
    let evil = scene.evil.as_str();
    let trap = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = trap.local_addr().unwrap();
    scene
        .serve(&[("map.yaml".to_owned(), config_map("genuine", "x"))])
        .await;
    let usual = json!({
        "sources": [{ "alias": "s", "kind": "GitRepository", "name": "files" }], "artifacts": make_outputs("genuine", "@s/map.yaml")
    });
    scene
        .mallory
        .apply(scene.object(ARTIFACT_GENERATOR, "gen", usual, &json!({})))
        .await
        .unwrap();
    scene
        .stage
        .ready(EXTERNAL_ARTIFACT, (evil, "genuine"), "True", "Succeeded")
        .await;
    let forged = json!({ "status": {
        "artifact": {
            "digest": "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "lastUpdateTime": "2026-01-01T00:00:00Z",
            "path": "gitrepository/ALPHA/secret/x.tar.gz", "revision": "forged", "url": format!("http://{address}/x.tar.gz")
        },
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "Succeeded", "message": "forged", "lastTransitionTime": "2026-01-01T00:00:00Z"
        }]
    } });
    for (name, source_ref) in [
        (
            "elsewhere",
            json!({ "apiVersion": "example.com/v1", "kind": "Source", "name": "x" }),
        ),
        // Its generator exists, but makes no artifact of this name.
        (
            "claims",
            json!({ "apiVersion": "source.extensions.fluxcd.io/v1beta1", "kind": "ArtifactGenerator", "name": "gen" }),
        ),
    ] {
        let object = scene.object(EXTERNAL_ARTIFACT, name, json!({ "sourceRef": source_ref }), &json!({}));
        scene.mallory.apply(object).await.unwrap();
        scene
            .mallory
            .patch_status(EXTERNAL_ARTIFACT, (evil, name), scene.value(&forged))
            .await
            .unwrap();
    }
    scene
        .mallory
        .patch_status(EXTERNAL_ARTIFACT, (evil, "genuine"), scene.value(&forged))
        .await
        .unwrap();
    for name in ["elsewhere", "claims", "genuine"] {
        let spec = json!({ "sourceRef": { "kind": "ExternalArtifact", "name": name } });
        scene.mallory.apply(scene.kustomization(name, &spec)).await.unwrap();
    }
    // The control: a really made artifact is applied, whatever its status says.
    scene
        .stage
        .ready(KUSTOMIZATION, (evil, "genuine"), "True", "ReconciliationSucceeded")
        .await;
    assert!(scene.stage.get(CONFIG_MAP, (evil, "genuine")).await.is_some());
    let applied = scene.stage.get(KUSTOMIZATION, (evil, "genuine")).await.unwrap();
    assert!(
        applied["status"]["lastAppliedRevision"]
            .as_str()
            .unwrap()
            .starts_with("latest@sha256:"),
        "{applied:#}"
    );
    for name in ["elsewhere", "claims"] {
        scene
            .stage
            .ready(KUSTOMIZATION, (evil, name), "False", "ArtifactFailed")
            .await;
    }
    let called = tokio::time::timeout(Duration::from_millis(500), trap.accept()).await;
    assert!(called.is_err(), "nobody is asked at the forged address");
    scene.shut_down().await;
}
