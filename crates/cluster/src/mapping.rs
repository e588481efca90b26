//! The resource of each kind: discovery, cached until a kind is missing or a path turns out to be gone.
//!
//! Discovery has no content of any tenant, so one mapping serves all identities, and the controller reads it. A kind that was not found is not looked up again within
//! two seconds, unless `invalidate` reports an installation.
//!
//! A server with the older form of discovery lists each version of a group separately. Then a look-up reads the list of groups and the group of the kind, and no other
//! group. A group whose server does not answer stops look-ups in that group alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::discovery::{Discovery, GroupVersion, KindLookup, Resource};

/// The time after a reading of discovery during which a missing kind counts as missing, without another reading.
const MISS_BELIEVED: Duration = Duration::from_secs(2);

/// The cached discovery of an API server: the resource of each group and kind.
#[derive(Debug, Default)]
pub(crate) struct Mapping {
    table: Mutex<Arc<Table>>,
    refreshing: tokio::sync::Mutex<()>,
    /// The locks that are held while the versions of a group are read. The map has at most the groups that the server lists.
    reading: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// The documents of discovery, with their lengths and the times when they were requested.
#[derive(Clone, Debug, Default)]
struct Table {
    discovery: Discovery,
    read: Option<Instant>,
    /// The length of the documents of all groups, in bytes.
    bytes: usize,
    /// The groups whose versions were read.
    groups: HashMap<String, ReadGroup>,
}

/// The time and the length of the documents of one group's versions. No time means that a look-up of a missing kind reads them again.
#[derive(Clone, Copy, Debug)]
struct ReadGroup {
    read: Option<Instant>,
    bytes: usize,
}

impl Mapping {
    /// Returns the last known state of a kind in exactly this version, or without a version in the version that the server prefers.
    pub(crate) fn find(&self, group: &str, version: Option<&str>, kind: &str) -> KindLookup {
        self.known().discovery.find(group, version, kind)
    }

    /// Locks the reading of discovery, so concurrent look-ups of missing kinds read it once.
    pub(crate) async fn refreshing(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.refreshing.lock().await
    }

    /// Whether discovery was read since then, or so recently that a missing kind counts as missing.
    pub(crate) fn fresh(&self, since: Instant) -> bool {
        is_fresh(self.known().read, since)
    }

    /// Returns the length of the known documents, without those of all groups, or without the versions of one group.
    pub(crate) fn count_bytes_besides(&self, group: Option<&str>) -> usize {
        let known = self.known();
        let others = known.groups.iter().filter(|(name, _)| Some(name.as_str()) != group);
        let first = group.map_or(0, |_| known.bytes);
        others.fold(first, |total, (_, group)| total.saturating_add(group.bytes))
    }

    /// Takes the documents of all groups, requested at `read`.
    pub(crate) fn replace(&self, mut discovery: Discovery, bytes: usize, read: Instant) {
        let before = self.known();
        discovery.keep_read_groups(&before.discovery);
        let mut groups = before.groups.clone();
        groups.retain(|group, _| !discovery.list_versions(group).is_empty());
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        reading.retain(|group, lock| groups.contains_key(group) || Arc::strong_count(lock) > 1);
        drop(reading);
        self.set(Table {
            discovery,
            read: Some(read),
            bytes,
            groups,
        });
    }

    /// Returns the versions of a group to read for a look-up that began at `since`; empty if the group is known.
    pub(crate) fn list_due(&self, group: &str, since: Instant) -> Vec<GroupVersion> {
        let known = self.known();
        let read = known.groups.get(group).and_then(|group| group.read);
        if is_fresh(read, since) {
            return Vec::new();
        }
        known.discovery.list_versions(group)
    }

    /// Returns the lock of a group, held while its versions are read.
    pub(crate) fn lock_of(&self, group: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(reading.entry(group.to_owned()).or_default())
    }

    /// Takes the documents of a group's versions, requested at `read`.
    pub(crate) fn take_versions(
        &self,
        group: &str,
        documents: &[(GroupVersion, Option<Value>)],
        (bytes, read): (usize, Instant),
    ) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new = Table::clone(&table);
        new.discovery.take_versions(group, documents);
        let read = Some(read);
        new.groups.insert(group.to_owned(), ReadGroup { read, bytes });
        *table = Arc::new(new);
    }

    /// Makes the next look-up of a missing kind read discovery again, after an installation or a removal.
    pub(crate) fn invalidate(&self) {
        self.forget_times(|discovery| discovery.clone());
    }

    /// Forgets one resource whose path is gone.
    pub(crate) fn forget(&self, resource: &Resource) {
        self.forget_times(|discovery| discovery.without(&resource.group, &resource.kind));
    }

    /// Changes the discovery, and marks all its documents as due for a new reading.
    fn forget_times(&self, change: impl FnOnce(&Discovery) -> Discovery) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new = Table::clone(&table);
        new.discovery = change(&table.discovery);
        new.read = None;
        new.groups.values_mut().for_each(|group| group.read = None);
        *table = Arc::new(new);
    }

    fn set(&self, table: Table) {
        *self.table.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
    }

    fn known(&self) -> Arc<Table> {
        Arc::clone(&self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Checks whether a reading began after `since`, or within the last [`MISS_BELIEVED`].
fn is_fresh(read: Option<Instant>, since: Instant) -> bool {
    read.is_some_and(|read| read >= since || read.elapsed() < MISS_BELIEVED)
}
