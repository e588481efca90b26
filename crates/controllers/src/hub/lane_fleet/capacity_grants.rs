//! Shared capacity of lanes' processes: granted, returned, requested back, and taken from a lane that does not return it.
//!
//! The budgets belong to the hub, and lanes that are tasks wait for their turns in the same budgets. The hub does not trust reports of a process
//! about its use: granted capacity counts until the process returns it or ends. `tenure_planner::lane_process::capacity` decides which process is ended.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tenure_planner::lane_process::ExitCause;
use tenure_planner::lane_process::capacity::find_holder;
use tenure_sources::HeldBytes;

use super::supervision::LaneHandle;
use super::{LaneFleet, lock};
use crate::lane_protocol::messages::ToLane;
use crate::lane_protocol::shared_capacity::SharedCapacity;

/// How long a request for capacity waits before the lane gets the answer that nothing is free.
const WAITING: Duration = Duration::from_secs(30);
/// The interval between checks for lanes that do not return capacity for which others wait.
const LOOK: Duration = Duration::from_secs(5);
/// The minimum interval between requests to return capacity, for all waiting lanes together.
const WANTED: Duration = Duration::from_millis(250);
/// The interval of these requests while a lane waits: capacity that was in use before may be unused now.
const AGAIN: Duration = Duration::from_millis(500);
/// Smaller amounts are not granted in part.
const LEAST: u64 = 64 << 10;

/// The parts of shared capacities that one process has. Dropping this value returns all of them.
#[derive(Debug, Default)]
pub(super) struct GrantedCapacity {
    grants: Mutex<BTreeMap<SharedCapacity, CapacityGrant>>,
}

/// The part of one capacity that a process has, and whether its request for more waits for an answer.
#[derive(Debug, Default)]
struct CapacityGrant {
    held: Option<HeldBytes>,
    is_asking: bool,
}

impl GrantedCapacity {
    /// Begins a request for more. Only one request at a time is allowed.
    fn begin_asking(&self, room: SharedCapacity) -> Result<(), String> {
        let mut grants = lock(&self.grants);
        let grant = grants.entry(room).or_default();
        if std::mem::replace(&mut grant.is_asking, true) {
            return Err(format!("it asks twice for budget ({room:?})"));
        }
        Ok(())
    }

    /// Ends a request, with the granted capacity or without. Returns the amount.
    fn end_asking(&self, room: SharedCapacity, granted: Option<HeldBytes>) -> u64 {
        let mut grants = lock(&self.grants);
        let grant = grants.entry(room).or_default();
        grant.is_asking = false;
        let Some(granted) = granted else { return 0 };
        let bytes = granted.bytes();
        match &mut grant.held {
            // Both are from the same budget, for the same lane.
            Some(held) => drop(held.join(granted)),
            None => grant.held = Some(granted),
        }
        bytes
    }

    /// Returns a part of the process's capacity.
    pub(super) fn give_back(&self, room: SharedCapacity, bytes: u64) -> Result<(), String> {
        let mut grants = lock(&self.grants);
        let held = grants.get_mut(&room).and_then(|grant| grant.held.as_mut());
        match held {
            Some(held) if held.bytes() >= bytes => {
                held.shrink_to(held.bytes() - bytes);
                Ok(())
            }
            _ => Err(format!(
                "it releases {bytes} bytes of budget that it doesn't hold ({room:?})"
            )),
        }
    }

    /// Returns the amount that the process has.
    pub(super) fn count(&self, room: SharedCapacity) -> u64 {
        let grants = lock(&self.grants);
        let held = grants.get(&room).and_then(|grant| grant.held.as_ref());
        held.map_or(0, HeldBytes::bytes)
    }
}

/// A shortage of one capacity: since when lanes wait for it without a break, and the least that each lane had in that time.
#[derive(Debug)]
struct Scarcity {
    since: Instant,
    least: BTreeMap<String, u64>,
}

/// For each capacity, the time when its holders were last asked to return the unused part.
#[derive(Debug, Default)]
pub(super) struct WantedCapacity {
    last: Mutex<BTreeMap<SharedCapacity, Instant>>,
}

impl LaneFleet {
    /// Handles a request for more capacity. It is granted now if possible. Otherwise the returned future ends when it is the lane's turn, or at the
    /// time limit.
    pub(super) fn ask_for_room(
        self: &Arc<Self>,
        (lane, grants): (&Arc<LaneHandle>, &Arc<GrantedCapacity>),
        (room, bytes, besides): (SharedCapacity, u64, u64),
        waits: bool,
    ) -> Result<Option<impl Future<Output = ()> + Send + use<>>, String> {
        grants.begin_asking(room)?;
        let budget = self.context.find_budget(room).clone();
        let with_besides = budget.try_acquire(&lane.name, bytes.saturating_add(besides));
        let mut wanted = bytes;
        let granted = with_besides.ok().or_else(|| {
            loop {
                match budget.try_acquire(&lane.name, wanted) {
                    Ok(held) => break Some(held),
                    Err(_) if waits || wanted / 2 < LEAST => break None,
                    Err(_) => wanted /= 2,
                }
            }
        });
        if granted.as_ref().is_none_or(|granted| granted.bytes() < bytes) {
            self.request_return(room);
        }
        let answer = {
            let (lane, grants) = (Arc::clone(lane), Arc::clone(grants));
            move |granted| {
                let bytes = grants.end_asking(room, granted);
                lane.outgoing.answer(ToLane::Granted { room, bytes });
            }
        };
        if granted.is_some() || !waits {
            answer(granted);
            return Ok(None);
        }
        let (fleet, name) = (Arc::clone(self), lane.name.clone());
        Ok(Some(async move {
            let deadline = tokio::time::Instant::now() + WAITING;
            let mut waiting = std::pin::pin!(budget.acquire(&name, bytes, deadline));
            let granted = loop {
                match tokio::time::timeout(AGAIN, &mut waiting).await {
                    Ok(granted) => break granted.ok(),
                    Err(_) => fleet.request_return(room),
                }
            };
            answer(granted);
        }))
    }

    /// Asks the lanes with capacity to return the part that they do not use.
    fn request_return(&self, room: SharedCapacity) {
        let now = Instant::now();
        let mut last = lock(&self.wanted.last);
        if last
            .get(&room)
            .is_some_and(|last| now.saturating_duration_since(*last) < WANTED)
        {
            return;
        }
        last.insert(room, now);
        drop(last);
        for (lane, bytes) in self.list_holders(room) {
            if bytes > 0 {
                lane.outgoing.request_return(room);
            }
        }
    }

    fn list_holders(&self, room: SharedCapacity) -> Vec<(Arc<LaneHandle>, u64)> {
        let lanes: Vec<Arc<LaneHandle>> = lock(&self.lanes).values().cloned().collect();
        let count = |lane: Arc<LaneHandle>| {
            let bytes = lane.grants().map_or(0, |grants| grants.count(room));
            (lane, bytes)
        };
        lanes.into_iter().map(count).collect()
    }

    /// Checks, until everything ends, which lanes do not return capacity for which others wait.
    pub(super) async fn watch_rooms(self: Arc<Self>) {
        let mut scarce: BTreeMap<SharedCapacity, Scarcity> = BTreeMap::new();
        let mut look = tokio::time::interval(LOOK);
        while self.end.run_until_cancelled(look.tick()).await.is_some() {
            for room in SharedCapacity::ALL {
                // A request that waits only for its own lane's limit does not wait for other lanes.
                if self.context.find_budget(room).demand().first.is_none() {
                    scarce.remove(&room);
                    continue;
                }
                self.request_return(room);
                let holders = self.list_holders(room);
                self.look_at(room, &holders, &mut scarce);
            }
        }
    }

    fn look_at(
        &self,
        room: SharedCapacity,
        holders: &[(Arc<LaneHandle>, u64)],
        scarce: &mut BTreeMap<SharedCapacity, Scarcity>,
    ) {
        let now = Instant::now();
        let Some(scarcity) = scarce.get_mut(&room) else {
            let least = holders.iter().filter(|(_, bytes)| *bytes > 0);
            let least = least.map(|(lane, bytes)| (lane.name.clone(), *bytes)).collect();
            scarce.insert(room, Scarcity { since: now, least });
            return;
        };
        scarcity.least.retain(|name, least| {
            let now_has = holders.iter().find(|(lane, _)| lane.name == *name);
            *least = now_has.map_or(0, |(_, bytes)| *bytes).min(*least);
            *least > 0
        });
        let budget = self.context.find_budget(room).process_limits();
        let waited = now.saturating_duration_since(scarcity.since);
        let holder = find_holder(budget.all, waited, &scarcity.least);
        let holder = holder.and_then(|name| holders.iter().find(|(lane, _)| lane.name == name));
        if let Some((lane, _)) = holder {
            lane.kill(ExitCause::HeldRoom(budget.what));
            scarce.remove(&room);
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure_sources::{BudgetLimits, ByteBudget};

    use super::*;

    const ROOM: SharedCapacity = SharedCapacity::Trees;

    fn budget() -> ByteBudget {
        ByteBudget::new(BudgetLimits {
            what: "things",
            lane: 60,
            all: 100,
            lane_setting: "--lane",
            all_setting: "--all",
            is_half: false,
        })
    }

    #[test]
    fn granted_capacity_counts_until_returned_or_dropped() {
        let (budget, grants) = (budget(), GrantedCapacity::default());
        for bytes in [30, 20] {
            grants.begin_asking(ROOM).unwrap();
            assert_eq!(
                grants.end_asking(ROOM, budget.try_acquire("tenant/a", bytes).ok()),
                bytes
            );
        }
        assert_eq!((grants.count(ROOM), budget.held_by("tenant/a")), (50, 50));
        grants.give_back(ROOM, 45).unwrap();
        assert_eq!((grants.count(ROOM), budget.held()), (5, 5));
        // Nothing was free in time.
        grants.begin_asking(ROOM).unwrap();
        assert_eq!(grants.end_asking(ROOM, None), 0);
        drop(grants);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn impossible_capacity_reports_are_protocol_violations() {
        let (budget, grants) = (budget(), GrantedCapacity::default());
        assert!(grants.give_back(ROOM, 1).is_err(), "it has none");
        grants.begin_asking(ROOM).unwrap();
        assert!(grants.begin_asking(ROOM).is_err(), "one question at a time");
        grants.end_asking(ROOM, budget.try_acquire("tenant/a", 10).ok());
        assert!(grants.give_back(ROOM, 11).is_err(), "more than it has");
        assert!(grants.give_back(SharedCapacity::Fetches, 1).is_err(), "of another room");
        assert_eq!(grants.count(ROOM), 10);
    }
}
