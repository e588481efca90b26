//! The rights by which policies know owners and accounts: an expression can ask the authorizer, and reads no Tenant.
//!
//! Owns which RBAC that is. It gives nobody a right that Kubernetes knows, but to owners that of reading their Tenant, by its name: so they find it
//! without a right to list all.

use serde_json::{Value, json};
use tenure_api::metadata::{
    MANAGED_BY, MANAGED_BY_TENURE, NAMESPACE_PROVISIONER_CLUSTER_ROLE, SHOW_TOKEN_CLUSTER_ROLE, TENANT_LABEL,
};

use super::super::account::account_of;
use crate::admission::make_owner_reference;
use crate::admission::rights::OWN;
use crate::realm::TenantFacts;

/// The verb, on `tenants`, of who makes namespaces for Tenants, and none of nobody: owners.
pub const PROVISION: &str = "provision";
/// The verb, on `tenants`, of who writes nothing without a token of its own: an account that its Tenant keeps exclusive.
pub const SHOW_TOKEN: &str = "show-token";

const RBAC: &str = "rbac.authorization.k8s.io";

/// The ClusterRoles that all Tenants have in common. That of owners is Capsule's, and lets them make namespaces.
#[must_use]
pub fn list_roles() -> Vec<Value> {
    let role = |name: &str, rules: Value| {
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole",
            "metadata": { "name": name, "labels": { MANAGED_BY: MANAGED_BY_TENURE } }, "rules": rules
        })
    };
    let on_tenants =
        |verb: &str| json!({ "apiGroups": ["capsule.clastix.io"], "resources": ["tenants"], "verbs": [verb] });
    vec![
        role(
            NAMESPACE_PROVISIONER_CLUSTER_ROLE,
            json!([{ "apiGroups": [""], "resources": ["namespaces"], "verbs": ["create"] }, on_tenants(PROVISION)]),
        ),
        role(SHOW_TOKEN_CLUSTER_ROLE, json!([on_tenants(SHOW_TOKEN)])),
    ]
}

/// What a Tenant has of its own: its owners may read it, and make namespaces for it, unless it is cordoned or being deleted, and its account has to
/// show a token where it is exclusive. Who is none any more is bound no more: all of it is always there, and goes with the Tenant.
#[must_use]
pub fn list_tenant_rights(tenant: &TenantFacts) -> Vec<Value> {
    let metadata = |name: String| {
        json!({
            "name": name,
            "labels": { TENANT_LABEL: tenant.name, MANAGED_BY: MANAGED_BY_TENURE },
            "ownerReferences": [make_owner_reference(&tenant.name, &tenant.uid)]
        })
    };
    let binding = |name: String, role: &str, subjects: Vec<Value>| {
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": metadata(name),
            "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": role }, "subjects": subjects
        })
    };
    let owners: Vec<Value> = tenant.owners.iter().filter_map(write_subject).collect();
    let has_owners = !tenant.cordoned && !tenant.deleting;
    let account = account_of(tenant).filter(|_| tenant.exclusive_account);
    let account = account.map(
        |(home, account)| json!({ "kind": "ServiceAccount", "namespace": home.as_str(), "name": account.as_str() }),
    );
    let role = |name: &str, verb: &str| {
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": metadata(name.to_owned()),
            "rules": [{
                "apiGroups": ["capsule.clastix.io"], "resources": ["tenants"], "verbs": [verb], "resourceNames": [tenant.name]
            }]
        })
    };
    let [own, view] = ["own", "view"].map(|what| format!("tenure:{}:{what}", tenant.name));
    vec![
        role(&own, OWN),
        binding(own.clone(), &own, if has_owners { owners.clone() } else { Vec::new() }),
        role(&view, "get"),
        binding(view.clone(), &view, owners.clone()),
        binding(
            format!("tenure:{}:show-token", tenant.name),
            SHOW_TOKEN_CLUSTER_ROLE,
            account.into_iter().collect(),
        ),
        binding(
            format!("capsule:{}:namespace-provisioner", tenant.name),
            NAMESPACE_PROVISIONER_CLUSTER_ROLE,
            if tenant.deleting { Vec::new() } else { owners.clone() },
        ),
    ]
}

/// An owner as a subject: one that is none is nobody's.
fn write_subject(owner: &crate::realm::TenantOwnerFacts) -> Option<Value> {
    match owner.kind.as_str() {
        "User" | "Group" => Some(json!({ "apiGroup": RBAC, "kind": owner.kind, "name": owner.name })),
        "ServiceAccount" => {
            let (namespace, name) = owner.name.strip_prefix("system:serviceaccount:")?.split_once(':')?;
            Some(json!({ "kind": "ServiceAccount", "namespace": namespace, "name": name }))
        }
        _ => None,
    }
}
