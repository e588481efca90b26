//! Which Services hold what is given out once, never behind the store: it catches up whenever it is asked.
//!
//! Owns that each Service is read once for each time that it is stored, of which only what it holds is kept. Refuses to give anything out: which address
//! or port a Service gets is its kind's to say.

use std::collections::{BTreeSet, HashMap};

use parking_lot::Mutex;
use tenure_kinds::kind::Allocated;
use tenure_store::{Event, EventKind, Store};

use crate::keys;

/// What all Services hold, as of the store's present revision.
#[derive(Debug)]
pub(crate) struct Holders {
    store: Store,
    index: Mutex<Index>,
}

#[derive(Debug, Default)]
struct Index {
    revision: u64,
    /// What each Service holds, by its key; those that hold nothing are left out.
    held: HashMap<String, BTreeSet<Allocated>>,
    /// By how many Services it is held: more than one only where two were stored so before anybody looked.
    holders: HashMap<Allocated, usize>,
}

impl Holders {
    pub(crate) fn new(store: Store) -> Self {
        Self {
            store,
            index: Mutex::default(),
        }
    }

    /// How many Services hold this, every acknowledged write considered.
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
        let prefix = keys::of_resource("", "services", None);
        if self.revision > 0
            && let Ok((reached, events)) = store.events_after(&prefix, self.revision, usize::MAX)
        {
            for event in &events {
                self.take(event);
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

    fn take(&mut self, event: &Event) {
        let held = match event.kind {
            EventKind::Put => Allocated::list(&event.entry.bytes),
            EventKind::Delete => BTreeSet::new(),
        };
        self.set(&event.key, held);
    }

    /// A Service holds this from now on.
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
    fn what_is_given_back_is_held_by_nobody() {
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
