//! What an object may refer to: sources, dependencies and kubeconfigs. Remote bases are not asked about: `kustomize` can reach none.

use crate::denial::Denial;
use crate::realm::Placement;

/// Whether a Kustomization may use a source. Another namespace's is refused with Flux's words, at every tier.
///
/// # Errors
/// When the reference names another namespace.
pub fn check_source(namespace: &str, kind: &str, source_namespace: Option<&str>, name: &str) -> Result<(), Denial> {
    match source_namespace {
        Some(other) if other != namespace => Err(Denial::access(format!(
            "can't access '{kind}/{other}/{name}', cross-namespace references have been blocked"
        ))),
        _ => Ok(()),
    }
}

/// Whether a Kustomization may depend on another. Another namespace's is refused, the same tenant's included: whether something is
/// ready there, or exists, is nothing that this namespace may learn.
///
/// # Errors
/// When the reference names another namespace.
pub fn check_dependency(namespace: &str, other_namespace: Option<&str>, name: &str) -> Result<(), Denial> {
    match other_namespace {
        Some(other) if other != namespace => Err(Denial::access(format!(
            "can't depend on 'Kustomization/{other}/{name}', cross-namespace references have been blocked"
        ))),
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

/// Whether a Kustomization may apply to another cluster. A kubeconfig names an address, files and programs of its author's choice;
/// under lockdown, which is always on here, it is refused at every tier.
///
/// # Errors
/// Always, when one is set.
pub fn check_kubeconfig(is_set: bool) -> Result<(), Denial> {
    if is_set {
        return Err(Denial::access(
            "spec.kubeConfig is refused: applying to another cluster by a kubeconfig is not allowed; remove the field",
        ));
    }
    Ok(())
}
