//! The targets of one object's references into other lanes' processes, as the hub last answered. The object's reconciler decides when to ask again:
//! with each attempt, and after a possible change. If lanes are tasks, nothing is borrowed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt as _;

use crate::cluster_view::key::Key;
use crate::lane::lane_references::BorrowedObject;
use crate::lane::{Shard, ShardLookup};

/// The limit of concurrent questions.
const AT_ONCE: usize = 4;
/// The limit of questions about objects that the object doesn't name itself. The search for cycles needs them.
const MORE: usize = 100;

/// The objects of other lanes to which one object refers, as the hub last answered.
#[derive(Debug, Default)]
pub(crate) struct BorrowedObjectTable {
    known: BTreeMap<Key, BorrowedObject>,
    /// Objects that were looked up and are not known.
    missed: Mutex<BTreeSet<Key>>,
}

impl BorrowedObjectTable {
    /// Returns the known state of another lane's object.
    pub(crate) fn find(&self, key: &Key) -> BorrowedObject {
        if let Some(known) = self.known.get(key) {
            return known.clone();
        }
        let mut missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        missed.insert(key.clone());
        BorrowedObject::Unknown("the controllers have not been asked about it yet".to_owned())
    }

    fn take_missed(&mut self) -> BTreeSet<Key> {
        std::mem::take(self.missed.get_mut().unwrap_or_else(PoisonError::into_inner))
    }

    /// Asks again about all objects in other lanes that an object names and may see. `looks_on` runs with the answers. Objects that it looks up and that
    /// are unknown are asked about next.
    pub(crate) async fn renew(&mut self, shard: &Arc<Shard>, named: BTreeSet<Key>, looks_on: impl Fn(&Self)) {
        self.known.clear();
        self.take_missed();
        let is_apart = |key: &Key| {
            let neighbour = shard.hub_api.find_other_shard(&key.namespace);
            matches!(neighbour, ShardLookup::Apart)
        };
        let mut wanted: BTreeSet<Key> = named.into_iter().filter(is_apart).collect();
        let most = wanted.len().saturating_add(MORE);
        while !wanted.is_empty() {
            let room = most.saturating_sub(self.known.len());
            let asked = std::mem::take(&mut wanted).into_iter().take(room);
            let asked = asked.map(|key| async {
                let borrowed = shard.hub_api.borrow(&shard.namespace, &key).await;
                (key, borrowed)
            });
            let answers: Vec<(Key, BorrowedObject)> =
                futures::stream::iter(asked).buffer_unordered(AT_ONCE).collect().await;
            if answers.is_empty() {
                return;
            }
            self.known.extend(answers);
            looks_on(self);
            wanted = self.take_missed();
        }
    }
}
