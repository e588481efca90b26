//! The platform of a server, and the tenants of a story before it begins.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use tenure_git_server::Repository;

use crate::api::{User, collection};
use crate::cast::Scene;
use crate::host;
use crate::productions::{IMAGE, INGRESS_CLASS, PRIORITY_CLASS, RBAC, STORAGE_CLASS};
use crate::servers::{Mode, Server};
use crate::world::PATIENCE;

/// The role by which an administrator lets the owner of Tenant evil edit its namespaces.
pub(crate) const NAMESPACE_EDITOR: &str = "two-worlds-namespace-editor";

/// Creates parts of a platform that could tempt tenants: rights of removed products, a volume, and the classes that Tenants allow.
pub(crate) async fn prepare_platform(server: &Server) {
    let group = |name: &str| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name });
    let role = |name: &str| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name });
    let binding = |name: &str, role: Value, subject: Value| json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": name }, "roleRef": role, "subjects": [subject] });
    let left = json!({ "kind": "ServiceAccount", "namespace": "argocd", "name": "argocd-application-controller" });
    for object in [
        binding("argocd-application-controller", role("cluster-admin"), left),
        binding(
            "monitoring-admins",
            role("cluster-admin"),
            group("system:serviceaccounts:monitoring"),
        ),
        make_volume("platform-data", &json!({})),
        json!({
            "apiVersion": RBAC, "kind": "ClusterRole", "metadata": { "name": NAMESPACE_EDITOR },
            "rules": [{ "apiGroups": [""], "resources": ["namespaces", "namespaces/status"], "verbs": ["get", "update", "patch"] }]
        }),
        json!({ "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": PRIORITY_CLASS }, "value": 1 }),
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": STORAGE_CLASS }, "provisioner": "two-worlds.example/none" }),
        json!({ "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": { "name": INGRESS_CLASS }, "spec": { "controller": "two-worlds.example/none" } }),
    ] {
        apply(&server.admin, &object).await;
    }
    host::provide(server).await;
}

fn make_volume(name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": name, "labels": labels },
        "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "hostPath": { "path": "/srv" },
            "persistentVolumeReclaimPolicy": "Retain" }
    })
}

pub(crate) async fn apply(admin: &User, object: &Value) {
    let answer = admin.apply(object).await;
    assert!(answer.is_success(), "{object}: {answer:?}");
}

fn tenant(mode: Mode, name: &str, more_owners: &[Value]) -> Value {
    let mut owners = vec![json!({ "kind": "User", "name": format!("{name}-owner") })];
    owners.extend_from_slice(more_owners);
    let mut tenant = json!({
        "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": { "name": name },
        "spec": {
            "owners": owners, "namespaceOptions": { "quota": 6 },
            "containerRegistries": { "allowed": [IMAGE.split('/').next()] },
            "storageClasses": { "allowed": [STORAGE_CLASS] }, "priorityClasses": { "allowed": [PRIORITY_CLASS] },
            "ingressOptions": {
                "allowedClasses": { "allowed": [INGRESS_CLASS] }, "allowedHostnames": { "allowed": [format!("{name}.example")] }
            },
            "networkPolicies": { "items": [{ "podSelector": {}, "policyTypes": ["Ingress"] }] },
            "serviceOptions": { "allowedServices": { "nodePort": false, "externalName": false, "loadBalancer": false }, "externalIPs": { "allowed": [] } }
        }
    });
    // Policies know no other Ingress, so with a scope they deny every new host.
    if mode != Mode::Policies {
        tenant["spec"]["ingressOptions"]["hostnameCollisionScope"] = json!("Cluster");
    }
    tenant
}

/// Returns the path of a Tenant.
pub(crate) fn tenant_path(name: &str) -> String {
    format!("/apis/capsule.clastix.io/v1beta2/tenants/{name}")
}

/// Creates a Tenant and waits for it. Returns its uid.
async fn make_tenant(server: &Server, name: &str, more_owners: &[Value]) -> String {
    apply(&server.admin, &tenant(server.mode, name, more_owners)).await;
    let path = tenant_path(name);
    wait_until(
        async || is_ready(&server.admin.get(&path).await.body),
        "a Tenant is Ready",
    )
    .await;
    let found = server.admin.get(&path).await;
    found.body["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

/// Returns the robot of a namespace that does not exist yet, an owner of Tenant alpha.
pub(crate) fn future_owner(scene: &Scene) -> Value {
    json!({ "kind": "ServiceAccount", "name": format!("system:serviceaccount:{}:robot", scene.of_alpha("bots")) })
}

/// Creates Tenant alpha with a Surface. One of its owners, and a subject of its bindings, are accounts of namespaces that do not exist yet.
pub(crate) async fn prepare_alpha(server: &Server, scene: &mut Scene) -> Repository {
    scene.alpha_uid = make_tenant(server, &scene.alpha, &[future_owner(scene)]).await;
    let alpha = scene.alpha.as_str();
    let subject = json!({ "kind": "ServiceAccount", "namespace": scene.of_alpha("ci"), "name": "deployer" });
    let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit" });
    let labels = json!({ "capsule.clastix.io/tenant": alpha });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": "deployer", "namespace": alpha }, "roleRef": role, "subjects": [subject]
    });
    apply(&server.admin, &binding).await;
    apply(&server.admin, &make_volume(&scene.of_alpha("old"), &labels)).await;
    host::prepare_alpha(server, scene).await;
    let repository = server.git.create(alpha).await.unwrap();
    commit(&repository, 1).await;
    let surface = json!({
        "apiVersion": "tenure.dev/v1alpha1", "kind": "Surface", "metadata": { "name": "app", "namespace": alpha },
        "spec": { "sources": [{ "name": "app", "url": server.git.http_url(alpha), "ref": { "branch": "main" },
            "interval": "30s", "retryInterval": "2s", "targetNamespace": alpha }] }
    });
    apply(&server.admin, &surface).await;
    wait_for_version(server, scene, 1).await;
    repository
}

/// Creates Tenant evil and its repository. An administrator bound its owner at home to the kinds of Flux and Tenure. With `is_privileged`, an administrator also let
/// the owner into `alpha`.
pub(crate) async fn prepare_evil(server: &Server, scene: &mut Scene, is_privileged: bool) -> Repository {
    scene.evil_uid = make_tenant(server, &scene.evil, &[]).await;
    let evil = scene.evil.as_str();
    let owner = scene.of_evil("owner");
    let subject = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": owner });
    let bind = |namespace: &str, name: &str, kind: &str, role: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "name": name, "namespace": namespace }, "subjects": [subject],
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role }
        })
    };
    let groups = [
        "kustomize.toolkit.fluxcd.io",
        "notification.toolkit.fluxcd.io",
        "source.toolkit.fluxcd.io",
        "tenure.dev",
    ];
    let mut objects = vec![
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": { "name": "flux", "namespace": evil },
            "rules": [{ "apiGroups": groups, "resources": ["*"], "verbs": ["*"] }]
        }),
        bind(evil, "flux", "Role", "flux"),
        bind(evil, "home-admin", "ClusterRole", "admin"),
    ];
    if is_privileged {
        objects.push(bind(&scene.alpha, "helper", "ClusterRole", "admin"));
    }
    for object in &objects {
        apply(&server.admin, object).await;
    }
    host::prepare_evil(server, scene).await;
    let repository = server.git.create(evil).await.unwrap();
    let first = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: evil }\n";
    repository.commit([("drawn-0.yaml", first)], "first").await.unwrap();
    let source = json!({ "name": "app", "url": server.git.http_url(evil), "ref": { "branch": "main" }, "interval": "30s",
        "retryInterval": "5s", "targetNamespace": evil });
    let surface = json!({
        "apiVersion": "tenure.dev/v1alpha1", "kind": "Surface", "metadata": { "name": "app", "namespace": evil },
        "spec": { "sources": [source] }
    });
    apply(&server.admin, &surface).await;
    repository
}

/// Removes the tenants of a story without waiting, so that they cost later stories nothing.
pub(crate) async fn clean_up(server: &Server, scene: &Scene) {
    for tenant in [&scene.alpha, &scene.evil] {
        let selector = format!("/api/v1/namespaces?labelSelector=capsule.clastix.io/tenant={tenant}");
        let listed = server.admin.get(&selector).await;
        let _absent_alone = server
            .admin
            .send(Method::DELETE, &tenant_path(tenant), &Value::Null)
            .await;
        for item in listed.body["items"].as_array().cloned().unwrap_or_default() {
            let path = format!(
                "/api/v1/namespaces/{}",
                item["metadata"]["name"].as_str().unwrap_or_default()
            );
            if item["metadata"]["finalizers"].is_array() {
                let body = json!({ "metadata": { "finalizers": null } });
                let _may_be_gone = server.admin.send(Method::PATCH, &path, &body).await;
            }
            let _may_be_gone = server.admin.send(Method::DELETE, &path, &Value::Null).await;
        }
    }
    let volume = format!("/api/v1/persistentvolumes/{}", scene.of_alpha("old"));
    let _may_be_gone = server.admin.send(Method::DELETE, &volume, &Value::Null).await;
}

fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
}

/// Commits the application in a version. Odd versions have a Service.
pub(crate) async fn commit(repository: &Repository, version: u64) {
    let map = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: app }}\ndata: {{ version: '{version}' }}\n");
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: { name: web }\nspec:\n  selector: { matchLabels: { app: web } }\n  template:\n    metadata: { labels: { app: web } }\n    spec: { priorityClassName: two-worlds-small, containers: [{ name: web, image: 'registry.example/web:1' }] }\n";
    let service = "apiVersion: v1\nkind: Service\nmetadata: { name: web }\nspec: { selector: { app: web }, ports: [{ port: 80 }] }\n";
    let last = if version % 2 == 1 { service } else { "" };
    let files = [
        ("app.yaml", map.as_str()),
        ("web.yaml", deployment),
        ("service.yaml", last),
    ];
    repository.commit(files, &format!("version {version}")).await.unwrap();
}

pub(crate) async fn wait_for_version(server: &Server, scene: &Scene, version: u64) {
    let path = format!("/api/v1/namespaces/{}/configmaps/app", scene.alpha);
    let is_applied = async || {
        let found = server.admin.get(&path).await;
        let found = found.body["data"]["version"]
            .as_str()
            .and_then(|text| text.parse::<u64>().ok());
        found == Some(version)
    };
    wait_until(is_applied, &format!("version {version} of {} is applied", scene.alpha)).await;
}

/// Requests a fetch of all sources of a tenant's Surface, as a push would.
pub(crate) async fn ask_for_fetch(user: &User, namespace: &str, token: &str) {
    let sources = collection("source.toolkit.fluxcd.io/v1", "gitrepositories", Some(namespace));
    let listed = user.get(&sources).await;
    for item in listed.body["items"].as_array().cloned().unwrap_or_default() {
        let name = item["metadata"]["name"].as_str().unwrap_or_default();
        let body = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": token } } });
        let _fetched_at_its_interval = user.send(Method::PATCH, &format!("{sources}/{name}"), &body).await;
    }
}

/// Repeats a check until it is true.
pub(crate) async fn wait_until(mut ask: impl AsyncFnMut() -> bool, expected: &str) {
    let begun = Instant::now();
    while !ask().await {
        assert!(begun.elapsed() < PATIENCE, "{expected}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(120)).await;
    }
}
