//! Attacks of a tenant with Receivers: to get another tenant's requests, objects, Secret or capacity.

use serde_json::{Value, json};

use super::{Scene, attack};
use crate::receivers::{find_path, push, receiver, token};
use crate::stage::{GIT_REPOSITORY, RECEIVER};

const REQUESTED: &str = "reconcile.fluxcd.io/requestedAt";

/// Returns the visible trace of requests to reconcile a source.
async fn find_asked(scene: &Scene, namespace: &str) -> Value {
    let source = scene.stage.get(GIT_REPOSITORY, (namespace, "app")).await.unwrap();
    source["metadata"]["annotations"][REQUESTED].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receiver_reaches_nothing_of_another_tenant() {
    let scene = Scene::set("attacks-h").await;
    let (evil, alpha) = (scene.evil.as_str(), scene.alpha.as_str());
    let admin = &scene.stage.admin;
    for (tenant, secret) in [(evil, "of-evil"), (alpha, "of-alpha")] {
        admin.apply(token(tenant, "token", secret)).await.unwrap();
        let source = json!({
            "apiVersion": GIT_REPOSITORY.0, "kind": GIT_REPOSITORY.1,
            "metadata": { "name": "app", "namespace": tenant, "labels": { "a": "b" } },
            "spec": { "url": scene.stage.git.http_url("none"), "interval": "1h" }
        });
        admin.apply(source).await.unwrap();
    }
    admin.apply(token(alpha, "token-of-alpha", "of-alpha")).await.unwrap();
    admin.apply(receiver(alpha, "hook", &json!({}))).await.unwrap();
    let of_alpha = find_path(&scene.stage, (alpha, "hook"), "").await;

    let resource = |fields: Value| {
        let mut resource = json!({ "kind": "GitRepository", "name": "app" });
        for (key, value) in fields.as_object().unwrap() {
            resource[key] = value.clone();
        }
        json!({ "resources": [resource] })
    };
    let attacks = [
        attack(
            "object-of-alpha",
            resource(json!({ "namespace": "ALPHA" })),
            "can't ask 'GitRepository/ALPHA/app' to reconcile: cross-namespace references are not allowed",
            resource(json!({ "namespace": "EVIL" })),
        ),
        attack(
            "all-of-alpha",
            resource(json!({ "namespace": "ALPHA", "name": "*", "matchLabels": { "a": "b" } })),
            "cross-namespace references are not allowed",
            resource(json!({ "name": "*", "matchLabels": { "a": "b" } })),
        ),
        attack(
            "all-of-the-platform",
            resource(json!({ "namespace": "tenure-system", "name": "*", "matchLabels": { "a": "b" } })),
            "cross-namespace references are not allowed",
            json!({}),
        ),
        attack(
            "name-dots",
            resource(json!({ "name": "../../ALPHA/gitrepositories/app" })),
            "spec.resources[0].name",
            json!({}),
        ),
        attack(
            "secret-dots",
            json!({ "secretRef": { "name": "../../ALPHA/secrets/token-of-alpha" } }),
            "spec.secretRef.name",
            json!({}),
        ),
        attack(
            "secret-of-alpha",
            json!({ "secretRef": { "name": "token-of-alpha" } }),
            "Secret EVIL/token-of-alpha can't be read as system:serviceaccount:EVIL:EVIL-gitops",
            json!({}),
        ),
        attack(
            "claims",
            json!({ "type": "gcr" }),
            "spec.type: gcr",
            json!({ "type": "github" }),
        ),
        attack(
            "other-variables",
            json!({ "resourceFilter": "self.spec != null" }),
            "spec.resourceFilter",
            json!({ "resourceFilter": "res.metadata.name == 'app'" }),
        ),
    ];
    scene
        .check(&attacks, |_, name, spec| {
            scene.value(&receiver("EVIL", name, &scene.value(spec)))
        })
        .await;

    // A forged status with alpha's path takes none of alpha's requests.
    let own = find_path(&scene.stage, (evil, "object-of-alpha-control"), "").await;
    let forged = json!({ "status": { "webhookPath": of_alpha } });
    let forged = forged.to_string().into_bytes();
    let path = format!(
        "/apis/{}/namespaces/{evil}/receivers/object-of-alpha-control/status",
        RECEIVER.0
    );
    let request = http::Request::patch(path)
        .header("content-type", "application/merge-patch+json")
        .body(forged)
        .unwrap();
    let patched: Value = scene.mallory.client().request(request).await.unwrap();
    assert_eq!(patched["status"]["webhookPath"], json!(of_alpha));
    let before = find_asked(&scene, evil).await;
    assert_eq!(scene.stage.post(&of_alpha, &push("of-alpha"), "").await, 200);
    assert!(
        find_asked(&scene, alpha).await.is_string(),
        "alpha's own source is asked"
    );
    assert_eq!(find_asked(&scene, evil).await, before);

    // Without the right token, the answer is the same as for an unknown path.
    let unknown = of_alpha.replace(&of_alpha[6..14], "00000000");
    let asked = find_asked(&scene, alpha).await;
    for headers in [&push("of-evil")[..], &push("")[..], &[]] {
        assert_eq!(scene.stage.post(&of_alpha, headers, "").await, 404);
        assert_eq!(scene.stage.post(&unknown, headers, "").await, 404);
    }
    assert_eq!(find_asked(&scene, alpha).await, asked);
    assert_eq!(scene.stage.post(&own, &push("of-evil"), "").await, 200, "the control");

    // A flood at the tenant's own hook is rejected, and no other hook is affected.
    let mut answers = Vec::new();
    for _ in 0..200 {
        answers.push(scene.stage.post(&own, &push("wrong"), "").await);
    }
    assert!(answers.contains(&404) && answers.contains(&429), "{answers:?}");
    assert_eq!(scene.stage.post(&of_alpha, &push("of-alpha"), "").await, 200);
    scene.shut_down().await;
}
