//! Attacks on keys: to get another tenant's key, to have a key written elsewhere, and to misuse the account that writes them.

use serde_json::{Value, json};
use tenure_testkit::{SOON, eventually};

use super::Scene;
use super::lanes::assert_forbidden;
use crate::deploy_keys::{Host, ROLE, ROLE_BINDING, SECRET, key, let_write, says};
use crate::stage::{CONFIG_MAP, KUSTOMIZATION, Stage, condition, config_map, request_token};
use crate::tenants::{SURFACE, adopt, surface, surface_ready};

const WRITER: &str = "tenure-secret-writer";
const SERVICE_ACCOUNT: (&str, &str) = ("v1", "ServiceAccount");
/// The beginning of every unencrypted ed25519 private key in OpenSSH's form: "openssh-key-v1", no cipher, one key.
const PRIVATE: &str = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW";

/// Returns an object with the marks of a Tenure credential of an existing Surface. Objects without an owner are removed.
fn mark(owner: &Value, kind: (&str, &str), namespace: &str, name: &str, rest: Value) -> Value {
    let mut object = json!({
        "apiVersion": kind.0, "kind": kind.1,
        "metadata": {
            "name": name, "namespace": namespace,
            "labels": { "app.kubernetes.io/managed-by": "tenure", "tenure.dev/credential": "deploy-key" },
            "ownerReferences": [{ "apiVersion": "tenure.dev/v1alpha1", "kind": "Surface", "name": "shop", "uid": owner["metadata"]["uid"] }]
        }
    });
    for (field, value) in rest.as_object().unwrap() {
        object[field] = value.clone();
    }
    object
}

fn rules(resources: &str, verbs: &[&str], names: Value) -> Value {
    let mut rule = json!({ "apiGroups": [""], "resources": [resources], "verbs": verbs });
    if !names.is_null() {
        rule["resourceNames"] = names;
    }
    json!({ "rules": [rule] })
}

fn bound(role: (&str, &str), subjects: Value) -> Value {
    json!({ "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": role.0, "name": role.1 }, "subjects": subjects })
}

/// If an administrator allows it, RBAC lets the account write every Secret and Role of a namespace. A policy above the account prevents misuse,
/// whether or not Tenure maintains policies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_account_that_writes_credentials_writes_nothing_else() {
    let stage = Stage::set("keys-writer").await.planting(&[]).await;
    let admin = &stage.admin;
    let here = "keys-writer";
    let_write(admin, here).await;
    // The Surface acts for no tenant here, so nothing is generated from it.
    let spec = json!({ "suspend": true, "sources": [{ "name": "app", "url": "ssh://git@git.example/app.git" }] });
    let owner = json!({ "apiVersion": SURFACE.0, "kind": SURFACE.1, "metadata": { "name": "shop", "namespace": here }, "spec": spec });
    let owner = admin.apply(owner).await.unwrap();
    let marked =
        |kind: (&str, &str), namespace: &str, name: &str, rest: Value| mark(&owner, kind, namespace, name, rest);
    let plain = |name: &str| json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": here }, "stringData": { "a": "b" } });
    admin.apply(plain("of-somebody")).await.unwrap();
    let mine = json!([{ "kind": "ServiceAccount", "name": "default", "namespace": here }]);
    let elsewhere = json!([{ "kind": "ServiceAccount", "name": "default", "namespace": "kube-system" }]);
    let everybody =
        json!([{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated" }]);
    let token = json!({ "type": "kubernetes.io/service-account-token" });
    let mut token = marked(SECRET, here, "token", token);
    token["metadata"]["annotations"] = json!({ "kubernetes.io/service-account.name": "default" });
    let mut unowned = marked(SECRET, here, "unowned", json!({}));
    unowned["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    let own = json!(["good"]);
    let attempts = [
        ("a Secret without marks", plain("plain")),
        ("a Secret without an owner", unowned),
        (
            "marks on somebody's Secret",
            marked(SECRET, here, "of-somebody", json!({})),
        ),
        ("a token", token),
        (
            "all Secrets",
            marked(ROLE, here, "good", rules("secrets", &["get"], Value::Null)),
        ),
        (
            "another Secret",
            marked(ROLE, here, "good", rules("secrets", &["get"], json!(["of-somebody"]))),
        ),
        (
            "more than get",
            marked(ROLE, here, "good", rules("secrets", &["get", "patch"], own.clone())),
        ),
        (
            "a Role without marks",
            json!({ "apiVersion": ROLE.0, "kind": ROLE.1, "metadata": { "name": "good", "namespace": here }, "rules": [] }),
        ),
        (
            "another role",
            marked(
                ROLE_BINDING,
                here,
                "other",
                bound(("ClusterRole", WRITER), mine.clone()),
            ),
        ),
        (
            "an account elsewhere",
            marked(ROLE_BINDING, here, "good", bound(("Role", "good"), elsewhere)),
        ),
        (
            "everybody",
            marked(ROLE_BINDING, here, "good", bound(("Role", "good"), everybody)),
        ),
    ];
    let writer = stage.bearing("tenure-system", WRITER).await;
    // The control: its intended use works. The server follows roles with a watch.
    let good = marked(ROLE, here, "good", rules("secrets", &["get"], own));
    eventually(SOON, || writer.apply(good.clone())).await.unwrap();
    for object in [
        marked(
            SECRET,
            here,
            "good",
            json!({ "type": "Opaque", "stringData": { "a": "b" } }),
        ),
        marked(ROLE_BINDING, here, "good", bound(("Role", "good"), mine)),
    ] {
        eventually(SOON, || writer.apply(object.clone())).await.unwrap();
    }
    for (what, object) in attempts {
        // The policies apply too.
        let asked = eventually(SOON, || async {
            match writer.apply(object.clone()).await {
                Err(error) if error.to_string().contains("(secret-writer)") => Ok(()),
                other => Err(format!("{what}: {other:?}")),
            }
        });
        asked.await.unwrap();
    }
    let refused = writer.delete(SECRET, (here, "of-somebody")).await;
    assert!(refused.unwrap_err().to_string().contains("(secret-writer)"));

    // Its written objects stay marked.
    let unmarked = json!({ "metadata": { "labels": { "tenure.dev/credential": null } } });
    let refused = writer
        .patch(SECRET, (here, "good"), unmarked)
        .await
        .unwrap_err()
        .to_string();
    assert!(refused.contains("(secret-writer)"), "{refused}");
    assert_forbidden(writer.list(SECRET, here).await, "a list of Secrets");
    assert_forbidden(writer.get(CONFIG_MAP, (here, "a")).await, "a ConfigMap");
    assert_forbidden(
        writer.get(SECRET, ("kube-system", "a")).await,
        "a Secret where nobody bound it",
    );
    writer.delete(SECRET, (here, "good")).await.unwrap();

    // It may change neither the policies nor its own rights.
    let weaker = json!({ "metadata": { "labels": { "a": "b" } } });
    for name in ["tenure-secret-writer", "tenure-secret-writer-token"] {
        let policy = ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy");
        assert_forbidden(writer.patch(policy, ("", name), weaker.clone()).await, name);
        let hub = stage.bearing("tenure-system", "tenure-controller").await;
        assert_forbidden(hub.patch(policy, ("", name), weaker.clone()).await, name);
    }
    stage.shut_down().await;
}

/// If an administrator lets it change ServiceAccounts, it changes only its own entries among their `imagePullSecrets`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credential_writer_changes_only_its_own_pull_secrets() {
    let stage = Stage::set("keys-accounts").await.planting(&[]).await;
    let (admin, here) = (&stage.admin, "keys-accounts");
    let all = json!({ "rules": [{ "apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["get", "create", "patch", "delete"] }] });
    let subjects = json!([{ "kind": "ServiceAccount", "name": WRITER, "namespace": "tenure-system" }]);
    let plain = |kind: (&str, &str), name: &str, rest: &Value| {
        let mut object =
            json!({ "apiVersion": kind.0, "kind": kind.1, "metadata": { "name": name, "namespace": here } });
        for (field, value) in rest.as_object().unwrap() {
            object[field] = value.clone();
        }
        object
    };
    let somebodys = json!({ "imagePullSecrets": [{ "name": "of-somebody" }] });
    for object in [
        plain(ROLE, "accounts", &all),
        plain(ROLE_BINDING, "accounts", &bound(("Role", "accounts"), subjects)),
        plain(SERVICE_ACCOUNT, "runner", &somebodys),
    ] {
        admin.apply(object).await.unwrap();
    }
    let writer = stage.bearing("tenure-system", WRITER).await;
    let mark = "pull-secrets.access.tenure.dev/work-42";
    let entries = |names: &[&str]| names.iter().map(|name| json!({ "name": name })).collect::<Vec<_>>();
    let named = json!({ "metadata": { "annotations": { mark: "ours" } }, "imagePullSecrets": entries(&["of-somebody", "ours"]) });
    // The control: its intended use works.
    eventually(SOON, || writer.patch(SERVICE_ACCOUNT, (here, "runner"), named.clone()))
        .await
        .unwrap();
    let attempts = [
        (
            "an entry without a mark",
            json!({ "imagePullSecrets": entries(&["of-somebody", "ours", "more"]) }),
        ),
        (
            "somebody's entry taken out",
            json!({ "imagePullSecrets": entries(&["ours"]) }),
        ),
        (
            "another one's name on the mark",
            json!({ "metadata": { "annotations": { mark: "else" } }, "imagePullSecrets": entries(&["of-somebody", "ours", "more"]) }),
        ),
        ("a label", json!({ "metadata": { "labels": { "a": "b" } } })),
        (
            "another annotation",
            json!({ "metadata": { "annotations": { "eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/all" } } }),
        ),
        (
            "an owner",
            json!({ "metadata": { "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "b" }] } }),
        ),
        (
            "a finalizer",
            json!({ "metadata": { "finalizers": ["example.org/a"] } }),
        ),
        ("secrets", json!({ "secrets": [{ "name": "ours" }] })),
        ("its mounted token", json!({ "automountServiceAccountToken": false })),
    ];
    for (what, patch) in attempts {
        // A real server follows policies by a watch.
        let asked = eventually(SOON, || async {
            match writer.patch(SERVICE_ACCOUNT, (here, "runner"), patch.clone()).await {
                Err(error) if error.to_string().contains("(secret-writer)") => Ok(()),
                other => Err(format!("{what}: {other:?}")),
            }
        });
        asked.await.unwrap();
    }
    let made = writer.create(plain(SERVICE_ACCOUNT, "another", &json!({}))).await;
    assert!(made.unwrap_err().to_string().contains("(secret-writer)"));
    let gone = writer.delete(SERVICE_ACCOUNT, (here, "runner")).await;
    assert!(gone.unwrap_err().to_string().contains("(secret-writer)"));
    let taken = json!({ "metadata": { "annotations": { mark: null } }, "imagePullSecrets": entries(&["of-somebody"]) });
    let runner = writer.patch(SERVICE_ACCOUNT, (here, "runner"), taken).await.unwrap();
    assert_eq!(runner["imagePullSecrets"], somebodys["imagePullSecrets"]);
    stage.shut_down().await;
}

/// Only the controller may request its token, and no content of a repository acts as it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_controller_gets_token_of_credential_writer() {
    let scene = Scene::set("keys-token").await;
    let stage = &scene.stage;
    // RBAC lets the platform's lane request every token of the platform's namespace.
    let lane = stage.bearing("tenure-system", "tenure-lane-platform").await;
    let control = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "keys-token", "namespace": "tenure-system" } });
    stage.admin.apply(control).await.unwrap();
    eventually(SOON, || request_token(&lane, "tenure-system", "keys-token"))
        .await
        .unwrap();
    let asked = request_token(&lane, "tenure-system", WRITER).await.unwrap_err();
    assert!(asked.contains("(secret-writer)"), "{asked}");
    let hub = stage.bearing("tenure-system", "tenure-controller").await;
    request_token(&hub, "tenure-system", WRITER).await.unwrap();

    let account = stage.bearing(&scene.evil, &format!("{}-gitops", scene.evil)).await;
    surface(
        stage,
        &scene.evil,
        "apps",
        &[("a.yaml", &config_map("a", "1"))],
        json!({}),
    )
    .await;
    surface_ready(stage, (&scene.evil, "apps")).await;
    let own_lane = stage
        .bearing("tenure-system", &format!("tenure-lane-tenant-{}", scene.evil))
        .await;
    for (who, what) in [
        (&scene.mallory, "the owner"),
        (&account, "the account"),
        (&own_lane, "the lane"),
    ] {
        assert_forbidden(request_token(who, "tenure-system", WRITER).await, what);
    }

    // A Kustomization of the platform can act neither as this account nor as the controller.
    let kustomization = json!({
        "apiVersion": KUSTOMIZATION.0, "kind": KUSTOMIZATION.1, "metadata": { "name": "keys-token", "namespace": "tenure-system" },
        "spec": { "interval": "10m", "prune": true, "path": "./", "serviceAccountName": WRITER,
            "sourceRef": { "kind": "GitRepository", "name": "none" } }
    });
    stage.admin.apply(kustomization).await.unwrap();
    let message = stage
        .ready(KUSTOMIZATION, ("tenure-system", "keys-token"), "False", "AccessDenied")
        .await;
    assert!(message.contains("is Tenure's own"), "{message}");
    stage
        .admin
        .delete(KUSTOMIZATION, ("tenure-system", "keys-token"))
        .await
        .unwrap();
    stage
        .admin
        .delete(SERVICE_ACCOUNT, ("tenure-system", "keys-token"))
        .await
        .unwrap();
    scene.shut_down().await;
}

/// A tenant gets only its own key, only in its home namespace, and never over an existing Secret. A private key is only in its Secret.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenant_gets_only_its_own_key() {
    let host = Host::start().await;
    let mut scene = Scene::set_allowing("keys-thief", &[host.endpoint()]).await;
    let evil = scene.evil.clone();
    scene.stage.listen_for(&evil, PRIVATE);
    let stage = &scene.stage;
    for namespace in [&scene.evil, &scene.alpha] {
        let_write(&stage.admin, namespace).await;
    }
    let dev = format!("{}-dev", scene.evil);
    adopt(stage, &scene.evil, &dev).await;
    let_write(&stage.admin, &dev).await;
    let nobodys = "keys-thief";
    let_write(&stage.admin, nobodys).await;

    // It can't write a Surface into another tenant's namespace. In its other namespaces, and in one without a tenant, a Surface has no identity.
    assert_forbidden(
        scene.mallory.apply(host.surface(&scene.alpha, None)).await,
        "another's namespace",
    );
    for namespace in [dev.as_str(), nobodys] {
        stage.admin.apply(host.surface(namespace, None)).await.unwrap();
        stage
            .ready(SURFACE, (namespace, "shop"), "False", "WrongNamespace")
            .await;
    }

    // A Secret at the key's place is neither filled, read nor used, even if a server would accept it.
    let planted = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": "shop-app-deploy-key", "namespace": scene.evil, "labels": { "tenure.dev/credential": "deploy-key", "tenure.dev/surface": "shop" } },
        "stringData": { "identity": "mine", "identity.pub": "mine", "known_hosts": "mine" }
    });
    scene.mallory.apply(planted).await.unwrap();
    scene.mallory.apply(host.surface(&scene.evil, None)).await.unwrap();
    let ready = says(stage, &scene.evil, "was not made by this surface").await;
    assert_eq!(ready["reason"], "DeployKeyUnavailable");
    let held = stage.get(SECRET, (&scene.evil, "shop-app-deploy-key")).await.unwrap();
    assert_eq!(held["data"]["identity"], "bWluZQ==");
    assert_eq!(host.git.requests(), 0, "nobody asked the server");
    scene
        .absent(&[
            (SECRET, &dev, "shop-app-deploy-key"),
            (SECRET, nobodys, "shop-app-deploy-key"),
            (SECRET, "ALPHA", "shop-app-deploy-key"),
            (ROLE, "EVIL", "shop-app-deploy-key"),
        ])
        .await;

    // The control: without that Secret it gets its own key, and its neighbour's account can't read it.
    scene
        .mallory
        .delete(SECRET, (&scene.evil, "shop-app-deploy-key"))
        .await
        .unwrap();
    let (public, _) = key(stage, &scene.evil, &[]).await;
    host.git.authorize(&public).unwrap();
    let surface = surface_ready(stage, (&scene.evil, "shop")).await;
    assert!(condition(&surface, "Ready").is_some());
    let neighbour = stage.bearing(&scene.alpha, &format!("{}-gitops", scene.alpha)).await;
    let read = neighbour.get(SECRET, (&scene.evil, "shop-app-deploy-key")).await;
    assert_forbidden(read, "a neighbour's key");
    let lane = stage
        .bearing("tenure-system", &format!("tenure-lane-tenant-{}", scene.evil))
        .await;
    assert_forbidden(lane.get(SECRET, (&scene.evil, "shop-app-deploy-key")).await, "the lane");
    let hub = stage.bearing("tenure-system", "tenure-controller").await;
    assert_forbidden(
        hub.get(SECRET, (&scene.evil, "shop-app-deploy-key")).await,
        "the controller",
    );
    let own = stage.bearing(&scene.evil, &format!("{}-gitops", scene.evil)).await;
    let held = own
        .get(SECRET, (&scene.evil, "shop-app-deploy-key"))
        .await
        .unwrap()
        .unwrap();
    assert!(held["data"]["identity"].is_string());
    scene.shut_down().await;
}
