//! Whose a namespace is, as far as the controller has seen. Keeps tenancy's answers until a Tenant or a namespace changes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::Namespace;
use tenure_api::Tenant;
use tenure_tenancy::{NamespaceFacts, Placement, Realm, Settings, TenantFacts};

use crate::cache::Cache;

/// Placements by namespace, and the realm that they were made from.
#[derive(Debug, Default)]
pub(crate) struct Placements {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    realm: Option<Arc<Realm>>,
    placements: HashMap<String, Placement>,
}

impl Placements {
    /// Whose a namespace is.
    pub(crate) fn place(
        &self,
        namespace: &str,
        settings: &Settings,
        tenants: &Cache<Tenant>,
        namespaces: &Cache<Namespace>,
    ) -> Placement {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(placement) = kept.placements.get(namespace) {
            return placement.clone();
        }
        let realm = realm(&mut kept, settings, tenants, namespaces);
        let placement = realm.place(namespace);
        kept.placements.insert(namespace.to_owned(), placement.clone());
        placement
    }

    /// All Tenants and namespaces.
    pub(crate) fn realm(
        &self,
        settings: &Settings,
        tenants: &Cache<Tenant>,
        namespaces: &Cache<Namespace>,
    ) -> Arc<Realm> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        realm(&mut kept, settings, tenants, namespaces)
    }

    /// A Tenant or a namespace changed.
    pub(crate) fn forget(&self) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Kept::default();
    }
}

fn realm(kept: &mut Kept, settings: &Settings, tenants: &Cache<Tenant>, namespaces: &Cache<Namespace>) -> Arc<Realm> {
    let made = kept.realm.get_or_insert_with(|| {
        Arc::new(Realm {
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
        })
    });
    Arc::clone(made)
}
