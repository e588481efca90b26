//! What an object may refer to: sources and dependencies. A kubeconfig is a Secret of its own namespace, which nothing else can be written for. Remote bases are not asked about: `kustomize` can reach none.
//!
//! A reference leads to another namespace only of the same tenant, or where an administrator grants it. That is decided by names alone, before
//! anybody looks: so what a refusal says does not depend on whether the object exists.

use crate::denial::Denial;
use crate::grant::{KUSTOMIZATION, ReferenceGrant};
use crate::realm::Placement;

/// Who refers.
#[derive(Clone, Copy, Debug)]
pub struct Referrer<'a> {
    /// The namespace of the object that refers.
    pub namespace: &'a str,
    /// Whose that is.
    pub placement: &'a Placement,
    /// What an administrator grants.
    pub grants: &'a [ReferenceGrant],
}

impl Referrer<'_> {
    /// Whether it may refer to an object, which need not exist.
    fn may_refer_to(&self, kind: &str, namespace: &str, name: &str) -> bool {
        let tenant = match self.placement {
            Placement::Tenant(tenant) => Some(&tenant.tenant),
            Placement::Platform { .. } | Placement::Unclaimed { .. } | Placement::Disputed { .. } => None,
        };
        let is_granted = |grant: &ReferenceGrant| grant.covers((self.namespace, tenant), (namespace, kind, name));
        match self.placement {
            // Nobody acts there, whatever is granted.
            Placement::Disputed { .. } => false,
            Placement::Tenant(tenant) if tenant.namespaces.iter().any(|own| own.as_str() == namespace) => true,
            _ => self.grants.iter().any(is_granted),
        }
    }
}

/// Whether a Kustomization may use a source. One of another namespace is refused with Flux's words, at every tier, unless that is of the same
/// tenant, or it is granted.
///
/// # Errors
/// When the reference leads where it may not.
pub fn check_source(
    referrer: Referrer<'_>,
    kind: &str,
    source_namespace: Option<&str>,
    name: &str,
) -> Result<(), Denial> {
    match source_namespace {
        Some(other) if other != referrer.namespace && !referrer.may_refer_to(kind, other, name) => Err(Denial::access(
            format!("can't access '{kind}/{other}/{name}', cross-namespace references have been blocked"),
        )),
        _ => Ok(()),
    }
}

/// Whether a Kustomization may depend on another. Another namespace's is refused unless that is of the same tenant, or it is granted:
/// whether something is ready there, or exists, is nothing that this namespace may learn.
///
/// # Errors
/// When the reference leads where it may not.
pub fn check_dependency(referrer: Referrer<'_>, other_namespace: Option<&str>, name: &str) -> Result<(), Denial> {
    match other_namespace {
        Some(other) if other != referrer.namespace && !referrer.may_refer_to(KUSTOMIZATION, other, name) => {
            Err(Denial::access(format!(
                "can't depend on 'Kustomization/{other}/{name}', cross-namespace references have been blocked"
            )))
        }
        _ => Ok(()),
    }
}

/// Whether a health check may look at an object: in a tenant's namespace only at the tenant's own.
///
/// # Errors
/// When the object is cluster-scoped or in a namespace that is not the tenant's.
pub fn check_health_check(
    placement: &Placement,
    kind: &str,
    namespace: Option<&str>,
    name: &str,
) -> Result<(), Denial> {
    let Placement::Tenant(tenant) = placement else {
        return Ok(());
    };
    match namespace {
        Some(namespace) if tenant.namespaces.iter().any(|own| own.as_str() == namespace) => Ok(()),
        Some(namespace) => Err(Denial::access(format!(
            "can't check the health of '{kind}/{namespace}/{name}': namespace {namespace} does not belong to tenant {}",
            tenant.tenant
        ))),
        None => Err(Denial::access(format!(
            "can't check the health of '{kind}/{name}': it is cluster-scoped, and tenant {} has namespaces only",
            tenant.tenant
        ))),
    }
}

/// Whether an Alert may tell of the events of an object: in its own namespace, and in another one of the same tenant's.
///
/// # Errors
/// When the object is in any other namespace.
pub fn check_event_source(
    placement: &Placement,
    namespace: &str,
    other_namespace: Option<&str>,
    (kind, name): (&str, &str),
) -> Result<(), Denial> {
    if is_same_tenants(placement, namespace, other_namespace) {
        return Ok(());
    }
    let other = other_namespace.unwrap_or_default();
    Err(Denial::access(format!(
        "alert can't process events from '{kind}/{other}/{name}', cross-namespace references have been blocked"
    )))
}

/// Whether another namespace is the same, or of the same tenant.
fn is_same_tenants(placement: &Placement, namespace: &str, other: Option<&str>) -> bool {
    let Some(other) = other.filter(|other| *other != namespace) else {
        return true;
    };
    matches!(placement, Placement::Tenant(tenant) if tenant.namespaces.iter().any(|own| own.as_str() == other))
}

/// Whether a Receiver may ask an object to reconcile: in its own namespace, and in another one of the same tenant's.
///
/// # Errors
/// When the object is in any other namespace.
pub fn check_receiver_resource(
    placement: &Placement,
    namespace: &str,
    other_namespace: Option<&str>,
    (kind, name): (&str, &str),
) -> Result<(), Denial> {
    if is_same_tenants(placement, namespace, other_namespace) {
        return Ok(());
    }
    let other = other_namespace.unwrap_or_default();
    Err(Denial::access(format!(
        "can't ask '{kind}/{other}/{name}' to reconcile: cross-namespace references are not allowed"
    )))
}
