//! The existing lanes: created when something works in them, dropped when nothing does. The table knows the name of a lane, and nothing of its state.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tenure_tenancy::lane::decide_lane;
use tenure_tenancy::{Lane as Whose, LaneAccount, Placement, identity};

use crate::context::ControllerContext;
use crate::lane::Lane;

/// Below this number of lanes, unused ones are not removed.
const FEW: usize = 64;

/// Returns the name of a lane. Namespaces without a tenant share one account and one process.
pub(crate) fn name_lane(lane: &Whose) -> String {
    match lane {
        Whose::Platform => "platform".to_owned(),
        Whose::Tenant(tenant) => format!("tenant/{tenant}"),
        Whose::Protected(namespace) => format!("protected/{namespace}"),
        Whose::Pool => "pool".to_owned(),
    }
}

/// Returns the name of the limits for a namespace: its tenant's, the platform's, or its own if it has no tenant.
pub(crate) fn name_share(placement: &Placement, namespace: &str) -> String {
    match decide_lane(placement, namespace) {
        Whose::Pool => format!("namespace/{namespace}"),
        whose @ (Whose::Platform | Whose::Protected(_) | Whose::Tenant(_)) => name_lane(&whose),
    }
}

/// The table of all lanes in use, and of some unused lanes. Unused lanes are removed only when the table has grown to a limit.
#[derive(Debug)]
pub(crate) struct LaneTable {
    context: Arc<ControllerContext>,
    lanes: Mutex<KnownLanes>,
}

/// The lanes by name, and the number of lanes at which unused ones are removed.
#[derive(Debug)]
struct KnownLanes {
    by_name: HashMap<String, Arc<Lane>>,
    /// At this number, unused lanes are removed.
    full: usize,
}

impl LaneTable {
    /// Creates an empty table. Each lane gets this context.
    pub(crate) fn new(context: Arc<ControllerContext>) -> Self {
        Self {
            context,
            lanes: Mutex::new(KnownLanes {
                by_name: HashMap::new(),
                full: FEW,
            }),
        }
    }

    /// Returns the lane of a namespace: its tenant's, the platform's, or its own if it has no tenant. Namespaces without a tenant share one account,
    /// but each has its own limits.
    pub(crate) fn find_lane(&self, placement: &Placement, namespace: &str) -> Arc<Lane> {
        self.find_or_make_lane(
            name_share(placement, namespace),
            identity::decide_for_lane(placement, namespace),
        )
    }

    fn find_or_make_lane(&self, name: String, account: LaneAccount) -> Arc<Lane> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if lanes.by_name.len() >= lanes.full && !lanes.by_name.contains_key(&name) {
            lanes.by_name.retain(|_, lane| !lane.is_idle());
            // Half of the lanes are new before the next removal: each new lane costs a look at two.
            lanes.full = FEW.max(lanes.by_name.len().saturating_mul(2));
        }
        if let Some(lane) = lanes.by_name.get(&name) {
            return Arc::clone(lane);
        }
        let lane = Arc::new(Lane::new(&name, account, &self.context));
        lanes.by_name.insert(name, Arc::clone(&lane));
        self.context.divide_budgets(lanes.by_name.len());
        lane
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tenure_cluster::{Connection, Token};

    use super::*;
    use crate::context::config::Config;

    #[tokio::test]
    async fn lanes_go_when_nothing_works_in_them() {
        let folder = tempfile::TempDir::new().unwrap();
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, Infallible>>()
        });
        let connection = Connection::in_process(service, Token::new("t", None));
        let mut config = Config::new(connection, folder.path().join("artifacts"));
        config.lane_width = 2;
        let lanes = LaneTable::new(Arc::new(ControllerContext::new(config).unwrap()));
        let unclaimed = Placement::Unclaimed {
            default_service_account: "default".to_owned(),
            is_protected: false,
        };
        let named = |name: &str| lanes.find_lane(&unclaimed, name);
        let held = named("held");
        // One lane has all bytes, until another exists.
        let memory = lanes.context.object_memory.clone();
        assert_eq!(memory.process_limits().lane, memory.whole().all);
        // But not all of the disk, where archives stay.
        let disk = lanes.context.artifact_storage.store.disk();
        assert_eq!(disk.process_limits().lane, disk.whole().lane);
        let permit = Arc::clone(&named("works").limits.work).try_acquire_owned().unwrap();
        for number in 0..10_000 {
            named(&format!("team-{number}"));
        }
        let names = |lanes: &LaneTable| lanes.lanes.lock().unwrap().by_name.len();
        assert!(names(&lanes) <= FEW, "{}", names(&lanes));
        assert!(Arc::ptr_eq(&held, &named("held")));
        assert_eq!(
            lanes.context.object_memory.process_limits().lane,
            lanes.context.object_memory.whole().lane
        );
        // Each namespace without a tenant has its own limits and its own event queues.
        assert!(!Arc::ptr_eq(&held, &named("works")));
        assert_eq!(named("works").limits.work.available_permits(), 1);
        drop(permit);
    }
}
