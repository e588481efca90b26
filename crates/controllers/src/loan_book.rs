//! What one object refers to in other lanes' processes, as the hub answered last. Whoever reconciles it says when it is asked again: with each
//! attempt, and when something may have changed. Where lanes are tasks, there is nothing to borrow.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt as _;

use crate::key::Key;
use crate::lane::{Neighbour, Shard};
use crate::loans::Borrowed;

/// How many are asked about at the same time.
const AT_ONCE: usize = 4;
/// How many are asked about besides those that it names itself: what leads round in a circle.
const MORE: usize = 100;

/// What was borrowed for one object.
#[derive(Debug, Default)]
pub(crate) struct LoanBook {
    known: BTreeMap<Key, Borrowed>,
    /// What was looked for and isn't known.
    missed: Mutex<BTreeSet<Key>>,
}

impl LoanBook {
    /// What is known of an object of another lane.
    pub(crate) fn find(&self, key: &Key) -> Borrowed {
        if let Some(known) = self.known.get(key) {
            return known.clone();
        }
        let mut missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        missed.insert(key.clone());
        Borrowed::Unknown("the controllers have not been asked about it yet".to_owned())
    }

    fn take_missed(&mut self) -> BTreeSet<Key> {
        std::mem::take(self.missed.get_mut().unwrap_or_else(PoisonError::into_inner))
    }

    /// Asks anew about everything that an object names in other lanes, as far as it may. With what is known by then it `looks_on`, which may miss more.
    pub(crate) async fn renew(&mut self, shard: &Arc<Shard>, named: BTreeSet<Key>, looks_on: impl Fn(&Self)) {
        self.known.clear();
        self.take_missed();
        let is_apart = |key: &Key| {
            let neighbour = shard.surroundings.find_neighbour(&key.namespace);
            matches!(neighbour, Neighbour::Apart)
        };
        let mut wanted: BTreeSet<Key> = named.into_iter().filter(is_apart).collect();
        let most = wanted.len().saturating_add(MORE);
        while !wanted.is_empty() {
            let room = most.saturating_sub(self.known.len());
            let asked = std::mem::take(&mut wanted).into_iter().take(room);
            let asked = asked.map(|key| async {
                let borrowed = shard.surroundings.borrow(&shard.namespace, &key).await;
                (key, borrowed)
            });
            let answers: Vec<(Key, Borrowed)> = futures::stream::iter(asked).buffer_unordered(AT_ONCE).collect().await;
            if answers.is_empty() {
                return;
            }
            self.known.extend(answers);
            looks_on(self);
            wanted = self.take_missed();
        }
    }
}
