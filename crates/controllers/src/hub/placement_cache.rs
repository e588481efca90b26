//! The placement of namespaces, as far as the controller has seen. It updates tenancy's facts one change at a time, and caches answers until a change
//! concerns them. The cost of a changed Tenant or namespace grows with its own Tenant, not with the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use k8s_openapi::api::core::v1::Namespace;
use tenure_api::{Tenant, TenantSpec};
use tenure_planner::tenant::shares;
use tenure_tenancy::{
    AffectedObjects, FactIndex, Holder, NamespaceFacts, Placement, Settings, TenancyFacts, TenantFacts, Termination,
};

use crate::cluster_view::cache::Cache;

/// The facts about Tenants and namespaces, and the placements of namespaces that were computed from these facts.
#[derive(Debug)]
pub(crate) struct PlacementCache {
    facts: RwLock<FactIndex>,
    /// By namespace. Written only under the lock of the facts, so that no placement is older than the facts.
    placements: Mutex<HashMap<String, Arc<Placement>>>,
}

impl PlacementCache {
    /// Creates an empty set of facts.
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            facts: RwLock::new(FactIndex::new(settings)),
            placements: Mutex::default(),
        }
    }

    /// Returns the placement of a namespace: whose it is.
    pub(crate) fn find_placement(&self, namespace: &str) -> Placement {
        if let Some(placement) = self.lock_placements().get(namespace).cloned() {
            return placement.as_ref().clone();
        }
        let facts = self.read();
        let placement = facts.find_placement(namespace);
        // No event reports the deletion of an unknown namespace, so its placement is not cached.
        if facts.find_namespace(namespace).is_some() {
            let kept = Arc::new(placement.clone());
            self.lock_placements().insert(namespace.to_owned(), kept);
        }
        placement
    }

    /// Returns the tenant that has recorded a namespace.
    pub(crate) fn find_holder(&self, namespace: &str) -> Holder {
        self.read().find_holder(namespace)
    }

    /// Returns the facts that decide one Tenant.
    pub(crate) fn extract(&self, tenant: &TenantFacts) -> TenancyFacts {
        self.read().extract(tenant)
    }

    /// Checks whether a Tenant's common quota is written into each namespace as its share.
    pub(crate) fn shares_quotas(&self, spec: &TenantSpec) -> bool {
        shares::has_shares(spec, self.read().settings())
    }

    /// Returns whether the namespace or its Tenant is being deleted.
    pub(crate) fn find_ending(&self, namespace: &str) -> Option<Termination> {
        self.read().find_termination(namespace)
    }

    /// Checks whether the namespace's annotations allow lanes to request tokens of an account there.
    pub(crate) fn is_mintable(&self, namespace: &str, account: &str) -> bool {
        let facts = self.read();
        let known = facts.find_namespace(namespace);
        known.is_some_and(|known| known.mintable.contains(account))
    }

    /// Checks whether a namespace names no Tenant.
    pub(crate) fn is_without_tenant(&self, namespace: &str) -> bool {
        !self.read().names_tenant(namespace)
    }

    /// Returns a copy of all facts.
    pub(crate) fn copy(&self) -> FactIndex {
        self.read().clone()
    }

    /// Updates a namespace from the cache after a possible change. Returns the affected objects.
    pub(crate) fn take_namespace(&self, name: &str, seen: &Cache<Namespace>) -> AffectedObjects {
        // Read under the lock, so that a later caller never has older facts.
        self.change(|facts| {
            let found = seen.get("", name);
            facts.change_namespace(name, found.map(|found| NamespaceFacts::from(&found.metadata)))
        })
    }

    /// Updates a Tenant from the cache after a possible change. Returns the affected objects.
    pub(crate) fn take_tenant(&self, name: &str, seen: &Cache<Tenant>) -> AffectedObjects {
        self.change(|facts| {
            let found = seen.get("", name);
            facts.change_tenant(name, found.map(|found| TenantFacts::from(found.as_ref())))
        })
    }

    fn change(&self, change: impl FnOnce(&mut FactIndex) -> AffectedObjects) -> AffectedObjects {
        let mut facts = self.facts.write().unwrap_or_else(PoisonError::into_inner);
        let concerned = change(&mut facts);
        let mut placements = self.lock_placements();
        for namespace in &concerned.namespaces {
            placements.remove(namespace);
        }
        concerned
    }

    fn read(&self) -> RwLockReadGuard<'_, FactIndex> {
        self.facts.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_placements(&self) -> MutexGuard<'_, HashMap<String, Arc<Placement>>> {
        self.placements.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
