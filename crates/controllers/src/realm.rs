//! Whose a namespace is, as far as the controller has seen. Keeps tenancy's answers until a Tenant or a namespace changes.
//! Refuses to work under a lock that tenants share: what is known now is exchanged as a whole, and made by whoever needs it first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use k8s_openapi::api::core::v1::Namespace;
use tenure_api::Tenant;
use tenure_tenancy::{Atlas, NamespaceFacts, Placement, Realm, Settings, TenantFacts};

use crate::cache::Cache;

/// Placements by namespace, and the realm that they were made from.
#[derive(Debug, Default)]
pub(crate) struct PlacementCache {
    current: Mutex<Arc<Generation>>,
}

/// What was found between two changes.
#[derive(Debug, Default)]
struct Generation {
    atlas: OnceLock<Atlas>,
    placements: Mutex<HashMap<String, Arc<Placement>>>,
}

impl PlacementCache {
    /// Whose a namespace is.
    pub(crate) fn place(
        &self,
        namespace: &str,
        settings: &Settings,
        tenants: &Cache<Tenant>,
        namespaces: &Cache<Namespace>,
    ) -> Placement {
        let generation = self.current();
        if let Some(placement) = generation.kept().get(namespace).cloned() {
            return placement.as_ref().clone();
        }
        let placement = generation.atlas(settings, tenants, namespaces).place(namespace);
        let kept = Arc::new(placement.clone());
        generation.kept().insert(namespace.to_owned(), kept);
        placement
    }

    /// All Tenants and namespaces.
    pub(crate) fn realm(
        &self,
        settings: &Settings,
        tenants: &Cache<Tenant>,
        namespaces: &Cache<Namespace>,
    ) -> Arc<Realm> {
        Arc::clone(self.current().atlas(settings, tenants, namespaces).realm())
    }

    /// A Tenant or a namespace changed.
    pub(crate) fn forget(&self) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::take(&mut *current);
        drop(current);
        // Freed without the lock.
        drop(old);
    }

    fn current(&self) -> Arc<Generation> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Generation {
    fn kept(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Placement>>> {
        self.placements.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Made once: those who need it at the same time wait for the first of them.
    fn atlas(&self, settings: &Settings, tenants: &Cache<Tenant>, namespaces: &Cache<Namespace>) -> &Atlas {
        self.atlas.get_or_init(|| {
            Atlas::new(Arc::new(Realm {
                settings: settings.clone(),
                tenants: tenants
                    .all()
                    .iter()
                    .map(|tenant| TenantFacts::from(tenant.as_ref()))
                    .collect(),
                namespaces: namespaces
                    .all()
                    .iter()
                    .map(|namespace| NamespaceFacts::from(&namespace.metadata))
                    .collect(),
            }))
        })
    }
}
