//! Apply modes: nothing of Git's content is applied, its accepted part, or all.

use serde_json::json;

use crate::stage::{CONFIG_MAP, KUSTOMIZATION, Stage, commit, config_map};
use crate::tenants::{SURFACE, surface, surface_ready, tenant};

/// A Role that a user without its rights may not grant, so a tenant's account is refused.
const TOO_MUCH: &str = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata:\n  name: too-much\nrules:\n- apiGroups: ['*']\n  resources: ['*']\n  verbs: ['*']\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn detect_only_surface_reports_its_intended_changes() {
    let stage = Stage::set("modes-a").await;
    tenant(&stage, "looker").await;
    let files = [("a.yaml", &*config_map("a", "1"))];
    surface(&stage, "looker", "apps", &files, json!({ "apply": "DetectOnly" })).await;
    let target = ("looker", "apps-app");
    let message = stage.ready(KUSTOMIZATION, target, "False", "DriftDetected").await;
    assert!(
        message.contains("ConfigMap/looker/a would be created (a.yaml:1)"),
        "{message}"
    );
    assert!(stage.get(CONFIG_MAP, ("looker", "a")).await.is_none());

    // After a change of the mode, it applies immediately.
    let mut wanted = stage.get(SURFACE, ("looker", "apps")).await.unwrap();
    wanted["spec"]["sources"][0]["apply"] = json!("All");
    let patch = json!({ "spec": { "sources": wanted["spec"]["sources"] } });
    stage.admin.patch(SURFACE, ("looker", "apps"), patch).await.unwrap();
    surface_ready(&stage, ("looker", "apps")).await;
    assert!(stage.get(CONFIG_MAP, ("looker", "a")).await.is_some());

    // A hand edit is reported, and not reverted.
    let only_look = json!({ "metadata": { "annotations": { "tenure.dev/apply": "DetectOnly" } } });
    wanted["spec"]["sources"][0]["apply"] = json!("DetectOnly");
    let patch = json!({ "spec": { "sources": wanted["spec"]["sources"] } });
    stage.admin.patch(SURFACE, ("looker", "apps"), patch).await.unwrap();
    stage
        .wait_for(KUSTOMIZATION, target, |object| {
            object.is_some_and(|object| {
                object["metadata"]["annotations"]["tenure.dev/apply"]
                    == only_look["metadata"]["annotations"]["tenure.dev/apply"]
            })
        })
        .await;
    let edit = json!({ "data": { "value": "edited" } });
    stage.admin.patch(CONFIG_MAP, ("looker", "a"), edit).await.unwrap();
    let message = stage.ready(KUSTOMIZATION, target, "False", "DriftDetected").await;
    assert!(
        message.contains("ConfigMap/looker/a (a.yaml:1) would be changed: data.value"),
        "{message}"
    );
    let left = stage.get(CONFIG_MAP, ("looker", "a")).await.unwrap();
    assert_eq!(left["data"]["value"], "edited");
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_object_blocks_later_stages_but_no_neighbours() {
    let stage = Stage::set("modes-b").await;
    tenant(&stage, "parts").await;
    let reader = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata:\n  name: reader\nrules:\n- apiGroups: ['']\n  resources: [configmaps]\n  verbs: [get]\n";
    let files = [
        ("a.yaml", &*config_map("a", "1")),
        ("role.yaml", TOO_MUCH),
        ("reader.yaml", reader),
    ];
    let repository = surface(&stage, "parts", "apps", &files, json!({ "apply": "Partial" })).await;
    let target = ("parts", "apps-app");
    let message = stage
        .ready(KUSTOMIZATION, target, "False", "ReconciliationFailed")
        .await;
    assert!(
        message.contains("Role/parts/too-much") && message.contains("role.yaml:1"),
        "{message}"
    );
    let role = ("rbac.authorization.k8s.io/v1", "Role");
    assert!(
        stage.get(role, ("parts", "reader")).await.is_some(),
        "its neighbour is applied"
    );
    assert!(stage.get(role, ("parts", "too-much")).await.is_none());
    assert!(
        stage.get(CONFIG_MAP, ("parts", "a")).await.is_none(),
        "what comes after waits"
    );

    let mended = commit(
        &repository,
        &[("role.yaml", &reader.replace("name: reader", "name: too-much"))],
    )
    .await;
    stage.wait_for_commit(target, &mended).await;
    assert!(stage.get(CONFIG_MAP, ("parts", "a")).await.is_some());
    stage.shut_down().await;
}
