//! Artifacts of a container registry, applied as files of a Git repository are.

use serde_json::{Value, json};
use tenure_registry_server::{Access, Artifact, RegistryServer};
use tenure_testkit::{SOON, eventually};

use crate::stage::{CONFIG_MAP, KUSTOMIZATION, OCI_REPOSITORY, Stage, condition, config_map};

const SECRET: (&str, &str) = ("v1", "Secret");

fn artifact(value: &str) -> Artifact {
    Artifact::from_files(&[("./deploy/map.yaml", &config_map("web", value)), ("README.md", "words")])
}

fn source(name: &str, namespace: &str, registry: &RegistryServer, spec: &Value) -> Value {
    let mut usual =
        json!({ "url": format!("oci://{}/team/app", registry.address()), "insecure": true, "interval": "1s" });
    for (key, value) in spec.as_object().unwrap() {
        usual[key] = value.clone();
    }
    json!({
        "apiVersion": OCI_REPOSITORY.0, "kind": OCI_REPOSITORY.1,
        "metadata": { "name": name, "namespace": namespace }, "spec": usual
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_artifact_is_applied_and_its_origin_is_reported() {
    let registry = RegistryServer::start().await.unwrap();
    let allow = [format!("http://{}", registry.address())];
    let mut stage = Stage::set_allowing("registries", &allow).await;
    let first = registry.push("team/app", "latest", &artifact("one"));
    let app = source("app", "registries", &registry, &json!({}));
    stage.admin.apply(app).await.unwrap();
    let spec = json!({ "sourceRef": { "kind": "OCIRepository", "name": "app" }, "path": "./deploy" });
    stage.kustomization("registries", "app", "app", spec).await;

    stage
        .ready(KUSTOMIZATION, ("registries", "app"), "True", "ReconciliationSucceeded")
        .await;
    let applied = stage.get(KUSTOMIZATION, ("registries", "app")).await.unwrap();
    assert_eq!(applied["status"]["lastAppliedRevision"], format!("latest@{first}"));
    let origin = "main@sha1:0123456789012345678901234567890123456789";
    assert_eq!(applied["status"]["lastAppliedOriginRevision"], origin);
    let map = stage.get(CONFIG_MAP, ("registries", "web")).await.unwrap();
    assert_eq!(map["data"]["value"], "one", "{map:#}");
    let repository = stage.get(OCI_REPOSITORY, ("registries", "app")).await.unwrap();
    assert_eq!(repository["status"]["artifact"]["revision"], format!("latest@{first}"));
    assert_eq!(
        repository["status"]["artifact"]["metadata"]["org.opencontainers.image.source"],
        "https://git.example/app"
    );
    assert_eq!(
        condition(&repository, "ArtifactInStorage").unwrap()["message"],
        format!("stored artifact for digest 'latest@{first}'")
    );
    let reported = eventually(SOON, || async {
        let events = stage.admin.list(("v1", "Event"), "registries").await;
        let events = events.map_err(|error| error.to_string())?;
        let is_origin_reported = |event: &Value| {
            event["metadata"]["annotations"]["kustomize.toolkit.fluxcd.io/originRevision"] == origin
                && event["involvedObject"]["kind"] == "Kustomization"
        };
        if events.iter().any(is_origin_reported) {
            Ok(())
        } else {
            Err(format!("{events:#?}"))
        }
    });
    reported.await.unwrap();

    // A push wakes the Kustomization that applies from it.
    registry.push("team/app", "latest", &artifact("two"));
    stage
        .wait_for(CONFIG_MAP, ("registries", "web"), |map| {
            map.is_some_and(|map| map["data"]["value"] == "two")
        })
        .await;
    // The stored artifact is found again.
    stage.restart().await;
    registry.push("team/app", "latest", &artifact("three"));
    stage
        .wait_for(CONFIG_MAP, ("registries", "web"), |map| {
            map.is_some_and(|map| map["data"]["value"] == "three")
        })
        .await;
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_are_read_from_secrets_and_service_accounts() {
    let registry = RegistryServer::start().await.unwrap();
    let allow = [format!("http://{}", registry.address())];
    let stage = Stage::set_allowing("registries-b", &allow).await;
    registry.push("team/app", "latest", &artifact("one"));
    let realm = format!("http://{}/token", registry.address());
    let pair = Some("user:sesame".to_owned());
    registry.require(Access::Token { realm, pair });
    let auths = json!({ "auths": { registry.address().to_string(): { "username": "user", "password": "sesame" } } });
    for object in [
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
            "metadata": { "name": "pull", "namespace": "registries-b" },
            "stringData": { ".dockerconfigjson": auths.to_string() }
        }),
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "imagePullSecrets": [{ "name": "pull" }],
            "metadata": { "name": "puller", "namespace": "registries-b" }
        }),
        source("anonymous", "registries-b", &registry, &json!({})),
        source(
            "secret",
            "registries-b",
            &registry,
            &json!({ "secretRef": { "name": "pull" } }),
        ),
        source(
            "account",
            "registries-b",
            &registry,
            &json!({ "serviceAccountName": "puller" }),
        ),
        source(
            "missing",
            "registries-b",
            &registry,
            &json!({ "secretRef": { "name": "none" } }),
        ),
    ] {
        stage.admin.apply(object).await.unwrap();
    }
    for name in ["secret", "account"] {
        stage
            .ready(OCI_REPOSITORY, ("registries-b", name), "True", "Succeeded")
            .await;
    }
    for (name, expected) in [
        ("anonymous", "name a Secret with credentials"),
        (
            "missing",
            "Secret registries-b/none can't be read as system:serviceaccount:registries-b:default",
        ),
    ] {
        let message = stage
            .ready(OCI_REPOSITORY, ("registries-b", name), "False", "AuthenticationFailed")
            .await;
        assert!(message.contains(expected) && !message.contains("sesame"), "{message}");
    }
    assert!(stage.get(SECRET, ("registries-b", "pull")).await.is_some());
    stage.shut_down().await;
}
