//! Decides which objects may be written from a namespace. Kubernetes' RBAC bounds the same write again. The rules here hold even where
//! RBAC grants too much.

use crate::denial::{Denial, DenialReason};
use crate::placement::Placement;

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
/// In a tenant's namespace for cluster-scoped objects and for objects in namespaces that are not the tenant's; everywhere for
/// a namespaced object without a namespace.
pub fn check_object(
    placement: &Placement,
    scope: Scope,
    kind: &str,
    namespace: Option<&str>,
    name: &str,
) -> Result<(), Denial> {
    match placement {
        Placement::Disputed { message } => Err(Denial::because(
            DenialReason::IdentityMissing,
            format!("nobody may act here: {message}"),
        )),
        Placement::Platform { .. } | Placement::Unclaimed { .. } => match (scope, namespace) {
            (Scope::Namespaced, None | Some("")) => Err(unspecified(kind, name)),
            _ => Ok(()),
        },
        Placement::Tenant(tenant) => match (scope, namespace) {
            (Scope::Cluster, _) => Err(Denial::access(format!(
                "{kind}/{name} is cluster-scoped: tenant {} may write into its own namespaces only; ask a platform administrator to add it \
                 to the platform repository",
                tenant.tenant
            ))),
            (Scope::Namespaced, None | Some("")) => Err(unspecified(kind, name)),
            (Scope::Namespaced, Some(namespace)) => {
                if tenant.namespaces.iter().any(|own| own.as_str() == namespace) {
                    Ok(())
                } else {
                    Err(Denial::access(format!(
                        "{kind}/{namespace}/{name}: namespace {namespace} does not belong to tenant {}, whose namespaces are {}",
                        tenant.tenant,
                        tenant
                            .namespaces
                            .iter()
                            .map(|own| own.as_str())
                            .collect::<Vec<_>>()
                            .join(", "),
                    )))
                }
            }
        },
    }
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
    if tenant.namespaces.iter().any(|own| own.as_str() == target) {
        return Ok(());
    }
    Err(Denial::access(format!(
        "spec.targetNamespace: namespace {target} does not belong to tenant {}, whose namespaces are {}",
        tenant.tenant,
        tenant
            .namespaces
            .iter()
            .map(|own| own.as_str())
            .collect::<Vec<_>>()
            .join(", "),
    )))
}

fn unspecified(kind: &str, name: &str) -> Denial {
    Denial::because(
        DenialReason::ReconciliationFailed,
        format!(
            "{kind}/{name} namespace not specified: set metadata.namespace in the file, spec.targetNamespace of the Kustomization, or targetNamespace of the source in the Surface"
        ),
    )
}
