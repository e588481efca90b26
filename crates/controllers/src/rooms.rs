//! The room that all lanes share, by name: what a lane that is a process has of it, the hub has granted. Owns the list; what is held in a room
//! is for whoever has it to say.

use serde::{Deserialize, Serialize};
use tenure_planner::lane_process::room::RoomTerms;
use tenure_sources::ByteBudget;

use crate::means::Means;

/// What a lane keeps of a room without using it: this part of all. So many lanes that do nothing leave room for those that do.
const KEPT: u64 = 256;
/// The same of the disk, where what is received can't wait, and bytes are many.
const KEPT_OF_DISK: u64 = 16 << 20;

/// A room that is everybody's together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum SharedRoom {
    Trees,
    Fetches,
    Archives,
    Looking,
    SmallRenderings,
    LargeRenderings,
    KeptRenderings,
    Clusters,
    ClusterRequests,
    ClusterWatches,
    ClusterWords,
    ClusterObjects,
}

impl SharedRoom {
    pub(crate) const ALL: [Self; 12] = [
        Self::Trees,
        Self::Fetches,
        Self::Archives,
        Self::Looking,
        Self::SmallRenderings,
        Self::LargeRenderings,
        Self::KeptRenderings,
        Self::Clusters,
        Self::ClusterRequests,
        Self::ClusterWatches,
        Self::ClusterWords,
        Self::ClusterObjects,
    ];

    /// How a lane deals with its share of it.
    pub(crate) fn terms(self, budget: &ByteBudget) -> RoomTerms {
        let room = budget.whole();
        let stays = self == Self::Archives;
        let most = room.lane.min(room.all);
        let kept = if stays {
            KEPT_OF_DISK.min(room.all / KEPT)
        } else {
            room.all / KEPT
        };
        RoomTerms {
            kept: kept.max(1).min(most),
            most,
            doubles: !stays,
        }
    }
}

impl Means {
    /// The budget of a room: of all lanes where they are tasks, of the whole in the hub of processes, and of one's share in such a process.
    pub(crate) fn room(&self, room: SharedRoom) -> &ByteBudget {
        let [small, large, kept] = self.renderings.rooms();
        let [clusters, requests, watches, words, objects] = self.elsewhere.rooms();
        match room {
            SharedRoom::Trees => self.depot.tree_room(),
            SharedRoom::Fetches => self.depot.fetch_room(),
            SharedRoom::Archives => self.depot.store.disk(),
            SharedRoom::Looking => &self.looking,
            SharedRoom::SmallRenderings => small,
            SharedRoom::LargeRenderings => large,
            SharedRoom::KeptRenderings => kept,
            SharedRoom::Clusters => clusters,
            SharedRoom::ClusterRequests => requests,
            SharedRoom::ClusterWatches => watches,
            SharedRoom::ClusterWords => words,
            SharedRoom::ClusterObjects => objects,
        }
    }
}
