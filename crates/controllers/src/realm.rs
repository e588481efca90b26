//! Whose a namespace is, as far as the controller has seen. Keeps tenancy's facts, one change at a time, and its answers until a change concerns
//! them. Refuses to look at everything for one: what a Tenant or a namespace costs here grows with its own Tenant, not with the others'.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use k8s_openapi::api::core::v1::Namespace;
use tenure_api::{Tenant, TenantSpec};
use tenure_planner::tenant::shares;
use tenure_tenancy::{Concerned, Ending, Facts, Holder, NamespaceFacts, Placement, Realm, Settings, TenantFacts};

use crate::cache::Cache;

/// What is known, and the placements that were found since.
#[derive(Debug)]
pub(crate) struct Known {
    facts: RwLock<Facts>,
    /// By namespace. Written only by who holds the facts, so that none is older than they are.
    placements: Mutex<HashMap<String, Arc<Placement>>>,
}

impl Known {
    /// Nothing is known yet.
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            facts: RwLock::new(Facts::new(settings)),
            placements: Mutex::default(),
        }
    }

    /// Whose a namespace is.
    pub(crate) fn place(&self, namespace: &str) -> Placement {
        if let Some(placement) = self.placements().get(namespace).cloned() {
            return placement.as_ref().clone();
        }
        let facts = self.read();
        let placement = facts.place(namespace);
        // Of one that isn't known nothing tells that it is gone.
        if facts.find_namespace(namespace).is_some() {
            let kept = Arc::new(placement.clone());
            self.placements().insert(namespace.to_owned(), kept);
        }
        placement
    }

    /// The tenant that has recorded a namespace.
    pub(crate) fn find_holder(&self, namespace: &str) -> Holder {
        self.read().find_holder(namespace)
    }

    /// What there is for one Tenant to be decided by.
    pub(crate) fn extract(&self, tenant: &TenantFacts) -> Realm {
        self.read().extract(tenant)
    }

    /// Whether what a Tenant's namespaces may use together is written into each as its share.
    pub(crate) fn shares_quotas(&self, spec: &TenantSpec) -> bool {
        shares::are_written(spec, self.read().settings())
    }

    /// What is ending about a namespace.
    pub(crate) fn find_ending(&self, namespace: &str) -> Option<Ending> {
        self.read().ending(namespace)
    }

    /// Whether it stands on a namespace that lanes may ask for tokens of an account there.
    pub(crate) fn is_mintable(&self, namespace: &str, account: &str) -> bool {
        let facts = self.read();
        let known = facts.find_namespace(namespace);
        known.is_some_and(|known| known.mintable.contains(account))
    }

    /// Whether a namespace names no Tenant.
    pub(crate) fn is_nobodys(&self, namespace: &str) -> bool {
        !self.read().names_tenant(namespace)
    }

    /// Everything: for who decides about all of it.
    pub(crate) fn copy(&self) -> Facts {
        self.read().clone()
    }

    /// A namespace may have changed: what the cache has of it counts. Tells whom that concerns.
    pub(crate) fn take_namespace(&self, name: &str, seen: &Cache<Namespace>) -> Concerned {
        // Looked up under the lock, so that who comes later knows more.
        self.change(|facts| {
            let found = seen.get("", name);
            facts.change_namespace(name, found.map(|found| NamespaceFacts::from(&found.metadata)))
        })
    }

    /// A Tenant may have changed: what the cache has of it counts. Tells whom that concerns.
    pub(crate) fn take_tenant(&self, name: &str, seen: &Cache<Tenant>) -> Concerned {
        self.change(|facts| {
            let found = seen.get("", name);
            facts.change_tenant(name, found.map(|found| TenantFacts::from(found.as_ref())))
        })
    }

    fn change(&self, change: impl FnOnce(&mut Facts) -> Concerned) -> Concerned {
        let mut facts = self.facts.write().unwrap_or_else(PoisonError::into_inner);
        let concerned = change(&mut facts);
        let mut placements = self.placements();
        for namespace in &concerned.namespaces {
            placements.remove(namespace);
        }
        concerned
    }

    fn read(&self) -> RwLockReadGuard<'_, Facts> {
        self.facts.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn placements(&self) -> MutexGuard<'_, HashMap<String, Arc<Placement>>> {
        self.placements.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
