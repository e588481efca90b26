//! Objects of this cluster that a Kustomization for another cluster reads: its kubeconfig, and inputs of its rendering. They are stored apart from
//! the objects of the other cluster, since both clusters have objects of the same names.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use tenure_api::ObjectId;
use tenure_cluster::{LaneAccess, ServiceAccount};
use tenure_planner::Live;
use tenure_planner::kustomization::Snapshot;
use tenure_planner::plan::Watched;

use super::observed_objects::ObservedObjects;
use crate::cluster_view::key::Key;
use crate::cluster_view::live_objects::{LiveObjects, ObservedState, WatchedObjects, read_revision};

/// The read objects of this cluster.
pub(super) struct LocalObjects {
    held: WatchedObjects,
    /// Objects that this attempt read.
    answered: BTreeMap<ObjectId, (Option<u64>, ObservedState)>,
    /// The objects from which the last plan was made.
    observed: ObservedObjects,
}

impl LocalObjects {
    pub(super) fn new(live: Arc<LiveObjects>, key: Key) -> Self {
        Self {
            held: WatchedObjects::new(live, key),
            answered: BTreeMap::new(),
            observed: BTreeMap::new(),
        }
    }

    /// Returns the known state of the objects.
    pub(super) fn read_objects(&mut self) -> BTreeMap<ObjectId, Live> {
        self.observed.clear();
        for id in self.held.list_watched() {
            if let Some(found) = self.held.find_newer(id, None) {
                self.observed.insert(id.clone(), found);
            }
        }
        for (id, (revision, answer)) in &self.answered {
            let is_overtaken = self.observed.contains_key(id) && self.held.find_newer(id, *revision).is_some();
            if !is_overtaken {
                self.observed.insert(id.clone(), answer.clone());
            }
        }
        self.observed
            .iter()
            .map(|(id, known)| (id.clone(), known.read()))
            .collect()
    }

    /// Stores an object that was read.
    pub(super) fn store_answer(&mut self, id: ObjectId, answer: Live) {
        let revision = answer.object().map(read_revision);
        self.answered.insert(id, (revision, ObservedState::from_answer(answer)));
    }

    /// Checks whether one of the changed objects differs from its state in the last plan, and the difference needs a new attempt.
    pub(super) fn is_another(&self, snapshot: &Snapshot, changed: &HashSet<ObjectId>) -> bool {
        changed.iter().any(|id| {
            let (Some(before), Some(now)) = (self.observed.get(id), self.held.last_reported(id)) else {
                return false;
            };
            !before.is_same(&now) && snapshot.is_another_here(id, &before.read(), &now.read())
        })
    }

    pub(super) async fn hold(&mut self, account: &ServiceAccount, lane: &LaneAccess, watched: &[Watched]) {
        self.held.hold(account, lane, watched).await;
    }

    pub(super) fn all_synced(&self) -> bool {
        self.held.all_synced()
    }

    pub(super) fn forget_answers(&mut self) {
        self.answered.clear();
    }

    pub(super) fn release(&mut self) {
        self.held.release();
        self.answered.clear();
        self.observed.clear();
    }
}
