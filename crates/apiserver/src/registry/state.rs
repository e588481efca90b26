//! The registry's handle: store, catalog of resources, schemas and clock, shared by all verbs.

use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use tenure_access::identity::Lookup;
use tenure_kinds::customresources::{GROUP, PLURAL};
use tenure_kinds::kind::{Objects, ServiceRange, Shared};
use tenure_store::{Entry, Snapshot, Store, Write, WriteError};

use super::Held;
use crate::catalog::{Catalog, Resource};
use crate::http::ApiError;
use crate::long_work;
use crate::rights::Rights;
use crate::stored::decode_stored;
use crate::{admission, definitions, keys};

/// All objects of one server. Clones share them.
#[derive(Debug, Clone)]
pub struct Registry {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Store,
    catalog: ArcSwap<Catalog>,
    rights: Arc<Rights>,
    admission: admission::State,
    /// The revision whose definitions are served.
    definitions: Mutex<u64>,
    /// Orders requests that must not run beside each other, such as the choice of a Service's address.
    allocation: tokio::sync::Mutex<()>,
    services: ServiceRange,
    held: Held,
}

/// A registry that is not kept open.
pub(super) struct WeakRegistry(Weak<Inner>);

impl WeakRegistry {
    pub(super) fn upgrade(&self) -> Option<Registry> {
        self.0.upgrade().map(|inner| Registry { inner })
    }
}

impl Registry {
    pub(crate) fn new(store: Store, catalog: Catalog, services: ServiceRange) -> Self {
        let inner = Inner {
            rights: Arc::new(Rights::new(store.clone())),
            store,
            catalog: ArcSwap::from_pointee(catalog),
            admission: admission::State::default(),
            definitions: Mutex::default(),
            allocation: tokio::sync::Mutex::new(()),
            services,
            held: Held::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The store below.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// What lists read from.
    pub(crate) fn held(&self) -> &Held {
        &self.inner.held
    }

    pub(super) fn downgrade(&self) -> WeakRegistry {
        WeakRegistry(Arc::downgrade(&self.inner))
    }

    /// Commits a write; what a definition defines is served when this returns.
    pub(super) async fn commit(&self, resource: &Resource, write: Write) -> Result<Arc<Entry>, WriteError> {
        let entry = self.inner.store.write(write).await?;
        if resource.behavior.defines_resources {
            self.refresh_definitions();
        }
        Ok(entry)
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
        definitions::refresh(self);
        *seen = now;
    }

    /// What is served now.
    #[must_use]
    pub fn catalog(&self) -> Arc<Catalog> {
        self.inner.catalog.load_full()
    }

    /// Replaces what is served.
    pub(crate) fn set_catalog(&self, catalog: Catalog) {
        self.inner.catalog.store(Arc::new(catalog));
    }

    pub(crate) fn rights(&self) -> &Arc<Rights> {
        &self.inner.rights
    }

    /// What admission keeps between requests.
    pub(crate) fn admission(&self) -> &admission::State {
        &self.inner.admission
    }

    /// Waits for the turn of a request that takes from something finite; at once for all others.
    pub(super) async fn allocation_turn(&self, resource: &Resource) -> Option<Turn<'_>> {
        if resource.behavior.shares == Shared::Nothing {
            return None;
        }
        let line = long_work::enter_line().await;
        Some(Turn {
            _turn: self.inner.allocation.lock().await,
            _line: line,
        })
    }

    /// A consistent view of all objects.
    #[must_use]
    pub fn view(&self) -> View {
        View {
            snapshot: self.inner.store.snapshot(),
            services: self.inner.services,
        }
    }

    /// The present time; the one place where this crate's verbs read a clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// The turn of one request, which others wait for.
pub(super) struct Turn<'a> {
    _turn: tokio::sync::MutexGuard<'a, ()>,
    _line: long_work::Line,
}

/// All objects at one revision, for rules that look at other objects.
#[derive(Debug, Clone)]
pub struct View {
    snapshot: Snapshot,
    services: ServiceRange,
}

impl View {
    /// The revision of this view.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.snapshot.revision()
    }

    /// Where Services get their addresses from.
    pub(crate) fn services(&self) -> ServiceRange {
        self.services
    }

    /// The objects of one resource, in one namespace or everywhere, in the stored version.
    #[must_use]
    pub fn list(&self, group: &str, plural: &str, namespace: Option<&str>) -> Vec<Value> {
        self.snapshot
            .range(&keys::of_resource(group, plural, namespace), None)
            .filter_map(|(_, entry)| decode_stored(entry).ok())
            .collect()
    }

    /// The entries below a prefix of keys, in order.
    pub(crate) fn entries<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a Entry)> {
        self.snapshot.range(prefix, None).map(|(key, entry)| (&**key, &**entry))
    }

    pub(crate) fn exists_key(&self, key: &str) -> bool {
        self.snapshot.get(key).is_some()
    }

    /// Whether an object exists.
    #[must_use]
    pub fn exists(&self, group: &str, plural: &str, namespace: Option<&str>, name: &str) -> bool {
        self.snapshot
            .get(&keys::of_object(group, plural, namespace, name))
            .is_some()
    }
}

impl Lookup for View {
    fn get(&self, group: &str, resource: &str, namespace: Option<&str>, name: &str) -> Option<Arc<Value>> {
        let entry = self.snapshot.get(&keys::of_object(group, resource, namespace, name))?;
        decode_stored(entry).ok().map(Arc::new)
    }
}

impl Objects for View {
    fn list(&self, group: &str, plural: &str, namespace: Option<&str>) -> Vec<Value> {
        Self::list(self, group, plural, namespace)
    }

    fn show(&self, group: &str, plural: &str, look: &mut dyn FnMut(&[u8])) {
        for (_, entry) in self.snapshot.range(&keys::of_resource(group, plural, None), None) {
            look(&entry.bytes);
        }
    }
}

/// What a client is told when the store refuses for a reason of its own.
pub(crate) fn storage_error(error: &WriteError) -> ApiError {
    match error {
        WriteError::Full(_) => ApiError::new(507, "InsufficientStorage", error.to_string()),
        WriteError::Closed => ApiError::unavailable("the server is shutting down"),
        other => ApiError::internal(other),
    }
}
