//! The list of capacities that all lanes share. A lane that is a process has of them what the hub has granted.

use serde::{Deserialize, Serialize};
use tenure_planner::lane_process::capacity::CapacityLimits;
use tenure_sources::ByteBudget;

use crate::context::ControllerContext;

/// A lane keeps one part in this many of a capacity without using it. The part is so small that many idle lanes leave capacity for busy ones.
const KEPT: u64 = 256;
/// The disk that a lane keeps without using it: a transfer can't wait, and needs many bytes.
const KEPT_OF_DISK: u64 = 16 << 20;

/// The kinds of memory, disk and connections that all lanes share, each with a budget of its own ([`ControllerContext::find_budget`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum SharedCapacity {
    Trees,
    Fetches,
    Archives,
    #[serde(rename = "Looking")]
    ObjectMemory,
    SmallRenderings,
    LargeRenderings,
    KeptRenderings,
    Clusters,
    ClusterRequests,
    ClusterWatches,
    ClusterWords,
    ClusterObjects,
}

impl SharedCapacity {
    pub(crate) const ALL: [Self; 12] = [
        Self::Trees,
        Self::Fetches,
        Self::Archives,
        Self::ObjectMemory,
        Self::SmallRenderings,
        Self::LargeRenderings,
        Self::KeptRenderings,
        Self::Clusters,
        Self::ClusterRequests,
        Self::ClusterWatches,
        Self::ClusterWords,
        Self::ClusterObjects,
    ];

    /// Makes a budget the share of one process with one or several lanes. Each of several lanes gets at most half. Renderings are an exception: one
    /// rendering may request everything that a rendering may have, and returns it within a minute. So lanes get the whole of these budgets in turn.
    pub(crate) fn follow_share(self, budget: &ByteBudget, has_many: bool) {
        let is_of_renderings = matches!(self, Self::SmallRenderings | Self::LargeRenderings);
        budget.follow_share(has_many && !is_of_renderings);
    }

    /// Returns the rules for a lane's share of this capacity: the most that the lane may have, and how much of it the lane may keep without using it.
    pub(crate) fn terms(self, budget: &ByteBudget) -> CapacityLimits {
        let room = budget.whole();
        let stays = self == Self::Archives;
        let most = room.lane.min(room.all);
        let kept = if stays {
            KEPT_OF_DISK.min(room.all / KEPT)
        } else {
            room.all / KEPT
        };
        CapacityLimits {
            kept: kept.max(1).min(most),
            most,
            doubles: !stays,
        }
    }
}

impl ControllerContext {
    /// Returns the budget of a capacity: for all lanes if lanes are tasks, the whole in the hub of processes, or the process's share.
    pub(crate) fn find_budget(&self, room: SharedCapacity) -> &ByteBudget {
        let [small, large, kept] = self.renderer.rooms();
        let [clusters, requests, watches, words, objects] = self.remote_clusters.rooms();
        match room {
            SharedCapacity::Trees => self.artifact_storage.tree_room(),
            SharedCapacity::Fetches => self.artifact_storage.fetch_room(),
            SharedCapacity::Archives => self.artifact_storage.store.disk(),
            SharedCapacity::ObjectMemory => &self.object_memory,
            SharedCapacity::SmallRenderings => small,
            SharedCapacity::LargeRenderings => large,
            SharedCapacity::KeptRenderings => kept,
            SharedCapacity::Clusters => clusters,
            SharedCapacity::ClusterRequests => requests,
            SharedCapacity::ClusterWatches => watches,
            SharedCapacity::ClusterWords => words,
            SharedCapacity::ClusterObjects => objects,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::allow_attributes, reason = "tests may panic")]

    use super::*;
    use crate::limits::budgets::Budgets;
    use crate::rendering::renderer::{RenderLimits, Renderer};

    /// As in the pool's process: a rendering that fits elsewhere also fits here, however little is available for all.
    #[test]
    fn rendering_fits_in_process_shared_by_namespaces() {
        let little = RenderLimits {
            all_bytes: 1,
            ..RenderLimits::default()
        };
        for limits in [RenderLimits::default(), little] {
            let renderer = Renderer::new(limits);
            let [small, large, _] = renderer.rooms();
            let rooms = [
                (SharedCapacity::SmallRenderings, small),
                (SharedCapacity::LargeRenderings, large),
            ];
            for ((room, budget), asked) in rooms.into_iter().zip(renderer.list_asks()) {
                room.follow_share(budget, true);
                budget.add_share(budget.whole().lane);
                assert!(budget.try_acquire("a", asked).is_ok(), "{room:?}: {asked} bytes");
            }
        }
        // The control: of capacity that is held longer, one lane leaves half.
        let trees = Budgets::default().tree_budget();
        SharedCapacity::Trees.follow_share(&trees, true);
        trees.add_share(trees.whole().lane);
        assert!(trees.try_acquire("a", trees.whole().lane).is_err());
        assert!(trees.try_acquire("a", trees.whole().lane / 2).is_ok());
    }
}
