//! Whether what lives in a namespace is about to lose it, or has lost the tenant that it acted for. Nothing is destroyed or given up
//! on this answer alone: it says for how long an answer that does not come may be waited for.
//!
//! It refuses to guess: a contradiction between labels and ownerReferences is a dispute, which somebody may settle, and no ending.

use serde::{Deserialize, Serialize};

use crate::realm::{NamespaceFacts, Realm, TenantOwnerReference};

/// What is ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Ending {
    /// The namespace is being deleted.
    Namespace,
    /// The Tenant that the namespace belonged to does not exist any more, or soon won't: nobody will act in it again.
    Tenant,
}

impl Realm {
    /// What is ending about a namespace, if anything is known to be.
    #[must_use]
    pub fn ending(&self, namespace: &str) -> Option<Ending> {
        let facts = self.namespaces.iter().find(|facts| facts.name == namespace)?;
        judge(
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

/// What is ending about a namespace, by what is known of it and of whether Tenants are there: one of this name, and the one that an ownerReference names.
pub(crate) fn judge(
    facts: &NamespaceFacts,
    has_name: impl Fn(&str) -> bool,
    is_there: impl Fn(&TenantOwnerReference) -> bool,
) -> Option<Ending> {
    if facts.deleting {
        return Some(Ending::Namespace);
    }
    let gone = match facts.tenant_owners.as_slice() {
        // Garbage collection takes the reference away before or after the Tenant: the label still tells.
        [] => facts.tenant_label.as_ref().is_some_and(|label| !has_name(label)),
        owners => !owners.iter().any(is_there),
    };
    gone.then_some(Ending::Tenant)
}
