//! References to other namespaces. Within a tenant they are allowed, and a commit there counts here immediately. Others need an administrator's
//! grant. A refusal has the same words whether the target exists or not.

use serde_json::{Value, json};

use crate::stage::{CONFIG_MAP, KUSTOMIZATION, Stage, commit, condition, config_map};
use crate::tenants::{adopt, tenant};

/// Creates a further namespace of a tenant, in which `default` may write.
async fn claim(stage: &Stage, tenant: &str, namespace: &str) {
    adopt(stage, tenant, namespace).await;
    let writer = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": "applier", "namespace": namespace },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit" },
        "subjects": [{ "kind": "ServiceAccount", "name": "default", "namespace": namespace }]
    });
    stage.admin.apply(writer).await.unwrap();
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default", "namespace": namespace } });
    stage.admin.apply(account).await.unwrap();
}

/// Waits until Ready is False for this reason, and returns its message.
async fn wait_for_refusal(stage: &Stage, namespace: &str, name: &str, reason: &str) -> String {
    stage.ready(KUSTOMIZATION, (namespace, name), "False", reason).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn references_outside_own_tenant_need_a_grant() {
    let shared = "references-shared";
    let stage = Stage::set_granting(
        shared,
        &[
            "tenant:green=references-shared/GitRepository/shared",
            "*=references-shared/Kustomization/infra",
        ],
    )
    .await;
    for name in ["green", "mauve"] {
        tenant(&stage, name).await;
        claim(&stage, name, &format!("{name}-dev")).await;
        claim(&stage, name, &format!("{name}-base")).await;
    }
    let stage = stage.planting(&["green-base"]).await;

    // A source and a dependency of the same tenant.
    let base = stage
        .repository("green-base", "app", &[("a.yaml", &config_map("a", "1"))])
        .await;
    stage.kustomization("green-base", "first", "app", json!({})).await;
    let across = json!({
        "sourceRef": { "kind": "GitRepository", "name": "app", "namespace": "green-base" },
        "dependsOn": [{ "name": "first", "namespace": "green-base", "readyExpr": "dep.spec.prune && dep.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')" }],
    });
    stage.kustomization("green-dev", "across", "app", across.clone()).await;
    let applied = |namespace: &'static str, value: &'static str| {
        let is_so = move |object: Option<&Value>| object.is_some_and(|object| object["data"]["value"] == value);
        stage.wait_for(CONFIG_MAP, (namespace, "a"), is_so)
    };
    applied("green-dev", "1").await;
    let second = commit(&base, &[("a.yaml", &config_map("a", "2"))]).await;
    stage.wait_for_commit(("green-dev", "across"), &second).await;
    applied("green-dev", "2").await;
    // The Kustomization waits for the dependency, which wakes it.
    stage
        .kustomization(
            "green-dev",
            "waits",
            "app",
            json!({
                "sourceRef": { "kind": "GitRepository", "name": "app", "namespace": "green-base" },
                "dependsOn": [{ "name": "later", "namespace": "green-base" }],
                "namePrefix": "waits-",
            }),
        )
        .await;
    let waits = wait_for_refusal(&stage, "green-dev", "waits", "DependencyNotReady").await;
    assert_eq!(waits, "dependency 'green-base/later' not found");
    stage
        .kustomization("green-base", "later", "app", json!({ "namePrefix": "later-" }))
        .await;
    stage
        .ready(KUSTOMIZATION, ("green-dev", "waits"), "True", "ReconciliationSucceeded")
        .await;

    // A target of another tenant: neither a message nor a behaviour reveals whether it exists.
    stage.kustomization("mauve-dev", "there", "app", across.clone()).await;
    let there = wait_for_refusal(&stage, "mauve-dev", "there", "AccessDenied").await;
    assert_eq!(
        there,
        "can't access 'GitRepository/green-base/app', cross-namespace references have been blocked"
    );
    let mut absent = across.clone();
    absent["sourceRef"]["name"] = json!("none");
    stage.kustomization("mauve-dev", "absent", "app", absent).await;
    let none = wait_for_refusal(&stage, "mauve-dev", "absent", "AccessDenied").await;
    assert_eq!(none, there.replace("base/app", "base/none"));
    stage
        .repository("mauve-dev", "own", &[("a.yaml", &config_map("a", "0"))])
        .await;
    let mut messages = Vec::new();
    for name in ["first", "none"] {
        let depends = json!({ "dependsOn": [{ "name": name, "namespace": "green-base", "readyExpr": "dep.spec.prune == true" }] });
        stage
            .kustomization("mauve-dev", &format!("on-{name}"), "own", depends)
            .await;
        let message = wait_for_refusal(&stage, "mauve-dev", &format!("on-{name}"), "AccessDenied").await;
        let object = stage
            .get(KUSTOMIZATION, ("mauve-dev", &format!("on-{name}")))
            .await
            .unwrap();
        assert!(condition(&object, "Stalled").is_some(), "{object}");
        messages.push(message.replace(name, "NAME"));
    }
    assert_eq!(messages[0], messages[1]);
    // A granted target, for the namespace with the grant.
    let repository = stage
        .repository(shared, "shared", &[("a.yaml", &config_map("granted", "1"))])
        .await;
    stage.kustomization(shared, "infra", "shared", json!({})).await;
    let shares = json!({
        "sourceRef": { "kind": "GitRepository", "name": "shared", "namespace": shared },
        "dependsOn": [{ "name": "infra", "namespace": shared }],
    });
    stage.kustomization("green-dev", "shares", "app", shares.clone()).await;
    stage.kustomization("mauve-base", "shares", "app", shares).await;
    // In another lane, which is another process if lanes are processes.
    stage
        .ready(
            KUSTOMIZATION,
            ("green-dev", "shares"),
            "True",
            "ReconciliationSucceeded",
        )
        .await;
    let second = commit(&repository, &[("a.yaml", &config_map("granted", "2"))]).await;
    stage.wait_for_commit(("green-dev", "shares"), &second).await;
    let others = wait_for_refusal(&stage, "mauve-base", "shares", "AccessDenied").await;
    assert!(
        others.contains("can't access 'GitRepository/references-shared/shared'"),
        "{others}"
    );
    stage.shut_down().await;
}
