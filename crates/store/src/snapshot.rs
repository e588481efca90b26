//! The state of all keys at one revision. A snapshot is immutable, and taking one costs a pointer copy.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use imbl::OrdMap;

use crate::{Event, EventKind};

/// A stored value, with the revision of its write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The revision of the write that stored the value.
    pub revision: u64,
    /// The value.
    pub bytes: Bytes,
}

/// The immutable state of all keys at one revision. Clones share the values.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub(crate) revision: u64,
    pub(crate) objects: OrdMap<Arc<str>, Arc<Entry>>,
}

impl Snapshot {
    /// Returns the revision of the last write in this snapshot.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the value under `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Arc<Entry>> {
        self.objects.get(key)
    }

    /// Returns the keys that start with `prefix`, in order, from `from` on if given.
    pub fn range<'a>(
        &'a self,
        prefix: &'a str,
        from: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a Arc<Entry>)> + 'a {
        let start = match from {
            Some(from) if from > prefix => from,
            _ => prefix,
        };
        self.objects
            .range::<_, str>((Bound::Included(start), Bound::Unbounded))
            .take_while(move |(key, _)| key.starts_with(prefix))
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Checks whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    pub(crate) fn apply(&mut self, event: &Event) {
        match event.kind {
            EventKind::Put => {
                self.objects.insert(event.key.clone(), event.entry.clone());
            }
            EventKind::Delete => {
                self.objects.remove(&*event.key);
            }
        }
        self.revision = event.revision;
    }

    /// Reverts `event`; the caller goes from the newest to the oldest.
    pub(crate) fn undo(&mut self, event: &Event) {
        match &event.previous {
            Some(previous) => {
                self.objects.insert(event.key.clone(), previous.clone());
            }
            None => {
                self.objects.remove(&*event.key);
            }
        }
    }
}
