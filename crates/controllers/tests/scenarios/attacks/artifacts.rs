//! What a tenant would get out of generators: another's files, addresses that it names in a status, and work without end.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Attack, Scene, attack};
use crate::stage::{ARTIFACT_GENERATOR, CONFIG_MAP, EXTERNAL_ARTIFACT, KUSTOMIZATION, config_map};

/// A generator of one artifact of its own name.
fn of(name: &str, from: &str) -> Value {
    json!([{ "name": name, "copy": [{ "from": from, "to": "@artifact/" }] }])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generators_reach_nobody_elses_files() {
    let scene = Scene::set("attacks-q").await;
    // Of another tenant: what it has fetched, and what it has made.
    scene
        .stage
        .repository(&scene.alpha, "secret", &[("map.yaml", &config_map("alpha", "secret"))])
        .await;
    let theirs = json!({
        "apiVersion": ARTIFACT_GENERATOR.0, "kind": ARTIFACT_GENERATOR.1,
        "metadata": { "name": "theirs", "namespace": scene.alpha },
        "spec": { "sources": [{ "alias": "s", "kind": "GitRepository", "name": "secret" }], "artifacts": of("theirs", "@s/") }
    });
    scene.stage.admin.apply(theirs).await.unwrap();
    scene
        .stage
        .ready(EXTERNAL_ARTIFACT, (&scene.alpha, "theirs"), "True", "Succeeded")
        .await;
    let bomb = "*a".repeat(300) + "b";
    let names: Vec<(String, String)> = (0..300)
        .map(|number| (format!("bomb/{}{number}", "a".repeat(200)), "x".to_owned()))
        .chain([("map.yaml".to_owned(), config_map("own", "x"))])
        .collect();
    scene.serve(&names).await;
    let source = |kind: &str, name: &str, namespace: &str| json!({ "sources": [{ "alias": "s", "kind": kind, "name": name, "namespace": namespace }] });
    let blocked = |kind: &str, name: &str| {
        format!("can't access '{kind}/ALPHA/{name}', cross-namespace references have been blocked")
    };
    let (their_source, their_artifact) = (
        blocked("GitRepository", "secret"),
        blocked("ExternalArtifact", "theirs"),
    );
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
            "generator-chart",
            source("HelmChart", "x", "EVIL"),
            "HelmChart is not supported yet",
            json!({}),
        ),
        attack(
            "generator-glob-bomb",
            json!({ "artifacts": [{ "name": "NAME", "copy": vec![json!({
                "from": "@s/**", "to": "@artifact/", "exclude": vec![bomb.clone(); 100]
            }); 20] }] }),
            "take too much work for so many files",
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
            "sources": [{ "alias": "s", "kind": "GitRepository", "name": "files" }], "artifacts": of(name, "@s/map.yaml")
        });
        let object = scene.object(ARTIFACT_GENERATOR, name, usual, spec);
        serde_json::from_str(&object.to_string().replace("NAME", name)).unwrap()
    };
    scene.check(&attacks, make).await;
    scene.stage.end().await;
}

/// Two that feed each other, one that feeds itself, and what was stored before they did.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generators_that_feed_each_other_are_named_and_rest() {
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
    // First each has something, then they are bent to each other.
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
    // The control: as long as it is no circle, one is made of the other.
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
        assert!(message.contains("generators that feed each other"), "{message}");
    }
    scene
        .mallory
        .apply(generator("self", json!([files, other("self")]), grow))
        .await
        .unwrap();
    // Its artifact is not there before it is: then it is named.
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
    // Once the circle is open again, both are made.
    scene.mallory.apply(generator("a", json!([files]), own)).await.unwrap();
    for name in ["a", "b"] {
        scene
            .stage
            .ready(ARTIFACT_GENERATOR, (evil, name), "True", "Succeeded")
            .await;
    }
    scene.stage.end().await;
}

/// A status names an address and a digest: neither is looked at, whoever the object says makes it.
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
        "sources": [{ "alias": "s", "kind": "GitRepository", "name": "files" }], "artifacts": of("genuine", "@s/map.yaml")
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
        // Its generator is there, and makes nothing of this name.
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
    // The control: what was really made is applied, whatever its status says.
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
    scene.stage.end().await;
}
