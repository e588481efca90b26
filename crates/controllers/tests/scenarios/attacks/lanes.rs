//! Attacks with the tokens of the controllers: a lane's token, and their own. A compromised lane must not reach another lane's namespaces, and a
//! compromised controller must not take over the cluster. Removed rights of a lane are restored, and their absence harms no other lane.

use serde_json::{Value, json};
use tenure_testkit::{Admin, SOON, eventually};

use super::Scene;
use crate::stage::{CONFIG_MAP, GIT_REPOSITORY, KUSTOMIZATION, Stage, commit, condition, config_map, request_token};
use crate::tenants::{surface, surface_ready};

pub(super) const ROLE_BINDING: (&str, &str) = ("rbac.authorization.k8s.io/v1", "RoleBinding");
const SECRET: (&str, &str) = ("v1", "Secret");
const EVENT: (&str, &str) = ("v1", "Event");
pub(super) const LANE: &str = "tenure:lane";

#[track_caller]
pub(super) fn assert_forbidden<T: std::fmt::Debug>(asked: Result<T, impl ToString>, what: &str) {
    let message = asked.expect_err(what).to_string();
    assert!(message.to_lowercase().contains("forbidden"), "{what}: {message}");
}

pub(super) fn account(namespace: &str, name: &str) -> Value {
    json!({ "kind": "ServiceAccount", "name": name, "namespace": namespace })
}

pub(super) fn binding(kind: &str, namespace: Option<&str>, name: &str, role: &str, subject: &Value) -> Value {
    let mut metadata = json!({ "name": name });
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    json!({
        "apiVersion": ROLE_BINDING.0, "kind": kind, "metadata": metadata,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [subject]
    })
}

fn config_map_in(namespace: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "lanes", "namespace": namespace } })
}

/// Returns the right by which a user may request a token of an account, as the API server explains it.
async fn explain_token(admin: &Admin, user: &str, namespace: &str, name: &str) -> String {
    let attributes = json!({ "namespace": namespace, "verb": "create", "resource": "serviceaccounts", "subresource": "token", "name": name });
    let review = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": { "user": user, "groups": ["system:serviceaccounts", "system:serviceaccounts:tenure-system", "system:authenticated"], "resourceAttributes": attributes } });
    let request = http::Request::post("/apis/authorization.k8s.io/v1/subjectaccessreviews")
        .header("content-type", "application/json");
    let request = request.body(review.to_string().into_bytes()).unwrap();
    let answer: Value = admin.client().request(request).await.unwrap();
    answer["status"].to_string()
}

/// Sends a request as the cluster's administrators, by impersonation.
async fn become_administrator(who: &Admin) -> Result<Value, String> {
    let request = http::Request::get("/api/v1/namespaces/kube-system/secrets")
        .header("impersonate-user", "anybody")
        .header("impersonate-group", "system:masters")
        .body(Vec::new())
        .unwrap();
    who.client().request(request).await.map_err(|error| error.to_string())
}

/// Creates a ready Surface in each tenant's home namespace, so that both lanes work.
async fn apply_surfaces(scene: &Scene) {
    for tenant in [&scene.evil, &scene.alpha] {
        surface(
            &scene.stage,
            tenant,
            "apps",
            &[("a.yaml", &config_map("a", "1"))],
            json!({}),
        )
        .await;
        surface_ready(&scene.stage, (tenant, "apps")).await;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "treasure", "namespace": tenant },
            "stringData": { "key": "sesame" }
        });
        scene.stage.admin.apply(secret).await.unwrap();
    }
}

async fn until_bound(stage: &Stage, namespace: &str) {
    stage
        .wait_for(ROLE_BINDING, (namespace, LANE), |binding| {
            binding.is_some_and(|binding| binding["metadata"]["deletionTimestamp"].is_null())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lane_token_works_only_in_its_own_namespaces() {
    let scene = Scene::set("attacks-lane").await;
    apply_surfaces(&scene).await;
    let (evil, alpha) = (scene.evil.as_str(), scene.alpha.as_str());
    let name = format!("tenure-lane-tenant-{evil}");
    let lane = scene.stage.bearing("tenure-system", &name).await;

    // The control: its intended use.
    let own = lane.get(KUSTOMIZATION, (evil, "apps-app")).await.unwrap().unwrap();
    let status = json!({ "status": { "observedGeneration": own["status"]["observedGeneration"] } });
    lane.patch_status(KUSTOMIZATION, (evil, "apps-app"), status.clone())
        .await
        .unwrap();
    let token = request_token(&lane, evil, &format!("{evil}-gitops")).await.unwrap();
    assert!(!token.is_empty());

    // Objects of another tenant.
    for kind in [
        KUSTOMIZATION,
        GIT_REPOSITORY,
        ("tenure.dev/v1alpha1", "Surface"),
        SECRET,
        CONFIG_MAP,
        ROLE_BINDING,
    ] {
        for namespace in [alpha, "tenure-system", "kube-system", ""] {
            assert_forbidden(lane.list(kind, namespace).await, &format!("{kind:?} in {namespace:?}"));
        }
    }
    for (kind, name) in [
        (KUSTOMIZATION, "apps-app"),
        (GIT_REPOSITORY, "apps-app"),
        (SECRET, "treasure"),
    ] {
        assert_forbidden(
            lane.get(kind, (alpha, name)).await,
            &format!("{kind:?} of another tenant"),
        );
    }
    assert_forbidden(
        lane.patch(
            KUSTOMIZATION,
            (alpha, "apps-app"),
            json!({ "spec": { "suspend": true } }),
        )
        .await,
        "suspending another tenant's",
    );
    assert_forbidden(
        lane.patch_status(KUSTOMIZATION, (alpha, "apps-app"), status).await,
        "the status of another tenant's",
    );
    // Of its own tenant: only bookkeeping. Applies are done as another account.
    assert_forbidden(lane.get(SECRET, (evil, "treasure")).await, "a Secret of its own tenant");
    assert_forbidden(lane.apply(config_map_in(evil)).await, "a ConfigMap");
    assert_forbidden(
        lane.patch(
            ("v1", "Namespace"),
            ("", evil),
            json!({ "metadata": { "labels": { "a": "b" } } }),
        )
        .await,
        "a namespace",
    );
    // Tokens.
    scene.stage.admin.apply(json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "lanes", "namespace": "kube-system" } })).await.unwrap();
    for (namespace, account) in [
        (alpha, format!("{alpha}-gitops")),
        ("tenure-system", "tenure-controller".to_owned()),
        ("tenure-system", "tenure-lane-platform".to_owned()),
        ("tenure-system", "tenure-lane-pool".to_owned()),
        ("tenure-system", name.clone()),
        ("kube-system", "lanes".to_owned()),
    ] {
        let asked = request_token(&lane, namespace, &account).await;
        assert_forbidden(asked.map(|_| "a token"), &format!("a token of {namespace}/{account}"));
    }
    // Rights.
    let itself = account("tenure-system", &name);
    for namespace in [evil, alpha, "kube-system"] {
        for role in ["tenure-lane", "view", "cluster-admin"] {
            let bound = binding("RoleBinding", Some(namespace), "more", role, &itself);
            assert_forbidden(lane.apply(bound).await, &format!("{role} in {namespace}"));
        }
    }
    assert_forbidden(
        lane.apply(binding(
            "ClusterRoleBinding",
            None,
            "lanes-more",
            "cluster-admin",
            &itself,
        ))
        .await,
        "cluster-admin",
    );
    assert_forbidden(
        lane.patch(ROLE_BINDING, (evil, LANE), json!({ "subjects": [] })).await,
        "its own RoleBinding",
    );
    assert_forbidden(become_administrator(&lane).await, "system:masters");
    scene
        .stage
        .admin
        .delete(("v1", "ServiceAccount"), ("kube-system", "lanes"))
        .await
        .unwrap();
    scene.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn controller_token_has_no_administrator_rights() {
    let scene = Scene::set("attacks-hub").await;
    apply_surfaces(&scene).await;
    let (evil, admin) = (scene.evil.as_str(), &scene.stage.admin);
    let hub = scene.stage.bearing("tenure-system", "tenure-controller").await;
    let mighty = account("kube-system", "attacks-hub-mighty");
    admin.apply(json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": mighty["name"], "namespace": "kube-system" } })).await.unwrap();
    admin
        .apply(binding(
            "ClusterRoleBinding",
            None,
            "attacks-hub-mighty",
            "cluster-admin",
            &mighty,
        ))
        .await
        .unwrap();

    // The control: its intended use.
    assert!(!hub.list(KUSTOMIZATION, "").await.unwrap().is_empty());
    let lane = account("tenure-system", &format!("tenure-lane-tenant-{evil}"));
    hub.apply(binding("RoleBinding", Some(evil), LANE, "tenure-lane", &lane))
        .await
        .unwrap();
    request_token(&hub, "tenure-system", lane["name"].as_str().unwrap())
        .await
        .unwrap();

    let itself = account("tenure-system", "tenure-controller");
    for namespace in [evil, "kube-system", "tenure-system"] {
        for role in [
            "cluster-admin",
            "edit",
            "system:controller:clusterrole-aggregation-controller",
        ] {
            let bound = binding("RoleBinding", Some(namespace), "more", role, &itself);
            assert_forbidden(hub.apply(bound).await, &format!("{role} in {namespace}"));
        }
    }
    for role in ["cluster-admin", "tenure-lane", "admin"] {
        let bound = binding("ClusterRoleBinding", None, "attacks-hub-more", role, &itself);
        assert_forbidden(hub.apply(bound).await, &format!("{role} everywhere"));
    }
    let role = |kind: &str, rules: Value| json!({ "apiVersion": ROLE_BINDING.0, "kind": kind, "metadata": { "name": "tenure-lane", "namespace": evil }, "rules": rules });
    let all = json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }]);
    assert_forbidden(hub.apply(role("Role", all.clone())).await, "a Role");
    let mut cluster_role = role("ClusterRole", all);
    cluster_role["metadata"].as_object_mut().unwrap().remove("namespace");
    assert_forbidden(hub.apply(cluster_role).await, "the role that it may bind");
    assert_forbidden(become_administrator(&hub).await, "system:masters");
    for (namespace, name) in [
        ("kube-system", "attacks-hub-mighty"),
        (evil, "default"),
        (&scene.alpha, "default"),
    ] {
        admin.apply(json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name, "namespace": namespace } })).await.unwrap();
        let asked = request_token(&hub, namespace, name).await;
        let why = explain_token(
            admin,
            "system:serviceaccount:tenure-system:tenure-controller",
            namespace,
            name,
        )
        .await;
        assert_forbidden(asked.map(|_| why), &format!("a token of {namespace}/{name}"));
    }
    // Lanes write reconciled objects, and the acting account writes applied objects.
    assert_forbidden(
        hub.patch(
            KUSTOMIZATION,
            (evil, "apps-app"),
            json!({ "spec": { "serviceAccountName": "other" } }),
        )
        .await,
        "a Kustomization",
    );
    assert_forbidden(
        hub.patch_status(
            KUSTOMIZATION,
            (evil, "apps-app"),
            json!({ "status": { "observedGeneration": 1 } }),
        )
        .await,
        "a status",
    );
    assert_forbidden(
        hub.delete(GIT_REPOSITORY, (evil, "apps-app")).await.map(|()| ""),
        "a source",
    );
    assert_forbidden(hub.list(SECRET, evil).await, "Secrets");
    assert_forbidden(hub.apply(config_map_in(evil)).await, "a ConfigMap");
    admin
        .delete(
            ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
            ("", "attacks-hub-mighty"),
        )
        .await
        .unwrap();
    admin
        .delete(("v1", "ServiceAccount"), ("kube-system", "attacks-hub-mighty"))
        .await
        .unwrap();
    scene.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owner_removing_lane_rights_harms_only_itself() {
    let scene = Scene::set("attacks-rights").await;
    apply_surfaces(&scene).await;
    let (evil, alpha, stage) = (scene.evil.as_str(), scene.alpha.as_str(), &scene.stage);
    let first = stage.get(ROLE_BINDING, (evil, LANE)).await.unwrap();
    // An owner as Capsule creates them can't bind the lane's rights to itself.
    let mallory = &scene.mallory;
    let owner = stage.admin.impersonating(&format!("{alpha}-owner")).unwrap();
    let itself = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": format!("{alpha}-owner") });
    let subjects = json!({ "subjects": [itself] });
    assert_forbidden(
        owner.patch(ROLE_BINDING, (alpha, LANE), subjects).await,
        "the owner for the lane",
    );
    assert_forbidden(
        owner
            .apply(binding("RoleBinding", Some(alpha), "mine", "tenure-lane", &itself))
            .await,
        "the lane's role",
    );
    // But it can remove the rights, as every user with write access to RoleBindings there.
    for number in 2..5 {
        mallory
            .patch(
                ROLE_BINDING,
                (evil, LANE),
                json!({ "metadata": { "finalizers": null } }),
            )
            .await
            .unwrap();
        mallory.delete(ROLE_BINDING, (evil, LANE)).await.unwrap();
        let commit = commit(
            &stage.git.repository(&format!("{alpha}-apps")).unwrap(),
            &[("a.yaml", &config_map("a", &number.to_string()))],
        )
        .await;
        stage.wait_for_commit((alpha, "apps-app"), &commit).await;
        until_bound(stage, evil).await;
    }
    let again = stage.get(ROLE_BINDING, (evil, LANE)).await.unwrap();
    assert_ne!(first["metadata"]["uid"], again["metadata"]["uid"]);
    assert_eq!(again["subjects"], first["subjects"]);
    let reported = eventually(SOON, || async {
        let events = stage.admin.list(EVENT, evil).await.map_err(|error| error.to_string())?;
        let is_restored =
            |event: &Value| event["reason"] == "LaneRightsPutBack" && event["involvedObject"]["name"] == LANE;
        if events.iter().any(is_restored) {
            Ok(())
        } else {
            Err(format!("{events:#?}"))
        }
    });
    reported.await.unwrap();
    // Its own commits are applied again.
    let commit = commit(
        &stage.git.repository(&format!("{evil}-apps")).unwrap(),
        &[("a.yaml", &config_map("a", "3"))],
    )
    .await;
    stage.wait_for_commit((evil, "apps-app"), &commit).await;
    // A deletion without removing the finalizer is also undone.
    mallory.delete(ROLE_BINDING, (evil, LANE)).await.unwrap();
    let undone = stage.wait_for(ROLE_BINDING, (evil, LANE), |binding| {
        binding.is_some_and(|binding| {
            binding["metadata"]["deletionTimestamp"].is_null() && binding["metadata"]["uid"] != again["metadata"]["uid"]
        })
    });
    undone.await;
    scene.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lane_rights_exist_only_while_something_is_reconciled() {
    let stage = Stage::set("lanes-go").await.planting(&[]).await;
    assert!(stage.get(ROLE_BINDING, ("lanes-go", LANE)).await.is_none());
    let repository = stage
        .repository("lanes-go", "app", &[("a.yaml", &config_map("a", "1"))])
        .await;
    stage.kustomization("lanes-go", "app", "app", json!({})).await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit(("lanes-go", "app"), &first).await;
    let bound = stage.get(ROLE_BINDING, ("lanes-go", LANE)).await.unwrap();
    assert_eq!(bound["subjects"][0]["name"], "tenure-lane-pool");
    stage.admin.delete(KUSTOMIZATION, ("lanes-go", "app")).await.unwrap();
    stage.admin.delete(GIT_REPOSITORY, ("lanes-go", "app")).await.unwrap();
    stage
        .wait_for(ROLE_BINDING, ("lanes-go", LANE), |binding| binding.is_none())
        .await;
    // The deletion of a whole namespace completes, with everything that its lane has to do there.
    stage
        .repository("lanes-go", "more", &[("a.yaml", &config_map("b", "1"))])
        .await;
    stage.kustomization("lanes-go", "more", "more", json!({})).await;
    stage
        .ready(KUSTOMIZATION, ("lanes-go", "more"), "True", "ReconciliationSucceeded")
        .await;
    stage.admin.delete(("v1", "Namespace"), ("", "lanes-go")).await.unwrap();
    stage
        .wait_for(("v1", "Namespace"), ("", "lanes-go"), |namespace| namespace.is_none())
        .await;
    stage.shut_down().await;
}

/// A lane needs one token and one RoleBinding in a namespace, however many Kustomizations it has there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lane_cost_does_not_grow_with_kustomizations() {
    let stage = Stage::set_failing("lanes-cost").await.planting(&[]).await;
    let repository = stage
        .repository("lanes-cost", "app", &[("a.yaml", &config_map("a", "1"))])
        .await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    for number in 0..20 {
        let spec = json!({ "namePrefix": format!("n{number}-") });
        stage
            .kustomization("lanes-cost", &format!("app-{number}"), "app", spec)
            .await;
    }
    for number in 0..20 {
        stage
            .wait_for_commit(("lanes-cost", &format!("app-{number}")), &first)
            .await;
    }
    let token = |name: &str| {
        stage
            .faults
            .count(&http::Method::POST, &format!("/serviceaccounts/{name}/token"))
    };
    assert_eq!((token("tenure-lane-pool"), token("default")), (1, 1));
    let written = |path: &str| stage.faults.count(&http::Method::PATCH, path);
    assert_eq!(written("/namespaces/lanes-cost/rolebindings/tenure:lane"), 1);
    // The account stays after its last namespace is gone. On a cluster with earlier tests it already exists.
    assert!(written("/serviceaccounts/tenure-lane-pool") <= 1);
    // A real API server may apply the RoleBinding with a delay.
    let reviews = stage.faults.count(&http::Method::POST, "/selfsubjectaccessreviews");
    assert!(
        (2..40).contains(&reviews),
        "{reviews}: of this namespace and the platform's"
    );
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_kustomization_acts_as_tenure_or_in_kube_system() {
    let stage = Stage::set("lanes-own").await.planting(&[]).await;
    let metadata = json!({ "name": "lanes-own", "namespace": "kube-system" });
    let role = json!({ "apiVersion": ROLE_BINDING.0, "kind": "Role", "metadata": metadata,
        "rules": [{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"] }] });
    let bound = json!({ "apiVersion": ROLE_BINDING.0, "kind": "RoleBinding", "metadata": metadata,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "lanes-own" },
        "subjects": [account("kube-system", "lanes-own")] });
    for object in [
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata }),
        role,
        bound,
    ] {
        stage.admin.apply(object).await.unwrap();
    }
    for namespace in ["kube-system", "tenure-system"] {
        stage
            .repository(namespace, "lanes-own", &[("a.yaml", &config_map("lanes-own", "1"))])
            .await;
    }
    // As itself, or as a lane, not even the platform's.
    for name in ["tenure-controller", "tenure-lane-platform", "tenure-lane-pool"] {
        let spec = json!({ "serviceAccountName": name });
        stage
            .kustomization("tenure-system", "lanes-own", "lanes-own", spec)
            .await;
        let refused = stage.wait_for(KUSTOMIZATION, ("tenure-system", "lanes-own"), |object| {
            let ready = object.and_then(|object| condition(object, "Ready"));
            ready.is_some_and(|ready| {
                ready["reason"] == "AccessDenied" && ready["message"].as_str().unwrap().contains(name)
            })
        });
        refused.await;
    }
    // The platform's lane reports the missing right there. It gets no token of any account until an administrator has bound it to more.
    let spec = json!({ "serviceAccountName": "lanes-own" });
    stage.kustomization("kube-system", "lanes-own", "lanes-own", spec).await;
    let refused = stage.wait_for(KUSTOMIZATION, ("kube-system", "lanes-own"), |object| {
        let ready = object.and_then(|object| condition(object, "Ready"));
        ready.is_some_and(|ready| {
            let message = ready["message"].as_str().unwrap();
            ready["status"] == "False"
                && message.contains("serviceaccounts/token")
                && message.contains("tenure-lane-platform")
        })
    });
    refused.await;
    // With checks of writes, no account of Tenure gets a token there.
    stage.send_guard_away();
    let lane = account("tenure-system", "tenure-lane-platform");
    let granted = binding(
        "RoleBinding",
        Some("kube-system"),
        "lanes-own-tokens",
        "tenure-lane",
        &lane,
    );
    stage.admin.apply(granted).await.unwrap();
    let asked = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": "now" } } });
    stage
        .admin
        .patch(KUSTOMIZATION, ("kube-system", "lanes-own"), asked)
        .await
        .unwrap();
    stage
        .ready(
            KUSTOMIZATION,
            ("kube-system", "lanes-own"),
            "True",
            "ReconciliationSucceeded",
        )
        .await;
    for namespace in ["kube-system", "tenure-system"] {
        stage
            .admin
            .delete(KUSTOMIZATION, (namespace, "lanes-own"))
            .await
            .unwrap();
        stage
            .wait_for(KUSTOMIZATION, (namespace, "lanes-own"), |object| object.is_none())
            .await;
        stage
            .admin
            .delete(GIT_REPOSITORY, (namespace, "lanes-own"))
            .await
            .unwrap();
    }
    for (kind, name) in [
        (ROLE_BINDING, "lanes-own"),
        (ROLE_BINDING, "lanes-own-tokens"),
        (("v1", "ServiceAccount"), "lanes-own"),
    ] {
        stage.admin.delete(kind, ("kube-system", name)).await.unwrap();
    }
    stage.shut_down().await;
}
