//! Objects of a store, applied as files of a Git repository are.

use serde_json::{Value, json};
use tenure_bucket_server::{BucketServer, Keys};

use crate::stage::{BUCKET, CONFIG_MAP, KUSTOMIZATION, Stage, condition, config_map};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_is_applied_and_followed() {
    let store = BucketServer::start().await.unwrap();
    let allow = [format!("http://{}", store.address())];
    let mut stage = Stage::set_allowing("buckets", &allow).await;
    let put = |value: &str| store.put("apps", "deploy/map.yaml", config_map("web", value).as_bytes());
    put("one");
    store.put("apps", "README.md", b"words");
    store.require(Keys {
        id: "AKIDEXAMPLE".to_owned(),
        secret: "sesame".to_owned(),
        region: "eu-west-1".to_owned(),
    });
    let source = |name: &str, spec: Value| {
        let mut usual = json!({
            "endpoint": store.address().to_string(), "bucketName": "apps", "insecure": true, "interval": "1s"
        });
        for (key, value) in spec.as_object().unwrap() {
            usual[key] = value.clone();
        }
        let metadata = json!({ "name": name, "namespace": "buckets" });
        json!({ "apiVersion": BUCKET.0, "kind": BUCKET.1, "metadata": metadata, "spec": usual })
    };
    for object in [
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "keys", "namespace": "buckets" },
            "stringData": { "accesskey": "AKIDEXAMPLE", "secretkey": "sesame" }
        }),
        source("app", json!({ "secretRef": { "name": "keys" } })),
        source("anonymous", json!({})),
        source("missing", json!({ "secretRef": { "name": "none" } })),
    ] {
        stage.admin.apply(object).await.unwrap();
    }
    let spec = json!({ "sourceRef": { "kind": "Bucket", "name": "app" }, "path": "./deploy" });
    stage.kustomization("buckets", "app", "app", spec).await;

    stage
        .ready(KUSTOMIZATION, ("buckets", "app"), "True", "ReconciliationSucceeded")
        .await;
    let bucket = stage.get(BUCKET, ("buckets", "app")).await.unwrap();
    let revision = bucket["status"]["artifact"]["revision"].as_str().unwrap();
    assert!(revision.starts_with("sha256:"), "{bucket:#}");
    let stored = condition(&bucket, "ArtifactInStorage").unwrap();
    assert_eq!(stored["message"], format!("stored artifact: revision '{revision}'"));
    let applied = stage.get(KUSTOMIZATION, ("buckets", "app")).await.unwrap();
    assert_eq!(applied["status"]["lastAppliedRevision"], revision);
    for (name, reason, expected) in [
        (
            "anonymous",
            "BucketOperationFailed",
            "name a Secret with accesskey and secretkey",
        ),
        (
            "missing",
            "AuthenticationFailed",
            "Secret buckets/none can't be read as system:serviceaccount:buckets:default",
        ),
    ] {
        let message = stage.ready(BUCKET, ("buckets", name), "False", reason).await;
        assert!(message.contains(expected) && !message.contains("sesame"), "{message}");
    }

    // A new object wakes the Kustomization that applies from the store, also after a restart found the stored artifact again.
    put("two");
    let has = |value: &'static str| move |map: Option<&Value>| map.is_some_and(|map| map["data"]["value"] == value);
    stage.wait_for(CONFIG_MAP, ("buckets", "web"), has("two")).await;
    stage.restart().await;
    put("three");
    stage.wait_for(CONFIG_MAP, ("buckets", "web"), has("three")).await;
    stage.shut_down().await;
}
