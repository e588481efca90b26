//! Surfaces and sources in namespaces with an unclear tenant, and the requests that their owner can make.

use serde_json::{Value, json};
use tenure_testkit::Admin;

use super::Scene;
use crate::stage::{CONFIG_MAP, GIT_REPOSITORY, KUSTOMIZATION, config_map};
use crate::tenants::{SURFACE, TENANT, adopt, surface, surface_ready};

const NAMESPACE: (&str, &str) = ("v1", "Namespace");
const LABEL: &str = "capsule.clastix.io/tenant";
const NOT_RECORDED: &str = "whose status doesn't list it with its uid";

fn namespace(name: &str, labels: Value, owners: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": name, "labels": labels, "ownerReferences": owners }
    })
}

async fn forbidden(asked: Result<Value, tenure_testkit::AdminError>, what: &str) {
    let message = asked.expect_err(what).to_string();
    assert!(message.contains("forbidden"), "{what}: {message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_has_no_rights_beyond_its_namespaces() {
    let scene = Scene::set("attacks-e").await;
    let (evil, alpha) = (scene.evil.as_str(), scene.alpha.as_str());
    let mallory: &Admin = &scene.mallory;
    let bound = |role: &str, namespace: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "name": format!("to-{role}"), "namespace": namespace },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
            "subjects": [{ "kind": "ServiceAccount", "name": "default", "namespace": alpha }]
        })
    };
    let map = |namespace: &str| json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "m", "namespace": namespace } });
    let label = |tenant: &str| json!({ "metadata": { "labels": { LABEL: tenant } } });

    mallory.apply(map(evil)).await.unwrap();
    forbidden(mallory.apply(map(alpha)).await, "a ConfigMap of another tenant").await;
    forbidden(mallory.apply(map("tenure-system")).await, "a ConfigMap of the platform").await;
    mallory.apply(bound("view", evil)).await.unwrap();
    forbidden(
        mallory.apply(bound("cluster-admin", evil)).await,
        "binding cluster-admin",
    )
    .await;
    forbidden(
        mallory.patch(NAMESPACE, ("", evil), label(alpha)).await,
        "relabelling the own namespace",
    )
    .await;
    forbidden(
        mallory.patch(NAMESPACE, ("", alpha), label(evil)).await,
        "relabelling another's namespace",
    )
    .await;
    forbidden(
        mallory
            .create(namespace(&format!("{evil}-more"), json!({ LABEL: evil }), json!([])))
            .await,
        "a namespace",
    )
    .await;
    forbidden(
        mallory
            .patch(
                TENANT,
                ("", evil),
                json!({ "metadata": { "annotations": { "tenure.dev/home-namespace": alpha } } }),
            )
            .await,
        "moving the own home",
    )
    .await;
    for target in [alpha, "tenure-system"] {
        let moved = json!({
            "apiVersion": KUSTOMIZATION.0, "kind": KUSTOMIZATION.1, "metadata": { "name": "x", "namespace": target },
            "spec": { "interval": "1m", "prune": true, "sourceRef": { "kind": "GitRepository", "name": "x" } }
        });
        forbidden(mallory.apply(moved).await, "a Kustomization elsewhere").await;
    }
    let token = |namespace: &str, name: &str| {
        let client = mallory.client();
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        async move {
            let body = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
            let api: kube::Api<k8s_openapi::api::core::v1::ServiceAccount> =
                kube::Api::namespaced(client, path.split('/').nth(4).unwrap());
            let request = serde_json::from_value(body).unwrap();
            api.create_token_request(
                path.split('/').nth(6).unwrap(),
                &kube::api::PostParams::default(),
                &request,
            )
            .await
            .map(|_| Value::Null)
            .map_err(tenure_testkit::AdminError::from)
        }
    };
    token(evil, &format!("{evil}-gitops")).await.unwrap();
    forbidden(
        token(alpha, &format!("{alpha}-gitops")).await,
        "a token of another tenant",
    )
    .await;
    forbidden(
        token("tenure-system", "tenure-controller").await,
        "a token of the controller",
    )
    .await;
    scene.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn label_or_forged_owner_gives_no_namespace() {
    let scene = Scene::set("attacks-f").await;
    let (evil, alpha, stage) = (scene.evil.as_str(), scene.alpha.as_str(), &scene.stage);
    let uid = |tenant: &Value| tenant["metadata"]["uid"].as_str().unwrap().to_owned();
    let evil_uid = uid(&stage.get(TENANT, ("", evil)).await.unwrap());
    let alpha_uid = uid(&stage.get(TENANT, ("", alpha)).await.unwrap());
    let owner = |name: &str, uid: &str| json!([{ "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "name": name, "uid": uid }]);
    surface(stage, alpha, "apps", &[("a.yaml", &config_map("a", "1"))], json!({})).await;
    surface_ready(stage, (alpha, "apps")).await;

    // Each as a user with write access to namespaces might leave it. No account may act in it, and the message names the reason. (One whose only
    // owner does not exist is not among them: Kubernetes collects it.)
    let places = [
        (
            "no-tenant",
            json!({ LABEL: "nobody" }),
            json!([]),
            "which does not exist",
        ),
        ("label-only", json!({ LABEL: alpha }), json!([]), NOT_RECORDED),
        (
            "two-owners",
            json!({ LABEL: evil }),
            json!([owner(evil, &evil_uid)[0], owner(alpha, &alpha_uid)[0]]),
            NOT_RECORDED,
        ),
        (
            "owner-and-label",
            json!({ LABEL: alpha }),
            owner(evil, &evil_uid),
            NOT_RECORDED,
        ),
        // All required metadata, written by a user with write access to namespaces and no other right.
        (
            "forged",
            json!({ LABEL: alpha }),
            owner(alpha, &alpha_uid),
            NOT_RECORDED,
        ),
    ];
    // An ownerReference proves nothing, and would let the garbage collector delete the namespace.
    let is_disowned =
        |found: Option<&Value>| found.is_some_and(|found| found.pointer("/metadata/ownerReferences/0").is_none());
    let owned = namespace("attacks-f-owner-only", json!({}), owner(evil, &evil_uid));
    stage.admin.apply(owned).await.unwrap();
    stage
        .wait_for(NAMESPACE, ("", "attacks-f-owner-only"), is_disowned)
        .await;
    for (name, labels, owners, expected) in places {
        let name = format!("attacks-f-{name}");
        stage.admin.apply(namespace(&name, labels, owners)).await.unwrap();
        stage.wait_for(NAMESPACE, ("", &name), is_disowned).await;
        for (kind, reason) in [(SURFACE, "WrongNamespace"), (KUSTOMIZATION, "IdentityMissing")] {
            let spec = if kind == SURFACE {
                json!({ "sources": [{ "name": "app", "url": "http://git.example.com/app" }] })
            } else {
                json!({ "interval": "1h", "prune": true, "sourceRef": { "kind": "GitRepository", "name": "x" } })
            };
            let object = json!({ "apiVersion": kind.0, "kind": kind.1, "metadata": { "name": "x", "namespace": name }, "spec": spec });
            stage.admin.apply(object).await.unwrap();
            let message = stage.ready(kind, (&name, "x"), "False", reason).await;
            assert!(message.contains(expected), "{name}: {message}");
        }
    }

    // Relabelled after the surface exists: no account acts any more, applied objects stay, and later commits are not applied.
    stage
        .admin
        .patch(
            NAMESPACE,
            ("", alpha),
            json!({ "metadata": { "labels": { LABEL: evil } } }),
        )
        .await
        .unwrap();
    stage.ready(SURFACE, (alpha, "apps"), "False", "WrongNamespace").await;
    stage
        .ready(KUSTOMIZATION, (alpha, "apps-app"), "False", "IdentityMissing")
        .await;
    assert!(stage.get(CONFIG_MAP, (alpha, "a")).await.is_some());
    // The new label's tenant can't act there either.
    scene.serve(&[("a.yaml".to_owned(), config_map("planted", "1"))]).await;
    scene
        .mallory
        .apply(scene.kustomization("taker", &json!({ "targetNamespace": "ALPHA" })))
        .await
        .unwrap();
    let message = stage
        .ready(KUSTOMIZATION, (evil, "taker"), "False", "AccessDenied")
        .await;
    assert!(message.contains("does not belong"), "{message}");
    scene.absent(&[(CONFIG_MAP, "ALPHA", "planted")]).await;
    // After an authorised user restores the label, it works again.
    let back = json!({ "metadata": { "labels": { LABEL: alpha } } });
    stage.admin.patch(NAMESPACE, ("", alpha), back).await.unwrap();
    adopt(stage, alpha, alpha).await;
    surface_ready(stage, (alpha, "apps")).await;
    scene.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_home_namespace_has_the_tenants_identity() {
    let scene = Scene::set("attacks-g").await;
    let (evil, stage) = (scene.evil.as_str(), &scene.stage);
    let second = format!("{evil}-second");
    adopt(stage, evil, &second).await;
    stage
        .wait_for(
            ("rbac.authorization.k8s.io/v1", "RoleBinding"),
            (&second, "tenure:gitops"),
            |binding| binding.is_some(),
        )
        .await;
    stage.admin.apply(json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default", "namespace": second } })).await.unwrap();
    stage
        .admin
        .apply(json!({
            "apiVersion": SURFACE.0, "kind": SURFACE.1, "metadata": { "name": "apps", "namespace": second },
            "spec": { "sources": [{ "name": "app", "url": "http://git.example.com/app" }] }
        }))
        .await
        .unwrap();
    let message = stage.ready(SURFACE, (&second, "apps"), "False", "WrongNamespace").await;
    assert!(message.contains(evil), "{message}");
    scene
        .absent(&[
            (KUSTOMIZATION, &second, "apps-app"),
            (GIT_REPOSITORY, &second, "apps-app"),
        ])
        .await;

    // A Secret that the namespace's identity may not read is not read. In the home namespace the tenant's account may.
    let repository = stage.private.create(&scene.fill("EVIL-private")).await.unwrap();
    repository
        .commit([("a.yaml", config_map("private", "1"))], "first")
        .await
        .unwrap();
    for namespace in [evil, &second] {
        for object in [
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "login", "namespace": namespace },
                "stringData": { "username": "git", "password": "sesame" }
            }),
            json!({
                "apiVersion": GIT_REPOSITORY.0, "kind": GIT_REPOSITORY.1,
                "metadata": { "name": "private", "namespace": namespace },
                "spec": {
                    "url": stage.private.http_url(&scene.fill("EVIL-private")), "ref": { "branch": "main" },
                    "interval": "1m", "secretRef": { "name": "login" }
                }
            }),
        ] {
            stage.admin.apply(object).await.unwrap();
        }
    }
    stage
        .ready(GIT_REPOSITORY, (evil, "private"), "True", "Succeeded")
        .await;
    let refused = stage
        .wait_for(GIT_REPOSITORY, (&second, "private"), |object| {
            let ready = object.and_then(|object| crate::stage::condition(object, "Ready"));
            ready.is_some_and(|ready| ready["status"] == "False")
        })
        .await
        .unwrap();
    let message = refused["status"].to_string();
    assert!(
        message.contains(&format!("system:serviceaccount:{second}:default")),
        "{message}"
    );
    assert!(!message.contains("sesame"), "{message}");
    scene.shut_down().await;
}
