//! The read side of a cluster: its objects in the stored and in the requested versions, the served resources, and the
//! rights. The table of resources follows the stored definitions. Only the registry changes objects. Admission,
//! between the two, reads here.

mod definitions;
mod versions;

use std::sync::Arc;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use parking_lot::Mutex;
use tenure_kinds::customresources::{GROUP, PLURAL};
use tenure_kinds::kind::ServiceRange;
use tenure_store::Store;

use crate::catalog::Catalog;
use crate::keys;
use crate::rights::Rights;
use crate::unique_values::UniqueValueIndex;
use crate::view::View;

pub(crate) use versions::{is_verbatim, stored_prefixes};

/// The read side of one cluster: its objects, its served resources and the rights of users. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Contents {
    inner: Arc<Inner>,
}

/// The shared part of all clones of [`Contents`].
#[derive(Debug)]
struct Inner {
    store: Store,
    catalog: ArcSwap<Catalog>,
    rights: Arc<Rights>,
    /// The revision whose definitions are served.
    definitions: Mutex<u64>,
    services: ServiceRange,
    holders: Arc<UniqueValueIndex>,
}

impl Contents {
    pub(crate) fn new(store: Store, catalog: Catalog, services: ServiceRange) -> Self {
        let inner = Inner {
            rights: Arc::new(Rights::new(store.clone())),
            holders: Arc::new(UniqueValueIndex::new(store.clone())),
            store,
            catalog: ArcSwap::from_pointee(catalog),
            definitions: Mutex::default(),
            services,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Returns the underlying store.
    pub(crate) fn store(&self) -> &Store {
        &self.inner.store
    }

    /// Updates the served resources from the stored CustomResourceDefinitions.
    pub(crate) fn refresh_definitions(&self) {
        // The lock allows one refresh at a time, so that an older table never replaces a newer one.
        let mut seen = self.inner.definitions.lock();
        let (store, now) = (&self.inner.store, self.inner.store.revision());
        // A concurrent refresh may already have read the newest definitions.
        let prefix = keys::resource_prefix(GROUP, PLURAL, None);
        let nothing_new = || {
            store
                .events_after(&prefix, *seen, 1)
                .is_ok_and(|(_, events)| events.is_empty())
        };
        if *seen > 0 && nothing_new() {
            return;
        }
        let catalog = definitions::compile_all(&self.view(), &self.catalog());
        self.inner.catalog.store(Arc::new(catalog));
        *seen = now;
    }

    /// Returns the served resources.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.inner.catalog.load_full()
    }

    /// Returns the rights of users.
    pub(crate) fn rights(&self) -> &Arc<Rights> {
        &self.inner.rights
    }

    /// Returns a consistent view of all objects.
    pub(crate) fn view(&self) -> View {
        let holders = Arc::clone(&self.inner.holders);
        View::new(self.inner.store.snapshot(), self.inner.services, holders)
    }

    /// Returns the current time. Verbs and their rules read the clock only here.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}
