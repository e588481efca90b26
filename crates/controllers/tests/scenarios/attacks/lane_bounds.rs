//! A thief with a lane's token, after an administrator has bound the lane to everything by mistake. The thief can write only what a lane writes.

use serde_json::{Value, json};
use tenure_testkit::{Admin, AdminError, SOON, eventually};

use super::bounds::{NAMESPACE, SERVICE_ACCOUNT};
use super::lanes::{ROLE_BINDING, account, binding};
use crate::stage::{GIT_REPOSITORY, KUSTOMIZATION, Stage, request_token};

const CLUSTER_ROLE_BINDING: &str = "ClusterRoleBinding";
/// A namespace of the shared lane.
const TEAM: &str = "lane-bounds-team";
/// A protected namespace, which has a lane of its own.
const PROTECTED: &str = "cozy-lane-bounds";
const LANE: &str = "tenure-lane-pool";
const CONFIG_MAP: (&str, &str) = ("v1", "ConfigMap");

fn object((api_version, kind): (&str, &str), namespace: &str, name: &str, more: Value) -> Value {
    let mut object =
        json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": name, "namespace": namespace } });
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
    object
}

fn kustomization(namespace: &str, name: &str) -> Value {
    let spec = json!({
        "suspend": true, "interval": "1h", "prune": false, "path": "./",
        "sourceRef": { "kind": "GitRepository", "name": "missing" }
    });
    object(KUSTOMIZATION, namespace, name, json!({ "spec": spec }))
}

/// A GitRepository as a lane generates it from a Surface.
fn make_generated(namespace: &str, name: &str) -> Value {
    let mut object = object(
        GIT_REPOSITORY,
        namespace,
        name,
        json!({ "spec": { "suspend": true, "interval": "1h", "url": "https://git.example.org/a.git" } }),
    );
    object["metadata"]["labels"] = json!({ "tenure.dev/surface": "missing" });
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "tenure.dev/v1alpha1", "kind": "Surface", "name": "missing",
        "uid": "00000000-0000-0000-0000-000000000000", "controller": true
    }]);
    object
}

fn assert_refused<T: std::fmt::Debug>(what: &str, asked: Result<T, AdminError>) {
    let message = asked.expect_err(what).to_string();
    assert!(message.contains("(controller-rights)"), "{what}: {message}");
}

/// Waits until the API server has applied bindings and policies, which it follows with a watch.
async fn wait_for_rights(lane: &Admin) {
    let known = eventually(SOON, || async {
        let patched = lane
            .patch(NAMESPACE, ("", TEAM), json!({ "metadata": { "labels": { "a": "b" } } }))
            .await;
        match patched {
            Err(error) if error.to_string().contains("(controller-rights)") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    known.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stolen_lane_token_writes_only_what_lanes_write() {
    let stage = Stage::set("lane-bounds").await.planting(&[]).await;
    stage.send_guard_away();
    let admin = &stage.admin;
    for name in [TEAM, PROTECTED] {
        stage.namespace(name).await;
        admin
            .apply(object(CONFIG_MAP, name, "canary", json!({ "data": { "a": "b" } })))
            .await
            .unwrap();
        admin.apply(kustomization(name, "plain")).await.unwrap();
    }
    admin
        .apply(object(SERVICE_ACCOUNT, "tenure-system", LANE, json!({})))
        .await
        .unwrap();
    let everything = binding(
        CLUSTER_ROLE_BINDING,
        None,
        "lane-bounds",
        "cluster-admin",
        &account("tenure-system", LANE),
    );
    admin.apply(everything).await.unwrap();
    let lane = stage.bearing("tenure-system", LANE).await;
    wait_for_rights(&lane).await;

    let thief = account(TEAM, "default");
    let pod = json!({ "containers": [{ "name": "a", "image": "a" }] });
    let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": pod });
    let deployment = json!({ "spec": { "selector": { "matchLabels": { "a": "b" } }, "template": template } });
    let mut foreign = make_generated(TEAM, "foreign");
    foreign["metadata"]["labels"] = json!({});
    let mut finalized = make_generated(TEAM, "finalized");
    finalized["metadata"]["finalizers"] = json!(["example.org/stay"]);
    let thefts = [
        ("a Secret", object(("v1", "Secret"), TEAM, "a", json!({}))),
        ("a ConfigMap", object(CONFIG_MAP, TEAM, "a", json!({}))),
        ("a Pod", object(("v1", "Pod"), TEAM, "a", json!({ "spec": pod }))),
        ("a Deployment", object(("apps/v1", "Deployment"), TEAM, "a", deployment)),
        ("a ServiceAccount", object(SERVICE_ACCOUNT, TEAM, "a", json!({}))),
        (
            "a RoleBinding",
            binding(ROLE_BINDING.1, Some(TEAM), "a", "admin", &thief),
        ),
        (
            "a ClusterRoleBinding",
            binding(CLUSTER_ROLE_BINDING, None, "lane-bounds-more", "view", &thief),
        ),
        (
            "a Namespace",
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "lane-bounds-more" } }),
        ),
        ("a Kustomization", kustomization(TEAM, "a")),
        ("a source without a Surface", foreign),
        ("a source with a foreign finalizer", finalized),
        ("a source of another lane", make_generated(PROTECTED, "a")),
    ];
    for (what, object) in thefts {
        assert_refused(what, lane.create(object).await);
    }
    for (what, patch) in [
        (
            "another account",
            json!({ "spec": { "serviceAccountName": "default" } }),
        ),
        ("a label", json!({ "metadata": { "labels": { "a": "b" } } })),
        ("an annotation", json!({ "metadata": { "annotations": { "a": "b" } } })),
        (
            "a finalizer",
            json!({ "metadata": { "finalizers": ["example.org/stay"] } }),
        ),
        (
            "an owner",
            json!({ "metadata": { "ownerReferences": [{
                "apiVersion": "v1", "kind": "ConfigMap", "name": "missing", "uid": "00000000-0000-0000-0000-000000000000"
            }] } }),
        ),
    ] {
        assert_refused(what, lane.patch(KUSTOMIZATION, (TEAM, "plain"), patch).await);
    }
    let status = json!({ "status": { "lastHandledReconcileAt": "thief" } });
    assert_refused(
        "a status in another lane's namespace",
        lane.patch_status(KUSTOMIZATION, (PROTECTED, "plain"), status.clone())
            .await,
    );
    assert_refused("a deletion", lane.delete(KUSTOMIZATION, (TEAM, "plain")).await);
    assert_refused("another deletion", lane.delete(CONFIG_MAP, (TEAM, "canary")).await);
    for (namespace, name) in [(PROTECTED, "default"), ("tenure-system", "tenure-controller")] {
        let message = request_token(&lane, namespace, name).await.unwrap_err();
        assert!(message.contains("(controller-rights)"), "{namespace}/{name}: {message}");
    }
    assert!(stage.get(CONFIG_MAP, (TEAM, "canary")).await.is_some());

    // The control: the writes of a lane.
    for patch in [
        json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": "now" } } }),
        json!({ "metadata": { "finalizers": ["finalizers.fluxcd.io"] } }),
        json!({ "metadata": { "finalizers": null } }),
    ] {
        lane.patch(KUSTOMIZATION, (TEAM, "plain"), patch).await.unwrap();
    }
    lane.patch_status(KUSTOMIZATION, (TEAM, "plain"), status).await.unwrap();
    lane.create(make_generated(TEAM, "generated")).await.unwrap();
    let changed = json!({ "spec": { "interval": "2h" } });
    // Kubernetes' garbage collector, where it runs, removes an object whose owner is missing.
    match lane.patch(GIT_REPOSITORY, (TEAM, "generated"), changed).await {
        Err(error) if error.is_not_found() => {}
        other => drop(other.unwrap()),
    }
    lane.delete(GIT_REPOSITORY, (TEAM, "generated")).await.unwrap();
    let event = json!({
        "involvedObject": { "apiVersion": KUSTOMIZATION.0, "kind": KUSTOMIZATION.1, "name": "plain", "namespace": TEAM },
        "reason": "Told", "message": "a lane's event", "type": "Normal"
    });
    lane.create(object(("v1", "Event"), TEAM, "lane-bounds", event))
        .await
        .unwrap();
    request_token(&lane, TEAM, "default").await.unwrap();
    // The policy affects no other account, whatever its name is.
    admin
        .apply(object(SERVICE_ACCOUNT, TEAM, LANE, json!({})))
        .await
        .unwrap();
    let namesake = binding(ROLE_BINDING.1, Some(TEAM), "namesake", "edit", &account(TEAM, LANE));
    admin.apply(namesake).await.unwrap();
    let namesake = stage.bearing(TEAM, LANE).await;
    let written = eventually(SOON, || {
        namesake.apply(object(CONFIG_MAP, TEAM, "namesakes", json!({})))
    });
    written.await.unwrap();

    admin
        .delete((ROLE_BINDING.0, CLUSTER_ROLE_BINDING), ("", "lane-bounds"))
        .await
        .unwrap();
    stage.shut_down().await;
}
