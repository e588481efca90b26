//! The sources of lists while they are sent. A source keeps old values in memory, so it is removed when these become
//! too many. Such a list ends with an error, and its client begins again. This module limits the old values.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_store::{Entry, Snapshot};

use super::Registry;
use crate::http::ApiError;

/// Interval between checks of the kept values, while a source is open.
const LOOK: Duration = Duration::from_millis(100);

/// The rest of a list that is being sent: its objects that were not read yet.
#[derive(Debug)]
pub(super) enum ListSource {
    /// Keys with a prefix, from `next` on, and no more than `left`.
    Range {
        snapshot: Snapshot,
        prefix: String,
        next: String,
        left: usize,
    },
    /// Entries that were chosen earlier.
    Chosen(std::vec::IntoIter<Arc<Entry>>),
}

impl ListSource {
    /// Returns the next entries, at least one and as many as have `bytes`; none at the end.
    fn take_entries(&mut self, bytes: usize) -> Vec<Arc<Entry>> {
        let (mut taken, mut size) = (Vec::new(), 0);
        match self {
            Self::Chosen(entries) => {
                while size < bytes.max(1)
                    && let Some(entry) = entries.next()
                {
                    size += entry.bytes.len().max(1);
                    taken.push(entry);
                }
            }
            Self::Range {
                snapshot,
                prefix,
                next,
                left,
            } => {
                let mut last = None;
                for (key, entry) in snapshot.range(prefix, Some(next)).take(*left) {
                    size += entry.bytes.len().max(1);
                    taken.push(entry.clone());
                    last = Some(key);
                    if size >= bytes {
                        break;
                    }
                }
                if let Some(last) = last {
                    let mut after = String::with_capacity(last.len() + 1);
                    after.push_str(last);
                    after.push('\0');
                    *next = after;
                }
                *left -= taken.len();
            }
        }
        taken
    }
}

/// The age of a source: the store's displaced bytes when it was opened, and a sequence number.
type Age = (u64, u64);
/// The open sources, ordered by age: the oldest are removed first.
type Table = Mutex<BTreeMap<Age, Weak<SourceSlot>>>;

/// The open sources of lists, and the limit for the old values that they keep in memory.
#[derive(Debug)]
pub(crate) struct OpenSources {
    table: Arc<Table>,
    numbers: AtomicU64,
    bound: AtomicU64,
}

impl Default for OpenSources {
    fn default() -> Self {
        Self {
            table: Arc::default(),
            numbers: AtomicU64::new(0),
            bound: AtomicU64::new(u64::MAX),
        }
    }
}

impl OpenSources {
    /// Limits the bytes that may be displaced while a source is open.
    pub(crate) fn limit_displaced_bytes(&self, bytes: usize) {
        self.bound.store(bytes as u64, Ordering::Relaxed);
    }

    fn add(&self, slot: &Arc<SourceSlot>, displaced: u64) -> bool {
        let key = (displaced, self.numbers.fetch_add(1, Ordering::Relaxed));
        *slot.entered.lock() = Some((key, self.table.clone()));
        let mut table = self.table.lock();
        table.insert(key, Arc::downgrade(slot));
        table.len() == 1
    }

    /// Removes the oldest sources until the rest keeps at most the limit. Returns whether a source is left.
    fn remove_oldest(&self, displaced: u64) -> bool {
        let bound = self.bound.load(Ordering::Relaxed);
        loop {
            let oldest = {
                let mut table = self.table.lock();
                let Some(oldest) = table.first_entry() else {
                    return false;
                };
                if displaced.saturating_sub(oldest.key().0) <= bound {
                    return true;
                }
                oldest.remove()
            };
            if let Some(slot) = oldest.upgrade() {
                // The source's values are dropped outside of the locks.
                let _source = slot.source.lock().take();
            }
        }
    }
}

/// One source. After the source is held, its values stay until the limit removes it.
#[derive(Debug)]
pub(super) struct SourceSlot {
    source: Mutex<Option<ListSource>>,
    entered: Mutex<Option<(Age, Arc<Table>)>>,
}

impl SourceSlot {
    pub(super) fn new(source: ListSource) -> Arc<Self> {
        Arc::new(Self {
            source: Mutex::new(Some(source)),
            entered: Mutex::default(),
        })
    }

    /// Returns the next entries; none at the end.
    fn take_entries(&self, bytes: usize) -> Result<Vec<Arc<Entry>>, ApiError> {
        match &mut *self.source.lock() {
            Some(source) => Ok(source.take_entries(bytes)),
            None => Err(ApiError::expired(
                "the list was read too slowly: too many objects have changed since its beginning; list again",
            )),
        }
    }
}

impl Drop for SourceSlot {
    fn drop(&mut self) {
        if let Some((key, table)) = self.entered.get_mut().take() {
            table.lock().remove(&key);
        }
    }
}

impl Registry {
    /// Returns the next entries of a source, unless the limit removed it; none at the end.
    pub(super) fn take_entries(&self, slot: &SourceSlot, bytes: usize) -> Result<Vec<Arc<Entry>>, ApiError> {
        if slot.entered.lock().is_some() {
            self.open_sources().remove_oldest(self.store().displaced_bytes());
        }
        slot.take_entries(bytes)
    }

    /// Puts a source under the limit, so that a slow reader keeps few old values.
    pub(super) fn hold(&self, slot: &Arc<SourceSlot>) {
        if !self.open_sources().add(slot, self.store().displaced_bytes()) {
            return;
        }
        let registry = self.downgrade();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(LOOK).await;
                let Some(registry) = registry.upgrade() else { return };
                if !registry
                    .open_sources()
                    .remove_oldest(registry.store().displaced_bytes())
                {
                    return;
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_entries(sizes: &[usize]) -> Vec<Arc<Entry>> {
        let entry = |size: &usize| {
            Arc::new(Entry {
                revision: 1,
                bytes: vec![b'x'; *size].into(),
            })
        };
        sizes.iter().map(entry).collect()
    }

    fn chosen_source(sizes: &[usize]) -> ListSource {
        ListSource::Chosen(make_entries(sizes).into_iter())
    }

    #[test]
    fn batches_stay_within_bytes_but_hold_one_entry() {
        let mut source = chosen_source(&[10, 10, 10, 500, 1]);
        let mut taken = || {
            source
                .take_entries(20)
                .iter()
                .map(|entry| entry.bytes.len())
                .collect::<Vec<_>>()
        };
        assert_eq!(taken(), [10, 10]);
        assert_eq!(taken(), [10, 500]);
        assert_eq!(taken(), [1]);
        assert!(taken().is_empty());
    }

    #[test]
    fn oldest_source_is_removed_over_displaced_bytes_limit() {
        let held = OpenSources::default();
        held.limit_displaced_bytes(100);
        let (old, young) = (
            SourceSlot::new(chosen_source(&[1])),
            SourceSlot::new(chosen_source(&[1])),
        );
        assert!(held.add(&old, 1000), "somebody has to look from now on");
        assert!(!held.add(&young, 1060));
        assert!(held.remove_oldest(1100), "as much as may be");
        assert!(held.remove_oldest(1101));
        assert_eq!(old.take_entries(1).unwrap_err().code, 410);
        assert_eq!(young.take_entries(1).unwrap().len(), 1);
        drop(young);
        assert!(!held.remove_oldest(2000), "nothing is read from any more");
        assert!(held.table.lock().is_empty());
    }
}
