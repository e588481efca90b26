//! An API server that guards ownerReferences (OwnerReferencesPermissionEnforcement, which OpenShift enables): owners create namespaces, and
//! Tenants, Surfaces and their children are reconciled.

use std::time::Instant;

use serde_json::{Value, json};
use tenure_test_ports::reserve_port;

use crate::world::{Cluster, Controllers, PATIENCE, list_webhook_flags, name_object, wait_for_probe};

const PLUGIN: &str = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement";

#[tokio::test]
async fn owners_create_namespaces_where_owner_references_are_guarded() {
    let Some(cluster) = Cluster::start_real_with(&[PLUGIN], &["--admission"]).await else {
        return;
    };
    let admin = &cluster.admin;
    // The plugin works: a user that may not set the finalizers of an owner can't block its deletion.
    let mut tenant = name_object("capsule.clastix.io/v1beta2", "Tenant", "", "guarded");
    tenant["spec"] = json!({ "owners": [{ "kind": "User", "name": "guarded-owner" }],
        "resourceQuotas": { "scope": "Namespace", "items": [{ "hard": { "pods": "10" } }] } });
    admin.apply(tenant.clone()).await;
    let (port, health) = (reserve_port(), reserve_port());
    let flags = list_webhook_flags(port, health);
    let flags = flags.each_ref().map(String::as_str);
    let controllers = Controllers::start(&cluster.kubeconfig, &cluster.data("run"), &flags);
    admin.wait_for_leader(&controllers.candidate).await;
    wait_for_probe(health, "/readyz", 200).await;
    let is_ready = |found: &Value| {
        let conditions = found["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    };
    admin.wait_for(tenant.clone(), is_ready).await;
    // A namespace that is created before admission is in force is recorded for no Tenant.
    cluster.wait_until_in_force().await;
    let owner = cluster.become_user("guarded-owner", &[]).await;
    let started = Instant::now();
    loop {
        let made = owner.create(&name_object("v1", "Namespace", "", "guarded-dev")).await;
        match made {
            Ok(_) => break,
            Err(why) => assert!(
                started.elapsed() < PATIENCE && !why.contains("blockOwnerDeletion"),
                "{why}"
            ),
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    let quota = name_object("v1", "ResourceQuota", "guarded-dev", "capsule-guarded-0");
    admin.wait_for(quota, |_| true).await;
    let uid = admin.find(&tenant).await.unwrap()["metadata"]["uid"].clone();
    let mut blocking = name_object("v1", "ConfigMap", "guarded-dev", "blocking");
    blocking["metadata"]["ownerReferences"] = json!([{ "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant",
        "name": "guarded", "uid": uid, "blockOwnerDeletion": true }]);
    let started = Instant::now();
    loop {
        let refused = owner.create(&blocking).await.unwrap_err();
        if refused.contains("blockOwnerDeletion") {
            break;
        }
        assert!(started.elapsed() < PATIENCE, "{refused}");
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    // The generated objects of a Surface have the Surface as their owner.
    let mut surface = name_object("tenure.dev/v1alpha1", "Surface", "guarded", "apps");
    surface["spec"] = json!({ "sources": [{ "name": "app", "url": "https://git.invalid/app", "ref": { "branch": "main" }, "interval": "1h" }] });
    admin.apply(surface).await;
    let source = name_object("source.toolkit.fluxcd.io/v1", "GitRepository", "guarded", "apps-app");
    admin.wait_for(source, |_| true).await;
}
