//! Endpoints and EndpointSlices: no identity of a tenant writes them (CVE-2021-25740). An owner's Service without a selector would else lead an Ingress
//! controller to another tenant's Pods or to a node, past NetworkPolicies.

use serde_json::{Value, json};

use crate::api::{User, collection_of};
use crate::platform::{apply, prepare_evil, prepare_platform, wait_until};
use crate::productions::{RBAC, reference, user};
use crate::servers::{Mode, Server};

/// The roles that tenants' identities get: Kubernetes' own and Tenure's.
const ROLES: [&str; 9] = [
    "admin",
    "edit",
    "tenure-home-owner",
    "tenure-author",
    "tenure-viewer",
    "tenure-tenant-gitops",
    "tenure-tenant-gitops-home",
    "tenure-tenant-gitops-cozystack",
    "tenure-helm-author",
];

fn slice(namespace: &str) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": { "name": "web-by-hand", "namespace": namespace, "labels": { "kubernetes.io/service-name": "web" } },
        "endpoints": [{ "addresses": ["192.0.2.9"] }], "ports": [{ "port": 443 }]
    })
}

fn endpoints(namespace: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Endpoints", "metadata": { "name": "web", "namespace": namespace },
        "subsets": [{ "addresses": [{ "ip": "192.0.2.9" }], "ports": [{ "port": 443 }] }]
    })
}

fn role(namespace: &str) -> Value {
    let rules = json!([{ "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["create"] }]);
    json!({ "apiVersion": RBAC, "kind": "Role", "metadata": { "name": "slices", "namespace": namespace }, "rules": rules })
}

fn bind(namespace: &str, name: &str, kind: &str, role: &str, owner: &str) -> Value {
    json!({
        "apiVersion": RBAC, "kind": "RoleBinding", "metadata": { "name": name, "namespace": namespace },
        "subjects": [user(owner)], "roleRef": reference(kind, role)
    })
}

/// Whether one of these rules lets its bearer write endpoints.
fn writes_endpoints(rules: &Value) -> bool {
    let has = |list: &Value, names: &[&str]| {
        let all = list.as_array().into_iter().flatten().filter_map(Value::as_str);
        all.into_iter().any(|one| one == "*" || names.contains(&one))
    };
    rules.as_array().into_iter().flatten().any(|rule| {
        has(&rule["resources"], &["endpoints", "endpointslices"])
            && has(&rule["apiGroups"], &["", "discovery.k8s.io"])
            && has(&rule["verbs"], &["create", "update", "patch"])
    })
}

/// Tries all ways of a tenant to endpoints. Returns false if this kind of server is not available.
pub(crate) async fn try_all(mode: Mode) -> bool {
    let Some(server) = Server::start(mode, "shared").await else {
        return false;
    };
    prepare_platform(&server).await;
    let mut scene = server.host.set_scene(0);
    prepare_evil(&server, &mut scene, false).await;
    let (home, owner_name) = (scene.evil.clone(), scene.of_evil("owner"));
    let owner = server
        .admin
        .impersonating(&owner_name, &["system:authenticated", "capsule.clastix.io"]);
    let account = format!("system:serviceaccount:{home}:{home}-gitops");
    let account = server
        .admin
        .impersonating(&account, &["system:serviceaccounts", "system:authenticated"]);
    // The roles are aggregated a moment after the start of the server.
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/";
    for name in ROLES {
        let rules = async || server.admin.get(&format!("{path}{name}")).await.body["rules"].clone();
        wait_until(
            async || !rules().await.as_array().is_none_or(Vec::is_empty),
            "a role has rules",
        )
        .await;
        assert!(!writes_endpoints(&rules().await), "{name} writes endpoints");
    }
    for (identity, name) in [(&owner, "the owner"), (&account, "the account")] {
        for object in [slice(&home), endpoints(&home), role(&home)] {
            refuse(identity, name, &object).await;
        }
    }
    let controller = "system:controller:endpointslice-controller";
    let binding = bind(&home, "slices", "ClusterRole", controller, &owner_name);
    refuse(&owner, "the owner", &binding).await;

    // The control: the owner may write a Service without a selector, and a slice with an administrator's permission.
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web", "namespace": home }, "spec": { "ports": [{ "port": 443 }] }
    });
    let made = owner.create(&service).await;
    assert!(made.is_success(), "{made:?}");
    apply(&server.admin, &role(&home)).await;
    apply(&server.admin, &bind(&home, "slices", "Role", "slices", &owner_name)).await;
    wait_until(
        async || owner.create(&slice(&home)).await.is_success(),
        "an owner whom an administrator lets writes a slice",
    )
    .await;
    true
}

async fn refuse(identity: &User, name: &str, object: &Value) {
    let answer = identity.create(object).await;
    assert_eq!(answer.code, 403, "{name} at {}: {answer:?}", collection_of(object));
}
