//! Index of the Services that hold a unique value. The index is never behind the store, as each query catches up
//! first.
//!
//! Each stored version of a Service is decoded once, and only its values are kept. The kind of a Service chooses
//! addresses and ports.

use std::collections::{BTreeSet, HashMap};

use parking_lot::Mutex;
use tenure_kinds::kind::Allocated;
use tenure_store::{Event, EventKind, Store};

use crate::keys;

/// Index of the cluster IPs and node ports of all Services, as of the store's current revision.
#[derive(Debug)]
pub(crate) struct UniqueValueIndex {
    store: Store,
    index: Mutex<Index>,
}

/// The values by Service, and the number of Services by value, as of `revision`.
#[derive(Debug, Default)]
struct Index {
    revision: u64,
    /// The values of each Service, by its key; Services without values are left out.
    held: HashMap<String, BTreeSet<Allocated>>,
    /// The number of Services with a value. More than one is possible only if two were stored before the first query.
    holders: HashMap<Allocated, usize>,
}

impl UniqueValueIndex {
    pub(crate) fn new(store: Store) -> Self {
        Self {
            store,
            index: Mutex::default(),
        }
    }

    /// Returns the number of Services with this value, after every acknowledged write.
    pub(crate) fn count(&self, allocated: Allocated) -> usize {
        let mut index = self.index.lock();
        if index.revision < self.store.revision() {
            index.catch_up(&self.store);
        }
        index.holders.get(&allocated).copied().unwrap_or_default()
    }
}

impl Index {
    fn catch_up(&mut self, store: &Store) {
        let prefix = keys::resource_prefix("", "services", None);
        if self.revision > 0
            && let Ok((reached, events)) = store.events_after(&prefix, self.revision, usize::MAX)
        {
            for event in &events {
                self.apply_event(event);
            }
            self.revision = reached;
            return;
        }
        let snapshot = store.snapshot();
        *self = Self::default();
        for (key, entry) in snapshot.range(&prefix, None) {
            self.set(key, Allocated::list(&entry.bytes));
        }
        self.revision = snapshot.revision();
    }

    fn apply_event(&mut self, event: &Event) {
        let held = match event.kind {
            EventKind::Put => Allocated::list(&event.entry.bytes),
            EventKind::Delete => BTreeSet::new(),
        };
        self.set(&event.key, held);
    }

    /// Records the values of a Service.
    fn set(&mut self, key: &str, held: BTreeSet<Allocated>) {
        for new in &held {
            *self.holders.entry(*new).or_default() += 1;
        }
        let before = match held.is_empty() {
            true => self.held.remove(key),
            false => self.held.insert(key.to_owned(), held),
        };
        for old in before.into_iter().flatten() {
            if let Some(holders) = self.holders.get_mut(&old) {
                *holders = holders.saturating_sub(1);
                if *holders == 0 {
                    self.holders.remove(&old);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_values_have_no_holder() {
        let (one, other) = (Allocated::NodePort(30_080), Allocated::NodePort(30_081));
        let mut index = Index::default();
        index.set("a", [one].into());
        index.set("b", [one, other].into());
        assert_eq!(index.holders.get(&one), Some(&2));
        index.set("a", [other].into());
        assert_eq!(
            (index.holders.get(&one), index.holders.get(&other)),
            (Some(&1), Some(&2))
        );
        index.set("a", [other].into());
        assert_eq!(index.holders.get(&other), Some(&2), "the same once more");
        index.set("a", BTreeSet::new());
        index.set("b", BTreeSet::new());
        assert!(index.holders.is_empty() && index.held.is_empty());
    }
}
