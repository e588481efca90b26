//! The rights by which policies recognise owners and accounts: an expression can ask the authorizer, and reads no Tenant.
//!
//! The only right known to Kubernetes among them lets owners read their Tenant, by its name. So they find it without a right to list all Tenants.

use serde_json::{Value, json};
use tenure_api::metadata::{
    MANAGED_BY, MANAGED_BY_TENURE, NAMESPACE_APPLIER_CLUSTER_ROLE, NAMESPACE_PROVISIONER_CLUSTER_ROLE,
    SHOW_TOKEN_CLUSTER_ROLE, TENANT_LABEL,
};
use tenure_api::names::{NamespaceName, ServiceAccountName};

use super::super::account::account_of;
use tenure_tenancy::make_owner_reference;
use tenure_tenancy::placement::{TenantFacts, TenantOwnerFacts};
pub use tenure_tenancy::rights::PROVISION;
use tenure_tenancy::rights::{BE_OWNER, EXTEND, OWN};
use tenure_tenancy::settings::Settings;

/// The verb of an account that its Tenant keeps exclusive, on `tenants`. Without a token of its own it writes nothing.
pub const SHOW_TOKEN: &str = "show-token";

const RBAC: &str = "rbac.authorization.k8s.io";

/// Returns the rights of one Tenant where policies check writes:
///
/// - [`list_owner_rights`],
/// - the right of its owners and its GitOps account to create its namespaces, unless the Tenant is cordoned or being deleted, and the right to [another one](has_namespace_capacity),
/// - the duty of its account to show a token, if the account is exclusive.
///
/// A former owner is removed from the bindings. The objects themselves always exist, and are deleted with the Tenant.
#[must_use]
pub fn list_tenant_rights(tenant: &TenantFacts, has_room: bool) -> Vec<Value> {
    let has_owners = !tenant.cordoned && !tenant.deleting;
    let own = format!("tenure:{}:own", tenant.name);
    let creators = if has_owners { list_creators(tenant) } else { Vec::new() };
    let mut rights = vec![
        about_tenant(tenant, &own, if has_room { &[OWN, EXTEND] } else { &[OWN] }),
        bind(tenant, own.clone(), &own, creators),
    ];
    rights.extend(list_token_rights(tenant));
    rights.extend(list_owner_rights(tenant));
    rights
}

/// Returns the name of the ClusterRoleBinding that lets a Tenant's owners apply new namespaces. The right is one to patch every namespace, and admission
/// limits it to new ones. So where policies check writes, the binding is created only while they are in force.
#[must_use]
pub fn name_applier_binding(tenant: &str) -> String {
    format!("tenure:{tenant}:namespace-applier")
}

/// Returns the right by which policies and webhooks recognise an account that its Tenant keeps
/// exclusive.
#[must_use]
pub fn list_token_rights(tenant: &TenantFacts) -> Vec<Value> {
    let account = account_of(tenant).filter(|_| tenant.exclusive_account);
    let account = account.map(
        |(home, account)| json!({ "kind": "ServiceAccount", "namespace": home.as_str(), "name": account.as_str() }),
    );
    let name = format!("tenure:{}:show-token", tenant.name);
    let subjects = account.into_iter().collect();
    vec![bind(tenant, name, SHOW_TOKEN_CLUSTER_ROLE, subjects)]
}

/// Checks whether owners may create another namespace for a Tenant that has `count`, where no admission counts at the creation. An expression can't
/// count, so the right ends instead. Of namespaces that are created at once before that, more may be stored than the quota allows; the Tenant doesn't
/// record these.
#[must_use]
pub fn has_namespace_capacity(tenant: &TenantFacts, settings: &Settings, count: usize) -> bool {
    let quota = tenant.find_namespace_quota(settings);
    quota.is_none_or(|quota| count < quota)
}

/// Returns the owners' rights in the whole cluster wherever writes are checked: they may read their Tenant, and create and apply namespaces. Admission
/// ensures that these are new, and become the tenant's. The GitOps account may create them, too: from a repository.
#[must_use]
pub fn list_owner_rights(tenant: &TenantFacts) -> Vec<Value> {
    let creators = if tenant.deleting {
        Vec::new()
    } else {
        list_creators(tenant)
    };
    let view = format!("tenure:{}:view", tenant.name);
    vec![
        about_tenant(tenant, &view, &["get", BE_OWNER]),
        bind(tenant, view.clone(), &view, list_owners(tenant)),
        bind(
            tenant,
            format!("capsule:{}:namespace-provisioner", tenant.name),
            NAMESPACE_PROVISIONER_CLUSTER_ROLE,
            creators.clone(),
        ),
        bind(
            tenant,
            name_applier_binding(&tenant.name),
            NAMESPACE_APPLIER_CLUSTER_ROLE,
            creators,
        ),
    ]
}

/// Returns a ClusterRole with verbs on this Tenant.
fn about_tenant(tenant: &TenantFacts, name: &str, verbs: &[&str]) -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": metadata(tenant, name),
        "rules": [{
            "apiGroups": ["capsule.clastix.io"], "resources": ["tenants"], "verbs": verbs, "resourceNames": [tenant.name]
        }]
    })
}

/// Returns a ClusterRoleBinding of a Tenant.
fn bind(tenant: &TenantFacts, name: String, role: &str, subjects: Vec<Value>) -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": metadata(tenant, &name),
        "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": role }, "subjects": subjects
    })
}

fn metadata(tenant: &TenantFacts, name: &str) -> Value {
    json!({
        "name": name,
        "labels": { TENANT_LABEL: tenant.name, MANAGED_BY: MANAGED_BY_TENURE },
        "ownerReferences": [make_owner_reference(&tenant.name, &tenant.uid)]
    })
}

/// Lists the identities that create namespaces for a Tenant: its owners and its GitOps account. An account with a ClusterRole that an administrator chose has no other
/// rights.
fn list_creators(tenant: &TenantFacts) -> Vec<Value> {
    let mut creators = list_owners(tenant);
    let account = account_of(tenant).filter(|_| !tenant.has_account_role);
    if let Some((home, account)) = account {
        let account = json!({ "kind": "ServiceAccount", "namespace": home.as_str(), "name": account.as_str() });
        if !creators.contains(&account) {
            creators.push(account);
        }
    }
    creators
}

fn list_owners(tenant: &TenantFacts) -> Vec<Value> {
    tenant.owners.iter().filter_map(write_subject).collect()
}

/// Returns an owner as a subject that an API server accepts. Returns none for an invalid owner.
fn write_subject(owner: &TenantOwnerFacts) -> Option<Value> {
    match owner.kind.as_str() {
        "User" | "Group" if !owner.name.is_empty() => {
            Some(json!({ "apiGroup": RBAC, "kind": owner.kind, "name": owner.name }))
        }
        "ServiceAccount" => {
            let (namespace, name) = owner.name.strip_prefix("system:serviceaccount:")?.split_once(':')?;
            let namespace = NamespaceName::new(namespace).ok()?;
            let name = ServiceAccountName::new(name).ok()?;
            Some(json!({ "kind": "ServiceAccount", "namespace": namespace.as_str(), "name": name.as_str() }))
        }
        _ => None,
    }
}
