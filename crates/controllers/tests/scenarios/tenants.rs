//! Two tenants beside each other: the rights of each, the limits of both, and the messages for their owners.

use serde_json::{Value, json};
use tenure_api::Tenant;
use tenure_git_server::Repository;
use tenure_tenancy::{TenancyFacts, TenantFacts, adoption};
use tenure_testkit::{SOON, eventually};

use crate::stage::{CONFIG_MAP, GIT_REPOSITORY, KUSTOMIZATION, Stage, condition, config_map};

pub(crate) const SURFACE: (&str, &str) = ("tenure.dev/v1alpha1", "Surface");
pub(crate) const TENANT: (&str, &str) = ("capsule.clastix.io/v1beta2", "Tenant");

const NAMESPACE: (&str, &str) = ("v1", "Namespace");

/// Creates a namespace and adopts it for a Tenant as an administrator, as `tenure adopt` does: namespaces are not checked here. Waits for the record.
pub(crate) async fn adopt(stage: &Stage, tenant: &str, namespace: &str) {
    let object = json!({ "apiVersion": NAMESPACE.0, "kind": NAMESPACE.1, "metadata": { "name": namespace } });
    if stage.get(NAMESPACE, ("", namespace)).await.is_none() {
        stage.admin.apply(object).await.unwrap();
    }
    eventually(SOON, async || {
        let held: Tenant = serde_json::from_value(stage.get(TENANT, ("", tenant)).await.unwrap()).unwrap();
        let facts = TenantFacts::from(&held);
        let tenancy = TenancyFacts {
            tenants: vec![facts.clone()],
            ..TenancyFacts::default()
        };
        let object = stage.get(NAMESPACE, ("", namespace)).await.unwrap();
        let adoption = adoption::plan_adoption(&tenancy, &facts, &object).unwrap();
        if let Some(patch) = adoption.patch {
            stage.admin.patch(NAMESPACE, ("", namespace), patch).await?;
        }
        let uid = object["metadata"]["uid"].as_str().unwrap().to_owned();
        if let Some(patch) = adoption::write_record(&held, &[(namespace.to_owned(), uid)], "2026-01-01T00:00:00Z") {
            stage.admin.patch_status(TENANT, ("", tenant), patch).await?;
        }
        Ok::<(), tenure_testkit::AdminError>(())
    })
    .await
    .unwrap();
}

/// Creates a Tenant with a namespace of its name.
pub(crate) async fn tenant(stage: &Stage, name: &str) {
    stage
        .admin
        .apply(json!({
            "apiVersion": TENANT.0, "kind": TENANT.1, "metadata": { "name": name },
            "spec": { "owners": [{ "kind": "User", "name": format!("{name}-owner") }] }
        }))
        .await
        .unwrap();
    stage
        .wait_for(TENANT, ("", name), |tenant| {
            tenant
                .and_then(|tenant| condition(tenant, "Ready"))
                .is_some_and(|ready| ready["status"] == "True")
        })
        .await;
    stage
        .wait_for(("v1", "ServiceAccount"), (name, &format!("{name}-gitops")), |account| {
            account.is_some()
        })
        .await;
}

/// Creates a Surface with one source, of a repository with these files; `source` is merged over the defaults.
pub(crate) async fn surface(
    stage: &Stage,
    namespace: &str,
    name: &str,
    files: &[(&str, &str)],
    source: Value,
) -> Repository {
    let repository = stage.git.create(&format!("{namespace}-{name}")).await.unwrap();
    repository.commit(files.iter().copied(), "first").await.unwrap();
    let mut usual = json!({
        "name": "app", "url": stage.git.http_url(&format!("{namespace}-{name}")), "ref": { "branch": "main" },
        "interval": "1s", "retryInterval": "1s", "targetNamespace": namespace
    });
    for (key, value) in source.as_object().unwrap() {
        usual[key] = value.clone();
    }
    usual.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    stage
        .admin
        .apply(json!({
            "apiVersion": SURFACE.0, "kind": SURFACE.1, "metadata": { "name": name, "namespace": namespace },
            "spec": { "sources": [usual] }
        }))
        .await
        .unwrap();
    repository
}

pub(crate) async fn surface_ready(stage: &Stage, target: (&str, &str)) -> Value {
    stage
        .wait_for(SURFACE, target, |surface| {
            surface
                .and_then(|surface| condition(surface, "Ready"))
                .is_some_and(|ready| ready["status"] == "True")
        })
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn surface_acts_as_tenant_and_deletion_keeps_objects() {
    let stage = Stage::set("tenants-a").await;
    tenant(&stage, "blue").await;
    surface(&stage, "blue", "apps", &[("a.yaml", &config_map("a", "1"))], json!({})).await;
    let ready = surface_ready(&stage, ("blue", "apps")).await;
    assert_eq!(ready["status"]["tier"], "Tenant");
    assert_eq!(ready["status"]["identity"], "system:serviceaccount:blue:blue-gitops");
    assert_eq!(
        stage.get(CONFIG_MAP, ("blue", "a")).await.unwrap()["data"]["value"],
        "1"
    );

    stage.admin.delete(SURFACE, ("blue", "apps")).await.unwrap();
    stage
        .wait_for(KUSTOMIZATION, ("blue", "apps-app"), |object| object.is_none())
        .await;
    stage
        .wait_for(GIT_REPOSITORY, ("blue", "apps-app"), |object| object.is_none())
        .await;
    assert!(
        stage.get(CONFIG_MAP, ("blue", "a")).await.is_some(),
        "a tenant's deletionPolicy is Orphan"
    );
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forbidden_content_of_tenant_is_refused_with_reason() {
    let stage = Stage::set("tenants-b").await;
    tenant(&stage, "red").await;
    tenant(&stage, "green").await;
    let foreign = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  namespace: green\n";
    let cluster_role =
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: red-tries\nrules: []\n";
    let remote = "resources:\n  - https://example.com/base\n";
    let admin_role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata:\n  name: escalate\nroleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: ClusterRole\n  name: cluster-admin\nsubjects:\n  - kind: ServiceAccount\n    name: red-gitops\n    namespace: red\n";
    let child = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata:\n  name: child\nspec:\n  interval: 1m\n  prune: true\n  serviceAccountName: default\n  sourceRef:\n    kind: GitRepository\n    name: x\n";
    // Each escape attempt, the file, the fields merged over the source, and the message for its owner.
    let escapes: [(&str, &str, &str, Value, &str); 5] = [
        (
            "foreign",
            "a.yaml",
            foreign,
            json!({ "targetNamespace": null }),
            "namespace green",
        ),
        ("cluster", "a.yaml", cluster_role, json!({}), "cluster-scoped"),
        (
            "remote",
            "kustomization.yaml",
            remote,
            json!({}),
            "https://example.com/base",
        ),
        ("escalate", "a.yaml", admin_role, json!({}), "escalate"),
        ("child", "a.yaml", child, json!({}), "kustomizations"),
    ];
    for (name, path, file, source, _) in &escapes {
        surface(&stage, "red", name, &[(path, file)], source.clone()).await;
    }
    surface(
        &stage,
        "red",
        "control",
        &[("a.yaml", &config_map("allowed", "1"))],
        json!({}),
    )
    .await;
    for (name, _, _, _, expected) in &escapes {
        let kustomization = format!("{name}-app");
        let refused = stage
            .wait_for(KUSTOMIZATION, ("red", &kustomization), |object| {
                object
                    .and_then(|object| condition(object, "Ready"))
                    .is_some_and(|ready| {
                        ready["status"] == "False" && ready["message"].as_str().unwrap().contains(expected)
                    })
            })
            .await;
        println!("{name}: {}", condition(&refused.unwrap(), "Ready").unwrap()["message"]);
    }
    surface_ready(&stage, ("red", "control")).await;
    assert!(stage.get(CONFIG_MAP, ("red", "allowed")).await.is_some());
    assert!(stage.get(CONFIG_MAP, ("green", "a")).await.is_none());
    assert!(stage.get(KUSTOMIZATION, ("red", "child")).await.is_none());

    // The surface itself: another identity, and a namespace other than the home namespace.
    stage
        .admin
        .apply(json!({
            "apiVersion": SURFACE.0, "kind": SURFACE.1, "metadata": { "name": "chosen", "namespace": "red" },
            "spec": {
                "serviceAccountName": "default",
                "sources": [{ "name": "app", "url": "http://git.example.com/app" }]
            }
        }))
        .await
        .unwrap();
    let message = stage.ready(SURFACE, ("red", "chosen"), "False", "AccessDenied").await;
    assert!(message.contains("serviceAccountName"), "{message}");
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_inventory_prunes_no_foreign_object() {
    let stage = Stage::set("tenants-c").await;
    stage.namespace("tenants-c-victim").await;
    stage
        .admin
        .apply(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "precious", "namespace": "tenants-c-victim", "labels": {
                "kustomize.toolkit.fluxcd.io/name": "app", "kustomize.toolkit.fluxcd.io/namespace": "tenants-c"
            } }
        }))
        .await
        .unwrap();
    let repository = stage
        .repository("tenants-c", "app", &[("a.yaml", &config_map("a", "1"))])
        .await;
    stage.kustomization("tenants-c", "app", "app", json!({})).await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit(("tenants-c", "app"), &first).await;
    let forged = json!({ "status": { "inventory": { "entries": [{ "id": "tenants-c-victim_precious__ConfigMap", "v": "v1" }] } } });
    stage
        .admin
        .patch_status(KUSTOMIZATION, ("tenants-c", "app"), forged)
        .await
        .unwrap();
    let second = crate::stage::commit(&repository, &[("a.yaml", &config_map("a", "2"))]).await;
    stage
        .wait_for(CONFIG_MAP, ("tenants-c", "a"), |object| {
            object.is_some_and(|object| object["data"]["value"] == "2")
        })
        .await;
    stage
        .wait_for(KUSTOMIZATION, ("tenants-c", "app"), |object| {
            object.is_some_and(|object| {
                object["status"]["lastAttemptedRevision"]
                    .as_str()
                    .is_some_and(|revision| revision.ends_with(&second))
                    && condition(object, "Ready").is_some_and(|ready| ready["reason"] != "Progressing")
            })
        })
        .await;
    assert!(stage.get(CONFIG_MAP, ("tenants-c-victim", "precious")).await.is_some());

    // Another namespace's source is not even read.
    let foreign = json!({ "sourceRef": { "kind": "GitRepository", "name": "app", "namespace": "tenants-c" }, "targetNamespace": null });
    stage.kustomization("tenants-c-victim", "thief", "app", foreign).await;
    let message = stage
        .ready(KUSTOMIZATION, ("tenants-c-victim", "thief"), "False", "AccessDenied")
        .await;
    assert_eq!(
        message,
        "can't access 'GitRepository/tenants-c/app', cross-namespace references have been blocked"
    );
    stage.shut_down().await;
}
