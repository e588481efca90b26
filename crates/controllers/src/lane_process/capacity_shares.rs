//! The lane's shares of common capacity: requested from the hub and returned, with one task for each capacity. `tenure_planner::lane_process::capacity`
//! decides.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use tenure_planner::lane_process::capacity::{CapacityAction, CapacityEvent, Demand, ShareState};
use tenure_sources::BudgetDemand;
use tokio::sync::{mpsc, watch};

use super::hub_channel::HubChannel;
use crate::context::ControllerContext;
use crate::lane_protocol::messages::{ANSWER, FromLane};
use crate::lane_protocol::shared_capacity::SharedCapacity;

/// Writes a budget's state in the planner's form.
fn describe_demand(demand: BudgetDemand) -> Demand {
    let BudgetDemand {
        share,
        held,
        first,
        growing,
    } = demand;
    Demand {
        share,
        held,
        first,
        growing,
    }
}

/// Passes the hub's messages about shared capacities to the tasks that request and return the lane's shares.
#[derive(Debug)]
pub(super) struct CapacityShares {
    senders: BTreeMap<SharedCapacity, mpsc::UnboundedSender<CapacityEvent>>,
    /// Whether there is a share for artifacts from an earlier run on the disk.
    settled: watch::Receiver<bool>,
}

impl CapacityShares {
    /// Bounds all use by the hub's grants from now on. If the lane has unrelated namespaces (`has_many`), one of them gets at most half. Must be
    /// called before anything is held.
    pub(super) fn start_tasks(context: &Arc<ControllerContext>, line: &Arc<HubChannel>, has_many: bool) -> Self {
        let (settle, settled) = watch::channel(false);
        let mut senders = BTreeMap::new();
        for room in SharedCapacity::ALL {
            room.follow_share(context.find_budget(room), has_many);
            let (sender, facts) = mpsc::unbounded_channel();
            senders.insert(room, sender);
            let (context, line, settle) = (Arc::clone(context), Arc::clone(line), settle.clone());
            tokio::spawn(async move {
                let mut keeper = ShareTask {
                    record: ShareState::new(room.terms(context.find_budget(room))),
                    room,
                    context,
                    line,
                    facts,
                    began: Instant::now(),
                };
                if room == SharedCapacity::Archives {
                    keeper.request_existing().await;
                    settle.send_replace(true);
                }
                keeper.run_until_closed().await;
            });
        }
        Self { senders, settled }
    }

    /// Passes on a message of the hub about a capacity.
    pub(super) fn pass_on(&self, room: SharedCapacity, fact: CapacityEvent) {
        if let Some(sender) = self.senders.get(&room) {
            // Without a line there is no hub, and this process is about to end.
            let _gone = sender.send(fact);
        }
    }

    /// Waits for a share for artifacts from an earlier run on the disk, or for the answer that none is free. Artifacts without capacity are removed.
    pub(super) async fn wait_for_disk(&self) {
        let mut settled = self.settled.clone();
        let waiting = settled.wait_for(|settled| *settled);
        let _removed_then = tokio::time::timeout(ANSWER, waiting).await;
    }
}

/// The task for one shared capacity: requests the lane's share of it from the hub, and returns the unused part.
struct ShareTask {
    record: ShareState,
    room: SharedCapacity,
    context: Arc<ControllerContext>,
    line: Arc<HubChannel>,
    facts: mpsc::UnboundedReceiver<CapacityEvent>,
    began: Instant,
}

impl ShareTask {
    /// Requests capacity for the artifacts that are on the disk from an earlier run, and waits for the answer.
    async fn request_existing(&mut self) {
        let store = self.context.artifact_storage.store.clone();
        let there = tokio::task::spawn_blocking(move || store.count_bytes()).await;
        let terms = self.room.terms(self.context.find_budget(self.room));
        let bytes = there.unwrap_or_default().saturating_add(terms.kept).min(terms.most);
        self.ask((bytes, 0), false).await;
        while let Some(fact) = self.facts.recv().await {
            self.handle_event(fact);
            if matches!(fact, CapacityEvent::Granted(_)) {
                return;
            }
        }
    }

    /// Runs until the line ends.
    async fn run_until_closed(mut self) {
        loop {
            let budget = self.context.find_budget(self.room);
            match self
                .record
                .decide_action(&describe_demand(budget.demand()), self.began.elapsed())
            {
                CapacityAction::Ask { bytes, besides, waits } => self.ask((bytes, besides), waits).await,
                CapacityAction::GiveBack { kept } => {
                    let bytes = budget.give_up_share(kept);
                    if bytes > 0 {
                        let room = self.room;
                        self.line.send(FromLane::GivesBack { room, bytes }).await;
                    }
                }
                CapacityAction::Wait(until) => {
                    let sleep = async {
                        match until {
                            Some(until) => tokio::time::sleep(until.saturating_sub(self.began.elapsed())).await,
                            None => std::future::pending::<()>().await,
                        }
                    };
                    tokio::select! {
                        fact = self.facts.recv() => match fact {
                            Some(fact) => self.handle_event(fact),
                            None => return,
                        },
                        () = budget.wait_for_change() => {}
                        () = sleep => {}
                    }
                }
            }
        }
    }

    async fn ask(&mut self, (bytes, besides): (u64, u64), waits: bool) {
        self.record.take_event(CapacityEvent::Asked, self.began.elapsed());
        let room = self.room;
        let wants = FromLane::Wants {
            room,
            bytes,
            besides,
            waits,
        };
        self.line.send(wants).await;
    }

    fn handle_event(&mut self, fact: CapacityEvent) {
        match fact {
            CapacityEvent::Granted(bytes) => self.context.find_budget(self.room).add_share(bytes),
            CapacityEvent::WantedBack if self.room == SharedCapacity::Trees => {
                self.context.artifact_storage.drop_idle()
            }
            CapacityEvent::WantedBack | CapacityEvent::Asked => {}
        }
        self.record.take_event(fact, self.began.elapsed());
    }
}
