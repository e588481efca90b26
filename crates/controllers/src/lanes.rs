//! Lanes: how much of the machine one tenant can hold. Work of one lane never waits for another's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

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
}

/// All lanes.
#[derive(Debug)]
pub(crate) struct Lanes {
    width: usize,
    lanes: Mutex<HashMap<String, Arc<Lane>>>,
}

impl Lanes {
    pub(crate) fn new(width: usize) -> Self {
        Self {
            width: width.max(1),
            lanes: Mutex::new(HashMap::new()),
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
        let width = self.width;
        let lane = lanes.entry(name).or_insert_with_key(|name| {
            Arc::new(Lane {
                name: name.clone(),
                work: Arc::new(Semaphore::new(width)),
                fetches: Arc::new(Semaphore::new(width.div_ceil(2))),
                renderings: Arc::new(Semaphore::new(2)),
            })
        });
        Arc::clone(lane)
    }
}
