//! A user that may write only namespaces attacks a Tenant's record. Also the deletion of a Tenant.

use serde_json::{Value, json};
use tenure_testkit::Admin;

use super::Scene;
use crate::stage::{CONFIG_MAP, KUSTOMIZATION, Stage, condition, config_map};
use crate::tenants::{SURFACE, TENANT, adopt, surface, surface_ready, tenant};

const NAMESPACE: (&str, &str) = ("v1", "Namespace");
const ROLE_BINDING: (&str, &str) = ("rbac.authorization.k8s.io/v1", "RoleBinding");
const LABEL: &str = "capsule.clastix.io/tenant";

/// Returns a user that may write only namespaces.
async fn namespace_writer(stage: &Stage, name: &str) -> Admin {
    let metadata = json!({ "name": name });
    let rules =
        json!([{ "apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "create", "delete", "patch"] }]);
    let role = json!({ "apiVersion": ROLE_BINDING.0, "kind": "ClusterRole", "metadata": metadata, "rules": rules });
    stage.admin.apply(role).await.unwrap();
    let binding = json!({
        "apiVersion": ROLE_BINDING.0, "kind": "ClusterRoleBinding", "metadata": metadata,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name }]
    });
    stage.admin.apply(binding).await.unwrap();
    stage.admin.impersonating(name).unwrap()
}

/// Returns a namespace with all metadata of a tenant's namespace, but without the record.
fn claiming(name: &str, tenant: &Value) -> Value {
    let (tenant, uid) = (&tenant["metadata"]["name"], &tenant["metadata"]["uid"]);
    json!({ "apiVersion": NAMESPACE.0, "kind": NAMESPACE.1, "metadata": {
        "name": name, "labels": { LABEL: tenant },
        "ownerReferences": [{ "apiVersion": TENANT.0, "kind": TENANT.1, "name": tenant, "uid": uid }]
    }})
}

fn find_recorded(tenant: &Value, name: &str) -> Option<String> {
    let mut spaces = tenant["status"]["spaces"].as_array()?.iter();
    let space = spaces.find(|space| space["name"] == name)?;
    Some(space["uid"].as_str()?.to_owned())
}

/// Waits until the Tenant reports that it does not take a namespace.
async fn not_taken(stage: &Stage, tenant: &str, name: &str) {
    let says_so = |found: Option<&Value>| {
        let condition = found.and_then(|found| condition(found, "NamespacesRecorded"));
        condition.is_some_and(|condition| {
            condition["status"] == "False" && condition["message"].as_str().unwrap().contains(name)
        })
    };
    stage.wait_for(TENANT, ("", tenant), says_so).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespace_writer_gives_no_namespace_to_tenant() {
    let scene = Scene::set("attacks-r").await;
    let (alpha, stage) = (scene.alpha.as_str(), &scene.stage);
    let writer = namespace_writer(stage, "attacks-r-writer").await;
    let held = stage.get(TENANT, ("", alpha)).await.unwrap();
    let (forged, again) = (format!("{alpha}-forged"), format!("{alpha}-again"));

    // Created with all possible metadata.
    writer.create(claiming(&forged, &held)).await.unwrap();
    not_taken(stage, alpha, &forged).await;
    let thief = json!({
        "apiVersion": KUSTOMIZATION.0, "kind": KUSTOMIZATION.1, "metadata": { "name": "thief", "namespace": forged },
        "spec": { "interval": "1h", "prune": true, "sourceRef": { "kind": "GitRepository", "name": "x" } }
    });
    stage.admin.apply(thief).await.unwrap();
    let message = stage
        .ready(KUSTOMIZATION, (&forged, "thief"), "False", "IdentityMissing")
        .await;
    assert!(message.contains(&format!("tenure adopt {alpha} {forged}")), "{message}");
    assert!(stage.get(ROLE_BINDING, (&forged, "tenure:gitops")).await.is_none());
    // The control: an administrator adopts it.
    adopt(stage, alpha, &again).await;
    stage
        .wait_for(ROLE_BINDING, (&again, "tenure:gitops"), |found| found.is_some())
        .await;

    // Deleted and re-created by the same user.
    let before = find_recorded(&stage.get(TENANT, ("", alpha)).await.unwrap(), &again).unwrap();
    writer.delete(NAMESPACE, ("", &again)).await.unwrap();
    stage.wait_for(NAMESPACE, ("", &again), |found| found.is_none()).await;
    writer.create(claiming(&again, &held)).await.unwrap();
    not_taken(stage, alpha, &again).await;
    let now = stage.get(TENANT, ("", alpha)).await.unwrap();
    let uid = stage.get(NAMESPACE, ("", &again)).await.unwrap()["metadata"]["uid"].clone();
    assert!(uid != before && find_recorded(&now, &again) != uid.as_str().map(str::to_owned));
    assert!(stage.get(ROLE_BINDING, (&again, "tenure:gitops")).await.is_none());
    // For an authorised user it counts as a restored namespace.
    adopt(stage, alpha, &again).await;
    stage
        .wait_for(ROLE_BINDING, (&again, "tenure:gitops"), |found| found.is_some())
        .await;

    // Only Tenure and an administrator may write the record itself.
    let forgery = json!({ "status": { "size": 1, "state": "Active", "spaces": [{ "name": forged, "uid": "u" }] } });
    for who in [&writer, &scene.mallory] {
        let refused = who.patch_status(TENANT, ("", alpha), forgery.clone()).await;
        let message = refused.expect_err("a forged record").to_string();
        assert!(message.contains("forbidden"), "{message}");
    }
    // A namespace of Kubernetes never belongs to a tenant, even with all metadata and the record. The control: the rest of the record counts.
    let system = stage.get(NAMESPACE, ("", "kube-system")).await.unwrap();
    let mut spaces = stage.get(TENANT, ("", alpha)).await.unwrap()["status"]["spaces"].clone();
    let given = json!({ "name": "kube-system", "uid": system["metadata"]["uid"] });
    spaces.as_array_mut().unwrap().push(given);
    let given = json!({ "metadata": claiming("kube-system", &held)["metadata"] });
    stage.admin.patch(NAMESPACE, ("", "kube-system"), given).await.unwrap();
    let patch = json!({ "status": { "spaces": spaces } });
    stage.admin.patch_status(TENANT, ("", alpha), patch).await.unwrap();
    let in_system = json!({
        "apiVersion": KUSTOMIZATION.0, "kind": KUSTOMIZATION.1, "metadata": { "name": "attacks-r", "namespace": "kube-system" },
        "spec": { "interval": "1h", "prune": true, "sourceRef": { "kind": "GitRepository", "name": "x", "namespace": alpha } }
    });
    stage.admin.apply(in_system).await.unwrap();
    let message = stage
        .ready(KUSTOMIZATION, ("kube-system", "attacks-r"), "False", "AccessDenied")
        .await;
    assert!(
        message.contains("cross-namespace references have been blocked"),
        "{message}"
    );
    assert!(
        stage
            .get(ROLE_BINDING, ("kube-system", "tenure:gitops"))
            .await
            .is_none()
    );
    let back = json!({ "metadata": { "labels": { LABEL: null }, "ownerReferences": null } });
    stage.admin.patch(NAMESPACE, ("", "kube-system"), back).await.unwrap();
    stage
        .admin
        .delete(KUSTOMIZATION, ("kube-system", "attacks-r"))
        .await
        .unwrap();
    stage
        .wait_for(KUSTOMIZATION, ("kube-system", "attacks-r"), |found| found.is_none())
        .await;
    scene.shut_down().await;
}

/// A Tenant goes after all of its namespaces.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_tenant_names_namespace_that_blocks_its_deletion() {
    let stage = Stage::set("tenants-d").await.planting(&[]).await;
    tenant(&stage, "leaving").await;
    adopt(&stage, "leaving", "leaving-dev").await;
    let repository = surface(
        &stage,
        "leaving",
        "apps",
        &[("a.yaml", &config_map("a", "1"))],
        json!({}),
    )
    .await;
    surface_ready(&stage, ("leaving", "apps")).await;
    let finalizers = stage.get(TENANT, ("", "leaving")).await.unwrap()["metadata"]["finalizers"].clone();
    assert_eq!(finalizers, json!(["tenure.dev/finalizer"]));
    let kept = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": "kept", "namespace": "leaving-dev", "finalizers": ["example.org/kept"]
    }});
    stage.admin.apply(kept).await.unwrap();

    stage.admin.delete(TENANT, ("", "leaving")).await.unwrap();
    crate::stage::commit(&repository, &[("a.yaml", &config_map("late", "1"))]).await;
    stage
        .wait_for(NAMESPACE, ("", "leaving"), |found| found.is_none())
        .await;
    let hangs = |found: Option<&Value>| {
        let ready = found.and_then(|found| condition(found, "Ready"));
        let names = found.map(|found| &found["status"]["namespaces"]);
        ready.is_some_and(|ready| ready["reason"] == "Terminating") && names == Some(&json!(["leaving-dev"]))
    };
    let tenant = stage.wait_for(TENANT, ("", "leaving"), hangs).await.unwrap();
    assert_eq!(tenant["status"]["state"], "Terminating");
    let message = condition(&tenant, "Ready").unwrap()["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(message.contains("leaving-dev still there"), "{message}");

    let released = json!({ "metadata": { "finalizers": null } });
    stage
        .admin
        .patch(CONFIG_MAP, ("leaving-dev", "kept"), released)
        .await
        .unwrap();
    stage.wait_for(TENANT, ("", "leaving"), |found| found.is_none()).await;
    for name in ["leaving", "leaving-dev"] {
        assert!(
            stage.get(NAMESPACE, ("", name)).await.is_none(),
            "{name} was made again"
        );
    }
    assert!(stage.get(SURFACE, ("leaving", "apps")).await.is_none());
    stage.shut_down().await;
}
