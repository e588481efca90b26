//! Decoded webhooks and policies, which every request needs: each stored version is decoded once.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use crate::stored::decode_stored;
use crate::view::View;

/// The decoded objects below one prefix of the store's keys, by key and revision.
#[derive(Debug)]
pub(super) struct Cache<T>(Mutex<HashMap<String, (u64, Arc<T>)>>);

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Cache<T> {
    /// Returns the decoded objects below a prefix, in the order of the keys. Each cache always gets the same prefix.
    /// Only changed objects are decoded again.
    pub(super) fn read_all(&self, view: &View, prefix: &str, read: impl Fn(&Value) -> T) -> Vec<Arc<T>> {
        let mut entries = view.entries(prefix).peekable();
        if entries.peek().is_none() {
            return Vec::new();
        }
        let mut known = self.0.lock();
        let mut present = HashMap::new();
        let mut all = Vec::new();
        for (key, entry) in entries {
            let before = known.remove(key).filter(|(revision, _)| *revision == entry.revision);
            let (revision, own) = before.unwrap_or_else(|| {
                let object = decode_stored(entry).unwrap_or_default();
                (entry.revision, Arc::new(read(&object)))
            });
            all.push(own.clone());
            present.insert(key.to_owned(), (revision, own));
        }
        *known = present;
        all
    }
}
