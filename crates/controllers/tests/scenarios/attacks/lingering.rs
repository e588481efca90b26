//! An owner sets a finalizer on a managed object and deletes it, so that it stays and is never written again.

use serde_json::json;
use tenure_testkit::{SOON, eventually};

use super::Scene;
use crate::tenants::{TENANT, adopt};

const ROLE_BINDING: (&str, &str) = ("rbac.authorization.k8s.io/v1", "RoleBinding");
const NETWORK_POLICY: (&str, &str) = ("networking.k8s.io/v1", "NetworkPolicy");
/// A finalizer of a controller that Tenure knows.
const KNOWN: &str = "attack.cattle.io/hold";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_held_by_finalizers_are_still_corrected() {
    let scene = Scene::set("attacks-held").await;
    let (stage, evil) = (&scene.stage, scene.evil.as_str());
    let dev = format!("{evil}-dev");
    adopt(stage, evil, &dev).await;
    let owners = json!([
        { "kind": "User", "name": format!("{evil}-owner") }, { "kind": "User", "name": format!("{evil}-second") }
    ]);
    let policies = json!({ "items": [{ "podSelector": {}, "policyTypes": ["Ingress"] }] });
    let spec = json!({ "spec": { "owners": owners, "networkPolicies": policies } });
    stage.admin.patch(TENANT, ("", evil), spec).await.unwrap();
    let policy = format!("capsule-{evil}-0");
    stage
        .wait_for(NETWORK_POLICY, (&dev, &policy), |found| found.is_some())
        .await;
    let bindings = || async { stage.admin.list(ROLE_BINDING, &dev).await.unwrap() };
    let mut second = None;
    while second.is_none() {
        let is_seconds = |found: &serde_json::Value| found["subjects"].to_string().contains("-second\"");
        second = bindings().await.into_iter().find(is_seconds);
    }
    let second = second.unwrap()["metadata"]["name"].as_str().unwrap().to_owned();

    // Mallory sets a finalizer on both objects and deletes them. Later she opens the NetworkPolicy.
    let hold = json!({ "metadata": { "finalizers": [KNOWN] } });
    for (kind, name) in [(ROLE_BINDING, &second), (NETWORK_POLICY, &policy)] {
        // RBAC applies her own binding with a delay.
        let held = eventually(SOON, || scene.mallory.patch(kind, (&dev, name), hold.clone()));
        held.await.unwrap();
        scene.mallory.delete(kind, (&dev, name)).await.unwrap();
    }
    let open = json!({ "spec": { "ingress": [{}] } });
    scene
        .mallory
        .patch(NETWORK_POLICY, (&dev, &policy), open)
        .await
        .unwrap();
    stage
        .wait_for(NETWORK_POLICY, (&dev, &policy), |found| {
            let rules = found.and_then(|found| found["spec"]["ingress"].as_array());
            rules.is_none_or(Vec::is_empty)
        })
        .await;
    // Ready names the objects with finalizers.
    let message = stage.ready(TENANT, ("", evil), "False", "ReconciliationFailed").await;
    assert!(message.contains(KNOWN) && message.contains(&second), "{message}");

    // The second owner is removed from the Tenant.
    let owners = json!({ "spec": { "owners": [{ "kind": "User", "name": format!("{evil}-owner") }] } });
    stage.admin.patch(TENANT, ("", evil), owners).await.unwrap();
    stage
        .wait_for(ROLE_BINDING, (&dev, &second), |found| {
            found.is_none_or(|found| found["subjects"].as_array().is_none_or(Vec::is_empty))
        })
        .await;

    // The control: an object without a controller's finalizer is re-created immediately, and Ready is True.
    let free = json!({ "metadata": { "finalizers": null } });
    for (kind, name) in [(ROLE_BINDING, &second), (NETWORK_POLICY, &policy)] {
        stage.admin.patch(kind, (&dev, name), free.clone()).await.unwrap();
    }
    stage.ready(TENANT, ("", evil), "True", "ReconciliationSucceeded").await;

    // A finalizer of no known controller is removed automatically, if no admission checks who sets it.
    let own = json!({ "metadata": { "finalizers": ["mallory.example/hold"] } });
    scene.mallory.patch(NETWORK_POLICY, (&dev, &policy), own).await.unwrap();
    let uid = stage.get(NETWORK_POLICY, (&dev, &policy)).await.unwrap()["metadata"]["uid"].clone();
    scene.mallory.delete(NETWORK_POLICY, (&dev, &policy)).await.unwrap();
    stage
        .wait_for(NETWORK_POLICY, (&dev, &policy), |found| {
            found.is_some_and(|found| {
                found["metadata"]["uid"] != uid && found["metadata"]["deletionTimestamp"].is_null()
            })
        })
        .await;
    scene.shut_down().await;
}

/// Deletes a managed object as soon as the controllers have created it: at that time they know it only from the answer to their own write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn object_deleted_right_after_write_is_recreated() {
    let scene = Scene::set("attacks-after-write").await;
    let (stage, evil) = (&scene.stage, scene.evil.as_str());
    let dev = format!("{evil}-dev");
    adopt(stage, evil, &dev).await;
    let policies = json!({ "items": [{ "podSelector": {}, "policyTypes": ["Ingress"] }] });
    let spec = json!({ "spec": { "networkPolicies": policies } });
    stage.admin.patch(TENANT, ("", evil), spec).await.unwrap();
    let policy = format!("capsule-{evil}-0");
    let target = (dev.as_str(), policy.as_str());
    let mut before = json!(null);
    for _ in 0..10 {
        let made = stage.wait_for(NETWORK_POLICY, target, |found| {
            found.is_some_and(|found| found["metadata"]["uid"] != before)
        });
        before = made.await.unwrap()["metadata"]["uid"].clone();
        // The authorizer reads her RoleBinding a moment after the API server has stored it.
        let deleted = eventually(SOON, || scene.mallory.delete(NETWORK_POLICY, target));
        deleted.await.unwrap();
    }
    scene.shut_down().await;
}
