//! Attacks of a tenant with its own object store, or with the fields that name a store.

use serde_json::{Value, json};
use tenure_bucket_server::{Answer, BucketServer};

use super::{Attack, Scene, attack};
use crate::stage::{BUCKET, config_map};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn buckets_and_their_fields_reach_nothing_else() {
    let store = BucketServer::start().await.unwrap();
    let trap = BucketServer::start().await.unwrap();
    let forbidden = BucketServer::start().await.unwrap();
    let allowed = [&store, &trap].map(|server| format!("http://{}", server.address()));
    let scene = Scene::set_allowing("attacks-o", &allowed).await;
    let map = config_map("from-bucket", "x");
    store.put("app", "map.yaml", map.as_bytes());
    for (bucket, key) in [
        ("dots", "../../../../x"),
        ("absolute", "/etc/x"),
        ("git", "a/.git/config"),
    ] {
        store.put(bucket, "map.yaml", map.as_bytes());
        store.put(bucket, key, b"evil");
    }
    store.put("bomb", "bomb", &vec![b'0'; 65 << 20]);
    // Another store, which redirects every request to a forbidden address.
    let elsewhere = format!("http://{}/app/", forbidden.address());
    trap.answer_with(move |_| Some(Answer::new(307, "").with("Location", elsewhere.clone())));
    forbidden.put("app", "map.yaml", map.as_bytes());
    for namespace in [&scene.alpha, &"tenure-system".to_owned()] {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "keys-of-alpha", "namespace": namespace },
            "stringData": { "accesskey": "alpha", "secretkey": "sesame" }
        });
        scene.stage.admin.apply(secret).await.unwrap();
    }
    let attacks = [
        attack(
            "bucket-loopback",
            json!({ "endpoint": forbidden.address().to_string() }),
            "a loopback address",
            json!({}),
        ),
        attack(
            "bucket-metadata",
            json!({ "endpoint": "169.254.169.254" }),
            "a cloud metadata address",
            json!({}),
        ),
        attack(
            "bucket-redirect",
            json!({ "endpoint": trap.address().to_string() }),
            "redirects requests for the bucket to 127.0.0.1",
            json!({}),
        ),
        attack(
            "bucket-user",
            json!({ "endpoint": "user:sesame@example.com" }),
            "without a user, a path",
            json!({}),
        ),
        attack(
            "bucket-path",
            json!({ "bucketName": "app/../other" }),
            "spec.bucketName",
            json!({}),
        ),
        attack(
            "bucket-secret-dots",
            json!({ "secretRef": { "name": "../../ALPHA/secrets/keys-of-alpha" } }),
            "spec.secretRef.name",
            json!({}),
        ),
        attack(
            "bucket-secret-of-alpha",
            json!({ "secretRef": { "name": "keys-of-alpha" } }),
            "Secret EVIL/keys-of-alpha can't be read as system:serviceaccount:EVIL:EVIL-gitops",
            json!({}),
        ),
        attack(
            "bucket-cloud",
            json!({ "provider": "aws" }),
            "spec.provider: aws without spec.secretRef",
            json!({ "provider": "generic" }),
        ),
        attack(
            "bucket-token-service",
            json!({ "sts": { "provider": "ldap", "endpoint": "http://169.254.169.254" } }),
            "spec.sts",
            json!({}),
        ),
        attack(
            "bucket-key-dots",
            json!({ "bucketName": "dots" }),
            "can't be a file of an artifact",
            json!({ "bucketName": "dots", "ignore": "x" }),
        ),
        attack(
            "bucket-key-absolute",
            json!({ "bucketName": "absolute" }),
            "can't be a file of an artifact",
            json!({ "bucketName": "absolute", "ignore": "x" }),
        ),
        attack(
            "bucket-key-git",
            json!({ "bucketName": "git" }),
            "can't be a file of an artifact",
            json!({ "bucketName": "git", "ignore": "config" }),
        ),
        attack(
            "bucket-bomb",
            json!({ "bucketName": "bomb" }),
            "exceed 64 MiB",
            json!({}),
        ),
    ];
    let make = |_: &Attack, name: &str, spec: &Value| {
        let endpoint = store.address().to_string();
        let usual = json!({ "endpoint": endpoint, "bucketName": "app", "insecure": true, "interval": "1s" });
        scene.object(BUCKET, name, usual, spec)
    };
    scene.check(&attacks, make).await;
    assert!(forbidden.take_requests().is_empty());
    scene.shut_down().await;
}
