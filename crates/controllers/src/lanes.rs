//! Lanes: how much of the machine one tenant can hold. Work of one lane never waits for another's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tenure_cluster::{SharedTurns, Turns};
use tenure_tenancy::Placement;
use tokio::sync::Semaphore;

/// The bounds of one lane.
#[derive(Debug)]
pub(crate) struct Lane {
    /// What its bytes are charged to.
    pub(crate) name: String,
    /// Reconciliations at the same time.
    pub(crate) work: Arc<Semaphore>,
    /// Fetches at the same time.
    pub(crate) fetches: Arc<Semaphore>,
    /// Renderings at the same time. One holds its permit until its thread really ends, which it does soon after nobody waits for it.
    pub(crate) renderings: Arc<Semaphore>,
    /// For what is large: one thing at a time.
    pub(crate) turns: Turns,
}

impl Lane {
    /// Whether nobody has it, and nothing that works in it is under way.
    fn is_idle(self: &Arc<Self>) -> bool {
        let parts = [&self.work, &self.fetches, &self.renderings];
        let is_unused = parts.into_iter().all(|part| Arc::strong_count(part) == 1);
        Arc::strong_count(self) == 1 && is_unused && self.turns.is_idle()
    }
}

/// Below so many lanes, none is looked for that could go.
const FEW: usize = 64;

/// All lanes that something works in, and some more: namespaces come and go.
#[derive(Debug)]
pub(crate) struct Lanes {
    width: usize,
    turns: SharedTurns,
    lanes: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    by_name: HashMap<String, Arc<Lane>>,
    /// At so many, idle ones go.
    full: usize,
}

impl Lanes {
    /// So many reconciliations at the same time in each; what is large is worked on in these turns.
    pub(crate) fn new(width: usize, turns: SharedTurns) -> Self {
        Self {
            width: width.max(1),
            turns,
            lanes: Mutex::new(Known {
                by_name: HashMap::new(),
                full: FEW,
            }),
        }
    }

    /// The platform's lane.
    pub(crate) fn platform(&self) -> Arc<Lane> {
        self.named("platform".to_owned())
    }

    /// The lane of a namespace: its tenant's, the platform's, or its own when it is nobody's.
    pub(crate) fn of(&self, placement: &Placement, namespace: &str) -> Arc<Lane> {
        let name = match placement {
            Placement::Platform { .. } => "platform".to_owned(),
            Placement::Tenant(tenant) => format!("tenant/{}", tenant.tenant),
            Placement::Unclaimed { .. } | Placement::Disputed { .. } => format!("namespace/{namespace}"),
        };
        self.named(name)
    }

    fn named(&self, name: String) -> Arc<Lane> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if lanes.by_name.len() >= lanes.full && !lanes.by_name.contains_key(&name) {
            lanes.by_name.retain(|_, lane| !lane.is_idle());
            // Half of them are new before it is looked again: each costs a look at two.
            lanes.full = FEW.max(lanes.by_name.len().saturating_mul(2));
        }
        let (width, turns) = (self.width, &self.turns);
        let lane = lanes.by_name.entry(name).or_insert_with_key(|name| {
            Arc::new(Lane {
                name: name.clone(),
                work: Arc::new(Semaphore::new(width)),
                fetches: Arc::new(Semaphore::new(width.div_ceil(2))),
                renderings: Arc::new(Semaphore::new(2)),
                turns: turns.of_lane(),
            })
        });
        Arc::clone(lane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_go_when_nothing_works_in_them() {
        let lanes = Lanes::new(2, SharedTurns::default());
        let held = lanes.named("held".to_owned());
        let permit = Arc::clone(&lanes.named("works".to_owned()).work)
            .try_acquire_owned()
            .unwrap();
        for number in 0..10_000 {
            lanes.named(format!("namespace/{number}"));
        }
        let names = |lanes: &Lanes| lanes.lanes.lock().unwrap().by_name.len();
        assert!(names(&lanes) <= FEW, "{}", names(&lanes));
        assert!(Arc::ptr_eq(&held, &lanes.named("held".to_owned())));
        assert_eq!(lanes.named("works".to_owned()).work.available_permits(), 1);
        drop(permit);
    }
}
