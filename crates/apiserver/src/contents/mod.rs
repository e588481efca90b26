//! What is in a cluster, to look at: its objects, stored and in the versions that clients ask for, the resources that are served,
//! and who has which rights. Owns that the table of resources follows the definitions in the store. Refuses to change an object:
//! that is the registry's, and admission, which lies between the two, asks here.

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
use crate::holders::Holders;
use crate::keys;
use crate::rights::Rights;
use crate::view::View;

pub(crate) use versions::{is_verbatim, stored_prefixes};

/// All that is in one cluster. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Contents {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Store,
    catalog: ArcSwap<Catalog>,
    rights: Arc<Rights>,
    /// The revision whose definitions are served.
    definitions: Mutex<u64>,
    services: ServiceRange,
    holders: Arc<Holders>,
}

impl Contents {
    pub(crate) fn new(store: Store, catalog: Catalog, services: ServiceRange) -> Self {
        let inner = Inner {
            rights: Arc::new(Rights::new(store.clone())),
            holders: Arc::new(Holders::new(store.clone())),
            store,
            catalog: ArcSwap::from_pointee(catalog),
            definitions: Mutex::default(),
            services,
        };
        Self { inner: Arc::new(inner) }
    }

    /// The store below.
    pub(crate) fn store(&self) -> &Store {
        &self.inner.store
    }

    /// Brings what is served in step with the stored CustomResourceDefinitions.
    pub(crate) fn refresh_definitions(&self) {
        // One at a time: the last one to look at the store is the last one to set the table.
        let mut seen = self.inner.definitions.lock();
        let (store, now) = (&self.inner.store, self.inner.store.revision());
        // Who wrote beside this one may have found this one's definition already.
        let prefix = keys::of_resource(GROUP, PLURAL, None);
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

    /// What is served now.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.inner.catalog.load_full()
    }

    /// Who may do what.
    pub(crate) fn rights(&self) -> &Arc<Rights> {
        &self.inner.rights
    }

    /// A consistent view of all objects.
    pub(crate) fn view(&self) -> View {
        let holders = Arc::clone(&self.inner.holders);
        View::new(self.inner.store.snapshot(), self.inner.services, holders)
    }

    /// The present time; the one place where the verbs and their rules read a clock.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}
