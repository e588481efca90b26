//! Decides whether a namespace is being deleted, or its tenant no longer exists. This answer alone destroys nothing and gives
//! nothing up. It only bounds the wait for another answer that is missing.
//!
//! A contradiction between label and ownerReferences is a dispute, which an administrator may settle. It counts as no ending.

use serde::{Deserialize, Serialize};

use crate::placement::{NamespaceFacts, TenancyFacts, TenantOwnerReference};

/// The object that is ending: a namespace, or its Tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Termination {
    /// The namespace is being deleted.
    Namespace,
    /// The Tenant of the namespace no longer exists, or is being deleted: no account will act for it again.
    Tenant,
}

impl TenancyFacts {
    /// Returns whether a namespace or its Tenant is ending. Returns none if neither is known to end.
    #[must_use]
    pub fn find_termination(&self, namespace: &str) -> Option<Termination> {
        let facts = self.namespaces.iter().find(|facts| facts.name == namespace)?;
        find_termination(
            facts,
            |label| {
                let mut tenants = self.tenants.iter();
                tenants.any(|tenant| tenant.name == label && !tenant.deleting)
            },
            |owner| {
                self.tenants
                    .iter()
                    .any(|tenant| tenant.name == owner.name && tenant.uid == owner.uid && !tenant.deleting)
            },
        )
    }
}

/// Returns whether a namespace or its Tenant is ending. `has_name` checks whether a Tenant with this name exists. `is_there` checks whether the Tenant
/// of an ownerReference exists.
pub(crate) fn find_termination(
    facts: &NamespaceFacts,
    has_name: impl Fn(&str) -> bool,
    is_there: impl Fn(&TenantOwnerReference) -> bool,
) -> Option<Termination> {
    if facts.deleting {
        return Some(Termination::Namespace);
    }
    let gone = match facts.tenant_owners.as_slice() {
        // Garbage collection removes the reference before or after the Tenant. The label still names the
        // Tenant.
        [] => facts.tenant_label.as_ref().is_some_and(|label| !has_name(label)),
        owners => !owners.iter().any(is_there),
    };
    gone.then_some(Termination::Tenant)
}
