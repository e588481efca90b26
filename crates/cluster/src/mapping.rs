//! Which resource a kind is: discovery, kept until a kind is missed or a path turns out to be gone.
//!
//! Discovery holds nothing of any tenant, so one mapping serves all identities; it is read as the controller.
//! Owns no rule about kinds. A kind that was looked for and not found is not asked for again within two seconds, unless
//! `invalidate` says that something was installed.
//!
//! A server with the older form of discovery lists each version of a group apart. Then a look-up reads the list of groups and the group that it
//! asks about, and no other. A group whose server does not answer stops look-ups in that group alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::discovery::{Discovery, GroupVersion, Resource, Sought};

/// How long a refreshed mapping is believed when it says that a kind does not exist.
const MISS_BELIEVED: Duration = Duration::from_secs(2);

/// The resources of an API server, by group and kind.
#[derive(Debug, Default)]
pub(crate) struct Mapping {
    table: Mutex<Arc<Table>>,
    refreshing: tokio::sync::Mutex<()>,
    /// Held while the versions of a group are read. There are no more than groups that the server lists.
    reading: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

#[derive(Clone, Debug, Default)]
struct Table {
    discovery: Discovery,
    read: Option<Instant>,
    /// How long the documents were.
    bytes: usize,
    /// The groups whose versions were read.
    groups: HashMap<String, ReadGroup>,
}

/// The last reading of a group's versions.
#[derive(Clone, Copy, Debug)]
struct ReadGroup {
    read: Option<Instant>,
    bytes: usize,
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
        is_fresh(self.known().read, since)
    }

    /// How long the known documents are, besides those of all groups, or of the versions of one group.
    pub(crate) fn count_bytes_besides(&self, group: Option<&str>) -> usize {
        let known = self.known();
        let others = known.groups.iter().filter(|(name, _)| Some(name.as_str()) != group);
        let first = group.map_or(0, |_| known.bytes);
        others.fold(first, |total, (_, group)| total.saturating_add(group.bytes))
    }

    /// Takes the documents of all groups; they were asked for at `read`.
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

    /// The versions of a group that are to be read for a look-up that began at `since`; none if the group is known.
    pub(crate) fn list_due(&self, group: &str, since: Instant) -> Vec<GroupVersion> {
        let known = self.known();
        let read = known.groups.get(group).and_then(|group| group.read);
        if is_fresh(read, since) {
            return Vec::new();
        }
        known.discovery.list_versions(group)
    }

    /// A lock of a group, held while its versions are read.
    pub(crate) fn lock_of(&self, group: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(reading.entry(group.to_owned()).or_default())
    }

    /// Takes the documents of a group's versions; they were asked for at `read`.
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

    /// Makes the next miss ask the server again: something was installed or removed.
    pub(crate) fn invalidate(&self) {
        self.forget_times(|discovery| discovery.clone());
    }

    /// Forgets one resource whose path is gone.
    pub(crate) fn forget(&self, resource: &Resource) {
        self.forget_times(|discovery| discovery.without(&resource.group, &resource.kind));
    }

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

fn is_fresh(read: Option<Instant>, since: Instant) -> bool {
    read.is_some_and(|read| read >= since || read.elapsed() < MISS_BELIEVED)
}
