//! Which resource a kind is: discovery, kept until a kind is missed or a path turns out to be gone.
//!
//! Discovery holds nothing of any tenant, so one mapping serves all identities; it is read as the controller.
//! Owns no rule about kinds. A kind that was looked for and not found is not asked for again within two seconds, unless
//! `invalidate` says that something was installed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::discovery::{self, Discovery, Resource, Sought};
use crate::error::ClusterError;
use crate::transport::Call;

/// How long a refreshed mapping is believed when it says that a kind does not exist.
const MISS_BELIEVED: Duration = Duration::from_secs(2);

/// The resources of an API server, by group and kind.
#[derive(Debug, Default)]
pub(crate) struct Mapping {
    table: Mutex<Arc<Table>>,
    refreshing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Table {
    discovery: Discovery,
    read: Option<Instant>,
}

impl Mapping {
    /// What was last known of a kind in exactly this version, or, without one, in the version that the server prefers.
    pub(crate) fn find(&self, group: &str, version: Option<&str>, kind: &str) -> Sought {
        self.known().discovery.find(group, version, kind)
    }

    /// Held while discovery is read, so that those who miss a kind at the same time read it once.
    pub(crate) async fn refreshing(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.refreshing.lock().await
    }

    /// Whether what is known was read since then, or so lately that a miss is believed.
    pub(crate) fn fresh(&self, since: Instant) -> bool {
        let read = self.known().read;
        read.is_some_and(|read| read >= since || read.elapsed() < MISS_BELIEVED)
    }

    /// The requests whose answers [`Mapping::replace`] takes.
    pub(crate) fn calls() -> [Call; 2] {
        discovery::PATHS.map(|path| Call {
            accept: discovery::ACCEPT,
            ..Call::get(path.to_owned())
        })
    }

    /// Takes what discovery answered; it was asked at `read`.
    pub(crate) fn replace(&self, documents: &[Value], read: Instant) -> Result<(), ClusterError> {
        let discovery = Discovery::read(documents)?;
        self.set(Table {
            discovery,
            read: Some(read),
        });
        Ok(())
    }

    /// Makes the next miss ask the server again: something was installed or removed.
    pub(crate) fn invalidate(&self) {
        let discovery = self.known().discovery.clone();
        self.set(Table { discovery, read: None });
    }

    /// Forgets one resource whose path is gone.
    pub(crate) fn forget(&self, resource: &Resource) {
        let discovery = self.known().discovery.without(&resource.group, &resource.kind);
        self.set(Table { discovery, read: None });
    }

    fn set(&self, table: Table) {
        *self.table.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
    }

    fn known(&self) -> Arc<Table> {
        Arc::clone(&self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
