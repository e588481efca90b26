//! Decides which objects may be written from a namespace. Kubernetes' RBAC bounds the same write again. The rules here hold even where
//! RBAC grants too much.

use serde_json::{Value, json};
use tenure_api::ObjectId;
use tenure_api::metadata::TENANT_LABEL;

use crate::denial::{Denial, DenialReason};
use crate::placement::{Placement, TenantPlacement};

/// The scope of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum Scope {
    /// The object is in a namespace.
    Namespaced,
    /// The object belongs to the cluster.
    Cluster,
}

/// Checks whether an object may be written from a namespace with this placement.
///
/// # Errors
/// In a tenant's namespace for cluster-scoped objects, except the tenant's own namespaces, and for objects in namespaces that are not
/// the tenant's; everywhere for a namespaced object without a namespace.
pub fn check_object(placement: &Placement, scope: Scope, id: &ObjectId) -> Result<(), Denial> {
    let (kind, name, namespace) = (&id.kind, &id.name, id.namespace.as_str());
    match (placement, scope) {
        (Placement::Disputed { message }, _) => Err(Denial::because(
            DenialReason::IdentityMissing,
            format!("no identity may act here: {message}"),
        )),
        (_, Scope::Namespaced) if namespace.is_empty() => Err(deny_unspecified(kind, name)),
        (Placement::Platform { .. } | Placement::Unclaimed { .. }, _) => Ok(()),
        (Placement::Tenant(tenant), Scope::Cluster) if is_namespace(id) => match owns(tenant, name) {
            true => Ok(()),
            false => Err(Denial::access(format!(
                "{kind}/{name}: namespace {name} does not belong to tenant {}, whose namespaces are {}",
                tenant.tenant,
                list_namespaces(tenant),
            ))),
        },
        (Placement::Tenant(tenant), Scope::Cluster) => Err(Denial::access(format!(
            "{kind}/{name} is cluster-scoped: tenant {} may write into its own namespaces only; ask a platform administrator to add it \
             to the platform repository",
            tenant.tenant
        ))),
        (Placement::Tenant(tenant), Scope::Namespaced) => match owns(tenant, namespace) {
            true => Ok(()),
            false => Err(Denial::access(format!(
                "{kind}/{namespace}/{name}: namespace {namespace} does not belong to tenant {}, whose namespaces are {}",
                tenant.tenant,
                list_namespaces(tenant),
            ))),
        },
    }
}

/// Returns the tenant that needs this Namespace first, if the object is a Namespace that the tenant doesn't have. Its identities may
/// create one only by a request that admission judges as an owner's.
#[must_use]
pub fn find_new_namespace<'a>(placement: &'a Placement, scope: Scope, id: &ObjectId) -> Option<&'a TenantPlacement> {
    match placement {
        Placement::Tenant(tenant) if scope == Scope::Cluster && is_namespace(id) && !owns(tenant, &id.name) => {
            Some(tenant)
        }
        _ => None,
    }
}

/// Adds the label with the tenant to a Namespace that is to be created for it. A label for another tenant stays, and admission refuses it.
pub fn claim_namespace(object: &mut Value, tenant: &TenantPlacement) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    if let Some(labels) = labels.as_object_mut() {
        let name = || json!(tenant.tenant.as_str());
        labels.entry(TENANT_LABEL).or_insert_with(name);
    }
}

fn is_namespace(id: &ObjectId) -> bool {
    id.group.is_empty() && id.kind == "Namespace"
}

/// Checks whether a namespace is one of the tenant's.
fn owns(tenant: &TenantPlacement, namespace: &str) -> bool {
    tenant.namespaces.iter().any(|own| own.as_str() == namespace)
}

fn list_namespaces(tenant: &TenantPlacement) -> String {
    let names: Vec<&str> = tenant.namespaces.iter().map(|own| own.as_str()).collect();
    names.join(", ")
}

/// Checks whether `spec.targetNamespace` may be this namespace.
///
/// # Errors
/// When the text is not a namespace's name, or the namespace is not one of the tenant's.
pub fn check_target_namespace(placement: &Placement, target: &str) -> Result<(), Denial> {
    tenure_api::names::NamespaceName::new(target)
        .map_err(|error| Denial::access(format!("spec.targetNamespace: {error}")))?;
    let Placement::Tenant(tenant) = placement else {
        return Ok(());
    };
    if owns(tenant, target) {
        return Ok(());
    }
    Err(Denial::access(format!(
        "spec.targetNamespace: namespace {target} does not belong to tenant {}, whose namespaces are {}",
        tenant.tenant,
        list_namespaces(tenant),
    )))
}

fn deny_unspecified(kind: &str, name: &str) -> Denial {
    Denial::because(
        DenialReason::ReconciliationFailed,
        format!(
            "{kind}/{name} namespace not specified: set metadata.namespace in the file, spec.targetNamespace of the Kustomization, or targetNamespace of the source in the Surface"
        ),
    )
}
