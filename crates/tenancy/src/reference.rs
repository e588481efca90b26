//! What an object may refer to: sources, dependencies, kubeconfigs and remote bases.

use crate::denial::Denial;
use crate::realm::Placement;

/// Whether a Kustomization may use a source. Another namespace's is refused with Flux's words, at every tier.
///
/// # Errors
/// When the reference names another namespace.
pub fn source(namespace: &str, kind: &str, source_namespace: Option<&str>, name: &str) -> Result<(), Denial> {
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
pub fn dependency(namespace: &str, other_namespace: Option<&str>, name: &str) -> Result<(), Denial> {
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
pub fn health_check(placement: &Placement, kind: &str, namespace: Option<&str>, name: &str) -> Result<(), Denial> {
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
pub fn kubeconfig(is_set: bool) -> Result<(), Denial> {
    if is_set {
        return Err(Denial::access(
            "spec.kubeConfig is refused: applying to another cluster by a kubeconfig is not allowed; remove the field",
        ));
    }
    Ok(())
}

/// Whether an entry of a kustomization file may be used as a base or resource: what is fetched from elsewhere while rendering is
/// refused at every tier.
///
/// # Errors
/// When the entry is an address instead of a path within the source.
pub fn remote_base(entry: &str) -> Result<(), Denial> {
    let scheme = entry.split_once("://").is_some_and(|(scheme, _)| {
        !scheme.is_empty()
            && scheme
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.' | b':'))
    });
    let git = entry.starts_with("git::")
        || entry.starts_with("git@")
        || entry.starts_with("github.com/")
        || entry.starts_with("github.com:");
    // `user@host:path`, which git reads as ssh.
    let scp = entry
        .split_once(':')
        .is_some_and(|(host, _)| host.contains('@') && !host.contains('/'));
    if scheme || git || scp {
        return Err(Denial::access(format!(
            "remote base {entry:?} is refused: nothing is fetched during rendering; copy it into the repository, or make it a source"
        )));
    }
    Ok(())
}
