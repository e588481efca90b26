//! Decides which sources and dependencies an object may refer to. A kubeconfig is a Secret of the object's own namespace, since its reference has no field for
//! another one. Remote bases need no rule: `kustomize` can reach none.
//!
//! A reference leads to another namespace only within the same tenant, or where an administrator grants it. Names alone decide that, before the object is read:
//! so a denial does not show whether the object exists.

use crate::denial::Denial;
use crate::grant::{KUSTOMIZATION, ReferenceGrant};
use crate::placement::Placement;

/// The object that refers.
#[derive(Clone, Copy, Debug)]
pub struct Referrer<'a> {
    /// The namespace of the object.
    pub namespace: &'a str,
    /// The placement of this namespace.
    pub placement: &'a Placement,
    /// The grants of an administrator.
    pub grants: &'a [ReferenceGrant],
}

impl Referrer<'_> {
    /// Checks whether the referrer may refer to an object, which need not exist.
    fn may_refer_to(&self, kind: &str, namespace: &str, name: &str) -> bool {
        let tenant = match self.placement {
            Placement::Tenant(tenant) => Some(&tenant.tenant),
            Placement::Platform { .. } | Placement::Unclaimed { .. } | Placement::Disputed { .. } => None,
        };
        let is_granted = |grant: &ReferenceGrant| grant.covers((self.namespace, tenant), (namespace, kind, name));
        match self.placement {
            // Nothing acts there, whatever is granted.
            Placement::Disputed { .. } => false,
            Placement::Tenant(tenant) if tenant.namespaces.iter().any(|own| own.as_str() == namespace) => true,
            _ => self.grants.iter().any(is_granted),
        }
    }
}

/// Checks whether a Kustomization may use a source. A source in another namespace is denied with Flux's words, in every tier, unless the
/// namespace is of the same tenant or the source is granted.
///
/// # Errors
/// When the reference is not allowed.
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

/// Checks whether a Kustomization may depend on another. One in another namespace is denied unless the namespace is of the same
/// tenant or the reference is granted: this namespace must not learn whether something exists or is ready there.
///
/// # Errors
/// When the reference is not allowed.
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

/// Checks whether a health check may read an object. In a tenant's namespace, only the tenant's own
/// objects are allowed.
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

/// Checks whether an Alert may send events of an object: in its own namespace, or in another one of the same tenant.
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

/// Checks whether another namespace is the same, or of the same tenant.
fn is_same_tenants(placement: &Placement, namespace: &str, other: Option<&str>) -> bool {
    let Some(other) = other.filter(|other| *other != namespace) else {
        return true;
    };
    matches!(placement, Placement::Tenant(tenant) if tenant.namespaces.iter().any(|own| own.as_str() == other))
}

/// Checks whether a Receiver may request the reconciliation of an object: in its own namespace, or in another one of
/// the same tenant.
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
