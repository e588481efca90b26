//! The registry's handle, which all verbs share: the cluster's objects, admission's caches, and the locks of
//! requests.

use std::sync::{Arc, Weak};

use jiff::Timestamp;
use serde_json::Value;
use tenure_kinds::kind::{ServiceRange, Shared};
use tenure_store::{Entry, Store, Write, WriteError};

use super::{OpenSources, Operation};
use crate::admission::Admission;
use crate::catalog::{Catalog, Resource};
use crate::contents::Contents;
use crate::http::ApiError;
use crate::long_work;
use crate::rights::Rights;
use crate::view::View;

/// The verbs on all objects of one cluster, and the state that they share. Clones share it.
#[derive(Debug, Clone)]
pub struct Registry {
    inner: Arc<Inner>,
}

/// The shared part of all clones of a [`Registry`].
#[derive(Debug)]
struct Inner {
    contents: Contents,
    admission: Admission,
    /// Serialises requests that must not run at the same time, such as the choice of a Service's address.
    allocation: tokio::sync::Mutex<()>,
    held: OpenSources,
}

/// A weak reference to a registry.
pub(super) struct WeakRegistry(Weak<Inner>);

impl WeakRegistry {
    pub(super) fn upgrade(&self) -> Option<Registry> {
        self.0.upgrade().map(|inner| Registry { inner })
    }
}

impl Registry {
    pub(crate) fn new(store: Store, catalog: Catalog, services: ServiceRange) -> Self {
        let contents = Contents::new(store, catalog, services);
        let inner = Inner {
            admission: Admission::new(contents.clone()),
            contents,
            allocation: tokio::sync::Mutex::new(()),
            held: OpenSources::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Returns the read side on which the verbs work.
    pub(crate) fn contents(&self) -> &Contents {
        &self.inner.contents
    }

    /// Returns the underlying store.
    #[must_use]
    pub fn store(&self) -> &Store {
        self.contents().store()
    }

    /// Returns the open sources of lists.
    pub(crate) fn open_sources(&self) -> &OpenSources {
        &self.inner.held
    }

    pub(super) fn downgrade(&self) -> WeakRegistry {
        WeakRegistry(Arc::downgrade(&self.inner))
    }

    /// Commits a write. If the object is a definition, its resources are served when this returns.
    pub(super) async fn commit(&self, resource: &Resource, write: Write) -> Result<Arc<Entry>, WriteError> {
        let entry = self.store().write(write).await?;
        if resource.behavior.defines_resources {
            self.contents().refresh_definitions();
        }
        Ok(entry)
    }

    /// Returns the served resources.
    #[must_use]
    pub fn catalog(&self) -> Arc<Catalog> {
        self.contents().catalog()
    }

    pub(crate) fn rights(&self) -> &Arc<Rights> {
        self.contents().rights()
    }

    /// Returns admission, which checks every write.
    pub(crate) fn admission(&self) -> &Admission {
        &self.inner.admission
    }

    /// Waits for the lock for allocations if the kind allocates unique values, such as addresses of Services. Returns
    /// `None` at once for all other kinds.
    pub(super) async fn allocation_turn(&self, resource: &Resource) -> Option<WriteLock<'_>> {
        if resource.behavior.shares == Shared::Nothing {
            return None;
        }
        let line = long_work::enter_line().await;
        Some(WriteLock {
            _turn: self.inner.allocation.lock().await,
            _line: line,
        })
    }

    /// Returns a consistent view of all objects.
    #[must_use]
    pub fn view(&self) -> View {
        self.contents().view()
    }

    /// Returns the current time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.contents().now()
    }

    /// Returns a stored entry as an object in the version that the request asks for.
    pub(crate) async fn present(&self, op: &Operation, entry: &Entry) -> Result<Value, ApiError> {
        self.contents().present(&op.resource, entry).await
    }
}

/// The lock for allocations, held by one request until it is stored; and its place in the user's line for the lock.
pub(super) struct WriteLock<'a> {
    _turn: tokio::sync::MutexGuard<'a, ()>,
    _line: long_work::QueuePlace,
}

/// Returns the error for a client if the store refuses a write for a reason of its own.
pub(crate) fn storage_error(error: &WriteError) -> ApiError {
    match error {
        WriteError::Full(_) => ApiError::new(507, "InsufficientStorage", error.to_string()),
        WriteError::Closed => ApiError::unavailable("the server is shutting down"),
        other => ApiError::internal(other),
    }
}
